"""load_run gives back what the recorder wrote, of whole, running, failed and damaged runs."""

import dataclasses
import io
import json
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_folders import confusion, round_result, write_run

import fedge
from fedge.config.registers.option import ConfigError
from fedge.data.composition import Holding
from fedge.records.manifest import RunFolderError
from fedge.records.reading.reader import _read_clusters, load_run
from fedge.records.tables.catalog import PARTITION, TABLES
from fedge.records.tables.device_tables import DEVICE_TABLES
from fedge.records.tables.model_tables import CLIENT_MODELS, COMMON_TEST, MEMBERSHIPS
from fedge.records.tables.round_tables import CLIENTS, GLOBAL
from fedge.records.tables.server_table import SERVERS
from fedge.records.tables.timing_tables import MEMORY, MESSAGES, TIMING
from fedge.report.run_page import write_report, write_report_of

NEWER = ("shared_", "tuned_", "epsilon_", "val_", "leaf_")  # columns that came later
WRITTEN = [t for t in TABLES if t not in (*DEVICE_TABLES, CLIENT_MODELS, COMMON_TEST, SERVERS, MEMBERSHIPS)]


@pytest.fixture
def folder(tmp_path):
    rounds = [round_result(1, [5, 6, 7, 8]), round_result(2, [9, 10, None, 10], labels=(0, 1))]
    return write_run(tmp_path / "runs" / "mine", rounds)


@pytest.mark.parametrize("kind", ["user", "device", "class"])
def test_names_come_back_as_they_were_given(folder, kind):
    """Tables quote what a spreadsheet would carry out; a reader gets the name itself."""
    names = ["-1", "+1", "=cmd", "@home", "'-1", "''=x", "'tis", "plain", "a,b"]
    held = Holding(0, 0, "train", "u", "d", "c", 1, 0, None)
    field = "label" if kind == "class" else kind
    written = PARTITION.text([dataclasses.replace(held, **{field: name}) for name in names])
    (folder / "partition.csv").write_text(written)
    assert load_run(folder).partition[kind].to_list() == names


def test_what_was_written_comes_back(folder):
    """Rights 9, 10 and 10 of 10: mean 29/30, worst 0.9; one client failed."""
    run = fedge.load_run(folder)
    assert (run.name, run.status, run.problems) == ("mine", "completed", [])
    assert run.config["num-server-rounds"] == 2
    assert run.rounds["test_accuracy_mean"].to_list() == [0.65, pytest.approx(29 / 30)]
    assert run.rounds.row(-1, named=True)["test_accuracy_worst"] == 0.9
    assert run.clients.filter(pl.col("global_round") == 2)["test_accuracy"].to_list() == [0.9, 1.0, None, 1.0]
    assert run.leaves["gate"].to_list() == ["accepted", "rejected"] * 2
    assert run.clusters["labels"].to_list() == [[0, 0], [0, 1]]
    assert run.clusters["similarity"][1].to_list() == [[1.0, 0.5], [0.5, 1.0]]
    assert run.clusters["global_round"].to_list() == [1, 2]
    assert run.clusters["changes"].to_list() == [[], []]
    assert run.clusters["lowest_p"].to_list() == [None, None]
    assert run.timing["wait"].to_list() == [1.5, 1.5]
    assert run.memory["rss_mib"].to_list() == [101.0, 50.0, 102.0, 50.0]
    assert (
        run.partition.group_by("client").agg(pl.col("windows").sum()).sort("client")["windows"].to_list()
        == [10] * 4
    )
    assert {client: m.tolist() for client, m in run.confusion.items()} == {
        0: confusion(9).tolist(), 1: confusion(10).tolist(), 3: confusion(10).tolist()
    }  # fmt: skip
    assert [model["w"].tolist() for model in run.models()] == [[0.0, 0.0], [1.0, 1.0]]


