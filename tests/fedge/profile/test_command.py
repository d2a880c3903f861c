"""`fedge profile`: real captures of real runs, figures by hand, and what is refused."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedge.cli import main
from fedge.process.capture import FOLDER, role_of_this_process
from fedge.profile import command
from fedge.profile.allocators import Allocator, Capture, allocator_place, read_capture
from fedge.profile.result import (
    Growth,
    Profile,
    allocator_changes,
    read_profile,
    resident_changes,
    write_profile,
)
from fedge.profile.watch import Sample, peaks, process_role, run_watched

pytestmark = pytest.mark.whole_runs

ROOT = Path(__file__).parents[3]
TOY = "data.path='synthetic' train.model='linear' train.local-epochs=1 num-server-rounds=2"
BROKEN = TOY.replace("local-epochs=1", "local-epochs=30") + " train.lr=1e6"  # no number comes of such steps
needs_memray = pytest.mark.skipif(
    importlib.util.find_spec("memray") is None, reason="memray is not installed"
)


# --- captures -----------------------------------------------------------------------------------------


def frames(*places):
    """A stack, innermost first, from (function, file)."""
    return [(function, file, 7) for function, file in places]


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        ([], ("outside Python", "")),
        (
            frames(("ones", "/v/site-packages/numpy/core.py"), ("train", "/w/fedge/training/local.py"),
                   ("run", "/w/fedge/run/run.py")),
            ("ones in numpy/core.py", "train in fedge/training/local.py"),
        ),
        (frames(("train", "/w/fedge/training/local.py")), ("train in fedge/training/local.py", "")),
        (frames(("f", "/usr/lib/python3.11/json/decoder.py")), ("f in json/decoder.py", "")),
        (frames(("f", "/home/me/script.py")), ("f in script.py", "")),
        (  # a checkout that is called like the package
            frames(("ones", "/w/fedge/.venv/lib/python3.11/site-packages/numpy/core.py"),
                   ("parse", "/w/fedge/hhar/raw/parse.py")),
            ("ones in numpy/core.py", "parse in hhar/raw/parse.py"),
        ),
        (
            frames(
                ("_compile_bytecode", "<frozen importlib._bootstrap_external>"),
                ("<module>", "/v/site-packages/torch/__init__.py"),
                ("<module>", "/w/fedge/training/networks/models.py"),
            ),
            ("import, by torch", ""),
        ),
        (frames(("exec", "<frozen importlib._bootstrap>"), ("f", "/x.py")), ("import, by the program", "")),
    ],
)  # fmt: skip
def test_the_place_of_a_stack(stack, expected):
    assert allocator_place(stack) == expected


@pytest.mark.parametrize(
    ("argv", "role"),
    [
        (["/bin/fedge", "run"], "server"),
        (["/bin/flwr-simulation"], "server"),
        (["/ray/default_worker.py", "--x"], "worker"),
        (["/bin/flwr", "run", "."], ""),
        (["/bin/fedge", "run", ".", "--engine", "flower"], ""),
        ([], "server"),
    ],
)
def test_who_is_captured(argv, role):
    assert role_of_this_process(argv) == role


@pytest.mark.parametrize(
    ("name", "line", "is_root", "role"),
    [
        ("fedge", "python -m fedge.cli run . --engine inprocess", True, "server"),
        ("fedge", "python -m fedge.cli run . --engine flower", True, "launcher"),
        ("flwr", "python /bin/flwr run . -c x.toml", False, "launcher"),
        ("flower-simulati", "python /bin/flower-simulation --app .", False, "server"),
        ("ray::ClientAppA", "ray::ClientAppActor.run", False, "worker"),
        ("ray::IDLE", "ray::IDLE", False, "ray"),
        ("gcs_server", "gcs_server --x", False, "ray"),
        ("python", "python /site-packages/ray/dashboard/agent.py", False, "ray"),
        # the account of Ray's own images, and an environment of this name
        ("python", "/home/ray/anaconda3/bin/python -m fedge.cli run . --engine inprocess", True, "server"),
        ("python", "/envs/ray/bin/python -m fedge.cli run . --engine flower", True, "launcher"),
    ],
)
def test_who_is_who_when_watched_from_outside(name, line, is_root, role):
    assert process_role(name, line.split(), is_root) == role


_PLANTED = """
import sys
def deep(n):
    return deep(n - 1) if n else __import__("fedge")
