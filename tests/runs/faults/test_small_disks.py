"""Every command that writes files, on disks that are too small: one line, and nothing half written stays."""

import os
import shutil
import subprocess
import sys

import pytest
from small_runs import carry_out, small_config

pytestmark = [pytest.mark.extended, pytest.mark.whole_runs]

SIZES = ("4k", "16k", "64k", "256k")
# in a mount of its own, which ends with the process: what the command leaves there is listed in "left"
SMALL_DISK = """\
mount -t tmpfs -o size=$1 tmpfs "$2" && cd "$2" && shift 2 && left=$1 && shift && "$@"
code=$?
find . -mindepth 1 -not -type d | sort > "$left"
exit $code
"""
KEEPS_FILES = ("certs", "compare")  # whole ones: the next command goes on with them; a page before its table
COMMANDS = {
    "report": "fedge report {run} -o page.html",
    "compare": "fedge compare {run} -o page.html --csv table.csv",
    "export": "fedge export {run} --to model.onnx",
    "export-run": "fedge export-run {run} shared",
    "export-run zip": "fedge export-run {run} shared.zip",
    "new": "fedge new project --method",
    "deal": "fedge deal dealt --clients 3",
    "certs": "fedge certs certs --nodes 3",
    "synthesize": "hhar synthesize made.npz --small",
    "raw": "hhar synthesize --raw made --small",
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a run."""
    folder = tmp_path_factory.mktemp("finished")
    carry_out({**small_config(folder), "report": False, "runs-dir": str(folder)}, "done")
    return folder / "done"


def on_a_small_disk(folder, size, words):
    """The process of a command on a disk of its own, and the names of what it has left there."""
    disk, left = folder / "disk", folder / "left"
    disk.mkdir()
    script = ["unshare", "--mount", "sh", "-c", SMALL_DISK, "sh", size, str(disk), str(left), *words]
    done = subprocess.run(script, capture_output=True, text=True, timeout=300, check=False)
    disk.rmdir()
    if "unshare" in done.stderr or not left.exists():
        pytest.skip(f"cannot mount a small file system: {done.stderr}")
    names = left.read_text().split("\n")[:-1]
    left.unlink()
    return done, names


@pytest.mark.parametrize("name", COMMANDS)
def test_a_disk_that_is_too_small_is_one_line(name, finished, tmp_path):
    if not shutil.which("unshare"):
        pytest.skip("unshare is not installed")
    program, *words = COMMANDS[name].format(run=finished).split()
    refused = 0
    for size in SIZES:
        command = [os.path.join(os.path.dirname(sys.executable), program), *words]
        done, left = on_a_small_disk(tmp_path, size, command)
        assert "Traceback" not in done.stderr, done.stderr
        if done.returncode == 0:
            assert left
            continue
        refused += 1
        assert done.returncode == (2 if program == "hhar" else 4), done.stderr
        last = done.stderr.strip().split("\n")[-1]
        assert last.startswith(f"{program}: "), done.stderr
        assert "None" not in last
        assert "; " in last
        if words[0] not in KEEPS_FILES:
            assert left == [], (size, left)
    assert refused
