"""Real Slurm on this machine, where it is installed: leaf servers as one job, and a sweep as an array.

Each test has a cluster of its own (tests/support/deployments/slurm_cluster.py). `-m soak -s` prints what
users see.
"""

import re
import shlex
from pathlib import Path

import pytest
from deployment import BIN
from flower_runs import comparable
from slurm_cluster import in_cluster, is_there
from small_runs import carry_out, small_config

from fedge.launch.flower_runs.flower import toml_of

ROOT = Path(__file__).parents[2]
JOB = ROOT / "deploy" / "slurm" / "leaf-servers.sh"

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(not is_there(), reason="needs root and Slurm: apt-get install slurm-wlm munge"),
    pytest.mark.timeout(900),
]
# a job that is no longer in the queue has ended
_ENDED = """
ended() { while squeue --noheader | grep -q .; do sleep 0.5; done; }
until_has() { for n in $(seq 240); do grep -qs -- "$1" $2 && return; sleep 0.5; done; cat $2; exit 9; }
"""


def carried_out(folder, script):
    """Carry out a script of bash beside a cluster; returns what it printed."""
    path = f"export PATH={shlex.quote(str(BIN))}:$PATH\n"
    done = in_cluster(folder, ["bash", "-euc", path + _ENDED + script], timeout=800)
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def options(tmp_path):
    """A run of nine clients, as a file of options beside the certificates' folder."""
    options = small_config(
        tmp_path / "data", hierarchy__num_servers=3, scaffold__levels=2, num_server_rounds=3
    )
    (tmp_path / "run.toml").write_text(toml_of(options))
    return options


def test_a_cloud_and_leaf_servers_are_one_job_with_the_bits_of_one_process(tmp_path, options):
    """Every task is a step with a node and cores of its own, although jobs are counted by memory."""
    said = carried_out(tmp_path, f"""
        fedge certs certs --leaves 3
        DATA=data/small.npz sbatch {JOB} -c run.toml -c 'run-name="job"'
        until_has waiting 'slurm-*.out'
        squeue --steps --noheader --format='%i %N'
        ended
        cat slurm-1.out
        scontrol show job 1 | grep -o 'JobState=.* Reason'
    """)  # fmt: skip
    assert re.findall(r"^1\.\d (\S+)$", said, re.MULTILINE) == ["n0", "n1", "n2", "n3"]
    assert "JobState=COMPLETED" in said
    assert "Warning" not in said
    found, expected = comparable(tmp_path / "data" / "runs" / "job"), carry_out(options, "here")
    assert {name for name in found if found[name] != expected[name]} <= {"clusters"}


def test_a_cancelled_job_leaves_nothing_and_goes_on(tmp_path, options):
    (tmp_path / "run.toml").write_text(toml_of({**options, "num-server-rounds": 400}))
    said = carried_out(tmp_path, f"""
        fedge certs certs --leaves 3
        DATA=data/small.npz sbatch {JOB} -c run.toml -c 'run-name="cut"'
        until_has 'round   3/' 'slurm-1.out'
        scancel 1
        ended
        ps ax | grep '[f]edge \\(run\\|leaf\\|resume\\)' || echo all gone
        DATA=data/small.npz sbatch {JOB} resume data/runs/cut -c num-server-rounds=40
        ended
        cat slurm-2.out
    """)  # fmt: skip
    assert "all gone" in said
    found = comparable(tmp_path / "data" / "runs" / "cut")
    expected = carry_out({**options, "num-server-rounds": 40}, "here")
    assert {name for name in found if found[name] != expected[name]} <= {"clusters"}


def test_a_sweep_is_an_array_that_loses_nothing(tmp_path):
    """A task is requeued and one cancelled at work; the same command submits what is left."""
    from sweeps import write_sweep

    path = write_sweep(tmp_path, rounds=60, variants='gate.enabled = false\n\n[[variants]]\nname = "fedge"\n')
    command = f"fedge sweep {path.name} --launcher slurm --submit --jobs 3 --sbatch='--time=01:00:00'"
    said = carried_out(tmp_path, f"""
        {command}
        for name in hierfl-seed1 fedge-seed1; do until_has . runs/s/$name/metrics/global_rounds.csv; done
        scontrol requeue 1_0
        scancel 1_1
        ended
        {command}
        ended
        {command}
        mv runs there
        fedge sweep {path.name}
    """)  # fmt: skip
    assert "sweep.html" in said
    for name in ("hierfl-seed1", "fedge-seed1", "hierfl-seed2", "fedge-seed2"):
        assert comparable(tmp_path / "there" / "s" / name) == comparable(tmp_path / "runs" / "s" / name)
