"""Files with and without time order: made ones, and the real ones where they are there."""

import io
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedge import simulate
from fedge.data.order import time_order
from hhar.windows.window_file import Windows, load_windows

SHARED = Path(os.environ.get("FEDGE_TEST_DATA", Path(__file__).parents[4] / "shared" / "data"))
HHAR = SHARED / "hhar-9users" / "hhar-9users-128x3.npz"
MOTIONSENSE = SHARED / "motionsense-24users" / "motionsense-24users-128x6.npz"


def made(drift=0.0, bouts=4, users=3, per_bout=15, classes=3, seed=0):
    """Windows in time order: bouts of each class, whose mean wanders by `drift` per window."""
    rng = np.random.default_rng(seed)
    y = np.tile(np.repeat(np.arange(classes), per_bout), bouts * users)
    x = rng.normal(size=(len(y), 2, 8)) + np.cumsum(drift * rng.normal(size=(len(y), 2, 1)), axis=0)
    user = np.repeat([f"u{k}" for k in range(users)], len(y) // users)
    names = tuple(f"c{k}" for k in range(classes))
    return Windows(x.astype(np.float32), y.astype(np.int64), user, None, None, names, ("u", "v"))


def reordered(windows, order):
    return replace(windows, x=windows.x[order], y=windows.y[order], user=windows.user[order])


def shuffled(windows, seed=1):
    return reordered(windows, np.random.default_rng(seed).permutation(len(windows)))


def by_class(windows):
    """Sorted by user and class, in time within them."""
    return reordered(windows, np.lexsort((windows.y, windows.user)))


def test_bouts_of_classes_are_an_order_even_of_noise():
    found = time_order(made())
    assert found.is_kept
    assert found.mean_run == 15.0
    assert found.random_run == pytest.approx(1.5, abs=0.1)


def test_users_may_be_mixed_in_the_file():
    """One window of each user in turn: each one's are in order."""
    windows = made(drift=0.2)
    order = np.arange(len(windows)).reshape(3, -1).T.ravel()
    assert time_order(reordered(windows, order)).is_kept


@pytest.mark.parametrize("seed", range(5))
def test_what_was_shuffled_has_lost_its_order(seed):
    assert not time_order(shuffled(made(drift=0.2, seed=seed), seed)).is_kept


def test_a_file_sorted_by_class_is_judged_by_its_windows():
    assert time_order(by_class(made(drift=0.2))).is_kept
    assert not time_order(by_class(shuffled(made(drift=0.2)))).is_kept


def test_devices_are_streams_of_their_own():
    windows = made(drift=0.2)
    device = np.where(np.arange(len(windows)) % 2, "a", "b")
    assert time_order(replace(windows, device=device)).is_kept


def test_images_rows_and_few_windows_are_not_judged():
    windows = shuffled(made())
    image = replace(windows, x=windows.x[:, :, None])
    assert time_order(image) is None
    assert time_order(replace(windows, x=windows.x[:, :, :1])) is None
    assert time_order(reordered(windows, np.arange(150))) is None


def test_the_line_has_the_numbers():
    assert "runs of one class have 1.5 windows, 1.5 in random order" in time_order(shuffled(made())).line()


@pytest.mark.skipif(not HHAR.is_file(), reason="the shared HHAR file is not there")
def test_the_shared_hhar_file_has_lost_its_order():
    found = time_order(load_windows(HHAR))
    assert not found.is_kept
    assert f"{found.mean_run:.1f}" == "1.2"


@pytest.mark.slow
@pytest.mark.skipif(not MOTIONSENSE.is_file(), reason="the shared MotionSense file is not there")
def test_the_shared_motionsense_file_has_kept_it():
    windows = replace(load_windows(MOTIONSENSE), session=None)
    found = time_order(windows)
    assert found.is_kept
    assert found.mean_run > 50
    assert not time_order(shuffled(windows)).is_kept
    assert not time_order(by_class(shuffled(windows))).is_kept


@pytest.mark.slow
def test_a_run_on_such_a_file_says_so(tmp_path):
    """On the terminal, in log, manifest and report; not where sessions are split, nor of an ordered file."""
    config = {
        "num-server-rounds": 1, "runs-dir": str(tmp_path / "runs"), "train.model": "linear",
        "train.local-epochs": 1, "hierarchy.num-servers": 1,
    }  # fmt: skip
    terminal = io.StringIO()
    run = simulate(config, data=shuffled(made(drift=0.2)), terminal=terminal)
    words = "the data have lost their time order: neighbouring windows are no more alike than random ones"
    assert run.status == "completed", run.reason
    assert words in terminal.getvalue()
    assert words in (run.folder / "run.log").read_text()
    assert run.manifest["data"]["time_order"] == "lost"
    assert any(words in remark for remark in run.manifest["remarks"])
    assert "The data have lost their time order" in (run.folder / "report.html").read_text()
    kept = simulate({**config, "report": False}, data=made(drift=0.2), terminal=io.StringIO())
    assert kept.manifest["data"]["time_order"] == "kept"
    session = np.array([f"s{k // 15}" for k in range(len(made()))])
    whole = replace(made(), session=session)
    by_session = simulate({**config, "report": False}, data=whole, terminal=io.StringIO())
    assert "time_order" not in by_session.manifest["data"]
