"""`fedge sweep` on real runs: what comes out, what is gone on with, what ends how."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from safetensors.numpy import save_file

from fedge import load_run, simulate
from fedge.cli import main
from fedge.config.registers.option import ConfigError
from fedge.records.lock import RunLock
from fedge.sweep.plan import read_sweep
from fedge.sweep.pool import RunPool
from fedge.sweep.run_states import standings

pytestmark = pytest.mark.whole_runs

TOY = """
[base]
data.path = "synthetic"
train.model = "linear"
train.local-epochs = 1
num-server-rounds = 2
"""
VARIANTS = """
[[variants]]
name = "hierfl"
cluster.enabled = false
gate.enabled = false

[[variants]]
name = "fedge"
"""


@pytest.fixture
def write(tmp_path):
    """Function that writes a sweep file named "s" whose runs lie in the test's folder; gives its path."""

    def write(text, seeds=(1, 2), more="", toy=TOY):
        path = tmp_path / "s.toml"
        head = (
            f"[sweep]\nseeds = {list(seeds)}\nsupernodes = 4\nruns-dir = {str(tmp_path / 'runs')!r}\n{more}\n"
        )
        path.write_text(head + toy + text)
        return path

    return write


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """The folder of a sweep of two variants and two seeds, and what it printed."""
    folder = tmp_path_factory.mktemp("swept")
    path = folder / "s.toml"
    path.write_text(f"[sweep]\nseeds = [1, 2]\nsupernodes = 4\nruns-dir = {str(folder)!r}\n{TOY}{VARIANTS}")
    done = run_command(path)
    assert done.returncode == 0, done.stderr
    return path, done.stdout