deep(5)
import numpy as np
def inner(): return np.ones(5_000_000)
def outer(): return inner()
kept = outer()
"""


@needs_memray
def test_a_capture_knows_where_memory_was_asked_for(tmp_path):
    """40 MB in `inner`, called after frames above the beginning of the capture have returned."""
    script = tmp_path / "script.py"
    script.write_text(_PLANTED)
    environment = {**os.environ, FOLDER: str(tmp_path), "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, str(script)], env=environment, check=True)
    (path,) = tmp_path.glob("server-*.bin")
    capture = read_capture(path)
    first = capture.top[0]
    assert (first.what, first.count) == ("ones in numpy/_core/numeric.py", 1)
    assert first.heap_mib == pytest.approx(40e6 / 2**20, rel=1e-3)
    assert capture.mib >= first.mib
    assert (capture.role, capture.client_mib, capture.store_mib) == ("server", 0.0, 0.0)


@needs_memray
@pytest.mark.extended
def test_captures_of_server_and_workers_on_the_flower_engine(tmp_path):
    """Workers are ended by message: their captures are whole; what waits for them is not captured.

    Long: memray in three processes, on Ray.
    """
    words = ["run", "--engine", "flower", "-c", f"{TOY} report=false runs-dir='{tmp_path / 'runs'}'"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, FOLDER: str(tmp_path), "PATH": path}
    subprocess.run(
        [sys.executable, "-m", "fedge.cli", *words],
        cwd=ROOT,
        env=environment,
        check=True,
        capture_output=True,
    )
    captures = [read_capture(found) for found in sorted(tmp_path.glob("*.bin"))]
    server, *workers = captures
    assert server.role == "server"
    assert {worker.role for worker in workers} == {"worker"}
    assert any("hhar/windows/" in top.via + top.what for top in server.top)
    assert server.store_mib > 100
    for worker in workers:
        assert any("fedge/" in top.via + top.what for top in worker.top)
        assert worker.store_mib == 0


@pytest.mark.extended
@needs_memray
def test_a_profile_of_the_inprocess_engine(tmp_path, monkeypatch, capsys):
    """Two runs, the page, the flame graph; nothing else stays."""
    monkeypatch.chdir(ROOT)
    folder = tmp_path / "mine"
    assert main(["profile", "-c", TOY, "-o", str(folder), "--workers", "2"]) == 0
    assert sorted(path.name for path in folder.iterdir()) == [
        "flames-server.html",
        "profile.html",
        "profile.json",
    ]
    found = read_profile(folder)
    assert (found.facts["engine"], found.facts["rounds"], found.facts["clients"]) == ("inprocess", 2, 9)
    assert found.facts["changed"] == {
        "num-server-rounds": 2, "data.path": "synthetic", "train.model": "linear", "train.local-epochs": 1
    }  # fmt: skip
    assert list(found.peaks) == ["server"]
    peak = found.peaks["server"]
    assert 50 < peak["uss_mib"] < peak["rss_mib"] < 5000
    (capture,) = found.captures
    assert 0 < capture.client_mib < capture.mib
    assert any(top.what == "import, by torch" for top in capture.top)
    page = (folder / "profile.html").read_text()
    assert '<a href="flames-server.html">Flame graph of the server</a>' in page
    assert "import, by torch" in page
    printed = capsys.readouterr().out
    assert "2/2  inprocess: the same under memray" in printed
    assert "peak USS MiB" in printed
    assert main(["profile", "--compare", str(folder), str(folder), "-o", str(tmp_path / "c.html")]) == 0


# --- what is refused ----------------------------------------------------------------------------------


def test_without_memray_one_line_says_what_to_do(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert main(["profile"]) == 4
    assert capsys.readouterr().err == (
        "fedge: fedge profile needs memray, but it is not installed; pip install 'fedge[profile]'\n"
    )


@needs_memray
@pytest.mark.parametrize(
    ("words", "telling"),
    [
        (["-c", "train.lt=1.0"], "did you mean train.lr?"),
        (["--workers", "0"], "--workers must be at least 1"),
        ([".", "nowhere"], "federation must be one of"),
        (["-c", TOY, "-o", "."], "--output must be a new folder, but .: File exists"),
        (["--compare", "nowhere", "nowhere"], "a profile must be a folder with profile.json"),
    ],
)
def test_refusals_are_one_line(monkeypatch, capsys, words, telling):
    monkeypatch.chdir(ROOT)
    assert main(["profile", *words]) == 4
    error = capsys.readouterr().err
    assert telling in error
    assert error.count("\n") == 1


@needs_memray
@pytest.mark.parametrize("moment", ["_run", "write_profile", "_draw_flames", "_show"])
def test_an_interruption_at_any_moment_leaves_no_folder(tmp_path, monkeypatch, moment):
    def interrupt(*_):
        raise KeyboardInterrupt

    result = Profile("p", {}, [], [])
    for name, stand_in in (("_measure", lambda *_: result), ("write_profile", lambda *_: None)):
        if moment != "_run":
            monkeypatch.setattr(command, name, stand_in)
    monkeypatch.setattr(command, moment, interrupt)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kept").mkdir()
    assert main(["profile", str(ROOT), "-c", TOY]) == 130
    assert main(["profile", str(ROOT), "-c", TOY, "-o", "kept/new/p"]) == 130
    assert [path.name for path in tmp_path.rglob("*")] == ["kept"]


@needs_memray
def test_a_run_that_fails_is_said(tmp_path, monkeypatch, capsys):
    """SCAFFOLD divides by the learning rate: every client fails."""
    monkeypatch.chdir(ROOT)
    assert main(["profile", "-c", BROKEN, "-o", str(tmp_path / "p")]) == 4
    error = capsys.readouterr().err
    assert "the run must complete, but it is failed: " in error
    assert (tmp_path / "p" / "watched" / "output.txt").is_file()


@pytest.mark.parametrize("text", ["", "{}", '{"format": 9}', '{"format": 1, "facts": {}, "samples": [{}]}'])
def test_a_damaged_profile_is_one_line(tmp_path, capsys, text):
    (tmp_path / "profile.json").write_text(text)
    assert main(["profile", "--compare", str(tmp_path), str(tmp_path)]) == 4
    assert "profile again" in capsys.readouterr().err


# --- figures by hand ----------------------------------------------------------------------------------


def test_peaks_are_each_at_their_own_moment():
    samples = [
        Sample(0.2, "server", 1, 100.0, 90.0, 100.0),
        Sample(0.2, "worker", 2, 300.0, 80.0, 160.0),
        Sample(0.4, "server", 1, 120.0, 70.0, 120.0),
    ]
    assert peaks(samples) == {
        "server": {"processes": 1, "rss_mib": 120.0, "uss_mib": 90.0, "largest_rss_mib": 120.0},
        "worker": {"processes": 2, "rss_mib": 300.0, "uss_mib": 80.0, "largest_rss_mib": 160.0},
    }


def test_a_command_is_watched():
    """A process that holds 300 MB for a second; its exit code is passed on."""
    hold = "import sys, time; kept = b'x' * 300_000_000; time.sleep(1); sys.exit(3)"
    code, samples = run_watched([sys.executable, "-c", hold])
    assert code == 3
    peak = peaks(samples)["server"]
    assert 300e6 / 2**20 < peak["uss_mib"] <= peak["rss_mib"] < 400


@pytest.mark.parametrize(
    ("before", "after", "percent"),
    [(100.0, 103.0, 3.0), (50.0, 25.0, -50.0), (None, 1.0, None), (1.0, None, None)],
)
def test_a_change_in_percent(before, after, percent):
    assert Growth("x", before, after).percent == percent


@pytest.fixture
def pair(tmp_path):
    """Two profiles: the server's RSS 200 → 210 and USS 100 → 100; torch 50 → 50, windows 10 → 4, new 3."""

    def make(name, rss, tops):
        top = [Allocator(False, what, via, mib, 0.0, 1) for what, via, mib in tops]
        capture = Capture("server", 1, sum(t.mib for t in top), 0.0, 0.0, 0.0, top)
        facts = {
            "engine": "inprocess", "rounds": 2, "clients": 9, "changed": {}, "versions": {"fedge": "0.1.0"},
            "when": "2025-01-02 03:04 UTC", "seconds": 5.0, "seconds_captured": 9.0,
        }  # fmt: skip
        folder = tmp_path / name
        folder.mkdir()
        samples = [Sample(0.2, "server", 1, rss, 100.0, rss)]
        write_profile(folder, Profile(name, facts, samples, [capture]))
        return folder

    return (
        make("before", 200.0, [("import, by torch", "", 50.0), ("var", "load", 10.0)]),
        make("after", 210.0, [("import, by torch", "", 50.0), ("var", "load", 4.0), ("new", "", 3.0)]),
    )