def test_how_a_run_ended(folder, tmp_path):
    """From its manifest, or from its status where that says nothing more."""
    assert (load_run(folder).exit_code, load_run(folder).reason) == (0, "")
    assert repr(load_run(folder)).endswith(
        "mine: completed, 2 of 2 rounds, test accuracy 0.967, worst client 0.900"
    )
    stalled = load_run(
        write_run(tmp_path / "x", [], status="failed", planned=3, exit_code=5, reason="stalled: for 9 s")
    )
    assert (stalled.exit_code, stalled.reason) == (5, "stalled: for 9 s")
    assert repr(stalled) == f"RunData {tmp_path / 'x'}: failed, 0 of 3 rounds"
    assert load_run(write_run(tmp_path / "y", [], status="running")).exit_code == 1


TOY = {
    "data.path": "synthetic",
    "train.model": "linear",
    "train.local-epochs": 1,
    "num-server-rounds": 1,
    "report": False,
}


def test_simulate_returns_what_load_run_reads(tmp_path):
    run = fedge.simulate({**TOY, "runs-dir": str(tmp_path)}, terminal=io.StringIO())
    again = fedge.load_run(run.folder)
    assert (run.status, run.exit_code, run.reason) == ("completed", 0, "")
    for field in dataclasses.fields(run):
        ours, theirs = getattr(run, field.name), getattr(again, field.name)
        if isinstance(ours, pl.DataFrame):
            assert ours.equals(theirs), field.name
        elif field.name != "confusion":
            assert ours == theirs, field.name
    assert len(run.models()) == 3


def test_simulate_returns_a_failed_run_and_raises_for_a_refused_one(tmp_path):
    """Steps of that size lead to no number at all: every client fails."""
    config = {**TOY, "runs-dir": str(tmp_path)}
    run = fedge.simulate({**config, "train.lr": 1e6, "train.local-epochs": 30}, terminal=io.StringIO())
    assert (run.status, run.exit_code, len(run.rounds)) == ("failed", 4, 0)
    assert run.reason
    with pytest.raises(ConfigError, match=r"did you mean train\.lr"):
        fedge.simulate({**config, "train.lt": 1.0})


def test_the_link_to_the_newest_run_has_the_name_of_the_run(folder):
    (folder.parent / "latest").symlink_to(folder.name)
    assert load_run(folder.parent / "latest").name == "mine"


def test_a_name_is_that_of_a_run_in_runs(folder, monkeypatch):
    """As for commands; a folder here comes first."""
    (folder.parent / "work" / "runs").mkdir(parents=True)
    monkeypatch.chdir(folder.parent / "work")
    Path("runs", "one").symlink_to(folder)
    assert load_run("one").folder == folder.resolve()
    Path("one").mkdir()
    with pytest.raises(RunFolderError, match="no manifest"):
        load_run("one")
    with pytest.raises(RunFolderError, match="no manifest"):
        load_run("other")


def test_the_package_says_its_version():
    assert fedge.__version__ == version("fedge")
    other = "nothing"
    with pytest.raises(AttributeError, match=other):
        getattr(fedge, other)


def test_frames_have_the_types_of_the_catalog(folder):
    """A column is an integer, a number or text because the catalog says so, not because of its cells."""
    run = load_run(folder)
    frames = (
        run.rounds, run.leaves, run.clients, run.partition, run.timing, run.workers, run.messages, run.memory,
    )  # fmt: skip
    dtypes = {"int": pl.Int64, "float": pl.Float64, "text": pl.String}
    assert run.servers.is_empty()  # the folder is of a run without that table
    for frame, table in zip(frames, WRITTEN, strict=True):
        assert dict(frame.schema) == {c.name: dtypes[c.kind] for c in table.columns}, table.path
        assert len(frame), table.path
    assert run.messages.columns == list(MESSAGES.names)


