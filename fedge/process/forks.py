"""Forks of a process in which PyTorch or Polars has worked: there both wait forever for threads, or crash."""

import os

from fedge.config.registers.option import ConfigError

_worked_in = 0  # process in which they have worked; 0 for none


def refuse_fork(what: str) -> None:
    """Note that the libraries work in this process.

    Args:
        what: the call, for the error.

    Raises:
        ConfigError: they have worked in a process of which this one is a fork.
    """
    global _worked_in
    if _worked_in not in (0, os.getpid()):
        raise ConfigError(
            f"{what} must not be called in a fork of a process that has carried out or read a run, because "
            f"threads of PyTorch and Polars are lost there, but process {os.getpid()} is one; start "
            f'processes with multiprocessing.get_context("spawn"), or many runs with fedge sweep'
        )
    _worked_in = os.getpid()
