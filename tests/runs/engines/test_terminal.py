"""Real runs on a real (pseudo)terminal, as a person sees them, with a real Ctrl-C."""

import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from screen import Terminal
from small_data import nine_users

from hhar.cli import main as hhar

ROOT = Path(__file__).parents[3]
CTRL_C = b"\x03"


def quick():
    """The options of a run that is soon done."""
    return f"report=false data.path='{nine_users()}' train.model='linear' train.local-epochs=1"


def environment(**variables):
    """This environment as that of a person's terminal, with this project's programs on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    found = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", **variables}
    for name in ("SEED", "CI", "NO_COLOR", "COLUMNS", "LINES"):
        found.pop(name, None)
    return found | variables


class OnTerminal:
    """A program on a terminal of its own, which is its controlling one."""

    def __init__(self, command, width=80, height=24, **variables):
        self.terminal = Terminal(width, height)
        slave = self.terminal.slave
        self.process = subprocess.Popen(
            self.terminal.controlling(command), cwd=ROOT, env=environment(**variables), stdin=slave,
            stdout=slave, stderr=slave, start_new_session=True,
        )  # fmt: skip

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.terminal.__exit__()

    def until(self, pattern, timeout_s=180):
        """Read until something on the screen matches; returns the match."""
        deadline = time.monotonic() + timeout_s
        while not (found := re.search(pattern, "\n".join(self.terminal.look(0.05)), re.MULTILINE)):
            assert self.process.poll() is None, self.terminal.look()
            assert time.monotonic() < deadline, self.terminal.look()
        return found

    def end(self, timeout_s=180):
        """Read until the program ends; returns its exit code and the screen."""
        deadline = time.monotonic() + timeout_s
        while self.process.poll() is None:
            self.terminal.look(0.05)
            assert time.monotonic() < deadline, self.terminal.look()
        return self.process.returncode, self.terminal.look(0.2)


def fedge(*words):
    return [sys.executable, "-m", "fedge.cli", *words]


@pytest.mark.parametrize("engine", ["inprocess", pytest.param("flower", marks=pytest.mark.extended)])
def test_ctrl_c_leaves_a_readable_screen_that_says_how_to_go_on(tmp_path, engine):
    """Exit code 130; the last state of the leaves, then three lines; what the third one says works.

    Signals on Ray are in test_exits.py, too; the view on Ray is with make extended.
    """
    config = f"{quick()} num-server-rounds=100000 train.lr-decay=1.0 runs-dir='{tmp_path}' run-name='it'"
    with OnTerminal(fedge("run", "--engine", engine, "-c", config), 100, 30) as run:
        run.until(r"^round +2/100000  accuracy .*\n(.*\n)*^round \d+/100000  [━╸]+ +\d+:\d\d  left [\d:]+$")
        run.terminal.press(CTRL_C)
        code, lines = run.end()
    assert code == 130, lines
    folder = str(tmp_path / "it")
    # Flower's own processes get the signal, too; `flwr run` says how its simulation died, before or after
    lines = [line for line in lines if line and not re.search(r"<Signals\.SIG|exit status \d", line)]
    assert lines[-3:] == [
        "fedge: interrupted", f"run folder: {folder} (failed; see run.log)",
        f"resume with: fedge resume {shlex.quote(folder)}",
    ]  # fmt: skip
    assert re.match(r"(training|evaluating|evaluating, then training): \d of 9 clients back", lines[-4])
    assert lines[-5].startswith(" all  ")
    assert [line.split()[0] for line in lines[-9:-5]] == ["leaf", "0", "1", "2"]
    rounds = [
        int(line.split("/")[0].split()[1]) for line in lines if re.match(r"round +\d+/100000  accuracy", line)
    ]
    assert rounds == list(range(1, rounds[-1] + 1))
    manifest = json.loads((tmp_path / "it" / "manifest.json").read_text())
    assert (manifest["status"], manifest["exit_code"], manifest["reason"]) == ("failed", 130, "interrupted")
    if engine == "inprocess":
        words = shlex.split(lines[-1].removeprefix("resume with: fedge "))
        last = f"num-server-rounds={rounds[-1] + 10}"
        with OnTerminal(fedge(*words, "-c", last)) as again:
            code, lines = again.end()
        assert code == 0, lines
        assert lines[0].startswith(f"resuming {folder} after global round ")
        assert lines[-2] == f"run folder: {folder}"


def test_a_closed_terminal_ends_the_run(tmp_path):
    """The window is closed in mid-run: SIGHUP, and nothing can be written to the terminal any more."""
    config = f"{quick()} num-server-rounds=100000 train.lr-decay=1.0 runs-dir='{tmp_path}' run-name='it'"
    with OnTerminal(fedge("run", "-c", config), 80, 24) as run:
        run.until(r"^round +2/100000  accuracy ")
        run.terminal.hang_up()
        assert run.process.wait(timeout=60) == 129
    manifest = json.loads((tmp_path / "it" / "manifest.json").read_text())
    reason = "interrupted (SIGHUP)"
    assert (manifest["status"], manifest["exit_code"], manifest["reason"]) == ("failed", 129, reason)


@pytest.mark.parametrize(
    ("variables", "size", "live"),
    [
        pytest.param(
            {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C", "NO_COLOR": "1"},
            (44, 12),
            True,
            id="narrow, no colour, no unicode",
            marks=pytest.mark.extended,
        ),
        pytest.param({"TERM": "dumb"}, (80, 24), False, id="dumb"),
    ],
)
def test_a_run_on_all_sorts_of_terminals(tmp_path, variables, size, live):
    """The screen ends with the lines of a plain run, whatever was drawn meanwhile."""
    config = f"{quick()} num-server-rounds=3 runs-dir='{tmp_path}' run-name='it'"
    with OnTerminal(fedge("run", "-c", config), *size, **variables) as run:
        code, lines = run.end()
    assert code == 0, lines
    assert run.terminal.screen.sent.isascii()
    assert ("\x1b[" in run.terminal.screen.sent) == live
    assert run.terminal.screen.codes <= {"0m", "1m", "2m"}  # bold and faint, no colour
    assert [line.split()[1] for line in lines if line.startswith("round")] == ["1/3", "2/3", "3/3"]
    table = next(i for i, line in enumerate(lines) if line.startswith("leaf  cluster"))
    assert lines[table + 4].startswith("all 9 clients: test accuracy ")
    assert lines[-2].startswith("run folder: ")
    assert not any("waiting" in line or "back" in line for line in lines)


def test_hhar_shows_bars_on_a_terminal_and_nothing_in_a_pipe(tmp_path, capfd):
    raw = tmp_path / "raw"
    make = [sys.executable, "-m", "hhar", "synthesize", "--raw", raw, "--users", "2", "--fraction", "0.02"]
    with OnTerminal(make, 80) as on_terminal:
        code, _ = on_terminal.end()
    assert code == 0
    assert "2 of 2 users" in on_terminal.terminal.screen.sent
    prepare = [sys.executable, "-m", "hhar", "prepare", raw, "--out", tmp_path / "w.npz"]
    with OnTerminal(prepare, 80) as on_terminal:
        code, _ = on_terminal.end()
    sent = on_terminal.terminal.screen.sent
    assert code == 0
    for part in (
        "Phones_accelerometer.csv",
        "Phones_gyroscope.csv",
        "windows of phones",
        " recordings",
        " MB",
    ):
        assert part in sent
    capfd.readouterr()
    assert hhar(["prepare", str(raw), "--out", str(tmp_path / "w.npz")]) == 0
    said = capfd.readouterr()
    assert (said.err, said.out.count("\n")) == ("", 1)
    with OnTerminal(prepare, 80, TERM="dumb") as on_terminal:
        code, lines = on_terminal.end()
    assert code == 0
    assert len(lines) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full is Linux's")
@pytest.mark.parametrize(
    "where",
    [
        ">&-",
        pytest.param("| head -1", marks=pytest.mark.extended),
        pytest.param("> /dev/full", marks=pytest.mark.extended),
        pytest.param("2>&1 > /dev/full", marks=pytest.mark.extended),
    ],
)
def test_a_run_goes_on_when_nobody_reads_what_it_says(tmp_path, where):
    """The manifest has the truth, run.log why there was nothing to see.

    Whatever writing fails by, called here: tests/fedge/console/test_lines.py.
    """
    config = f"{quick()} num-server-rounds=2 runs-dir='{tmp_path}' run-name='it'"
    line = '{ "$0" -m fedge.cli run -c "$1"; echo $? > "$2"; } '
    process = subprocess.run(
        ["sh", "-c", line.replace("; echo", f" {where}; echo") if "|" not in where else line + where,
         sys.executable, config, str(tmp_path / "code")],
        cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert process.stderr == ""
    assert (tmp_path / "code").read_text() == "0\n"
    manifest = json.loads((tmp_path / "it" / "manifest.json").read_text())
    assert (manifest["status"], manifest.get("reason")) == ("completed", None)
    assert len((tmp_path / "it" / "metrics" / "global_rounds.csv").read_text().splitlines()) == 3
    gone = "the terminal is gone" in (tmp_path / "it" / "run.log").read_text()
    assert gone == (where != ">&-")
