"""What `fedge run` understands of a run on a SuperLink; the run itself is in tests/deployed."""

from pathlib import Path

import pytest

from fedge.launch.deployed import _COLOURS, _ENDED, _STARTED, is_here
from fedge.run.ending import Outcome


@pytest.mark.parametrize(
    "outcome", [Outcome("completed", Path("/a b/runs/x")), Outcome("failed", None, "", 4)]
)
def test_the_servers_last_line_is_understood(outcome):
    text = f"\x1b[92mINFO \x1b[0m: x\n{outcome.last_line('host')}\n\x1b[92mINFO\n"
    (found,) = _ENDED.findall(_COLOURS.sub("", text))
    assert found[:2] == (outcome.status, str(outcome.exit_code))
    assert found[2] == f"host:{outcome.folder or '(no run folder)'}"


def test_the_number_of_the_run_is_understood():
    assert (
        _STARTED.search("Loading…\nSuccess\n🎊 Successfully started run 16502784478933894197\n")[1][:4]
        == "1650"
    )


def test_an_address_of_this_machine_is_known():
    assert all(map(is_here, ("127.0.0.1:9093", "localhost:9093", "[::1]:9093")))
    assert not any(map(is_here, ("10.0.0.7:9093", "superlink.example.org:9093", "127.0.0.1.example.org:1")))