def run_command(*words):
    """Run `fedge sweep` as a user does."""
    command = [sys.executable, "-m", "fedge.cli", "sweep", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def rows_of(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


# --- what comes out -----------------------------------------------------------------------------------


def test_every_run_is_there_and_counted(swept):
    path, printed = swept
    names = ["fedge-seed1", "fedge-seed2", "hierfl-seed1", "hierfl-seed2"]
    folder = path.parent / "s"
    assert sorted(p.parent.name for p in folder.glob("*/manifest.json") if not p.parent.is_symlink()) == names
    assert {load_run(folder / name).status for name in names} == {"completed"}
    assert "s: 4 runs in" in printed
    assert "(4 to do)" in printed
    assert "4/4  " in printed
    assert " left " in printed
    assert (folder / "sweep.toml").read_text() == path.read_text()
    assert (folder / "sweep.log").read_text() == ""


def test_a_sweep_whose_runs_are_started_one_by_one_is_compared_from_its_folder(write, capsys, monkeypatch):
    """Each command knows the whole sweep; the folder's own copy of the file may be the one that is given."""
    path = write(VARIANTS, more='name = "s"')
    monkeypatch.chdir(path.parent)
    folder = path.parent / "runs" / "s"
    assert main(["sweep", str(path), "--only", "fedge-seed1"]) == 0
    assert main(["sweep", str(folder / "sweep.toml"), "--only", "fedge-seed1"]) == 0
    assert (folder / "sweep.toml").read_text() == path.read_text()
    runs = {run["run"] for run in json.loads((folder / "plan.json").read_text())["runs"]}
    assert runs == {"hierfl-seed1", "hierfl-seed2", "fedge-seed1", "fedge-seed2"}
    capsys.readouterr()
    assert main(["compare", str(folder)]) == 0
    assert "mean test accuracy" in capsys.readouterr().out


def test_runs_of_a_sweep_are_small(swept):
    """No report, no checkpoints of what is complete; the models stay."""
    folder = swept[0].parent / "s" / "fedge-seed1"
    assert not (folder / "report.html").exists()
    assert [p.name for p in (folder / "checkpoints").iterdir()] == ["final.safetensors"]


def test_a_run_of_a_sweep_has_the_bits_of_the_same_run_alone(swept, tmp_path):
    """Contract C3: a forked process with one worker, or threads of this one."""
    run = load_run(swept[0].parent / "s" / "fedge-seed2")
    config = {**run.config, "runs-dir": str(tmp_path), "run-name": ""}
    alone = simulate(config, num_supernodes=4, workers=2, terminal=io.StringIO())
    for name in ("metrics/leaf_rounds.csv", "clusters.jsonl", "checkpoints/final.safetensors"):
        assert (alone.folder / name).read_bytes() == (run.folder / name).read_bytes()


def test_the_tables_by_hand(swept):
    """Means over seeds and paired differences, worked out from the runs' own tables."""
    folder = swept[0].parent / "s"
    final = {
        (label, seed): load_run(folder / f"{label}-seed{seed}").rounds["test_accuracy_mean"][-1]
        for label in ("hierfl", "fedge")
        for seed in (1, 2)
    }
    rows = {r["group"]: r for r in rows_of(folder / "sweep.csv") if r["metric"] == "mean test accuracy"}
    assert list(rows) == ["hierfl", "fedge"]
    assert float(rows["fedge"]["mean"]) == pytest.approx((final["fedge", 1] + final["fedge", 2]) / 2)
    gains = [final["fedge", seed] - final["hierfl", seed] for seed in (1, 2)]
    assert float(rows["fedge"]["difference"]) == pytest.approx(np.mean(gains), abs=1e-12)
    assert (rows["fedge"]["reference"], rows["hierfl"]["reference"]) == ("hierfl", "")
    runs = {
        (r["variants"], int(r["seed"])): float(r["mean test accuracy"]) for r in rows_of(folder / "runs.csv")
    }
    assert runs == final
    page = (folder / "sweep.html").read_text()
    assert "Sweep: s" in page
    assert "minus hierfl" in page


def test_a_sweep_says_which_variant_its_validation_scores_are_for(swept, capsys):
    """By the runs' own tables: the mean validation accuracy of served models, never a test score."""
    path, _ = swept
    folder = path.parent / "s"
    means = {
        label: np.mean(
            [load_run(folder / f"{label}-seed{seed}").rounds["val_accuracy_mean"][-1] for seed in (1, 2)]
        )
        for label in ("hierfl", "fedge")
    }
    rows = {r["group"]: r for r in rows_of(folder / "sweep.csv") if r["metric"] == "mean validation accuracy"}
    assert {label: float(row["mean"]) for label, row in rows.items()} == pytest.approx(means)
    assert all(row["mean validation accuracy"] for row in rows_of(folder / "runs.csv"))
    assert main(["sweep", str(path)]) == 0
    printed = capsys.readouterr().out
    best = max(means, key=means.get)
    if means["hierfl"] != means["fedge"]:
        assert f"by mean validation accuracy, on which to choose: {best} ({means[best]:.4f}" in printed
    else:
        assert "on which to choose" not in printed


def test_again_does_nothing_but_compare(swept, capsys):
    path, _ = swept
    manifests = sorted((path.parent / "s").glob("*/manifest.json"))
    before = [p.stat().st_mtime_ns for p in manifests]
    assert main(["sweep", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "(4 complete)" in printed
    assert "mean test accuracy" in printed
    assert [p.stat().st_mtime_ns for p in manifests] == before


def test_more_seeds_leave_the_others_alone(swept, capsys):
    path, _ = swept
    more = path.with_name("more.toml")
    more.write_text(path.read_text().replace("[1, 2]", '[1, 2, 3]\nname = "s"'))
    assert main(["sweep", "--dry-run", str(more)]) == 0
    printed = capsys.readouterr().out
    assert "s: 6 runs in" in printed
    assert "(2 to do, 4 complete)" in printed
    assert "fedge-seed3   to do          0/2 rounds" in printed
    assert "fedge-seed1   complete       2/2 rounds" in printed


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("local-epochs = 1", "local-epochs = 2", "train.local-epochs is 2, was 1"),
        ("supernodes = 4", "supernodes = 5", "supernodes is 5, was 4"),
        ("rounds = 2", "rounds = 1", "num-server-rounds is 1, was 2"),
        ("rounds = 2", "rounds = 3", "num-server-rounds is 3, was 2, and its checkpoints were not kept"),
        ('"synthetic"', '"synthetic"\ndata.synthetic-users = 8', "data.synthetic-users is 8, was 0"),
    ],
)
def test_a_changed_file_is_refused_with_the_difference(swept, capsys, old, new, words):
    path, _ = swept
    changed = path.with_name("changed.toml")
    changed.write_text(path.read_text().replace(old, new).replace("seeds", 'name = "s"\nseeds'))
    assert main(["sweep", str(changed)]) == 4
    error = capsys.readouterr().err
    assert "hierfl-seed1 exists with another configuration: " in error
    assert words in error
    assert error.count("\n") == 1


def test_other_data_of_the_same_name_are_refused(swept, monkeypatch, capsys, tmp_path):
    """The fingerprint tells, not the path."""
    path, _ = swept
    manifest = path.parent / "s" / "hierfl-seed1" / "manifest.json"
    text = manifest.read_text()
    entries = json.loads(text)
    entries["data"]["fingerprint"] = "0" * 64
    manifest.write_text(json.dumps(entries))
    try:
        assert main(["sweep", "--dry-run", str(path)]) == 4
    finally:
        manifest.write_text(text)
    assert "was 000000000000…" in capsys.readouterr().err


# --- combinations -------------------------------------------------------------------------------------


@pytest.mark.extended
def test_every_combination_has_its_own_comparison(write, tmp_path, capsys):
    """Two variants under two scenarios: differences are to the first variant of the same scenario."""
    scenarios = """
    [[scenarios]]
    name = "iid"
    partition.kind = "iid"
    [[scenarios]]
    name = "skewed"
    partition.kind = "dirichlet"
    """
    assert main(["sweep", "--jobs", "2", str(write(VARIANTS + scenarios, seeds=[7]))]) == 0
    folder = tmp_path / "runs" / "s"
    rows = [r for r in rows_of(folder / "sweep.csv") if r["metric"] == "mean test accuracy"]
    assert [(r["scenarios"], r["group"]) for r in rows] == [
        (scenario, variant) for scenario in ("iid", "skewed") for variant in ("hierfl", "fedge")
    ]
    for scenario in ("iid", "skewed"):
        ends = [
            load_run(folder / f"{v}-{scenario}-seed7").rounds["test_accuracy_mean"][-1]
            for v in ("hierfl", "fedge")
        ]
        (row,) = (r for r in rows if (r["scenarios"], r["group"]) == (scenario, "fedge"))
        assert float(row["difference"]) == pytest.approx(ends[1] - ends[0], abs=1e-12)
    page = (folder / "sweep.html").read_text()
    for title in ("Overview", "iid: final numbers", "skewed: curves", "What differs", "Combinations"):
        assert f"<h2>{title}</h2>" in page
    printed = capsys.readouterr().out
    assert "iid:\n" in printed
    assert "skewed:\n" in printed


# --- how runs end -------------------------------------------------------------------------------------


def test_a_run_that_fails_stops_no_other(write, tmp_path, capsys):
    """No number comes of such steps: every client of one variant fails."""
    broken = '[[variants]]\nname = "good"\n[[variants]]\nname = "broken"\ntrain.lr = 1e6\n'
    broken += "train.local-epochs = 30\n"
    assert main(["sweep", "--jobs", "2", str(write(broken, seeds=[1]))]) == 4
    printed = capsys.readouterr().out
    assert "good-seed1    completed" in printed
    assert "broken-seed1  failed" in printed
    assert "1 run failed; the same command retries" in printed
    folder = tmp_path / "runs" / "s"
    assert load_run(folder / "good-seed1").status == "completed"
    assert "Missing: broken-seed1 (failed) has no finished round" in (folder / "sweep.html").read_text()
    statuses = {r["run"]: r["status"] for r in rows_of(folder / "runs.csv")}
    assert statuses == {"good-seed1": "completed", "broken-seed1": "missing"}


def test_a_process_that_is_killed_is_a_failed_run(write):
    (standing,) = standings(read_sweep(write("", seeds=[1], toy=TOY.replace("rounds = 2", "rounds = 5000"))))
    folder = standing.run.folder
    folder.parent.mkdir(parents=True)
    with RunPool([standing], 1, 1, {folder.parent: False}) as pool:
        results = pool.results()
        started = start_in_thread(lambda: next(results))
        wait_for(lambda: has_rounds(folder))
        os.kill(json.loads((folder / "private.json").read_text())["process"]["pid"], signal.SIGKILL)
        ended = started()
    assert ended.status == "failed"
    assert "ended without notice" in ended.reason
    assert ended.rounds >= 1
    (again,) = standings(read_sweep(folder.parents[2] / "s.toml"))
    assert again.action == "resume"


@pytest.mark.extended
def test_ctrl_c_says_how_to_go_on_and_the_same_command_does(write, tmp_path, capsys):
    """Exit code 130, the runs at work have written it; then to the bits of a run that nothing stopped."""
    long = TOY.replace("rounds = 2", "rounds = 200")  # one of the runs may begin seconds later
    path = write("", seeds=[1, 2], toy=long)
    command = [sys.executable, "-m", "fedge.cli", "sweep", "--jobs", "2", str(path)]
    folder = tmp_path / "runs" / "s"
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        wait_for(lambda: all(has_rounds(folder / f"s-seed{seed}", 12) for seed in (1, 2)))
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert printed.endswith(f"interrupted: 0 of 2 runs are done; resume with: fedge sweep {path}\n")
    for seed in (1, 2):
        manifest = json.loads((folder / f"s-seed{seed}" / "manifest.json").read_text())
        assert (manifest["status"], manifest["reason"]) == ("failed", "interrupted")
    assert {s.action for s in standings(read_sweep(path))} == {"resume"}
    assert main(["sweep", "--jobs", "2", str(path)]) == 0
    assert "(2 to resume)" in capsys.readouterr().out
    whole = simulate(
        {**load_run(folder / "s-seed1").config, "runs-dir": str(tmp_path / "whole"), "run-name": "w"},
        num_supernodes=4, terminal=io.StringIO(),
    )  # fmt: skip
    for name in ("metrics/leaf_rounds.csv", "checkpoints/final.safetensors"):
        assert (whole.folder / name).read_bytes() == (folder / "s-seed1" / name).read_bytes()


@pytest.mark.extended
def test_runs_end_when_the_command_is_killed(write, tmp_path):
    """Nothing trains on unseen: the run notices that nobody waits for it and ends as SIGTERM ends it."""
    path = write("", seeds=[1], toy=TOY.replace("rounds = 2", "rounds = 5000"))
    folder = tmp_path / "runs" / "s" / "s-seed1"
    process = subprocess.Popen(
        [sys.executable, "-m", "fedge.cli", "sweep", str(path)], stdout=subprocess.DEVNULL
    )
    wait_for(lambda: has_rounds(folder))
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    assert psutil.wait_procs(children, timeout=30)[1] == []
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["status"], manifest["reason"]) == ("failed", "interrupted (SIGTERM)")


@pytest.mark.extended
def test_rounds_can_be_raised_when_checkpoints_are_kept(write, tmp_path, capsys):
    assert main(["sweep", str(write("", seeds=[1], more="keep-checkpoints = true"))]) == 0
    longer = TOY.replace("rounds = 2", "rounds = 4")
    assert main(["sweep", str(write("", seeds=[1], more="keep-checkpoints = true", toy=longer))]) == 0
    assert load_run(tmp_path / "runs" / "s" / "s-seed1").rounds["global_round"].to_list() == [1, 2, 3, 4]
    assert "(1 to resume)" in capsys.readouterr().out


def test_a_run_without_a_checkpoint_starts_anew(write, tmp_path):
    folder = tmp_path / "runs" / "s" / "s-seed1"
    folder.mkdir(parents=True)
    RunLock(folder).close()  # killed before its manifest was written
    (folder / "leftover").touch()
    path = write("", seeds=[1])
    assert [s.action for s in standings(read_sweep(path))] == ["again"]
    assert main(["sweep", str(path)]) == 0
    assert load_run(folder).status == "completed"
    assert not (folder / "leftover").exists()


def _file(place):
    place.write_text("mine")


def _link(place):
    (place.parent / "elsewhere").mkdir()
    (place.parent / "elsewhere" / "thesis.txt").touch()
    place.symlink_to("elsewhere")


def _folder(place):
    place.mkdir()
    (place / "thesis.txt").touch()


def _other_program(place):
    _folder(place)
    (place / "manifest.json").write_text('{"name": "my app"}')


@pytest.mark.parametrize(
    ("put", "found"),
    [
        (_file, "is a file"),
        (_link, "is a link"),
        (_folder, "holds thesis.txt and no manifest of a run"),
        (_other_program, "holds manifest.json and no manifest of a run"),
    ],
)
def test_what_is_no_run_is_never_removed(write, tmp_path, capsys, put, found):
    place = tmp_path / "runs" / "s" / "s-seed1"
    place.parent.mkdir(parents=True)
    put(place)
    before = sorted(path for path in tmp_path.rglob("*") if path.name == "thesis.txt")
    assert main(["sweep", str(write("", seeds=[1]))]) == 4
    error = capsys.readouterr().err
    assert f"s-seed1 must be the folder of a run, or not exist, but {found}; move it" in error
    assert os.path.lexists(place)
    assert sorted(path for path in tmp_path.rglob("thesis.txt")) == before


STOPPING = 'callbacks = "early-stopping"\n[base.callbacks-args]\nearly-stopping.patience = {}\n'


def test_a_complete_run_is_not_one_of_other_callbacks_or_files(write, tmp_path, capsys):
    """Both decide what comes out: after which round a run ends, and what it begins with."""
    starts = [tmp_path / name for name in ("one.safetensors", "other.safetensors")]
    for seed, start in enumerate(starts):
        of_run = simulate(
            {"runs-dir": str(tmp_path / start.stem), "seed": seed, "num-server-rounds": 1, "report": False},
            model="linear", clients=4, terminal=io.StringIO(),
        )  # fmt: skip
        save_file({name: np.asarray(value) for name, value in of_run.models()[0].items()}, start)
    same = TOY + f"train.start = {str(starts[0])!r}\n"
    assert main(["sweep", str(write("", seeds=[1], toy=same + STOPPING.format(3)))]) == 0
    assert main(["sweep", str(write("", seeds=[1], toy=same + STOPPING.format(3)))]) == 0
    assert "(1 complete)" in capsys.readouterr().out
    for toy, said in (
        (same + STOPPING.format(4), "callbacks-args is "),
        (same, 'callbacks is "", was "early-stopping"'),
        (same.replace("one.", "other.") + STOPPING.format(3), "the sha256 of train.start is "),
        (TOY + STOPPING.format(3), "the sha256 of train.start is nothing, was "),
    ):
        assert main(["sweep", str(write("", seeds=[1], toy=toy))]) == 4
        error = capsys.readouterr().err
        assert "s-seed1 exists with another configuration: " in error
        assert said in error


@pytest.mark.extended
def test_a_run_that_was_ended_is_not_one_of_fewer_rounds(write, capsys):
    """Ended after round 2 of 4: planned for 3 it ends there, too, but planned for 1 it would not."""
    calls = STOPPING.format(1) + "early-stopping.min-delta = 0.9\n"
    for rounds, code in ((4, 0), (3, 0), (5, 0), (1, 4)):
        toy = TOY.replace("rounds = 2", f"rounds = {rounds}") + calls
        assert main(["sweep", str(write("", seeds=[1], toy=toy))]) == code
    printed = capsys.readouterr()
    assert printed.out.count("(1 complete)") == 2
    assert "another configuration: num-server-rounds is 1, was 4; give" in printed.err


@pytest.mark.extended
def test_a_complete_run_of_other_code_is_named(write, tmp_path, capsys, monkeypatch):
    """Its model's file was edited since: the same command does not repeat it, and does not hide that."""
    monkeypatch.chdir(tmp_path)
    code = "from torch import nn\n\n\ndef net(shape, classes) -> nn.Module:\n    return nn.Sequential(\n"
    code += "        nn.Flatten(), nn.Linear(shape[0] * shape[1], classes)\n    )\n"
    (tmp_path / "net_of_a_test.py").write_text(code)
    path = write("", seeds=[1, 2], toy=TOY.replace('"linear"', '"net_of_a_test:net"'))
    words = [sys.executable, "-m", "fedge.cli", "sweep", str(path)]
    assert "note: the code" not in subprocess.run(words, capture_output=True, text=True, check=True).stdout
    (tmp_path / "net_of_a_test.py").write_text(code.replace("nn.Flatten(),", "nn.Flatten(), nn.ReLU(),"))
    printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    note = (
        "note: the code of train.model net_of_a_test:net has changed since the run began; complete runs are "
    )
    assert printed.count(note) == 1  # of two runs


# --- what is refused before anything starts -----------------------------------------------------------


def test_a_run_that_cannot_work_is_refused_before_any_starts(write, tmp_path, capsys):
    """The second dataset is missing: the first is not run either."""
    datasets = '[[datasets]]\nname = "here"\n[[datasets]]\nname = "away"\ndata.path = "away.npz"\n'
    assert main(["sweep", str(write(datasets, toy=""))]) == 4
    error = capsys.readouterr().err
    assert error.startswith("fedge: away-seed1: data.path: away.npz: window file must exist")
    assert not any((tmp_path / "runs" / "s").glob("*/manifest.json"))


def test_a_dry_run_writes_nothing(write, tmp_path, capsys):
    assert main(["sweep", "--dry-run", str(write(VARIANTS))]) == 0
    assert not (tmp_path / "runs").exists()
    _, note, _, *lines = capsys.readouterr().out.splitlines()
    assert note.startswith("note: 9 users for 4 clients: some clients hold several users")
    assert lines == [
        f"{name:<12}  to do          0/2 rounds"
        for name in ("hierfl-seed1", "fedge-seed1", "hierfl-seed2", "fedge-seed2")
    ]


def test_seed_in_the_environment_is_refused(write, monkeypatch, capsys):
    """It would win over every seed of the file."""
    monkeypatch.setenv("SEED", "7")
    assert main(["sweep", str(write(VARIANTS))]) == 4
    assert "SEED must not be set, because a sweep has its own seeds, but is '7'" in capsys.readouterr().err


@pytest.mark.parametrize(("option", "value"), [("--workers", "0"), ("--jobs", "-1")])
def test_numbers_below_one_are_refused(write, capsys, option, value):
    assert main(["sweep", option, value, str(write(VARIANTS))]) == 4
    assert f"{option} must be at least 1, but is {value}" in capsys.readouterr().err


def test_two_files_with_one_name_are_refused(write, capsys):
    path = write(VARIANTS)
    other = path.with_name("other.toml")
    other.write_text(path.read_text().replace("seeds", 'name = "s"\nseeds'))
    assert main(["sweep", str(path), str(other)]) == 4
    assert "sweeps must differ in name" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["--only", "fedge-seed1"]])
