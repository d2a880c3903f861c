"""Faults before every file operation of a run: what goes on gives the bytes of a run that nothing stopped.

Kills, torn writes, a full disk, errors and interruptions before each open, write, fsync, rename, unlink and
mkdir; a second kill while the run goes on; and power failures, after which only what was synced is there.
What is done to a run, and what is looked at after it, is in tests/support/crash_runs.py.
"""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from crash_runs import CONFIGURATIONS
from file_faults import compiler, environment

SCRIPT = Path(__file__).parents[1] / "support" / "crash_runs.py"
KINDS = ("faults", "twice", "power")

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD, fork and /proc are Linux's"),
    pytest.mark.skipif(compiler() is None, reason="there is no C compiler on this machine (Debian: gcc)"),
]


def trials(folder, sample, names, limit_s):
    """Try a sample of the faults of some configurations; returns a record of each."""
    with (folder / f"{names[0]}.txt").open("w+") as shown:
        subprocess.run(
            [sys.executable, str(SCRIPT), str(folder / names[0]), str(sample), *names],
            env=environment(folder / names[0]), stdout=shown, stderr=subprocess.STDOUT, timeout=limit_s,
            check=False,
        )  # fmt: skip
        shown.seek(0)
        text = shown.read()
    found = [json.loads(line) for line in text.splitlines() if line.startswith('{"name"')]
    assert [record["name"] for record in found] == list(names), text
    return found


def all_trials(folder, sample, limit_s):
    """Try a sample of the faults of all configurations, two processes side by side; prints the counts."""
    halves = [list(CONFIGURATIONS)[start::2] for start in (0, 1)]
    for half in halves:
        (folder / half[0]).mkdir()
    with ThreadPoolExecutor(2) as pool:
        found = [
            record
            for records in pool.map(lambda half: trials(folder, sample, half, limit_s), halves)
            for record in records
        ]
    counts = {kind: sum(record[kind] for record in found) for kind in KINDS}
    operations = sum(record["operations"] for record in found)
    print(f"{operations} file operations of {len(found)} runs; tried: {counts}")
    assert [problem for record in found for problem in record["problems"]] == []
    return counts


@pytest.mark.timeout(1800)
def test_a_sample_of_all_faults(tmp_path):
    counts = all_trials(tmp_path, 28, 1700)
    assert sum(counts.values()) >= 300


@pytest.mark.soak
@pytest.mark.timeout(6 * 3600)
def test_all_faults(tmp_path):
    all_trials(tmp_path, "all", 6 * 3600)
