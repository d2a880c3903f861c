"""Signals at any moment of a run, once or twice: exit code, last words, a true manifest, the same bits.

What is done and looked at is in tests/support/crashes/signal_trials.py. `FEDGE_SIGNALS=500 pytest …` tries as
many for each algorithm; another `FEDGE_DAY` draws others.
"""

import json
import os
import subprocess
import sys

import pytest
from daily import DAY
from support_folders import SUPPORT

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="forks of loaded libraries may crash elsewhere"),
    pytest.mark.extended,
]
TRIALS = int(os.environ.get("FEDGE_SIGNALS", "16"))


@pytest.mark.timeout(600 + 5 * TRIALS)
@pytest.mark.parametrize("algorithm", ["fedavg", "ditto"])  # the second keeps memories beside its checkpoints
def test_a_signal_at_any_moment(tmp_path, algorithm):
    words = [SUPPORT / "crashes" / "signal_trials.py", tmp_path, TRIALS, DAY, algorithm]
    done = subprocess.run(
        [sys.executable, *map(str, words)], capture_output=True, text=True, check=False, cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == TRIALS
    assert [trial for trial in found if trial["wrong"]] == []
