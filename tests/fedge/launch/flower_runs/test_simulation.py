"""Flower's simulation, started and watched: what a sign of life is."""

import os
import sys

import pytest

from fedge.launch.flower_runs.simulation import Simulation


@pytest.mark.extended
def test_a_clock_that_is_set_back_is_no_stall(tmp_path):
    """The manifest is of tomorrow, the log grows today: the run is waited for until it ends by itself."""
    (tmp_path / "manifest.json").touch()
    os.utime(tmp_path / "manifest.json", (4e9, 4e9))
    code = "import sys, time\nfor _ in range(24): open(sys.argv[1], 'a').write('x'); time.sleep(0.3)"
    watched = Simulation([sys.executable, "-c", code, str(tmp_path / "run.log")])
    assert watched.wait(tmp_path, limit_s=5.0)


def test_a_run_that_leaves_no_sign_is_given_up(tmp_path):
    (tmp_path / "run.log").touch()
    watched = Simulation([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        assert not watched.wait(tmp_path, limit_s=0.5)
    finally:
        watched.end(9)
    assert watched.returncode is not None
