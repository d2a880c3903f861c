"""Parts of the user's own that a run folder names, refused unless this user has said yes to their code."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedge.config.config import Config
from fedge.config.flat import from_run_config
from fedge.config.parts import MODELS
from fedge.config.register import Register
from fedge.config.trust import load_trusted
from fedge.run.parts import own_parts


def refuse_code_of_cloud(config: Config, folder: Path, trust: bool) -> None:
    """Raise ConfigError for code that a cloud's options name without a yes of this leaf server's user.

    Args:
        config: as the cloud tells it.
        folder: the leaf server's own, from which no code is taken.
        trust: say yes to all of it, from now on.
    """
    for register, name in own_parts(config).values():
        code, has_run = load_trusted(register, name, never_in=folder, trust=trust)
        _refuse_no_network(register, name, code, has_run)


def _refuse_no_network(register: Register, name: str, code: Any, has_run: bool) -> None:
    """Raise ConfigError for a model that is none, before it is called."""
    if register is MODELS and not has_run:
        from fedge.training.own_models import refuse_no_network  # PyTorch, which few runs need here

        refuse_no_network(name, code)


def refuse_code_of_others(named: Mapping[str, Any], run_config: Mapping[str, Any], trust: bool) -> None:
    """Raise ConfigError for code that a run to go on names and to which this user has not said yes.

    Nothing of it is imported before; code named on the command line counts as the user's own.

    Args:
        named: options as the run folder has them, with the folder as `resume`.
        run_config: options with which the run is to go on.
        trust: say yes to all of it, from now on.
    """
    folder = Path(str(named["resume"]))
    before = {option: name for option, (_, name) in own_parts(from_run_config(named)).items()}
    for option, (register, name) in own_parts(from_run_config(run_config)).items():
        if before.get(option) != name:
            continue
        code, has_run = load_trusted(register, name, never_in=folder, trust=trust)
        _refuse_no_network(register, name, code, has_run)
