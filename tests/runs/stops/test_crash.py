"""Faults before every file operation of a run: what goes on gives the bytes of a run that nothing stopped.

Kills, torn writes, a full disk, errors and interruptions before each open, write, fsync, rename, unlink and
mkdir; a second kill while the run goes on; and power failures, after which only what was synced is there.
What is done to a run, and what is looked at after it, is in tests/support/crashes/crash_trials.py.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import planted
import pytest
from crash_runs import CONFIGURATIONS
from file_faults import compiler, environment
from support_folders import SUPPORT

SCRIPT = SUPPORT / "crashes" / "crash_trials.py"
KINDS = ("fault", "interruption", "twice", "power")
SAMPLE = 24  # faults of each configuration, half as many power failures, and some that strike twice

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD, fork and /proc are Linux's"),
    pytest.mark.skipif(compiler() is None, reason="there is no C compiler on this machine (Debian: gcc)"),
]


@pytest.fixture
def folder(tmp_path):
    """A folder in memory, where it costs nothing to wait for the disk; what is synced is in the log."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    place = Path(tempfile.mkdtemp(prefix="fedge-crash-", dir=memory))
    yield place
    shutil.rmtree(place, ignore_errors=True)


@contextmanager
def crash_trials(folder, *words):
    """Start crash_trials.py in a folder of its own; gives its lines as they come."""
    folder.mkdir()
    command = [sys.executable, str(SCRIPT), str(folder), *map(str, words)]
    with subprocess.Popen(
        command, env=environment(folder), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process.stdout
        finally:
            process.kill()


def trials(folder, sample, names):
    """Try faults of some configurations, in one process; returns a record of each."""
    found, said = [], []
    with crash_trials(folder / names[0], sample, *names) as lines:
        for line in lines:
            said.append(line)
            if line.startswith('{"name"'):
                found.append(json.loads(line))
            print(line[:600], end="", flush=True)
    assert [record["name"] for record in found] == list(names), "".join(said)
    return found


def all_trials(folder, sample, processes):
    """Try faults of all configurations in so many processes side by side; prints the counts."""
    shares = [list(CONFIGURATIONS)[start::processes] for start in range(processes)]
    with ThreadPoolExecutor(processes) as pool:
        shared = list(pool.map(lambda names: trials(folder, sample, names), shares))
    found = [record for records in shared for record in records]
    counts = {kind: sum(record[kind] for record in found) for kind in KINDS}
    operations = sum(record["operations"] for record in found)
    strata = {tuple(stratum) for record in found for stratum in record["strata"]}
    tried = f"{sum(counts.values())} of {sum(record['of'] for record in found)} trials"
    resumed = sum(record["gone_on"] for record in found)
    print(f"{operations} file operations of {len(found)} runs, {len(strata)} strata; {tried}: {counts}")
    print(f"{resumed} different disks that a run went on from")
    assert [problem for record in found for problem in record["problems"]] == []
    return counts


@pytest.mark.extended
@pytest.mark.timeout(1800)
def test_a_sample_of_all_faults(folder):
    """A part of all combinations of fault, operation and kind of file, another with another FEDGE_DAY.

    All interruptions.
    """
    counts = all_trials(folder, SAMPLE, 1)
    assert sum(counts.values()) - counts["interruption"] >= 300


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_the_sample_finds_every_planted_defect(folder):
    """Errors of a commit protocol, and gaps of a checkpoint (tests/support/crashes/planted.py)."""
    names = list(planted.DEFECTS)

    def found(start):
        with crash_trials(folder / str(start), SAMPLE, "planted", *names[start::2]) as lines:
            return list(lines)

    with ThreadPoolExecutor(2) as pool:
        said = [line for lines in pool.map(found, (0, 1)) for line in lines]
    print(*said, sep="")  # some of it in the words of runs that failed
    found = [json.loads(line) for line in said if line.startswith('{"planted"')]
    assert sorted(record["planted"] for record in found) == sorted(names)
    assert [record["planted"] for record in found if not record["found"]] == []


@pytest.mark.soak
@pytest.mark.timeout(6 * 3600)
def test_all_faults(folder):
    """CRASH_PROCESSES=1 leaves the other core to others; CRASH_RUNS_S ends it after so many seconds."""
    all_trials(folder, "all", int(os.environ.get("CRASH_PROCESSES", "2")))
