"""`fedge devices convert`: what it writes is what runs read, in both forms."""

import pickle

import pytest

from fedge.cli import main
from fedge.devices.population.attendance import trace
from fedge.devices.population.trace import read_trace

CAPACITY = {
    1: {"computation": 162.0, "communication": 5648.0}, 2: {"computation": 20.0, "communication": 8.0},
}  # fmt: skip
BEHAVIOUR = {
    1: {"active": [12], "inactive": [65], "finish_time": 518},
    2: {"active": [0], "inactive": [0], "finish_time": 9},
}


def made(tmp_path, kind, what, suffix, *more):
    source, out = tmp_path / "published", tmp_path / f"out{suffix}"
    source.write_bytes(pickle.dumps(what))
    return main(["devices", "convert", kind, str(source), str(out), *more]), out


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_speeds(tmp_path, suffix, capsys):
    code, out = made(tmp_path, "fedscale-capacity", CAPACITY, suffix)
    assert code == 0
    assert read_trace(str(out)) == [[0.486, 0, 706_000, 706_000, 0, 0], [0.06, 0, 1000, 1000, 0, 0]]
    assert f'2 rows; devices.preset="trace", devices.preset-args.path="{out}"' in capsys.readouterr().out


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_times(tmp_path, suffix, capsys):
    code, out = made(tmp_path, "fedscale-behaviour", BEHAVIOUR, suffix)
    assert code == 0
    assert trace(1, 0, str(out))(0, 518_000_000) == (False, 530_000_000)
    said = capsys.readouterr().out
    assert '1 rows; devices.availability="trace"' in said
    assert "left out: 1 device, never there" in said


def test_another_form_is_refused(tmp_path, capsys):
    assert made(tmp_path, "fedscale-capacity", CAPACITY, ".txt")[0] == 4
    assert "must end in .csv or .parquet" in capsys.readouterr().err
