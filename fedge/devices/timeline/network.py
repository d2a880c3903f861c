"""Links shared by transfers: from each leaf to its devices, and from each server above to its children.

Both directions of a link are independent. Without a configured bandwidth there is no shared link, and
transfers are limited only by the device's own link.
"""

from collections.abc import Sequence
from typing import Any

from fedge.config.registers.option import ConfigError
from fedge.config.sections.devices import AsynchronyConfig
from fedge.devices.timeline.clock import Clock, Kind
from fedge.devices.timeline.fair_sharing import MOST_BYTES, SharedLink

DOWN, UP = 0, 1
_MEGA = 1e6


class SharedLinks:
    """All shared links of a run.

    Attributes:
        at_leaves: whether devices share the links of their leaves.
    """

    def __init__(
        self,
        config: AsynchronyConfig,
        leaves: int,
        model_bytes: int,
        above: Sequence[float] = (),
        at_devices: tuple[int, int] | None = None,
    ) -> None:
        """Start without transfers.

        Args:
            config: configuration; the bandwidth of leaves is read.
            leaves: number of leaves.
            model_bytes: bytes of a transfer.
            above: 10⁶ bytes per second of each server above leaves, the cloud first; 0 if it shares no link.
            at_devices: bytes to a device and back, if not those of a model.

        Raises:
            ConfigError: a link is shared, and the model is too large for its arithmetic.
        """
        leaf_rate = config.leaf_link_megabytes_s
        self.at_leaves = leaf_rate > 0
        self._at_devices = at_devices or (model_bytes, model_bytes)
        largest = max(model_bytes, *self._at_devices)
        if (self.at_leaves or any(above)) and largest > MOST_BYTES:
            raise ConfigError(
                f"asynchrony.leaf-link-megabytes-s and cloud-link-megabytes-s are for models of at most "
                f"{MOST_BYTES / 1e9:g} GB, but this one has {largest / 1e9:.1f}; set 0 for none"
            )
        rates = [leaf_rate] * 2 * leaves * self.at_leaves
        self._shared = [parent for parent, rate in enumerate(above) if rate]
        self._first = len(rates)
        rates += [rate for rate in above if rate for _ in (DOWN, UP)]
        self.links = [SharedLink(rate * _MEGA) for rate in rates]
        self._bytes = model_bytes

    def of_leaf(self, leaf: int, direction: int) -> int:
        """Number of the link between a leaf and its devices in one direction."""
        return 2 * leaf + direction

    def is_shared(self, parent: int) -> bool:
        """Whether the children of a server above leaves share its link."""
        return parent in self._shared

    def of_parent(self, parent: int, direction: int) -> int:
        """Number of the link between a server above leaves and its children in one direction."""
        return self._first + 2 * self._shared.index(parent) + direction

    def parent_of(self, link: int) -> int | None:
        """Server above leaves to which a link belongs; None if it belongs to a leaf."""
        return self._shared[(link - self._first) // 2] if link >= self._first else None

    def join(self, link: int, key: int, most_bytes_s: float, clock: Clock) -> None:
        """Start the transfer of a model, limited to `most_bytes_s` bytes per second."""
        nbytes = self._at_devices[link % 2] if link < self._first else self._bytes
        self.links[link].join(key, nbytes, most_bytes_s, clock.now_us)
        self._schedule_end(link, clock)

    def leave(self, link: int, key: int, clock: Clock) -> None:
        """Abort a transfer, if under way."""
        changes = self.links[link].changes
        self.links[link].leave(key, clock.now_us)
        if self.links[link].changes != changes:
            self._schedule_end(link, clock)

    def ended(self, link: int, change: int, clock: Clock) -> list[int]:
        """Keys of transfers ending now; none if rates have changed since the event was scheduled."""
        if self.links[link].changes != change:
            return []
        keys = self.links[link].ended(clock.now_us)
        self._schedule_end(link, clock)
        return keys

    def _schedule_end(self, link: int, clock: Clock) -> None:
        """Schedule the end of the next transfer."""
        next_us = self.links[link].next_us
        if next_us is not None:
            clock.schedule(next_us, Kind.SENT, link, self.links[link].changes)

    def facts(self) -> list[Any]:
        """All links as JSON, for `restore`."""
        return [link.facts() for link in self.links]

    def restore(self, facts: Sequence[Any]) -> None:
        """Restore the result of `facts`."""
        for link, link_facts in zip(self.links, facts, strict=True):
            link.restore(link_facts)