def test_a_runs_dir_that_is_a_file_is_refused(write, tmp_path, capsys, words):
    (tmp_path / "runs").write_text("")
    assert main(["sweep", str(write(VARIANTS)), *words]) == 4
    assert "runs-dir must be a writable folder, but " in capsys.readouterr().err


def test_a_sweep_that_is_going_on_is_refused(write, tmp_path, capsys):
    path = write(VARIANTS)
    folder = tmp_path / "runs" / "s"
    folder.mkdir(parents=True)
    lock = RunLock(folder)
    assert main(["sweep", str(path)]) == 4
    assert "a sweep must have ended before it is carried out again" in capsys.readouterr().err
    lock.close()


def test_a_run_that_is_going_on_elsewhere_is_refused(write, tmp_path):
    folder = tmp_path / "runs" / "s" / "s-seed1"
    folder.mkdir(parents=True)
    lock = RunLock(folder)
    with pytest.raises(ConfigError, match="s-seed1: another process carries out"):
        standings(read_sweep(write("", seeds=[1])))
    lock.close()


# --- helpers ------------------------------------------------------------------------------------------


def has_rounds(folder, count=1):
    """Tell whether a run has so many rounds."""
    table = Path(folder) / "metrics" / "global_rounds.csv"
    return table.is_file() and len(table.read_text().splitlines()) > count


def wait_for(condition, seconds=240.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def start_in_thread(work):
    """Start `work` in a thread; returns what waits for its result."""
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(1)
    return pool.submit(work).result


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")
@pytest.mark.extended
def test_ctrl_c_while_the_processes_of_runs_load_is_told_of_without_a_traceback(write):
    """A terminal sends it to all processes of its group, those too that are about to load torch."""
    path = write("", seeds=[1])
    command = [sys.executable, "-m", "fedge.cli", "sweep", str(path)]

    def is_loading(parent):
        return any("multiprocessing.forkserver" in str(child.cmdline()) for child in parent.children())

    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        wait_for(lambda: is_loading(psutil.Process(process.pid)))
        time.sleep(0.5)  # in the midst of its imports, and not at their begin
        os.killpg(process.pid, signal.SIGINT)
        printed, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Traceback" not in printed
    assert printed.endswith(f"interrupted: 0 of 1 run is done; resume with: fedge sweep {path}\n")