def test_workers_and_messages_come_back(folder):
    """Two rounds of 2 s, both kept: two workers, of whose 1.5 s 1.1 and 0.9 went into training."""
    run = fedge.load_run(folder)
    assert run.workers["train"].to_list() == pytest.approx([1.1, 0.9] * 2)
    assert run.workers.schema["messages"] == run.timing.schema["workers"] == pl.Int64
    assert run.timing["timeline_train"].to_list() == pytest.approx([2.0] * 2)
    assert run.messages["global_round"].to_list() == [1] * 4 + [2] * 4
    assert run.messages["client"].to_list() == [0, 1, 2, 3] * 2
    assert run.memory.schema["threads"] == run.memory.schema["fds"] == pl.Int64


def test_messages_under_a_damaged_header_are_read_beside_the_others(folder):
    """A flipped bit in the name of a column: that column is named, and all others are there."""
    path = folder / "timing" / "messages-000001.csv"
    path.write_text(path.read_text().replace("client", "cliemt", 1))
    run = fedge.load_run(folder)
    assert run.messages["client"].to_list() == [None] * 4 + [0, 1, 2, 3]
    assert "cliemt" not in run.messages.columns
    assert any("messages-000001.csv has no column client" in problem for problem in run.problems)


@pytest.mark.slow
def test_a_run_of_before_the_workers_were_timed(folder):
    """Nothing is missed, and its report is whole."""
    shutil.rmtree(folder / "timing")
    for name, columns in (("timing.csv", TIMING.names[:12]), ("memory.csv", MEMORY.names[:5])):
        table = pl.read_csv(folder / name).select(columns)
        table.write_csv(folder / name)
    run = load_run(folder)
    assert run.problems == []
    assert (len(run.workers), len(run.messages)) == (0, 0)
    assert run.workers.schema["idle"] == pl.Float64
    assert "What bound the run" not in write_report(folder).read_text()


@pytest.mark.slow
def test_a_run_of_before_fine_tuning_was_measured(tmp_path):
    """Its last columns are not missed; a newer run has them as numbers, empty without fine-tuning."""
    rounds = [round_result(1, [5, 6, 7, 8]), round_result(2, [5, 6, 7, 8], tuned=[6, 6, 8, 8])]
    run = load_run(folder := write_run(tmp_path / "mine", rounds))
    assert run.rounds["shared_accuracy_mean"].to_list() == [None, pytest.approx(0.65)]
    assert run.rounds["shared_accuracy_worst"].to_list() == [None, 0.5]
    assert run.rounds["tuned_accuracy_mean"].to_list() == [None, pytest.approx(0.7)]
    assert run.rounds["tuned_accuracy_worst"].to_list() == [None, 0.6]
    assert run.clients["shared_accuracy"].to_list() == [None] * 4 + [0.5, 0.6, 0.7, 0.8]
    assert run.clients["tuned_accuracy"].to_list() == [None] * 4 + [0.6, 0.6, 0.8, 0.8]
    plain = load_run(write_run(tmp_path / "plain", rounds[:1]))
    assert plain.clients.schema["tuned_accuracy"] == plain.rounds.schema["tuned_accuracy_mean"] == pl.Float64
    for name, columns in (("global_rounds", GLOBAL.names), ("clients", CLIENTS.names)):
        table = folder / "metrics" / f"{name}.csv"
        older = [column for column in columns if not column.startswith(NEWER)]
        pl.read_csv(table).select(older).write_csv(table)
    run = load_run(folder)
    assert (run.problems, len(run.rounds), len(run.clients)) == ([], 2, 8)
    assert "tuned_accuracy" not in run.clients.columns
    write_report(folder)


def test_a_run_before_its_first_round(tmp_path):
    run = load_run(write_run(tmp_path / "young", [], status="running"))
    assert run.rounds.is_empty()
    assert run.rounds.schema["test_accuracy_mean"] == pl.Float64
    assert run.clusters.schema["labels"] == pl.List(pl.Int64)
    assert (run.confusion, run.problems) == ({}, [])
    with pytest.raises(RunFolderError, match=r"final\.safetensors is missing: .* this run is running"):
        run.models()


