"""Configurations drawn over all options: refused in one line, or carried out, with the same bits after stops.

A failure is repeated by its seed: `FEDGE_DAY=DAY pytest -k NUMBER`.
"""

import io
import shutil

import numpy as np
import pytest
from crash_runs import comparable
from daily import DAY, daily
from drawn_runs import NOT_DRAWN, VALUES, draw

import fedge.process.background_jobs
import fedge.run.asynchronous
import fedge.run.snapshot
import fedge.states.checkpoint
from fedge import simulate
from fedge.config.flat import options
from fedge.config.registers.option import ConfigError
from hhar.windows.window_file import Windows, save_windows

NUMBERS = range(100)
KEPT = ("memory/**/*", "metrics/*s.csv", "metrics/common_test.csv", "devices/*.csv")
TIMED = {"global_rounds.csv", "leaf_rounds.csv", "clients.csv"}  # compared without their times


@pytest.fixture
def config(tmp_path):
    """Options of a run on nine users with two devices each."""
    rows = [(u, d, c, s) for u in range(9) for d in "de" for c in range(3) for s in range(3) for _ in (1, 2)]
    users, devices, y, sessions = map(np.array, zip(*rows, strict=True))
    x = np.random.default_rng(0).normal(size=(len(rows), 6, 32)) + y[:, None, None]
    channels = tuple(f"{sensor}_{axis}" for sensor in ("acc", "gyro") for axis in "xyz")
    recorded = np.array([f"{u}{d}{c}{s}" for u, d, c, s in zip(users, devices, y, sessions, strict=True)])
    users = np.char.add("u", users.astype(str))
    windows = Windows(x.astype(np.float32), y, users, devices, recorded, tuple("pqr"), channels)
    path = save_windows(tmp_path / "drawn.npz", windows)
    return {
        "num-server-rounds": 3, "seed": 3, "runs-dir": str(tmp_path / "runs"), "report": False,
        "data.path": str(path), "train.model": "linear", "train.local-epochs": 1,
    }  # fmt: skip


def test_every_option_is_drawn_or_named_as_one_that_is_not():
    assert VALUES.keys() | NOT_DRAWN == options().keys()
    assert VALUES.keys().isdisjoint(NOT_DRAWN)


def carried_out(config):
    """A run's folder and what it said; a client may fail, where its update is to be refused."""
    terminal = io.StringIO()
    run = simulate(config, clients=9, workers=1, terminal=terminal)
    refuses = config.get("guard.max-norm-factor")
    assert run.status == "completed" or (run.status == "partial" and refuses), (run.status, run.reason)
    said = terminal.getvalue() + (run.folder / "run.log").read_text()
    assert [word for word in ("Traceback", "RuntimeWarning") if word in said] == []
    return run.folder


def results(folder):
    """All that equal runs have in common."""
    files = {path for pattern in KEPT for path in folder.glob(pattern) if path.is_file()}
    found = comparable(folder)
    found["manifest.json"].pop("limits", None)  # seconds that had to be waited for
    return found | {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in files if path.name not in TIMED
    }


def stopped(folder, left, last, monkeypatch, carry_out):
    """Carry out a run, and copy its folder after its first or last checkpoint of a round: what a kill leaves.

    Args:
        folder: of the run.
        left: where the copy goes.
        last: whether the last checkpoint is the one.
        monkeypatch: pytest's.
        carry_out: the run.
    """
    write = fedge.states.checkpoint.write_checkpoint

    def writes(parent, global_round, *arguments, **more):
        made = write(parent, global_round, *arguments, **more)
        if global_round and last:
            shutil.rmtree(left, ignore_errors=True)
        if global_round and not left.exists():
            shutil.copytree(folder, left, symlinks=True)
        return made

    with monkeypatch.context() as patch:
        for module in (fedge.run.snapshot, fedge.run.asynchronous):
            patch.setattr(module, "write_checkpoint", writes)
        patch.setattr(fedge.process.background_jobs.BackgroundJob, "begin", lambda self, job: job())
        carry_out()


def goes_on(config, tmp_path, monkeypatch, last=False):
    """Carry out a run, and again from a copy that a kill would leave: the same bits."""
    folder, left = tmp_path / "runs" / "run", tmp_path / "left"
    stopped(folder, left, last, monkeypatch, lambda: carried_out({**config, "run-name": "run"}))
    whole = results(folder)
    shutil.rmtree(folder)
    shutil.move(left, folder)
    carried_out({**config, "resume": str(folder)})
    again = results(folder)
    assert [name for name in whole if whole[name] != again.get(name)] == []


@pytest.mark.slow
@pytest.mark.parametrize("number", daily(NUMBERS, range(0, 100, 10)))
def test_a_drawn_configuration(tmp_path, monkeypatch, config, number):
    drawn = {**config, **draw(100 * DAY + number)}
    try:
        goes_on(drawn, tmp_path, monkeypatch, last=number % 20 == 0)
    except ConfigError as error:
        line = str(error)
        assert line.isprintable()
        assert ";" in line
        assert not (tmp_path / "runs").exists()


ENDS = {
    "asynchrony.end-updates": 5, "asynchrony.end-versions": 3, "asynchrony.end-megabytes": 0.02,
    "asynchrony.end-joules": 5.0,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("end", daily(ENDS, ["asynchrony.end-updates", "asynchrony.end-joules"]))
def test_a_run_that_a_limit_has_ended_goes_on_to_its_end(tmp_path, monkeypatch, config, end):
    """Killed after its last checkpoint, before which the evaluation that was planned is still ahead."""
    clock = {"asynchrony.rule": "fedbuff", "scaffold.enabled": False, "gate.enabled": False}
    limit = {"cluster.enabled": False, "asynchrony.evaluate-every-s": 1e4, end: ENDS[end]}
    goes_on({**config, **clock, **limit, "devices.train-watts": 2.0}, tmp_path, monkeypatch, last=True)


@pytest.mark.parametrize("changes", [{"asynchrony.rule": "fedbuff", "asynchrony.end-joules": 5.0}])
def test_a_limit_that_nothing_can_reach_is_refused_before_a_run(tmp_path, config, changes):
    off = {"scaffold.enabled": False, "gate.enabled": False, "cluster.enabled": False}
    with pytest.raises(ConfigError, match="end-joules needs the power of the devices"):
        carried_out({**config, **off, **changes})
    assert not (tmp_path / "runs").exists()
