"""Links of a run that transfers share: of each leaf to its devices, of each server above to those below.

Each has two independent directions. Where the configuration gives no bandwidth there is no such link, and a
transfer takes as long as the device's own allows.
"""

from collections.abc import Sequence
from typing import Any

from fedge.config.registers.option import ConfigError
from fedge.config.sections.devices import AsynchronyConfig
from fedge.devices.timeline.clock import Clock, Kind
from fedge.devices.timeline.sharing import MOST_BYTES, SharedLink

DOWN, UP = 0, 1
_MEGA = 1e6


class SharedLinks:
    """All shared links.

    Attributes:
        at_leaves: devices share the links of their leaves.
    """

    def __init__(
        self,
        config: AsynchronyConfig,
        leaves: int,
        model_bytes: int,
        above: Sequence[float] = (),
        at_devices: tuple[int, int] | None = None,
    ) -> None:
        """Let nobody send yet.

        Args:
            config: the bandwidth of leaves is read.
            leaves: how many.
            model_bytes: of a transfer.
            above: 10⁶ bytes per second of each server over servers, the cloud's first; 0: nothing is shared.
            at_devices: bytes to a device and from it, where they are others than a model's.

        Raises:
            ConfigError: a link is shared, and the model has more bytes than its sums hold.
        """
        at_leaf = config.leaf_link_megabytes_s
        self.at_leaves = at_leaf > 0
        self._at_devices = at_devices or (model_bytes, model_bytes)
        most = max(model_bytes, *self._at_devices)
        if (self.at_leaves or any(above)) and most > MOST_BYTES:
            raise ConfigError(
                f"asynchrony.leaf-link-megabytes-s and cloud-link-megabytes-s are for models of at most "
                f"{MOST_BYTES / 1e9:g} GB, but this one has {most / 1e9:.1f}; set 0 for none"
            )
        rates = [at_leaf] * 2 * leaves * self.at_leaves
        self._shared = [parent for parent, rate in enumerate(above) if rate]
        self._first = len(rates)
        rates += [rate for rate in above if rate for _ in (DOWN, UP)]
        self.links = [SharedLink(rate * _MEGA) for rate in rates]
        self._bytes = model_bytes

    def of_leaf(self, leaf: int, direction: int) -> int:
        """The number of the link between a leaf and its devices in a direction."""
        return 2 * leaf + direction

    def is_shared(self, parent: int) -> bool:
        """Whether the servers below a server over servers share its link."""
        return parent in self._shared

    def of_parent(self, parent: int, direction: int) -> int:
        """The number of the link between a server over servers and these in a direction."""
        return self._first + 2 * self._shared.index(parent) + direction

    def parent_of(self, link: int) -> int | None:
        """The server over servers whose link it is; None: a leaf's."""
        return self._shared[(link - self._first) // 2] if link >= self._first else None

    def join(self, link: int, key: int, most_bytes_s: float, clock: Clock) -> None:
        """Begin to transfer a model, at most so many bytes per second."""
        nbytes = self._at_devices[link % 2] if link < self._first else self._bytes
        self.links[link].join(key, nbytes, most_bytes_s, clock.now_us)
        self._note(link, clock)

    def leave(self, link: int, key: int, clock: Clock) -> None:
        """End a transfer early, if under way."""
        before = self.links[link].changes
        self.links[link].leave(key, clock.now_us)
        if self.links[link].changes != before:
            self._note(link, clock)

    def ended(self, link: int, change: int, clock: Clock) -> list[int]:
        """The transfers ending now; none where rates have changed since the event was noted."""
        if self.links[link].changes != change:
            return []
        found = self.links[link].ended(clock.now_us)
        self._note(link, clock)
        return found

    def _note(self, link: int, clock: Clock) -> None:
        """Note when the next transfer ends."""
        next_us = self.links[link].next_us
        if next_us is not None:
            clock.at(next_us, Kind.SENT, link, self.links[link].changes)

    def facts(self) -> list[Any]:
        """All links as JSON, for `restore`."""
        return [link.facts() for link in self.links]

    def restore(self, facts: Sequence[Any]) -> None:
        """Restore the result of `facts`."""
        for link, of in zip(self.links, facts, strict=True):
            link.restore(of)
