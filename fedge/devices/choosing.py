"""Which idle device gets work: each that is there is as likely, drawn by (seed, server, turn)."""

from collections.abc import Sequence

from fedge.devices.availability import Presence
from fedge.devices.draws import PickDraws
from fedge.devices.idle import Idle

_TRIES = 20  # devices that are asked whether they are there


class Choosing:
    """The idle devices of every server, and chance.

    Attributes:
        idle: per server, in order.
        draws: the same.
    """

    def __init__(self, seed: int, devices: Sequence[Sequence[int]], presence: Presence) -> None:
        """Begin with all devices idle.

        Args:
            seed: root of the streams that pick.
            devices: per server.
            presence: whether a device is there.
        """
        self.idle = [Idle(each) for each in devices]
        self.draws = [PickDraws(seed, server) for server in range(len(devices))]
        self._presence = presence

    def pick(self, server: int, now_us: int) -> tuple[int | None, int]:
        """Return a device that was idle and is there, and until when; or None, and when to try again.

        That is when the first of those that were asked comes back.
        """
        idle, draws = self.idle[server], self.draws[server]
        earliest = 0
        for _ in range(_TRIES if len(idle) else 0):
            device = idle.at(draws.next(len(idle)))
            is_there, until_us = self._presence(device, now_us)
            if is_there:
                idle.take(device)
                return device, until_us
            earliest = min(earliest or until_us, until_us)
        return None, earliest
