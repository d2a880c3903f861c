"""Refusal of forks after use of PyTorch or Polars, which would wait forever or crash."""

import os

from fedge.config.registers.option import ConfigError

_worked_in = 0  # id of the process that has used them; 0 for none


def refuse_fork(call: str) -> None:
    """Record this process as a user of PyTorch or Polars.

    Args:
        call: name of the call, for the error.

    Raises:
        ConfigError: this process is a fork of one that has used the libraries.
    """
    global _worked_in
    if _worked_in not in (0, os.getpid()):
        raise ConfigError(
            f"{call} must not be called in a fork of a process that has carried out or read a run, because "
            f"threads of PyTorch and Polars are lost there, but process {os.getpid()} is one; start "
            f'processes with multiprocessing.get_context("spawn"), or many runs with fedge sweep'
        )
    _worked_in = os.getpid()
