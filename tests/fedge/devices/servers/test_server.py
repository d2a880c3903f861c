"""A server's model changes when its rule says so, is never written to, and keeps its dtype."""

import numpy as np
import pytest

from fedge.config.registers.option import ConfigError
from fedge.devices.servers.arrivals import Arrival
from fedge.devices.servers.rules import fedbuff, fedfa
from fedge.devices.servers.server import DeviceServer
from fedge.devices.servers.vectors import version_of


def server(rule=fedbuff, **arguments):
    start = {"w": np.array([1.0, 2.0], np.float32), "n": np.array(0)}
    return DeviceServer(version_of(start), rule, arguments, children=3)


def arrival(of, child, steps):
    return Arrival(child, 0, of.version.vector, of.version.vector + 1, 1.0, {"n": np.array(steps)})


def test_a_version_is_made_when_the_buffer_is_full():
    made = server(buffer=2)
    before = made.version
    assert not made.take(arrival(made, 2, 7))
    assert made.version is before
    assert made.take(arrival(made, 1, 5))
    assert made.number == 1
    assert made.version.vector.tolist() == [2.0, 3.0]
    assert made.version.vector.dtype == np.float32
    assert not made.version.vector.flags.writeable
    assert made.version.counters["n"] == 5  # of the child with the lowest number
    assert before.vector.tolist() == [1.0, 2.0]
    assert made.counters is None


def test_a_variance_stays_in_the_range_of_what_is_there():
    """Twice the change from 4 to 1 would make it −2, of which 1 is left; other numbers are the rule's."""
    start = {"w": np.array([4.0], np.float32), "norm.running_var": np.array([4.0], np.float32)}
    made = DeviceServer(
        version_of(start, ["norm.running_var"]), fedbuff, {"buffer": 2, "lr": 2.0}, children=3
    )
    for end in (1.0, 1.0):
        vector = np.array([end, end], np.float32)
        made.take(Arrival(0, 0, made.version.vector, vector))
    assert made.version.state["w"].tolist() == [-2.0]
    assert made.version.state["norm.running_var"].tolist() == [1.0]
    assert made.range is None


def test_the_mean_of_several_versions_models_keeps_its_variances():
    """The last three are 10, 10 and 7, of mean 9; the model before and the newest had limited it to 7."""
    start = version_of({"norm.running_var": np.array([1.0], np.float32)}, ["norm.running_var"])
    made = DeviceServer(start, fedfa, {"buffer": 3}, children=4)
    for child, variance in enumerate((0.1, 10.0, 10.0, 7.0)):
        made.take(Arrival(child, 0, start.vector, np.array([variance], np.float32)))
    assert made.version.vector.tolist() == [9.0]


@pytest.mark.parametrize("found", [[1.0, 2.0], np.zeros(3), np.zeros(2, np.int64)])
def test_what_is_no_model_is_refused(found):
    made = server(lambda model, memory, arrival: found)
    with pytest.raises(ConfigError, match="must return the new model"):
        made.take(arrival(made, 0, 1))


def test_a_rule_that_raises_is_named():
    def breaks(model, memory, arrival):
        raise KeyError("late")

    made = server(breaks)
    made.rule_label = "asynchrony.cloud-rule mine:rule"
    with pytest.raises(ConfigError, match=r"^asynchrony\.cloud-rule mine:rule raised KeyError"):
        made.like(made.version, 3, 1).take(arrival(made, 0, 1))
    made = server(breaks)
    with pytest.raises(
        ConfigError,
        match=r"asynchrony\.rule raised KeyError: 'late' \(\S+, line \d+\) after version 0; fix it",
    ):
        made.take(arrival(made, 0, 1))
