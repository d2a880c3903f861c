"""The card of a data set: its description, owner, licence and the addresses of its files."""

from __future__ import annotations

from dataclasses import dataclass

from hhar.windows.cut import WindowSpec


@dataclass(frozen=True)
class RemoteFile:
    """A file of a data set.

    Attributes:
        url: https address.
        name: for storage.
        megabytes: approximate size (10^6 bytes).
        sha256: hex; empty if no checksum is known: the first download's is then recorded beside the file, and
            later downloads must match it.
    """

    url: str
    name: str
    megabytes: float
    sha256: str = ""


@dataclass(frozen=True)
class DataCard:
    """Facts about a data set, known before its download.

    Attributes:
        name: as in commands and `fedge.datasets.prepare`.
        title: its full name.
        users: number of people recorded; 0 for images, whose users are made up.
        classes: names in label order.
        rate_hz: sampling rate of the original recordings; None for images.
        units: units of the channels.
        licence: licence as stated by the source.
        citation: the publication to cite.
        source: page with the description.
        files: for `download`.
        options: options of `prepare` for it.
        spec: windows as `prepare` makes them unless told otherwise; None for images.
    """

    name: str
    title: str
    users: int
    classes: tuple[str, ...]
    rate_hz: float | None
    units: str
    licence: str
    citation: str
    source: str
    files: tuple[RemoteFile, ...]
    options: tuple[str, ...] = ("rate_hz", "window_s", "stride_s")
    spec: WindowSpec | None = None

    @property
    def megabytes(self) -> float:
        """The size of all files together (10^6 bytes)."""
        return sum(file.megabytes for file in self.files)

    def about(self, spec: WindowSpec | None = None) -> dict[str, str]:
        """Description in a window file, for windows cut by `spec`."""
        description = {
            "dataset": self.title,
            "source": self.source,
            "licence": self.licence,
            "citation": self.citation,
            "units": self.units,
        }
        if spec is not None:
            description |= {
                "rate_hz": f"{spec.rate_hz:g}",
                "window_s": f"{spec.window_s:g}",
                "stride_s": f"{spec.stride_s:g}",
            }
        return description
