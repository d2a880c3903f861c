"""Every command that writes files, on disks that are too small: one line, and nothing half written stays."""

import os
import pickle
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from small_runs import carry_out, small_config

from hhar.windows.window_file import load_windows

pytestmark = [pytest.mark.extended, pytest.mark.whole_runs]

ROOT = Path(__file__).parents[3]
SIZES = ("4k", "16k", "64k", "256k")
# in a mount of its own, which ends with the process: what the command leaves there is listed in "left"
SMALL_DISK = """\
mount -t tmpfs -o size=$1 tmpfs "$2" && cd "$2" && shift 2 && left=$1 && shift && "$@"
code=$?
find . -mindepth 1 -not -type d | sort > "$left"
exit $code
"""
KEEPS_FILES = ("certs", "compare", "clock")  # whole: the next command goes on with them; one of two outputs
CLOCKED = (
    "asynchrony.rule=fedbuff asynchrony.concurrency=100 asynchrony.evaluate-every-s=0.05 "
    "num-server-rounds=200 devices.preset=half-normal"
)
COMMANDS = {
    "report": "fedge report {run} -o page.html",
    "compare": "fedge compare {run} -o page.html --csv table.csv",
    "predict": "fedge predict {run} {windows} -o answers.csv",
    "export onnx": "fedge export {run} --onnx model.onnx",
    "export torchscript": "fedge export {run} --torchscript model.pt",
    "export-run": "fedge export-run {run} shared",
    "export-run zip": "fedge export-run {run} shared.zip",
    "clock": f'fedge clock --app {ROOT} -c "{CLOCKED}" --devices 500 --csv table.csv -o page.html',
    "devices convert csv": "fedge devices convert fedscale-capacity {trace} out.csv",
    "devices convert parquet": "fedge devices convert fedscale-capacity {trace} out.parquet",
    "new": "fedge new project --method",
    "deal": "fedge deal dealt --clients 3",
    "certs": "fedge certs certs --nodes 3",
    "synthesize": "hhar synthesize made.npz --small",
    "raw": "hhar synthesize --raw made --small",
}


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    """Paths of what the commands read: a run, windows, a trace of devices."""
    folder = tmp_path_factory.mktemp("read")
    config = small_config(folder)
    carry_out({**config, "report": False, "runs-dir": str(folder)}, "done")
    np.savez(folder / "x.npz", x=np.tile(load_windows(config["data.path"]).x, (20, 1, 1)))
    devices = {n: {"computation": 100.0 + n, "communication": 5000.0 + n} for n in range(5000)}
    (folder / "trace").write_bytes(pickle.dumps(devices))
    return {"run": folder / "done", "windows": folder / "x.npz", "trace": folder / "trace"}


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
def test_a_disk_that_is_too_small_is_one_line(name, read, tmp_path):
    if not shutil.which("unshare"):
        pytest.skip("unshare is not installed")
    program, *words = shlex.split(COMMANDS[name].format(**read))
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
