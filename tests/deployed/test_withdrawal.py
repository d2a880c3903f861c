"""A key is withdrawn: its node is out, all others are back by themselves. Real processes, each Flower."""

import signal

import pytest
from deployment import Deployment, wait_until

NODES = 3
PATIENCE_S = 240  # a SuperNode waits longer with each attempt while its SuperLink is away

pytestmark = [pytest.mark.extended, pytest.mark.whole_runs, pytest.mark.timeout(900)]


def test_nodes_are_back_after_another_ones_key_was_withdrawn(tmp_path):
    with Deployment(tmp_path, {"clients": NODES}) as deployment:
        deployment.register(NODES)
        for number in range(NODES):
            deployment.start_node(number, NODES, tmp_path)
        wait_until(lambda: [admissions(tmp_path, n) for n in range(NODES)] == [1] * NODES, 120, "admitted")
        (deployment.certs / "node-2.pub").unlink()
        deployment.superlink.send_signal(signal.SIGTERM)
        deployment.superlink.wait(60)
        deployment.start_superlink()
        wait_until(lambda: [admissions(tmp_path, n) for n in (0, 1)] == [2, 2], PATIENCE_S, "admitted again")
        wait_until(lambda: deployment.nodes[2].poll() is not None, PATIENCE_S, "the withdrawn node has ended")
        assert [deployment.nodes[number].poll() for number in (0, 1)] == [None, None]
        assert admissions(tmp_path, 2) == 1
        assert "a key is admitted once its .pub file is in the --certs folder" in log(tmp_path, 2)


def admissions(folder, number):
    """How often the SuperLink has admitted a node."""
    return log(folder, number).count("SuperNode ID: ")


def log(folder, number):
    return (folder / f"node-{number}.log").read_text(errors="replace")
