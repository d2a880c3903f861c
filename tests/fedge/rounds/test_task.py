"""Learning task of a run: its clients' windows, split by split."""

from fedge.config.flat import from_run_config
from fedge.rounds.task import RunTask


def test_windows_of_a_split_are_those_of_each_client():
    held_out = {client: {"train": 20 + client, "val": 4 - client % 2, "test": 9} for client in range(4)}
    task = RunTask(from_run_config({}), 7, held_out, 2)
    assert task.windows("test") == dict.fromkeys(range(4), 9)
    assert task.windows("val") == {0: 4, 1: 3, 2: 4, 3: 3}
    assert task.windows("train") == {0: 20, 1: 21, 2: 22, 3: 23}
