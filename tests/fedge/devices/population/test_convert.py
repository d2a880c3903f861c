"""Published traces made into tables: by hand, samples of their forms; a pickle that holds more is refused."""

import json
import pickle

import numpy as np
import pytest

from fedge.config.registers.option import ConfigError
from fedge.devices.population.convert import SPEEDS, TIMES, converted


def pickled(tmp_path, what):
    path = tmp_path / "client_trace"
    path.write_bytes(pickle.dumps(what))
    return path


def as_json(tmp_path, what):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(what))
    return path


def test_fedscale_s_capacities(tmp_path):
    """3 × 162 ms a sample; 5,648 kbit/s are 706,000 bytes per second."""
    found = converted("fedscale-capacity", pickled(tmp_path, {
        432802: {"computation": 162.0, "communication": 5648.0}, 5: {"computation": 20, "communication": 8},
    }))  # fmt: skip
    assert found.columns == SPEEDS
    assert list(found.rows) == [(432802, 0.486, 706_000.0, 706_000.0), (5, 0.06, 1000.0, 1000.0)]


def test_fedscale_s_behaviours(tmp_path):
    """Times beyond the period are cut, those that do not last are no times, who has none is left out."""
    found = converted("fedscale-behaviour", pickled(tmp_path, {
        1: {"duration": 9, "inactive": [65, 133, 600], "finish_time": 518, "active": [12, 100, 500]},
        2: {"duration": 0, "inactive": [5], "finish_time": 100, "active": [5], "model": "Y"},
    }))  # fmt: skip
    assert found.columns == TIMES
    assert list(found.rows) == [(1, 12.0, 65.0, 518.0), (1, 100.0, 133.0, 518.0), (1, 500.0, 518.0, 518.0)]
    assert found.left_out == {"never there": 1}


def test_flash_s_timers(tmp_path):
    """Seconds count from the trace's first one, which comes again after 1,000 s."""
    found = converted("flash-timers", as_json(tmp_path, {
        "g": {"isSuccess": True, "trace_start": 100.0, "trace_end": 1100.0,
              "ready_time": [[150, 200], [300, 400]]},
        "h": {"isSuccess": False, "trace_start": None, "trace_end": None, "ready_time": []},
    }))  # fmt: skip
    assert list(found.rows) == [("g", 50.0, 100.0, 1000.0), ("g", 200.0, 300.0, 1000.0)]
    assert found.left_out == {"no trace that FLASH could read": 1}


def test_flash_s_states(tmp_path):
    """Charged from 10 s, on Wi-Fi from 20, locked from 30 to 90 and from 110, mobile at 150, ends at 200."""
    said = [(0, "89.0%"), (10, "battery_charged_on"), (20, "Wifi"), (30, "screen_lock"), (40, "screen_off"),
            (90, "screen_unlock"), (110, "screen_lock"), (150, "4G"), (200, "screen_on")]  # fmt: skip
    lines = "".join(f"2020-01-02 03:{second // 60:02d}:{second % 60:02d}\t{word}\n" for second, word in said)
    path = as_json(tmp_path, {"g": {"guid": "g", "model": "X", "messages": lines}, "h": {"messages": ""}})
    found = converted("flash-states", path)
    assert list(found.rows) == [("g", 30.0, 90.0, 200.0), ("g", 110.0, 150.0, 200.0)]
    assert found.left_out == {"messages of another form": 1}


def test_flash_s_speeds(tmp_path):
    path = as_json(tmp_path, {"g": {"down_u": 7491.4, "down_sigma": 3369.2, "up_u": 4935.2, "up_sigma": 9.3}})
    assert list(converted("flash-speeds", path, 0.02).rows) == [("g", 0.02, 7_491_400.0, 4_935_200.0)]
    for seconds in (None, 0.0, float("nan")):
        with pytest.raises(ConfigError, match="tells of links alone; say with --seconds-per-window"):
            converted("flash-speeds", path, seconds)


class Called:
    def __reduce__(self):
        return print, ("called",)


@pytest.mark.parametrize("what", [{1: Called()}, {1: {"computation": np.float64(1.0)}}, {1: {2j}}])
def test_a_pickle_of_more_than_plain_data_is_not_loaded(tmp_path, what, capsys):
    with pytest.raises(ConfigError, match=r"pickle of plain data, but: it (names|has the opcode) .*never"):
        converted("fedscale-capacity", pickled(tmp_path, what))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("kind", "what", "words"),
    [
        ("fedscale-capacity", {1: {"computation": 3.0}}, "device 1, must have .*KeyError: 'communication'"),
        ("fedscale-capacity", {1: {"computation": -3.0, "communication": 1}}, "not a number above 0"),
        ("fedscale-capacity", [1], "must hold a dictionary of devices"),
        ("fedscale-behaviour", {1: {"active": [1], "inactive": [], "finish_time": 9}}, "device 1.*shorter"),
        ("flash-timers", {"g": {"isSuccess": True}}, "device 'g'.*trace_start"),
        ("flash-states", {"g": {"messages": "2020-01-02 00:00:00\tasleep"}}, "'asleep' is not a state"),
        ("flash-states", {"g": {"messages": "soon\tWifi"}}, "device 'g'.*isoformat"),
    ],
)
def test_what_is_not_of_its_kind_is_one_line(tmp_path, kind, what, words):
    path = pickled(tmp_path, what) if kind.startswith("fedscale") else as_json(tmp_path, what)
    with pytest.raises(ConfigError, match=words):
        list(converted(kind, path).rows)


def test_files_that_cannot_be_read_are_one_line(tmp_path):
    (tmp_path / "x").write_bytes(b"{")
    for kind, words in (("flash-timers", "must be a JSON file"), ("fedscale-capacity", "must be a pickle")):
        with pytest.raises(ConfigError, match=words):
            converted(kind, tmp_path / "x")
        with pytest.raises(ConfigError, match="No such file"):
            converted(kind, tmp_path / "none")
