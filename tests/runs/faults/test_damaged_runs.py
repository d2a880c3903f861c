"""Damaged run folders, in every command that reads them: one line, or what the whole folder gives.

Pages name tables that are not what a run wrote: tests/fedge/records/test_outputs.py.
Files are damaged, or forged, with the checksums that fit. Case N follows from seed N. A sample with all
tests; DAMAGED_RUNS=FIRST tries others, and DAMAGED_RUNS_TRIED=N so many of each.
"""

import io
import json
import os
import shutil
import signal
import sys
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from damage import damage
from flower_runs import comparable
from refusals import check_refusal
from small_runs import small_config
from spoilt_folders import spoil_folder

from fedge import compare, simulate
from fedge.cli import main
from fedge.config.registers.option import ConfigError
from hhar.windows.window_file import load_windows

SAMPLE, ALL, FORGED, ROUNDS, LIMIT_S = 9, 3000, 500, 3, 300  # each command once
FIRST = int(os.environ.get("DAMAGED_RUNS", "0"))
SAMPLE = int(os.environ.get("DAMAGED_RUNS_TRIED", SAMPLE))
# once a traceback of a figure's
FOUND = (153, 225, 378, 828, 1710, 1863, 2259, 2502)
FOUND_FORGED = (2201, 2245)  # once notes before a refusal; states of other clients
OK, REFUSED = 0, 4


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Two whole runs, of two seeds, and windows to classify."""
    folder = tmp_path_factory.mktemp("damaged")
    runs = []
    for seed in (3, 4):
        config = small_config(
            folder, run_name=f"seed-{seed}", seed=seed, checkpoint__every=1, num_server_rounds=ROUNDS,
            hierarchy__leaf_rounds=1, report=True,
        )  # fmt: skip
        run = simulate(config, terminal=io.StringIO())
        assert run.status == "completed", run.reason
        runs.append(run.folder)
    np.savez(folder / "x.npz", x=load_windows(config["data.path"]).x[:5])
    return folder, *runs


def stopped(folder):
    """Make of a whole run one that was stopped after its last checkpoint but one."""
    (folder / "checkpoints" / "final.safetensors").unlink()
    newest = max((p for p in (folder / "checkpoints").iterdir() if p.is_dir()), key=lambda p: p.name)
    shutil.rmtree(newest)
    manifest = folder / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "status": "running"}))


COMMANDS = {
    "report": lambda run, place: ["report", str(run)],
    "compare": lambda run, place: [
        "compare",
        str(run),
        str(place / "other"),
        "--out",
        str(place / "page.html"),
    ],
    "runs": lambda run, place: ["runs", "--runs-dir", str(run.parent)],
    "status": lambda run, place: ["status", str(run)],
    "predict": lambda run, place: ["predict", str(run), str(place / "x.npz")],
    "export": lambda run, place: ["export", str(run), "--torchscript", str(place / "m.pt")],
    "export-run": lambda run, place: ["export-run", str(run), str(place / "copy")],
    "resume": lambda run, place: ["resume", str(run)],
    "resume, stopped": lambda run, place: ["resume", str(run)],
}


MAY_SAY_MORE = ("status", "resume", "resume, stopped")  # than one line


class Hangs(BaseException):
    """A command took too long."""


def carried_out(words):
    """Exit code, standard output and error of a command; raises `Hangs`."""

    def too_long(*_):
        raise Hangs

    out, err, before = io.StringIO(), io.StringIO(), (sys.stdout, sys.stderr)
    previous = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(LIMIT_S)
    sys.stdout, sys.stderr = out, err
    try:
        code = main(words)
    except SystemExit as error:
        code = error.code
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)
        sys.stdout, sys.stderr = before
    return code, out.getvalue(), err.getvalue()


def results(command, run, place, out):
    """Results of a command, by which a right one is known."""
    if command == "predict":
        return out
    if command.startswith("resume"):
        return comparable(run)
    if command == "export":
        return (place / "m.pt").is_file()
    return None


def laid_out(study, place, command):
    """Copy the runs into a place; returns the one to be damaged."""
    folder, first, second = study
    shutil.rmtree(place, ignore_errors=True)
    run = place / "runs" / "run"
    shutil.copytree(first, run, symlinks=True)
    shutil.copytree(second, place / "other", symlinks=True)
    shutil.copyfile(folder / "x.npz", place / "x.npz")
    if command == "resume, stopped":
        stopped(run)
    return run


def tried(command, run, place):
    """Fault of a command on a folder, or None; exit code, standard output and error."""
    try:
        code, out, err = carried_out(COMMANDS[command](run, place))
    except Hangs:
        return "hangs", None, "", ""
    except BaseException as error:  # whatever it is, it is no line
        return f"{type(error).__name__}: {error}"[:600], None, "", ""
    fault = None
    if "Traceback" in out + err or "\x1b" in out + err:
        fault = f"{(out + err)[-600:]!r}"
    elif code not in (OK, REFUSED) and not (command == "status" and code in range(8)):
        fault = f"exit code {code}: {err[-300:]!r}"
    elif code == REFUSED and command not in MAY_SAY_MORE and len(err.splitlines()) != 1:
        fault = f"not one line: {err[-600:]!r}"
    return fault, code, out, err


def wrong(study, place, number, right, count):
    """Fault of a case; None where it went as it should."""
    rng = np.random.default_rng([number, 24])
    command = list(COMMANDS)[number % len(COMMANDS)]
    run, outside = laid_out(study, place, command), place / "outside.csv"
    outside.write_text("nobody's, and nobody may write to it\n")
    file, how = damage(run, study[2], outside, rng)
    case = f"case {number}, fedge {command}, {file} {how}"
    fault, code, out, err = tried(command, run, place)
    if fault:
        return f"{case}: {fault}"
    if outside.read_text() != "nobody's, and nobody may write to it\n":
        return f"{case}: wrote through the link"
    count[command, code] += 1
    if code != OK or command not in right:
        return None
    made = results(command, run, place, out)
    if made == right[command] or file.stem in out + err:
        return None
    return f"{case}: another result, and nothing said: {out[-200:]!r} {err[-200:]!r}"


def note_right(study, place, command, right):
    """Note what a command makes of the whole run."""
    run = laid_out(study, place, command)
    code, out, err = carried_out(COMMANDS[command](run, place))
    assert code == OK, err
    right[command] = results(command, run, place, out)


@pytest.mark.parametrize(
    "cases",
    [pytest.param(range(FIRST, FIRST + SAMPLE), id="sample"),
     pytest.param(FOUND, id="found", marks=pytest.mark.extended),
     pytest.param(range(ALL), id="all", marks=[pytest.mark.soak, pytest.mark.timeout(7200)])],
)  # fmt: skip
def test_a_damaged_run_is_one_line_or_a_right_result(study, tmp_path, cases):
    right, count, found = {}, Counter(), []
    place = tmp_path / "place"
    for command in ("predict", "export", "resume", "resume, stopped"):
        note_right(study, place, command, right)
    for number in cases:
        said = wrong(study, place, number, right, count)
        if said:
            found.append(said)
    print(f"{len(cases)} cases, {len(found)} wrong; (command, exit code): {dict(sorted(count.items()))}")
    assert found == [], "\n".join(found)


@pytest.mark.parametrize(
    ("cases", "commands"),
    [pytest.param(range(FIRST, FIRST + 2 * SAMPLE // 3), 1, id="sample"),
     pytest.param(FOUND_FORGED, 9, id="found", marks=pytest.mark.extended),
     pytest.param(range(FORGED), 9, id="all", marks=[pytest.mark.soak, pytest.mark.timeout(7200)])],
)  # fmt: skip
def test_a_forged_run_is_one_line_or_no_worse(study, tmp_path, cases, commands):
    """One file is forged, with fitting checksums: each command ends by itself, with a result or one line."""
    place, count, found = tmp_path / "place", Counter(), []
    for number in cases:
        names = list(COMMANDS) if commands > 1 else [list(COMMANDS)[number % len(COMMANDS)]]
        for command in names:
            run = laid_out(study, place, command)
            what = spoil_folder(run, number)
            fault, code, _, _ = tried(command, run, place)
            count[command, code] += 1
            found += [f"folder {number}, fedge {command}, {what}: {fault}"] if fault else []
    print(f"{len(cases)} folders, {len(found)} wrong; (command, exit code): {dict(sorted(count.items()))}")
    assert found == [], "\n".join(found)


def compared(study, place, number, right):
    """Fate of a comparison from Python of two runs, one of which is damaged, or forged."""
    rng, makes_page = np.random.default_rng([number, 25]), number % 4 == 0
    run, outside = laid_out(study, place, "compare"), place / "outside.csv"
    outside.write_text("nobody's\n")
    case = f"case {number}: "
    case += (
        spoil_folder(run, number)
        if number % 3 == 2
        else " ".join(map(str, damage(run, study[2], outside, rng)))
    )
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            found = compare([run, place / "other"], page=place / "page.html" if makes_page else None)
        except ConfigError as error:
            check_refusal(error, run, run, place)
            return "refused"
        except Exception as error:
            raise AssertionError(f"{case}: {type(error).__name__}: {error}") from error
    assert all(type(one.message) is UserWarning and str(one.message).isprintable() for one in said), case
    assert outside.read_text() == "nobody's\n"
    if found.equals(right):
        return "right"
    assert said or number % 3 == 2 or "manifest" in case, f"{case}: other numbers, and nothing said"
    return "other numbers, said" if said else "other numbers of a forged run"


@pytest.mark.parametrize(
    "cases",
    [pytest.param(range(FIRST, FIRST + SAMPLE), id="sample"),
     pytest.param(range(1000, 4000), id="many", marks=[pytest.mark.soak, pytest.mark.timeout(7200)])],
)  # fmt: skip
def test_a_comparison_from_python_is_one_line_or_right_or_says_what_is_damaged(study, tmp_path, cases):
    place = tmp_path / "place"
    run = laid_out(study, place, "compare")
    right = compare([run, place / "other"])
    seen = Counter(compared(study, place, number, right) for number in cases)
    print(f"{len(cases)} comparisons: {dict(sorted(seen.items()))}")


class Rude:
    """An object that cannot be shown."""

    def __repr__(self):
        raise RuntimeError


@pytest.mark.parametrize(
    "runs",
    [None, 5, "", "runs", b"runs", [], {}, [None], [5], [b"x"], [[]], ["no"], ["\0"], "x" * 5000, Rude(),
     [Rude()], Path("no"), np.zeros(2), [np.zeros(2)], object, iter(()), ["a\nb"], [{}],
     pl.DataFrame({"a": ["no"]})],
    ids=lambda runs: type(runs).__name__,
)  # fmt: skip
def test_what_are_no_runs_is_one_line(runs):
    with pytest.raises(ValueError, match=";") as refused:
        compare(runs)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "page", [5, b"x", [], "", "\0", "no/such/page.html", "/", ".", Rude(), "x" * 5000, True]
)
def test_a_page_that_cannot_be_is_one_line(study, tmp_path, monkeypatch, page):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, OSError)) as refused:
        compare(study[1:], page=page)
    assert "\n" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kept", [20, *(pytest.param(kept, marks=pytest.mark.extended) for kept in (0, 400))])
def test_a_table_of_workers_that_was_cut_costs_no_report(study, tmp_path, kept):
    """Case 4104 of the damaged ones: a page says what it can without the workers' rows."""
    run = laid_out(study, tmp_path / "place", "report")
    path = run / "timing" / "workers.csv"
    path.write_bytes(path.read_bytes()[:kept])
    fault, code, _, _ = tried("report", run, tmp_path / "place")
    assert (fault, code) == (None, OK)


@pytest.mark.parametrize("lost", ["global_rounds.csv", "clients.csv", "confusion.json"])
def test_a_report_says_on_the_terminal_which_table_is_not_as_it_was(study, tmp_path, lost):
    """One line each, beside the page, which is made of the others."""
    run = laid_out(study, tmp_path / "place", "report")
    path = run / "metrics" / lost
    path.write_bytes(path.read_bytes()[:-9])
    fault, code, out, err = tried("report", run, tmp_path / "place")
    assert (fault, code) == (None, OK)
    assert f"metrics/{lost} is not as the run wrote it" in err
    assert all(line.startswith("fedge: run: ") for line in err.splitlines())
    assert out.splitlines() == [str(run / "report.html")]
