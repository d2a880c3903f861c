"""The command `fedge`, called as a user calls it."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from small_runs import carry_out, small_config

from fedge.cli import main
from fedge.config.describe import json_schema, option_table

pytestmark = pytest.mark.whole_runs

ROOT = Path(__file__).parents[2]
TOY = "report=false data.path='synthetic' train.model='linear' train.local-epochs=1 num-server-rounds=2"


def test_the_page_of_options_is_what_the_command_prints():
    """docs/options.md has the table of `fedge options`."""
    assert option_table() in (ROOT / "docs" / "options.md").read_text(encoding="utf-8")


def test_fedge_run_completes(tmp_path, monkeypatch, capsys):
    """A toy run on threads: exit code 0, manifest completed, later -c wins over earlier."""
    monkeypatch.chdir(ROOT)
    code = main(
        ["run", "-c", "configs/smoke.toml", "-c", TOY, "-c", f"runs-dir='{tmp_path}'", "--workers", "2"]
    )
    manifest = json.loads((tmp_path / "latest" / "manifest.json").read_text())
    assert code == 0
    assert (manifest["status"], manifest["engine"]) == ("completed", "inprocess")
    assert manifest["config"]["num-server-rounds"] == 2
    assert manifest["federation"]["workers"] == 2
    assert "round 2/2" in capsys.readouterr().out


def test_fedge_run_takes_a_federation(tmp_path, monkeypatch):
    """The second word names a federation of pyproject.toml: 30 clients, ten per leaf."""
    monkeypatch.chdir(ROOT)
    assert main(["run", ".", "local-simulation-30", "-c", TOY + f" runs-dir='{tmp_path}'"]) == 0
    manifest = json.loads((tmp_path / "latest" / "manifest.json").read_text())
    assert manifest["clients_per_leaf"] == [10, 10, 10]


@pytest.mark.parametrize(
    ("words", "telling"),
    [
        (["-c", "train.modle='cnn'"], "did you mean train.model?"),
        (["-c", "fedge:hierfel"], "did you mean fedge:hierfl?"),
        (["-c", "nofile.toml"], "-c must be a readable file, but nofile.toml"),
        ([".", "nowhere"], "federation must be one of local-simulation, local-simulation-30"),
        (["elsewhere"], "the app's pyproject.toml must be a readable file"),
        (["--workers", "0"], "--workers must be at least 1, but is 0"),
        (["-c", "leaf.strategy='krum'"], "add scaffold.enabled=false"),
        (["-c", "train.model='transformer'"], "transformer"),
    ],
)
def test_refusals_are_one_line_and_exit_4(tmp_path, monkeypatch, capsys, words, telling):
    """Contract C10."""
    monkeypatch.chdir(ROOT)
    code = main(
        ["run", *words, *(["-c", f"runs-dir='{tmp_path / 'runs'}'"] if words[0] != "elsewhere" else [])]
    )
    error = capsys.readouterr().err
    assert code == 4
    assert error.startswith("fedge: ")
    assert error.count("\n") == 1
    assert telling in error
    assert not (tmp_path / "runs").exists()


def test_seed_must_be_a_number(monkeypatch, capsys):
    """A SEED that is no number is refused by name."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("SEED", "forty-two")
    assert main(["run", "-c", TOY]) == 4
    assert "SEED must be a whole number of at least 0, but is 'forty-two'" in capsys.readouterr().err


@pytest.mark.extended
def test_the_flower_engine_gives_a_real_exit_code(tmp_path):
    """`fedge run --engine flower` wraps `flwr run`, which says 0, and trusts the manifest.

    That a run which completes gives 0 is shown in tests/runs/use/test_examples.py.
    """
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, "-m", "fedge.cli", "run", "--engine", "flower", "-c", TOY]
    broken = "train.lr=1e6 train.local-epochs=30"  # no number comes of such steps: every client fails
    words = [*command, "-c", f"runs-dir='{tmp_path}' {broken}"]
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, check=False)
    assert done.returncode == 4
    assert json.loads((tmp_path / "latest" / "manifest.json").read_text())["status"] == "failed"


def test_a_folder_without_a_project_runs_the_default(tmp_path, monkeypatch, capsys):
    """Said in a line; with a packaged configuration on top, and gone on with by `fedge resume` alone."""
    monkeypatch.chdir(tmp_path)
    assert main(["run", "-c", "fedge:hierfl", "-c", TOY]) == 0
    assert capsys.readouterr().out.startswith("no pyproject.toml in this folder: ")
    assert main(["resume", "-c", "num-server-rounds=3"]) == 0
    assert "round 3/3" in capsys.readouterr().out
    manifest = json.loads((tmp_path / "runs" / "latest" / "manifest.json").read_text())
    assert manifest["config"]["cluster.enabled"] is False
    assert [entry.name for entry in tmp_path.iterdir()] == ["runs"]


def test_resume_without_any_run_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["resume"]) == 4
    assert "there is no run yet in runs; start one with `fedge run`" in capsys.readouterr().err


