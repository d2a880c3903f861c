"""Links of a run shared by transfers: of each leaf to its devices, and of the cloud to its leaves.

Each has two independent directions. Where the configuration gives no bandwidth there is no such link, and a
transfer takes as long as the device's own allows.
"""

from collections.abc import Sequence
from typing import Any

from fedge.config.option import ConfigError
from fedge.config.sections.devices import AsynchronyConfig
from fedge.devices.clock import Clock, Kind
from fedge.devices.sharing import MOST_BYTES, SharedLink

DOWN, UP = 0, 1
_MEGA = 1e6


class SharedLinks:
    """All shared links.

    Attributes:
        at_leaves: devices share the links of their leaves.
        at_cloud: leaves share the link of the cloud.
    """

    def __init__(self, config: AsynchronyConfig, leaves: int, model_bytes: int) -> None:
        """Let nobody send yet.

        Args:
            config: its bandwidths are read.
            leaves: how many.
            model_bytes: of a transfer.

        Raises:
            ConfigError: a link is shared, and the model has more bytes than its sums hold.
        """
        at_leaf, at_cloud = config.leaf_link_megabytes_s, config.cloud_link_megabytes_s
        self.at_leaves, self.at_cloud = at_leaf > 0, at_cloud > 0 and leaves > 1
        if (self.at_leaves or self.at_cloud) and model_bytes > MOST_BYTES:
            raise ConfigError(
                f"asynchrony.leaf-link-megabytes-s and cloud-link-megabytes-s are for models of at most "
                f"{MOST_BYTES / 1e9:g} GB, but this one has {model_bytes / 1e9:.1f}; set 0 for none"
            )
        rates = [at_leaf] * 2 * leaves * self.at_leaves + [at_cloud] * 2 * self.at_cloud
        self.links = [SharedLink(rate * _MEGA) for rate in rates]
        self._bytes = model_bytes

    def of_leaf(self, leaf: int, direction: int) -> int:
        """The number of the link between a leaf and its devices in a direction."""
        return 2 * leaf + direction

    def of_cloud(self, direction: int) -> int:
        """The number of the link between the cloud and its leaves in a direction."""
        return len(self.links) - 2 + direction

    def is_of_cloud(self, link: int) -> bool:
        """Whether a link is the cloud's."""
        return self.at_cloud and link >= len(self.links) - 2

    def join(self, link: int, key: int, most_bytes_s: float, clock: Clock) -> None:
        """Begin to transfer a model, at most so many bytes per second."""
        self.links[link].join(key, self._bytes, most_bytes_s, clock.now_us)
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
