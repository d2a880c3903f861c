"""Files of a leaf server between orders: its clients' control variates, and leave-one-out models.

Control variates c_i are stored in versions: version n is their state after leaf round n. An order names its
starting version, so a repeated order (after a broken link, a killed process, a cloud resumed from a
checkpoint) has the same start, and no work counts twice. Versions are kept while a checkpoint of the cloud
names them. Each has a checksum, because a flipped bit would change the model unnoticed.
"""

from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np

from fedge.config.registers.option import ConfigError
from fedge.leaf.controls import Controls
from fedge.process.durable import write_bytes
from fedge.states.averaging import State
from fedge.states.files import JoinedStates, StateFileError, Ticket, map_state, open_state, write_state

_CONTROLS, _FOLDS = "controls", "folds"
_SUFFIX, _CHECKSUM_SUFFIX = ".safetensors", ".sha256"


class KeptStates:
    """States of one run at one leaf server."""

    def __init__(self, folder: Path) -> None:
        """Use a folder, which may contain states of an earlier process."""
        self._controls, self._folds = folder / _CONTROLS, folder / _FOLDS
        for subfolder in (self._controls, self._folds):
            subfolder.mkdir(parents=True, exist_ok=True)

    def write_controls(self, version: int, controls: Controls) -> None:
        """Store control variates after leaf round `version` on disk."""
        path = self._controls / f"{version}{_SUFFIX}"
        joined = JoinedStates({str(client): control for client, control in sorted(controls.items())})
        ticket = write_state(path, joined, durably=True)
        write_bytes(path.with_suffix(_CHECKSUM_SUFFIX), ticket.checksum.encode())

    def read_controls(self, version: int) -> Controls:
        """Control variates after leaf round `version`; 0 is before the first.

        Raises:
            ConfigError: they are missing or damaged.
        """
        if version == 0:
            return {}
        path = self._controls / f"{version}{_SUFFIX}"
        try:
            checksum = path.with_suffix(_CHECKSUM_SUFFIX).read_bytes().decode("ascii", "replace")
            entries = open_state(Ticket(str(path), checksum, 0))
        except (OSError, StateFileError) as error:
            fault = error.strerror if isinstance(error, OSError) else error
            raise ConfigError(
                f"--folder must have the control variates of leaf round {version}, but in {self._controls}: "
                f"{fault}; start the leaf server with the folder from before"
            ) from error
        controls: Controls = {}
        for entry in entries:
            client, _, name = entry.partition("/")
            control = dict(controls.get(int(client), {}))
            control[name] = np.array(entries[entry])
            controls[int(client)] = control
        return controls

    def forget_controls(self, keep: Collection[int]) -> None:
        """Remove all versions except those in `keep`."""
        for path in self._controls.glob(f"*{_SUFFIX}"):
            if path.stem.isdecimal() and int(path.stem) not in keep:
                path.unlink(missing_ok=True)
                path.with_suffix(_CHECKSUM_SUFFIX).unlink(missing_ok=True)

    def write_folds(self, models: Mapping[str, State]) -> None:
        """Store models under their names, replacing earlier ones."""
        for path in self._folds.iterdir():
            path.unlink(missing_ok=True)
        for name, model in models.items():
            write_state(self._folds / f"{name}{_SUFFIX}", model)

    def fold(self, name: str) -> State:
        """A stored model.

        Raises:
            FileNotFoundError: there is no model of this name.
        """
        path = self._folds / f"{name}{_SUFFIX}"
        if path.parent != self._folds or not path.is_file():
            raise FileNotFoundError(f"there is no model {name!r} in {self._folds}")
        return map_state(path)
