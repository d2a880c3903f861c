"""Commands under limits of the system: on the size of files (a full disk, too) and on files open at a time.

Each ends by itself, with its result or with one line for each file; address space:
tests/fedge/process/resources/test_room.py.
"""

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from limited import limited
from processes import MARK, leftovers
from small_runs import small_config

from fedge import simulate
from fedge.launch.flower_runs.flower import toml_of

FEDGE = str(Path(sys.executable).with_name("fedge"))
SIZES, OPEN = (0, 2_000, 50_000), (14, 40, 64)  # Python's own imports need a dozen files


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Folder with a whole run, its options beside it."""
    folder = tmp_path_factory.mktemp("limits")
    config = small_config(folder, run_name="whole", checkpoint__every=1, report=True)
    assert simulate(config, terminal=open(os.devnull, "w")).status == "completed"  # noqa: SIM115
    (folder / "options.toml").write_text(toml_of({**config, "run-name": "new"}))
    return folder


COMMANDS = {
    "run": ["run", "-c", "options.toml"],
    "resume": ["resume", "runs/whole", "-c", "num-server-rounds=3"],
    "report": ["report", "runs/whole"],
    "compare": ["compare", "runs/whole", "runs/whole", "--out", "page.html"],
    "export": ["export", "runs/whole", "--torchscript", "m.pt"],
    "export-run": ["export-run", "runs/whole", "copy"],
    "runs": ["runs", "--runs-dir", "runs"],
    "status": ["status", "runs/whole"],
}
DAILY = [("export", resource.RLIMIT_FSIZE, 2_000), ("resume", resource.RLIMIT_NOFILE, 14)]
REST = [
    (command, kind, value)
    for kind, values in ((resource.RLIMIT_FSIZE, SIZES), (resource.RLIMIT_NOFILE, OPEN))
    for value in values
    for command in COMMANDS
    if (command, kind, value) not in DAILY
]


@pytest.mark.parametrize(
    ("command", "kind", "value"),
    [*DAILY, *(pytest.param(*each, marks=pytest.mark.extended) for each in REST)],
)
def test_a_command_under_a_limit_ends_with_its_result_or_one_line(whole, tmp_path, command, kind, value):
    place = tmp_path / "place"
    shutil.copytree(whole, place, symlinks=True)
    options = place / "options.toml"
    options.write_text(options.read_text().replace(str(whole), str(place)))
    done = subprocess.run(
        limited([FEDGE, *COMMANDS[command]], kind, value), cwd=place, capture_output=True, text=True,
        timeout=900, check=False,
        env={**os.environ, MARK: str(tmp_path)},
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert "Traceback" not in said
    assert done.returncode in (0, 4), said
    if done.returncode:
        lines = {line for line in said.splitlines() if line.startswith("fedge: ")}
        assert 1 <= len(lines) <= 2, said  # of a run: manifest.json and private.json each say it
    assert leftovers(tmp_path) == []
