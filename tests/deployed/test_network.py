"""A network that breaks between a SuperLink and a node that sees nothing of the server's files."""

import json
import os
import subprocess
import sys

import pytest
from machines_apart import ALONE
from ray_cluster import is_possible
from support_folders import PYTHONPATH, SUPPORT

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not is_possible(), reason="this machine allows no namespaces"),
]


def carried_out(program, folder):
    """Carry out a program of tests/support in namespaces of its own; returns the JSON that it prints."""
    done = subprocess.run(
        [*ALONE, sys.executable, str(SUPPORT / "deployments" / program), str(folder)],
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
        capture_output=True, text=True, timeout=1500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Seconds for which the network was broken → what came of the run."""
    found = carried_out("deployed_network.py", tmp_path_factory.mktemp("network"))
    for one in found:
        print(one["broken"], one["code"], one["same"], one["said"], sep="\n")
    return {one["broken"]: one for one in found}


def test_a_node_that_sees_nothing_of_the_server_has_the_same_bits(runs):
    assert (runs[0]["code"], runs[0]["same"]) == (0, True)


def test_a_short_break_is_not_noticed(runs):
    assert (runs[20]["code"], runs[20]["same"]) == (0, True)


def test_a_long_break_loses_no_more_than_the_node(runs):
    """Longer than Flower's heartbeat and `guard.return-timeout` together."""
    assert runs[100]["code"] == 3
    assert "node gone" in runs[100]["said"]


def test_a_run_on_a_superlink_elsewhere_is_gone_on_with(tmp_path):
    """The user has the project alone, and the run folder is where the SuperLink is."""
    (found,) = carried_out("user_apart.py", tmp_path)
    said = found["said"]
    print(said)
    assert "the run's server was killed or has crashed; resume with: fedge run . deployed" in said
    assert 'resume="there"\' with the options of the run' in said
    assert "first: 4" in said
    assert "after global round" in said
    assert "second: 0" in said
    assert said.splitlines()[-1] == "0"  # no run folder of the user's
    assert found["same"]
