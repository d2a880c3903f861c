"""Files read by a leaf server for a cloud: only the window file named by its own user.

Options come from the cloud. A path among them would let the cloud probe this machine's files and their
contents, so none is opened. `fedge leaf --data` names the file, and its fingerprint must match that of the
cloud's data. Data generated in the process (the synthetic set, digits, trusted code) need no file.
"""

from dataclasses import replace

from fedge.config.config import Config
from fedge.config.planted import files_of
from fedge.config.registers.option import ConfigError, shown
from fedge.config.registers.parts import DATASETS, SCENARIOS
from fedge.config.registers.traits import FILES


def with_own_files(config: Config, own_path: str) -> Config:
    """A cloud's configuration with this machine's window file instead of the cloud's.

    Args:
        config: configuration sent by the cloud.
        own_path: this machine's `data.path`, in the same form; empty if none is given.

    Raises:
        ConfigError: the cloud names a file, and `own_path` is empty.
    """
    if not _names_files(config):
        return config
    if own_path:
        return replace(config, data=replace(config.data, path=own_path))
    raise ConfigError(
        f"data.path of the cloud is {shown(config.data.path)}, but a leaf server reads only files that its "
        f"own user names; start it with fedge leaf --data FILE"
    )


def refuse_delays(config: Config) -> None:
    """Raise ConfigError for a file of delays between clients and leaves, which leaf servers do not have."""
    if config.hierarchy.arguments("association").get("delays"):
        raise ConfigError(
            "hierarchy.association-args.delays names a file on the cloud's machine, which leaf servers do "
            "not read; remove it, or leave out --leaves"
        )


def _names_files(config: Config) -> bool:
    """Whether `data.path` names a file, which would be opened on this machine."""
    path = config.data.path
    paths = files_of(path) if SCENARIOS.has(config.scenario, FILES) else [path]
    return any(name not in DATASETS.names and not DATASETS.is_code(name) for name in paths)
