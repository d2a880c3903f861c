"""Result of a memory profile, stored as ``profile.json``, and differences between two.

Read by `fedge.profile.page`, written by `fedge.profile.command`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedge.config.registers.option import ConfigError
from fedge.process.durable import write_output
from fedge.process.escape import read_json
from fedge.profile.allocators import Allocator, Capture
from fedge.profile.watch import ROLES, Sample, peaks

FILE = "profile.json"
_FORMAT = 1


@dataclass(frozen=True)
class Profile:
    """Memory of one run.

    Attributes:
        name: name of the profile's folder.
        facts: engine, command, number of rounds, changed options, versions, date, seconds of both runs.
        samples: samples of the watched run.
        captures: captures of the run with memray, the server's first, then workers, largest first.
    """

    name: str
    facts: Mapping[str, Any]
    samples: Sequence[Sample]
    captures: Sequence[Capture]

    @property
    def peaks(self) -> dict[str, dict[str, float]]:
        """Role → largest numbers, from `fedge.profile.watch.peaks`."""
        return peaks(self.samples)


@dataclass(frozen=True)
class Growth:
    """A number before and after.

    name: name of the quantity.
        name: of the quantity.
        before, after: MiB; None if absent.
    """

    name: str
    before: float | None
    after: float | None

    @property
    def percent(self) -> float | None:
        """Change in percent of `before`; None unless both are present."""
        if not self.before or self.after is None:
            return None
        return 100 * (self.after - self.before) / self.before


def largest_captures(captures: Sequence[Capture]) -> list[Capture]:
    """First capture of each role, which is its largest."""
    return [c for i, c in enumerate(captures) if c.role not in {other.role for other in captures[:i]}]


def flame_file(capture: Capture) -> str:
    """Name of the flame graph of a role's largest capture, beside `FILE`."""
    return f"flames-{capture.role}.html"


def write_profile(folder: Path, profile: Profile) -> None:
    """Write `FILE` into `folder`."""
    entries = {
        "format": _FORMAT,
        "facts": dict(profile.facts),
        "samples": [asdict(sample) for sample in profile.samples],
        "captures": [asdict(capture) for capture in profile.captures],
    }
    write_output(folder / FILE, (json.dumps(entries, indent=1) + "\n").encode())


def read_profile(folder: Path) -> Profile:
    """Read `FILE` in a folder.

    Raises:
        ConfigError: it is missing or damaged.
    """
    path = folder / FILE
    try:
        entries = read_json(path.read_text(encoding="utf-8"))
        if entries["format"] != _FORMAT:
            raise ConfigError(
                f"{path} must have format {_FORMAT}, but has {entries['format']}; profile again"
            )
        samples = [Sample(**sample) for sample in entries["samples"]]
        captures = [
            Capture(**{**capture, "top": [Allocator(**top) for top in capture["top"]]})
            for capture in entries["captures"]
        ]
        return Profile(folder.resolve().name, entries["facts"], samples, captures)
    except OSError as error:
        raise ConfigError(
            f"a profile must be a folder with {FILE}, but {path}: {error.strerror or error}; "
            f"make one with fedge profile"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{path} must be a profile, but is damaged ({error}); profile again") from error


def resident_changes(before: Profile, after: Profile) -> list[Growth]:
    """RSS and USS of every role, to which a limit on growth applies."""
    first, second = before.peaks, after.peaks
    return [
        Growth(f"{role}, {kind.upper()}", first.get(role, {}).get(key), second.get(role, {}).get(key))
        for role in ROLES
        if role in first or role in second
        for kind, key in (("rss", "rss_mib"), ("uss", "uss_mib"))
    ]


def allocator_changes(before: Profile, after: Profile) -> list[Growth]:
    """Change of every allocation site, by role, largest first.

    The largest worker represents all; places not among the largest of a capture count as absent.
    """
    first, second = _mib_by_place(before), _mib_by_place(after)
    changes = [Growth(name, first.get(name), second.get(name)) for name in {**first, **second}]
    return sorted(changes, key=lambda c: (-abs((c.after or 0.0) - (c.before or 0.0)), c.name))


def _mib_by_place(profile: Profile) -> dict[str, float]:
    """Memory in MiB by "role: what"."""
    mib: dict[str, float] = {}
    for capture in largest_captures(profile.captures):
        for top in capture.top:
            name = f"{capture.role}: {top.what}" + (f", from {top.via}" if top.via else "")
            mib[name] = mib.get(name, 0.0) + top.mib
    return mib
