"""Files of Docker Compose whose services die at work: their policy starts them again, and no bit changes."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from as_said import ALONE, can_be_alone
from flower_runs import comparable
from support_folders import PYTHONPATH, SUPPORT

from fedge import simulate

# file → rounds of the run, and after which each service dies, of those that are started again
DEATHS = {
    "deploy/compose.yml": (60, {"leaf-1": 10, "leaf-0": 20}),
    "deploy/superlink.yml": (4, {"node-1": 2}),
}


@pytest.mark.extended
@pytest.mark.timeout(900)
@pytest.mark.skipif(not can_be_alone(), reason="the addresses of the files need namespaces, and so root")
@pytest.mark.parametrize("way", DEATHS)
def test_what_a_policy_starts_again_goes_on_to_the_same_bits(way, tmp_path, monkeypatch):
    rounds, deaths = DEATHS[way]
    with TemporaryDirectory(prefix="fedge-restarts-") as folder:
        Path(folder).chmod(0o755)
        told = carried_out(way, folder, str(rounds), *(f"{name}={after}" for name, after in deaths.items()))
        assert (told["code"], told["left"]) == (0, []), told["said"]
        assert told["starts"] == dict.fromkeys(deaths, 1), told["said"]
        made = comparable(Path(told["run"]))
        manifest = json.loads(Path(told["run"], "manifest.json").read_text())
    monkeypatch.chdir(tmp_path)
    config = {**manifest["config"], "run-name": "calm"}
    calm = simulate(config, num_supernodes=config["clients"], terminal=io.StringIO())
    expected = comparable(calm.folder)
    for name in ("global", "leaf", "clients", "confusion", "models"):  # names of users stay with their owners
        assert made[name] == expected[name], name


def carried_out(*words):
    """Output of `restarted`."""
    program = [*ALONE, sys.executable, str(SUPPORT / "ways" / "restarted.py"), *words]
    done = subprocess.run(
        program, env={**os.environ, "PYTHONPATH": PYTHONPATH}, capture_output=True, text=True, timeout=800,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])