@pytest.mark.slow
@given(st.data())
def test_any_cut_of_a_table_gives_its_whole_rows(tmp_path_factory, data):
    """A writer that is interrupted after any byte leaves a prefix of the file."""
    folder = write_run(
        tmp_path_factory.mktemp("runs") / "cut", [round_result(r, [5, 6, 7, 8]) for r in (1, 2)]
    )
    for name in ("metrics/clients.csv", "clusters.jsonl"):
        whole = (folder / name).read_bytes()
        cut = whole[: data.draw(st.integers(0, len(whole)), label=name)]
        (folder / name).write_bytes(cut)
        run = load_run(folder)
        frame = run.clients if name.endswith("csv") else run.clusters
        header = 1 if name.endswith("csv") else 0
        assert len(frame) == max(cut.count(b"\n") - header, 0)
        half = f"{name.split('/')[-1]} ends in half a line, which is left out"
        assert (half in run.problems) == (cut != b"" and not cut.endswith(b"\n"))


def test_damaged_rows_are_named(folder):
    table = folder / "metrics" / "clients.csv"
    lines = table.read_text().splitlines()
    lines[2] = "1,1,0"
    lines[4] = lines[4].replace("0.8", "zero")
    table.write_text("\n".join(lines) + "\n")
    with (folder / "clusters.jsonl").open("a") as clusters:
        clusters.write("{}\n")
    run = load_run(folder)
    assert len(run.clients) == 6
    assert run.problems == [
        "clients.csv: damaged and left out: line 3, 5",
        "clusters.jsonl: damaged and left out: line 3",
    ]


@pytest.mark.parametrize("lost", ["cell", "name"])
def test_rows_without_a_round_are_left_out(folder, lost, recwarn):
    """No table, figure or sum can use them; the report is made of the others, without a stray warning."""
    table = folder / "metrics" / "global_rounds.csv"
    head, *rows = table.read_text().splitlines()
    if lost == "cell":
        rows[0] = "," + rows[0].split(",", 1)[1]
    else:
        head = "?" + head[1:]
    table.write_text("\n".join([head, *rows]) + "\n")
    run = load_run(folder)
    assert run.rounds["global_round"].to_list() == ([2] if lost == "cell" else [])
    assert f"global_rounds.csv: damaged and left out: line 2{', 3' * (lost == 'name')}" in run.problems
    write_report_of(run, folder / "report.html")
    assert not [warning for warning in recwarn if "None" in str(warning.message)]


def test_tables_of_other_versions(folder):
    """A column that is missing is null, one that is new is there: numbers or text."""
    table = folder / "memory.csv"
    lines = [",".join(line.split(",")[:3]) + "," + extra for line, extra in zip(
        table.read_text().splitlines(), ("pss_mib,what", "1.5,a", ",b", "2.5,", "3,c"), strict=True
    )]  # fmt: skip
    table.write_text("\n".join(lines) + "\n")
    run = load_run(folder)
    assert run.memory["rss_mib"].to_list() == [None] * 4
    assert run.memory["pss_mib"].to_list() == [1.5, None, 2.5, 3.0]
    assert run.memory["what"].to_list() == ["a", "b", None, "c"]
    assert run.problems == ["memory.csv has no column rss_mib: written by another version of Fedge"]


def test_missing_and_damaged_files_are_named(folder):
    (folder / "timing.csv").unlink()
    (folder / "metrics" / "confusion.json").write_text("[1")
    (folder / "checkpoints" / "final.safetensors").write_bytes(b"no")
    run = load_run(folder)
    assert run.timing.is_empty()
    assert run.problems == [
        "timing.csv cannot be read: No such file or directory",
        "confusion.json is damaged and left out",
    ]
    with pytest.raises(RunFolderError, match=r"final\.safetensors is damaged"):
        run.models()


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (None, "is not a run folder: it has no manifest.json"),
        ("{", "manifest.json is damaged: it is not JSON"),
        ("[]", "must be a JSON object, but is a list"),
    ],
)
def test_what_is_no_run(tmp_path, manifest, message):
    if manifest is not None:
        (tmp_path / "manifest.json").write_text(manifest)
    with pytest.raises(RunFolderError, match=message):
        load_run(tmp_path)


