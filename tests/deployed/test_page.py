"""What docs/machines.md says of Flower 1.35 and newer, said as it stands there: every word of it.

With the Flower that is installed where it has one port, else with the newest (FEDGE_NEWEST_FLOWER, or that of
`make matrix`).
"""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from deployment import BIN, ONE_PORT, free_ports, listens, wait_until
from flower_runs import ROOT
from processes import MARK, leftovers

from fedge.launch.flower import toml_of
from fedge.link.certificates import Wanted, make_certificates

NEWEST = Path(os.environ.get("FEDGE_NEWEST_FLOWER") or ROOT / "build" / "flower-newest" / "bin" / "python")
TEXT = (ROOT / "docs" / "machines.md").read_text(encoding="utf-8")
STEPS = TEXT.partition("## Step by step")[2].partition("### On Flower 1.35 and newer")[0]
SECTION = TEXT.partition("### On Flower 1.35 and newer")[2].partition("\n## ")[0]

REGISTER = "flwr supernode register certs/node-0.pub deployed"
# what is between backquotes there → the test that says it
READ = {
    "--port": "test_a_superlink_as_the_page_starts_it",
    "--disable-runtime-dependency-installation": "test_a_superlink_as_the_page_starts_it",
    "~/.flwr/config.toml": "test_a_superlink_as_the_page_starts_it",
    "[superlink.deployed]": "test_a_superlink_as_the_page_starts_it",
    "address": "test_a_superlink_as_the_page_starts_it",
    "root-certificates": "test_a_superlink_as_the_page_starts_it",
    REGISTER: "test_a_superlink_as_the_page_starts_it",
    "POST /v1/fleet/…": "tests/fedge/link/test_fleet_filter.py",
    "fedge leaf": "tests/deployed/test_leaves.py",
    "--nodes": "tests/deployed/test_leaves.py",
    "fedge run . deployed": "tests/deployed/test_deployment.py",
    "fedge node": "tests/deployed/test_deployment.py",
}


def words(text):
    """Return what is between backquotes; a line may end in it."""
    return re.findall(r"`([^`]+)`", re.sub(r"\n *", " ", text))


def step(program):
    """Return the command of a program among the steps."""
    (line,) = [one for one in words(STEPS) if one.startswith(f"{program} ")]
    return shlex.split(line)


def test_every_word_of_the_section_is_said_by_a_test():
    assert set(words(SECTION)) == READ.keys()
    assert {name for name in READ.values() if "/" not in name} <= globals().keys()
    said = {name: (ROOT / name).read_text(encoding="utf-8") for name in READ.values() if "/" in name}
    assert "/v1/fleet/" in said["tests/fedge/link/test_fleet_filter.py"]
    assert '"fedge", "run", ".", "deployed"' in said["tests/deployed/test_deployment.py"].replace(
        'str(BIN / "fedge")', '"fedge"'
    )


@pytest.fixture(scope="module")
def programs():
    """Return the folder of programs of a Flower with one port."""
    if ONE_PORT:
        return BIN
    if not NEWEST.exists():
        pytest.skip(f"no environment with the newest Flower: {NEWEST} is not there; make matrix makes it")
    return NEWEST.parent


@pytest.mark.extended
def test_a_superlink_as_the_page_starts_it(programs, tmp_path):
    """Steps 3 and 5 with what the section changes, but on the loopback interface and another port."""
    make_certificates(tmp_path, Wanted(("127.0.0.1", "localhost")))
    make_certificates(tmp_path / "certs", Wanted(nodes=1))
    (port,), home = free_ports(1), tmp_path / "home"
    (more,) = [one for one in words(STEPS) if one.startswith("--host ")]
    assert more == "--host 0.0.0.0 --disable-runtime-dependency-installation"
    added = ["--host", "127.0.0.1", "--port", str(port), shlex.split(more)[2]]
    environment = {**os.environ, "HOME": str(home), MARK: str(tmp_path), "FLWR_TELEMETRY_ENABLED": "0"}
    environment["PATH"] = f"{programs}{os.pathsep}{os.environ['PATH']}"
    environment.pop("FLWR_HOME", None)
    (home / ".flwr").mkdir(parents=True)
    table = {"address": f"127.0.0.1:{port}", "root-certificates": str(tmp_path / "ca.crt")}
    assert {"[superlink.deployed]", *table} <= set(words(SECTION))
    (home / ".flwr" / "config.toml").write_text(f"[superlink.deployed]\n{toml_of(table)}")
    with (tmp_path / "superlink.log").open("wb") as log:
        superlink = subprocess.Popen(
            [*step("flower-superlink"), *added], cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL,
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        wait_until(lambda: listens(port), 60, (tmp_path / "superlink.log").read_text())
        done = subprocess.run(
            shlex.split(REGISTER), cwd=tmp_path, env=environment, capture_output=True, text=True,
            timeout=120, check=False,
        )  # fmt: skip
        assert "registered successfully" in done.stdout, done.stdout + done.stderr
    finally:
        superlink.terminate()
        superlink.wait(30)
    assert leftovers(str(tmp_path), wait_s=20.0) == []


@pytest.mark.extended
def test_the_one_port_is_as_the_page_says(programs):
    """Of the SuperLink that nobody gives a port."""
    code = "import json, flwr.supercore.constant as c\nprint(json.dumps(c.SUPERLINK_UVICORN_DEFAULT_PORT))"
    python = sys.executable if programs == BIN else str(NEWEST)
    said = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    assert f"(`--port`, {json.loads(said.stdout)})" in SECTION
