"""Window files that a leaf server reads for a cloud: the one that its own user names, and no other.

Options come from the cloud. A path among them would let a cloud try out which files this machine has and
their content, so none is opened: `fedge leaf --data` names the file, and the fingerprint tells whether it is
the cloud's. Data made in the process (the synthetic set, digits, code with a yes) are no file.
"""

from dataclasses import replace

from fedge.config.config import Config
from fedge.config.option import ConfigError, shown
from fedge.config.parts import DATASETS, SCENARIOS
from fedge.config.planted import files_of
from fedge.config.traits import FILES


def with_own_files(config: Config, own: str) -> Config:
    """Configuration of a cloud with the window file of this side in place of the cloud's.

    Args:
        config: as the cloud tells it.
        own: `data.path` of this side, in the same form; empty where it names none.

    Raises:
        ConfigError: the cloud names a file, and this side none.
    """
    if not _names_files(config):
        return config
    if own:
        return replace(config, data=replace(config.data, path=own))
    raise ConfigError(
        f"data.path of the cloud names {shown(config.data.path)}, but this leaf server reads only what its "
        f"own user names; start it with fedge leaf --data FILE"
    )


def _names_files(config: Config) -> bool:
    """Whether a file would be opened that the options choose; auto's is always the same."""
    path = config.data.path
    paths = files_of(path) if SCENARIOS.has(config.scenario, FILES) else [path]
    return any(each not in DATASETS.names and not DATASETS.is_code(each) for each in paths)