def test_what_is_written_comes_back(pair):
    found = read_profile(pair[0])
    assert found.name == "before"
    assert found.samples == [Sample(0.2, "server", 1, 200.0, 100.0, 200.0)]
    assert found.captures[0].top[1] == Allocator(False, "var", "load", 10.0, 0.0, 1)


def test_changes_by_hand(pair):
    before, after = map(read_profile, pair)
    assert resident_changes(before, after) == [
        Growth("server, RSS", 200.0, 210.0),
        Growth("server, USS", 100.0, 100.0),
    ]
    assert allocator_changes(before, after) == [
        Growth("server: var, from load", 10.0, 4.0),
        Growth("server: new", None, 3.0),
        Growth("server: import, by torch", 50.0, 50.0),
    ]


@pytest.mark.parametrize(
    ("limit", "code"), [([], 0), (["--max-growth", "5"], 0), (["--max-growth", "4.9"], 4)]
)
def test_growth_is_evaluated_on_resident_memory(pair, tmp_path, capsys, limit, code):
    """RSS grew by 5 %; that an allocator is new does not count."""
    page = tmp_path / "c.html"
    assert main(["profile", "--compare", *map(str, pair), "-o", str(page), *limit]) == code
    printed = capsys.readouterr().out
    assert "server, RSS  200         210        +5.0 %" in printed
    assert ("grown: server, RSS by 5.0 %, more than 4.9 %" in printed) == (code == 4)
    text = page.read_text()
    assert "<td>server: var, from load</td>" in text
    assert "−60.0 %" in text
    assert "new" in text


def test_profile_json_is_json(pair):
    assert json.loads((pair[0] / "profile.json").read_text())["format"] == 1
