"""A sweep as an array of Slurm jobs: the script, and what it does under a stand-in for `sbatch`."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from sweeps import write_sweep

from fedge import load_run
from fedge.cli import main

# What Slurm does with an array: it reads the options, and carries out the script once per task
SBATCH = """#!/bin/bash
range=$(sed -n 's/^#SBATCH --array=\\([0-9]*-[0-9]*\\).*/\\1/p' "$1")
for task in $(seq ${range%-*} ${range#*-}); do
    SLURM_ARRAY_TASK_ID=$task bash "$1" >> "$1.log" 2>&1
done
echo "Submitted batch job 7"
"""


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A sweep file, in a folder in which commands are given and whose `bin` is first on the path."""
    path = write_sweep(tmp_path, variants='gate.enabled = false\n\n[[variants]]\nname = "fedge"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return path


def stand_in(folder, text=SBATCH):
    """Put an `sbatch` into a folder's `bin`."""
    program = folder / "bin" / "sbatch"
    program.parent.mkdir(exist_ok=True)
    program.write_text(text)
    program.chmod(0o755)


def options_of(script):
    return re.findall(r"^#SBATCH (.*)$", Path(script).read_text(), re.MULTILINE)


def runs_of(script):
    """Names of the runs, as bash reads them."""
    return re.search(r"^runs=\(\n(.*?)^\)$", Path(script).read_text(), re.MULTILINE | re.DOTALL)[1].split()


@pytest.mark.slow
def test_the_script_has_a_task_per_run_and_the_users_options(path, capsys):
    words = ["--launcher", "slurm", "--workers", "2", "--jobs", "3", "--sbatch=--time=01:00:00 --mem=4G"]
    assert main(["sweep", str(path), *words]) == 0
    folder = path.parent / "runs" / "s" / "slurm"
    assert options_of(folder / "array.sh") == [
        "--job-name=fedge-s", "--array=0-3%3", "--cpus-per-task=2", f"--output={folder}/%A-%a.log",
        "--open-mode=append", "--requeue", "--time=01:00:00", "--mem=4G",
    ]  # fmt: skip
    assert runs_of(folder / "array.sh") == ["hierfl-seed1", "fedge-seed1", "hierfl-seed2", "fedge-seed2"]
    assert "next: sbatch runs/s/slurm/array.sh\n" in capsys.readouterr().out
    assert subprocess.run(["bash", "-n", folder / "array.sh"], check=False).returncode == 0


def test_options_with_spaces_and_signs_reach_sbatch_whole(tmp_path, monkeypatch):
    """sbatch splits a line of options as a shell does, up to a # ; %% is its % in names of files."""
    folder = tmp_path / "my 100% study"
    folder.mkdir()
    monkeypatch.chdir(folder)
    path = write_sweep(folder)
    words = ["--comment=for #3, the 'last'", "--constraint=a&b"]
    also = f"--sbatch={shlex.join(words)}"
    assert main(["sweep", str(path), "--launcher", "slurm", also]) == 0
    script = folder / "runs" / "s" / "slurm" / "array.sh"
    found = [shlex.split(line, comments=True) for line in options_of(script)]
    assert found[-2:] == [[word] for word in words]
    assert [f"--output={str(script.parent).replace('%', '%%')}/%A-%a.log"] in found


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (r"""printf 'job 7 caf\351\033[31m\n'""", 0, "job 7 caf\ufffd\\x1b[31m\n"),
        (r"""printf 'no caf\351\n' >&2; exit 1""", 4, "array.sh, but: no caf\ufffd; change --sbatch"),
        ("exit 3", 4, "array.sh, but: it ended with code 3; change --sbatch"),
    ],
)
def test_what_sbatch_says_is_shown_whatever_it_is(path, capsys, text, code, words):
    stand_in(path.parent, f"#!/bin/bash\n{text}\n")
    assert main(["sweep", str(path), "--launcher", "slurm", "--submit"]) == code
    printed = capsys.readouterr()
    assert words in (printed.err if code else printed.out)


def test_a_task_that_waits_has_its_run_when_a_newer_script_is_written(path, monkeypatch):
    """Slurm keeps a copy of a submitted script: nothing that the next command writes may change its tasks."""
    assert main(["sweep", path.name, "--launcher", "slurm"]) == 0
    folder = path.parent / "runs" / "s" / "slurm"
    kept = path.parent / "kept.sh"
    kept.write_text(
        (folder / "array.sh").read_text().replace(sys.executable, str(path.parent / "bin/python"))
    )
    path.write_text(path.read_text().replace("[1, 2]", "[2]"))
    assert main(["sweep", path.name, "--launcher", "slurm"]) == 0
    stand_in(path.parent, '#!/bin/bash\necho "$@"\n')
    (path.parent / "bin" / "sbatch").rename(path.parent / "bin" / "python")
    for task, name in enumerate(["hierfl-seed1", "fedge-seed1", "hierfl-seed2", "fedge-seed2"]):
        done = subprocess.run(
            ["bash", kept], env={**os.environ, "SLURM_ARRAY_TASK_ID": str(task)}, capture_output=True,
            text=True, check=True,
        )  # fmt: skip
        assert done.stdout.split()[-4:-2] == ["--only", name]


@pytest.mark.extended
@pytest.mark.whole_runs
def test_an_array_carries_the_sweep_out_and_goes_on_where_it_was(path, capsys):
    """A run is missing when the first array has ended; the next command asks for that one alone."""
    path.write_text(path.read_text().replace("[1, 2]", "[2]"))
    stand_in(path.parent)
    command = ["sweep", str(path), "--launcher", "slurm", "--submit"]
    assert main(command) == 0
    assert "Submitted batch job 7" in capsys.readouterr().out
    folder = path.parent / "runs" / "s"
    names = ["fedge-seed2", "hierfl-seed2"]
    log = (folder / "slurm" / "array.sh.log").read_text()
    assert {load_run(folder / name).status for name in names} == {"completed"}, log
    models = {name: (folder / name / "checkpoints" / "final.safetensors").read_bytes() for name in names}

    subprocess.run(["rm", "-r", folder / "fedge-seed2"], check=True)
    assert main(command) == 0
    assert runs_of(folder / "slurm" / "array.sh") == ["fedge-seed2"]
    again = (folder / "fedge-seed2" / "checkpoints" / "final.safetensors").read_bytes()
    assert again == models["fedge-seed2"]

    capsys.readouterr()
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "(2 complete)" in printed
    assert (folder / "sweep.html").is_file()
    assert "Submitted" not in printed


def test_one_run_alone_is_that_of_the_sweep(path, capsys):
    assert main(["sweep", str(path), "--only", "hierfl-seed2", "--dry-run"]) == 0
    assert capsys.readouterr().out.split()[:3] == ["hierfl-seed2", "to", "do"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "hierfl-seed9"], "--only must be a run of s.toml, but is 'hierfl-seed9'"),
        (["--submit"], "--submit needs --launcher slurm, but another one is chosen"),
        (["--sbatch=--time=1"], "--sbatch needs --launcher slurm, but another one is chosen"),
        (["--launcher", "slurm", "--sbatch", "time=1"], "--sbatch must be options of sbatch, e.g."),
        (["--launcher", "slurm", "--sbatch", "'"], "--sbatch must be options of sbatch, but"),
    ],
)
def test_what_cannot_be_meant_is_refused(path, capsys, words, said):
    assert main(["sweep", path.name, *words]) == 4
    assert said in capsys.readouterr().err


def test_sbatch_that_is_not_there_or_refuses_is_one_line(path, capsys, monkeypatch):
    command = ["sweep", path.name, "--launcher", "slurm", "--submit"]
    stand_in(path.parent, "#!/bin/sh\necho 'sbatch: error: invalid partition' >&2\nexit 1\n")
    assert main(command) == 4
    assert "but: sbatch: error: invalid partition; change --sbatch" in capsys.readouterr().err
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert main(command) == 4
    assert "--submit needs sbatch, but it is not installed here; on a Slurm machine: sbatch runs/s/slurm" in (
        capsys.readouterr().err
    )
