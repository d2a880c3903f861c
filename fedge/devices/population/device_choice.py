"""Choice of devices for jobs, per leaf: idle devices (`population.roster`), free places, the selection."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from fedge.config.registers.failing import own_error, own_errors
from fedge.config.registers.option import ConfigError, shown
from fedge.devices.population.availability import Presence
from fedge.devices.population.draws import PickDraws
from fedge.devices.population.roster import Roster
from fedge.devices.population.selection import DeviceTurn, History, Selection, uniform
from fedge.states.averaging import State
from fedge.states.restore_checks import form


class Choosing:
    """Idle devices of every leaf, and the choice of the next one for a job.

    Attributes:
        rosters: idle devices of each leaf.
        turns: selection's context at each leaf.
        history: facts about all devices.
    """

    def __init__(
        self,
        seed: int,
        devices: Sequence[Sequence[int]],
        presence: Presence,
        places: Sequence[int],
        windows: np.ndarray,
        selection: Selection = uniform,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        """Start with all devices idle.

        Args:
            seed: root of the random streams of selections.
            devices: devices of each leaf.
            presence: presence of devices over time.
            places: places of each leaf.
            windows: (N,) int64, training windows of all clients.
            selection: function to pick devices for jobs.
            arguments: its keyword arguments.
        """
        self._devices = devices
        self.rosters = [Roster(each, presence) for each in devices]
        self.turns = [DeviceTurn(leaf, PickDraws(seed, leaf), places[leaf]) for leaf in range(len(devices))]
        self.history = History.of(windows)
        self._select = partial(selection, **(arguments or {}))

    def pick(self, leaf: int, now_us: int) -> tuple[int, int] | None:
        """An idle present device, and the end of its presence; None if there is none, or none is selected.

        Raises:
            ConfigError: the user's selection raised an exception, or picked an absent device.
        """
        roster, turn = self.rosters[leaf], self.turns[leaf]
        roster.advance(now_us)
        if not len(roster.there):
            return None
        turn.now_s = now_us / 1e6
        device = self._select_device(roster, turn)
        if device is None:
            return None
        history = self.history
        history.begun[device] += 1
        history.given_in[device] = turn.round
        turn.given += 1
        return device, roster.take(device, now_us)

    def _select_device(self, roster: Roster, turn: DeviceTurn) -> int | None:
        """The selection's checked result."""
        try:
            device = self._select(roster.there, self.history, turn)
        except ConfigError:
            raise
        except own_errors() as error:
            raise ConfigError(
                f"devices.selection raised {own_error(error)} at {turn.now_s:g} virtual s; fix it"
            ) from error
        if device is None:
            return None
        if isinstance(device, np.integer):
            device = int(device)
        if type(device) is not int or device not in roster.there:
            raise ConfigError(
                f"devices.selection must return a device that is there, or None, but returned "
                f"{shown(device)}; fix it"
            )
        return device

    def next_change_us(self, leaf: int) -> int | None:
        """When an idle device of a leaf next comes or goes; None for never."""
        return self.rosters[leaf].next_change_us()

    def put(self, leaf: int, device: int, now_us: int) -> None:
        """Add a device whose job has ended to the idle ones."""
        self.rosters[leaf].put(device, now_us)

    def note_update(self, device: int, loss: float, seconds: float) -> None:
        """Record a used result: mean training loss, and virtual seconds."""
        history = self.history
        history.updates[device] += 1
        history.losses[device] = loss
        history.seconds[device] = seconds

    def facts(self) -> dict[str, Any]:
        """Rosters and counts as JSON; arrays of history and selections are separate."""
        return {
            "rosters": [roster.facts() for roster in self.rosters],
            "picks": [turn.draws.count for turn in self.turns],
            "given": [turn.given for turn in self.turns],
        }

    def restore(self, facts: Mapping[str, Any], arrays: Mapping[str, Mapping[str, np.ndarray]]) -> None:
        """Restore the results of `facts` and `arrays`: "history", or number of a leaf → name → array.

        Arrays have the shapes and dtypes from `arrays`.
        """
        for leaf, roster in enumerate(self.rosters):
            roster.restore(facts["rosters"][leaf], self._devices[leaf])
            turn = self.turns[leaf]
            turn.draws.count, turn.given = facts["picks"][leaf], facts["given"][leaf]
            turn.arrays = {name: np.array(array) for name, array in arrays.get(str(leaf), {}).items()}
        for name, old in self.history.arrays().items():
            array = np.array(arrays["history"][name])
            least = 0 if old.dtype.kind == "i" else None
            setattr(self.history, name, form(array, f"{name} of devices", old.dtype.type, old.shape, least))

    def arrays(self) -> dict[str, State]:
        """Arrays for `restore`."""
        arrays: dict[str, State] = {str(turn.leaf): dict(turn.arrays) for turn in self.turns if turn.arrays}
        return {"history": self.history.arrays(), **arrays}
