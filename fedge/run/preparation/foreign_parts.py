"""Custom code named by a run folder or a cloud, refused unless this user trusts it."""

import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from fedge.config.config import Config
from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import MODELS
from fedge.config.registers.register import Register, refuse_other_code
from fedge.config.registers.trust import load_trusted
from fedge.process.own_modules import OwnModules
from fedge.run.preparation.parts import own_parts

_loading = threading.Lock()  # held by one of the leaf servers of this process at a time


def refuse_code_of_cloud(
    config: Config, folder: Path, trust: bool, parts: Mapping[str, str], run: str = ""
) -> None:
    """Raise ConfigError for code in a cloud's options not trusted by this leaf server's user.

    Also for code other than the cloud's: results would differ without notice. A leaf server stays from run to
    run, so code imported for another run, or for this one with other files, is imported again.

    Args:
        config: configuration sent by the cloud.
        folder: the leaf server's folder, from which no code is loaded.
        trust: whether to trust all of this code, now and later.
        parts: option → SHA-256 of the cloud's code.
        run: name of the run; empty before it begins.
    """
    own = own_parts(config)
    if not own:
        return
    with _loading:
        modules = _own_modules()
        modules.begin((run, dict(parts)) if run else object())
        try:
            for option, (register, name) in own.items():
                code, has_run = load_trusted(register, name, never_in=folder, trust=trust)
                refuse_other_code(option, name, code, parts)
                _refuse_no_network(register, name, code, has_run)
        except ConfigError:
            modules.end()  # files are about to change
            raise


@cache
def _own_modules() -> OwnModules:
    """The user's modules in this process, from its first run with own code on."""
    return OwnModules()


def _refuse_no_network(register: Register, name: str, code: Any, has_run: bool) -> None:
    """Raise ConfigError for a model other than a PyTorch network, before it is called."""
    if register is MODELS and not has_run:
        from fedge.training.networks.own_models import (
            refuse_undeclared_network,  # PyTorch, which few runs need here
        )

        refuse_undeclared_network(name, code)


def refuse_code_of_others(
    stored_config: Mapping[str, Any], run_config: Mapping[str, Any], trust: bool
) -> None:
    """Raise ConfigError for code named in a run to resume, but not trusted by this user.

    Untrusted code is not imported. Code named on the command line counts as the user's own.

    Args:
        stored_config: options in the run folder, with the folder as `resume`.
        run_config: options with which the run is resumed.
        trust: whether to trust all of this code, now and later.
    """
    folder = Path(str(stored_config["resume"]))
    stored_parts = {option: name for option, (_, name) in own_parts(from_run_config(stored_config)).items()}
    for option, (register, name) in own_parts(from_run_config(run_config)).items():
        if stored_parts.get(option) != name:
            continue
        code, has_run = load_trusted(register, name, never_in=folder, trust=trust)
        _refuse_no_network(register, name, code, has_run)
