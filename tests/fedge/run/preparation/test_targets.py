"""Examples that do not fit a task: the client, the rule, the value, in one line."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from fedge.config.config import Config
from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError
from fedge.data.partition import Partition
from fedge.run.preparation.targets import refuse_other_targets, target_remarks
from fedge.tasks.regression import Regression
from hhar.windows.window_file import Windows


def config(**changes) -> Config:
    """A configuration."""
    return from_run_config({key.replace("__", "."): value for key, value in changes.items()})


def windows(y, x=None, outputs=2):
    """Six rows."""
    x = np.zeros((6, 2), np.float32) if x is None else x
    channels = () if x.dtype == np.int64 else ("a", "b")
    return Windows(x, y, np.full(6, "a"), None, None, tuple(map(str, range(outputs))), channels)


def dealt():
    """Two clients, one row a split each."""
    parts = [tuple(np.array([3 * client + split]) for split in range(3)) for client in range(2)]
    return Partition(parts, "blocks")


def test_the_first_client_with_another_y_is_named():
    y = np.zeros((6, 2), np.int64)
    y[4, 1] = 3
    with pytest.raises(
        ConfigError,
        match=r"^train\.task multilabel takes .* of client 1 do not fit: y must be 0 or 1, is 0 to 3;",
    ):
        refuse_other_targets(config(train__task="multilabel"), windows(y), dealt)
    y[4, 1] = 1
    refuse_other_targets(config(train__task="multilabel"), windows(y), dealt)
    with pytest.raises(
        ConfigError, match=r"takes int64 \(N,\), a class .* of client 0 do not fit: y must be int64 \(N,\)"
    ):
        refuse_other_targets(config(), windows(np.zeros(6, np.float32)), dealt)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"partition__kind": "dirichlet"}, r"partition\.kind dirichlet needs data with a class per example"),
        ({"scenario": "label-skew"}, "scenario label-skew needs data with a class per example"),
    ],
)
def test_what_goes_by_class_is_refused_without_classes(changes, words):
    with pytest.raises(ConfigError, match=words):
        refuse_other_targets(
            config(train__task="regression", **changes), windows(np.zeros(6, np.float32), outputs=1), dealt
        )


def test_tokens_have_no_channels_to_turn():
    with pytest.raises(ConfigError, match="scenario gain changes channels, but the data are tokens"):
        refuse_other_targets(
            config(scenario="gain"), windows(np.arange(6) % 2, np.ones((6, 2), np.int64)), dealt
        )


class Remarking(Regression):
    """Has something to say on targets, or fails at it."""

    def remarks(self, y, classes):
        return [f"{len(y)} targets of {classes[0]}"] if len(y) > 1 else [1 / 0]


def test_a_tasks_own_remarks_on_the_targets(monkeypatch):
    monkeypatch.setitem(sys.modules, "mine", SimpleNamespace(Remarking=Remarking))
    config = from_run_config({"train.task": "mine:Remarking", "train.model": "linear"})
    some = Windows(
        np.zeros((2, 3), np.float32),
        np.zeros(2, np.float32),
        np.array(["a", "a"]),
        None,
        None,
        ("n",),
        ("c",),
    )
    assert target_remarks(config, some) == ["2 targets of n"]
    with pytest.raises(ConfigError, match=r"train.task mine:Remarking failed: ZeroDivisionError: .*; fix it"):
        target_remarks(config, some.taken(np.array([0])))