@pytest.mark.whole_runs  # starts processes
def test_nothing_heavy_is_loaded_before_a_run_ends():
    """Workers and the command line start without Polars, Matplotlib and Jinja."""
    heavy = "{'polars', 'matplotlib', 'jinja2', 'scipy.stats', 'sklearn'}"
    loaded = "import sys, fedge, fedge.client_app, fedge.run.run, fedge.cli"
    code = f"{loaded}; print(sorted({heavy} & sys.modules.keys()))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown == "[]\n"


def test_models_are_in_the_order_of_leaves(tmp_path):
    folder = write_run(tmp_path / "many", [round_result(1, [5, 6, 7, 8])])
    from fedge.records.recorder import Recorder

    manifest = (folder / "manifest.json").read_text()
    with Recorder(folder) as recorder:
        recorder.write_models([{"w": np.array([leaf])} for leaf in range(12)])
    (folder / "manifest.json").write_text(manifest)
    assert [int(model["w"][0]) for model in load_run(folder).models()] == list(range(12))
    assert json.loads(manifest)["status"] == "completed"


@pytest.mark.parametrize(
    "line",
    ["5", "[]", "null", '"text"', '{"round": 1' + "0" * 400, '{"round": [1], "labels": "x"}', '{"tests": 5}'],
)
def test_a_line_of_another_kind_among_cluster_steps_is_named(folder, line):
    """One of another file of the folder, for example."""
    path = folder / "clusters.jsonl"
    first = json.loads(path.read_text().splitlines()[0])
    with path.open("a") as file:
        file.write(f"{line}\n")
        file.write(json.dumps({**first, "round": 10**30}) + "\n")
    number = len(path.read_text().splitlines())
    run = load_run(folder)
    (said,) = [problem for problem in run.problems if "clusters.jsonl" in problem]
    assert said.endswith(f"line {number - 1}, {number}")
    assert run.clusters.height == number - 2


@pytest.mark.parametrize("digits", [20, 400, 5000])
def test_a_whole_number_that_no_table_holds_is_a_damaged_row(folder, digits):
    path = folder / "metrics" / "global_rounds.csv"
    lines = path.read_text().splitlines()
    lines.append(",".join(["9" * digits, *lines[-1].split(",")[1:]]))
    path.write_text("\n".join(lines) + "\n")
    run = load_run(folder)
    assert f"global_rounds.csv: damaged and left out: line {len(lines)}" in run.problems


def test_a_count_that_no_array_holds_is_a_damaged_confusion_matrix(folder):
    path = folder / "metrics" / "confusion.json"
    path.write_text(json.dumps({"clients": {"0": [10**30]}}))
    assert "confusion.json is damaged and left out" in load_run(folder).problems


@pytest.mark.parametrize(
    ("inner", "what"), [([], "leaves"), ([{"server": "/1", "server_round": 1}], "children")]
)
def test_what_a_tree_groups_are_children(tmp_path, inner, what):
    """Of the cloud and of the servers below it, by their numbers there."""
    event = {"kind": "split", "before": [[0, 1]], "after": [[0], [1]]}
    step = {"round": 2, "signal": "weights", "tau": 0.7, "labels": [0, 1], "similarity": [[1, 0], [0, 1]]}
    step |= {"common_start": True, "events": [event]}
    path = tmp_path / "clusters.jsonl"
    path.write_text("".join(f"{json.dumps(step | more)}\n" for more in ({}, *inner)))
    frame = _read_clusters(path, problems := [])
    assert problems == []
    assert frame["changes"].to_list() == [[f"{what} {{0 1}} split into {{0}} and {{1}}"]] * (1 + len(inner))