def test_resume_takes_the_address_of_a_cluster(tmp_path, monkeypatch, capsys):
    """It is asked before anything starts; threads use no Ray."""
    monkeypatch.setenv("RAY_ADDRESS", "")
    assert carry_out(small_config(tmp_path), "x")
    run, address = str(tmp_path / "runs" / "x"), ["--address", "127.0.0.1:9"]
    assert main(["resume", run, *address]) == 4
    assert "--address needs --engine flower" in capsys.readouterr().err
    further = ["--engine", "flower", "-c", "num-server-rounds=3", "--app", str(ROOT)]
    assert main(["resume", run, *address, *further]) == 4
    assert "RAY_ADDRESS must name a Ray cluster that answers, but '127.0.0.1:9'" in capsys.readouterr().err


def test_the_version(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"fedge {version('fedge')}\n"


@pytest.mark.parametrize("words", [["options"], ["tables"], ["configs"], ["--help"], ["run", "--help"]])
def test_a_reader_who_has_enough_sees_no_traceback(words):
    """As `| head`: the pipe's other end is closed before the first line."""
    read, write = os.pipe()
    os.close(read)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "fedge.cli", *words], stdout=write, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(write)
    assert ended.stderr == b""
    assert ended.returncode in (0, 141)


@pytest.mark.parametrize(
    "words",
    [
        ["new", "{}"], ["runs", "--runs-dir", "{}"], ["export-run", "{run}", "{}"],
        ["doctor", "deployment", "--certs", "{}"], ["report", "--runs-dir", "{}"],
        ["deal", "{}", "--clients", "3"],
        ["compare", "{}"], ["sweep", "{}"], ["run", "-c", "{}.toml"], ["run", "{}"], ["certs", "{}"],
    ],
)  # fmt: skip
def test_a_path_too_long_for_the_file_system_is_one_line(tmp_path, monkeypatch, capsys, words):
    """Contract C10: Python's own tests of a path raise then, where a missing one is just not there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "manifest.json").write_text('{"status": "completed"}')
    assert main([word.format("a" * 300, run=tmp_path / "run") for word in words]) == 4
    error = capsys.readouterr().err
    assert error.startswith("fedge: ")
    assert error.count("\n") == 1
    assert "aaaa" in error


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full is Linux's")
@pytest.mark.parametrize(
    "words", [["options"], ["tables"], ["configs"], ["docs", "tasks"], ["completion", "bash"]]
)
def test_output_that_finds_no_room_is_one_line(tmp_path, words):
    """Long and short ones, of which the short are written at the end."""
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "fedge.cli", *words], stdout=full, stderr=subprocess.PIPE, text=True,
            check=False, cwd=tmp_path,
        )  # fmt: skip
    assert ended.returncode == 4
    assert ended.stderr.splitlines()[-1] == (
        "fedge: the output must have room, but: No space left on device; make room, or write elsewhere"
    )
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_beyond_the_limit_of_a_file_is_one_line(tmp_path, monkeypatch, unbuffered):
    """`ulimit -f`, to which a command's output is subject too; unbuffered, Python drops the rest."""
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    with (tmp_path / "out").open("w") as out:
        ended = subprocess.run(
            ["bash", "-c", 'ulimit -f 1; exec "$@"', "-", sys.executable, "-m", "fedge.cli", "options"],
            stdout=out, stderr=subprocess.PIPE, text=True, check=False, cwd=tmp_path,
        )  # fmt: skip
    assert ended.returncode == 4
    assert ended.stderr.splitlines() == [
        "fedge: the output must have room, but: File too large; make room, or write elsewhere"
    ]


@pytest.mark.parametrize(
    "words", [["options"], ["options", "--json-schema"], ["run", "--help-all"], ["configs"], ["nöpe"]]
)
def test_a_terminal_without_utf_8_gets_what_it_can_show(words):
    """Signs that its encoding lacks are ?, never an error; a schema is JSON in any encoding."""
    variables = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "fedge.cli", *words]
    ended = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert "Traceback" not in ended.stderr
    assert ended.returncode == (2 if words == ["nöpe"] else 0)
    assert ended.stdout.isascii()
    if "--json-schema" in words:
        assert json.loads(ended.stdout) == json_schema()


def test_a_working_directory_that_is_gone_is_one_line(tmp_path, monkeypatch, capsys):
    """PyTorch's libraries would end the process, with a riddle, while they are loaded."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main(["run"]) == 4
    assert capsys.readouterr().err == (
        "fedge: the working directory must exist, but: No such file or directory; cd to one that does\n"
    )


AT_WORK = """\
import argparse, os, signal, sys, time
for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # the tests may run under nohup
    signal.signal(getattr(signal, name), signal.default_int_handler if name == "SIGINT" else signal.SIG_DFL)
from fedge import cli

def command(options):
    try:
        os.kill(os.getpid(), getattr(signal, options.signal))
        time.sleep(20)
    finally:
        print("cleaned up", flush=True)

sys.argv = ["fedge", "any"]
cli.parse_command_line = lambda *_: argparse.Namespace(command=command, signal=NAME)
sys.exit(cli.main())
"""


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_any_command_cleans_up_after_a_signal(name, code):
    """`fedge demo` left a run that was said to be running, with its data; others left half-made folders."""
    done = subprocess.run(
        [sys.executable, "-c", AT_WORK.replace("NAME", repr(name))], capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (code, "cleaned up\n", "")
