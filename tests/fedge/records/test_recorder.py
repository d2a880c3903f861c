import csv
import dataclasses
import json
import re
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_folders import timelines
from safetensors.numpy import load_file

from fedge.process.resources.memory import ProcessMemory
from fedge.records.message_log import message_files
from fedge.records.recorder import Recorder, RecordError, utc_now
from fedge.records.tables.round_tables import CLIENTS
from fedge.records.tables.timing_tables import TIMING
from fedge.serving.gate import GateResult, Paired
from fedge.serving.personal import PersonalResult
from fedge.timing.laps import PHASES
from fedge.timing.timeline import LEG_COLUMNS, MessageTimes, RoundTimelines, Timeline

HEADERS = {
    "metrics/global_rounds.csv": "global_round,test_accuracy_mean,test_accuracy_std,test_accuracy_worst,"
    "test_loss_mean,macro_f1_mean,train_loss_mean,num_clusters,cluster_labels,gate_accepted,gate_rejected,"
    "clients_ok,clients_failed,uplink_bytes,downlink_bytes,seconds,failures,test_accuracy_p10,"
    "test_accuracy_jain,unseen_accuracy_mean,unseen_accuracy_std,unseen_accuracy_worst,unseen_accuracy_p10,"
    "unseen_accuracy_jain,unseen_loss_mean,unseen_macro_f1_mean,cloud_uplink_bytes,cloud_downlink_bytes,"
    "churn,ari,nmi,homogeneity,completeness,shared_accuracy_mean,shared_accuracy_worst,tuned_accuracy_mean,"
    "tuned_accuracy_worst,epsilon_spent,val_accuracy_mean,val_accuracy_std,val_accuracy_worst,val_loss_mean,"
    "leaf_accuracy_mean,leaf_accuracy_std,leaf_accuracy_worst,leaf_accuracy_p10,leaf_accuracy_jain,"
    "virtual_s,joules",
    "metrics/leaf_rounds.csv": "global_round,leaf,cluster,val_accuracy_own,val_accuracy_offered,gate,"
    "test_accuracy,test_loss,macro_f1,num_clients,train_samples,kept_model,unseen_accuracy,unseen_loss,"
    "unseen_macro_f1,unseen_clients,serves,blend,val_windows,val_only_own,val_only_offered,val_standard_error,"
    "val_p_value,val_accuracy_before,val_accuracy_personal,group,val_accuracy,val_loss",
    "metrics/clients.csv": "global_round,client,leaf,train_samples,train_loss,test_samples,test_accuracy,"
    "macro_f1,train_seconds,test_loss,unseen_client,shared_accuracy,tuned_accuracy,val_samples,val_accuracy,val_loss,"
    "asked,came_from",
    "timing.csv": "global_round,configure,push,wait,check,aggregate,cluster,gate,record,checkpoint,"
    "other,total,report,workers,timeline_idle,timeline_deserialise,timeline_load,timeline_train,timeline_evaluate,timeline_serialise,"
    "queue_p50,queue_p90,queue_p99,queue_max,dispatch_p50,dispatch_p90,dispatch_p99,dispatch_max,"
    "run_p50,run_p90,run_p99,run_max,return_p50,return_p90,return_p99,return_max",
    "timing/workers.csv": "global_round,worker,id,messages,idle,deserialise,load,train,evaluate,serialise,"
    "idle_at_end,machine",
    "memory.csv": "global_round,role,pid,rss_mib,fds,uss_mib,threads,cuda_allocated_mib,cuda_reserved_mib,"
    "machine",
}
LAPS = dict.fromkeys(PHASES, 0.0) | {"wait": 1.5, "other": 0.25}
MEMORY = [ProcessMemory("server", 11, 123.456, 16, 100.04, 5), ProcessMemory("worker", 12, 7.0)]


def lines(folder, name):
    return (folder / name).read_text().splitlines()


@pytest.fixture
def recorder(tmp_path):
    with Recorder(tmp_path) as recorder:
        yield recorder


def test_headers_are_there_from_the_start(recorder):
    recorder.__exit__()
    assert {name: lines(recorder.folder, name) for name in HEADERS} == {n: [h] for n, h in HEADERS.items()}
    assert lines(recorder.folder, "clusters.jsonl") == []


def test_rows_by_hand(recorder, make_result):
    """Accuracies 0.5 and 1.0: mean 0.75, population std 0.25, worst 0.5; losses 0.9 and 0.3: (0.9 + 0.3)/2.

    F1 0.25 and 1.0: 0.625. Training losses 1 and 2 on 10 and 30 windows: 1.75. 1.5 + 0.25 seconds. A tenth of
    the way from 0.5 to 1.0: 0.55. Jain: 1.5² / (2 · 1.25) = 0.9.
    """
    recorder.write_round(make_result(failures={2: "gone"}), LAPS, MEMORY)
    loss = repr((0.9 + 0.3) / 2)
    assert lines(recorder.folder, "metrics/global_rounds.csv")[1:] == [
        f"1,0.75,0.25,0.5,{loss},0.625,1.75,2,0 1,1,1,2,1,1000,2000,1.75,exception 1,0.55,0.9,,,,,,,,0,0"
        + 14 * ","
        + ",0.75,0.0,0.75,0.75,1.0,,"
    ]
    assert lines(recorder.folder, "metrics/leaf_rounds.csv")[1:] == [
        "1,0,0,0.5,0.75,accepted,0.75,0.6,0.7,2,40,0,,,,0,own,,,,,,,,,,,",
        "1,1,1,0.5,0.75,rejected,,,,1,20,0,,,,0,own,,,,,,,,,,,",
    ]
    assert lines(recorder.folder, "metrics/clients.csv")[1:] == [
        "1,0,0,10,1.0,4,0.5,0.25,1.5,0.9,0,,,0,,,,",
        "1,1,0,30,2.0,4,1.0,1.0,2.5,0.3,0,,,0,,,,",
        "1,2,1,20,,0,,,,,0,,,0,,,,",
    ]
    assert lines(recorder.folder, "timing.csv")[1:] == [
        "1,0.0,0.0,1.5,0.0,0.0,0.0,0.0,0.0,0.0,0.25,1.75,0.0" + 23 * ","
    ]
    assert lines(recorder.folder, "timing/workers.csv")[1:] == []
    assert lines(recorder.folder, "memory.csv")[1:] == [
        "1,server,11,123.5,16,100.0,5,,,",
        "1,worker,12,7.0,,,,,,",
    ]
    (entry,) = map(json.loads, lines(recorder.folder, "clusters.jsonl"))
    assert entry == {
        "round": 1,
        "signal": "weights",
        "tau": 0.7,
        "labels": [0, 1],
        "similarity": [[1.0, 0.25], [0.25, 1.0]],
        "common_start": True,
        "method": "components",
    }


def test_unseen_clients_and_truth_by_hand(recorder, make_result):
    """Client 1 (accuracy 1.0, loss 0.3, F1 1.0) is unseen, client 0 (0.5) the only one that is known.

    Labels 0 1 of groups 0 0: one group in two clusters. Rand index 0 as expected by chance, so ari 0; the
    truth holds no information, so nmi is 0 of 0/(ln 2 / 2); homogeneous, not complete.
    """
    result = make_result()
    result.clients[1] = dataclasses.replace(result.clients[1], unseen_client=True)
    result.leaves[0] = dataclasses.replace(
        result.leaves[0],
        unseen_score=1.0,
        unseen_loss=0.3,
        unseen_further={"macro_f1": 0.875},
        unseen_clients=1,
    )
    result = dataclasses.replace(
        result, truth=(0, 0), churn=0.5, cloud_uplink_bytes=30, cloud_downlink_bytes=40
    )
    recorder.write_round(result, LAPS, [])
    row = lines(recorder.folder, "metrics/global_rounds.csv")[1].split(",")
    assert row[1:4] == ["0.5", "0.0", "0.5"]
    assert row[17:] == [
        "0.5", "1.0", "1.0", "0.0", "1.0", "1.0", "1.0", "0.3", "1.0", "30", "40", "0.5", "0.0", "0.0",
        "1.0", "0.0", "", "", "", "", "", "", "", "", "", "0.75", "0.0", "0.75", "0.75", "1.0", "", "",
    ]  # fmt: skip
    assert lines(recorder.folder, "metrics/leaf_rounds.csv")[1].endswith(
        ",2,40,0,1.0,0.3,0.875,1,own,,,,,,,,,,,"
    )
    cells = [line.split(",") for line in lines(recorder.folder, "metrics/clients.csv")[1:]]
    assert [row[10:13] for row in cells] == [["0", "", ""], ["1", "", ""], ["0", "", ""]]


def test_fine_tuning_by_hand(recorder, make_result):
    """Clients 0 and 2 before 0.5 and 0.25: mean 0.375; after it 0.75 and 0.5: mean 0.625.

    Client 1 is an unseen client that evaluated both models, too: it has its cells, but no part in the means.
    """
    result = make_result()
    for client, (shared, tuned, unseen_client) in enumerate(
        [(0.5, 0.75, False), (1.0, 0.0, True), (0.25, 0.5, False)]
    ):
        result.clients[client] = dataclasses.replace(
            result.clients[client], shared_score=shared, tuned_score=tuned, unseen_client=unseen_client
        )
    recorder.write_round(result, LAPS, [])
    row = lines(recorder.folder, "metrics/global_rounds.csv")[1].split(",")
    assert row[33:38] == ["0.375", "0.25", "0.625", "0.5", ""]
    cells = [line.split(",") for line in lines(recorder.folder, "metrics/clients.csv")[1:]]
    assert [row[10:13] for row in cells] == [["0", "0.5", "0.75"], ["1", "1.0", "0.0"], ["0", "0.25", "0.5"]]


def test_workers_by_hand(recorder, make_result):
    """The run's two workers: 1 and 0.5 s of training in a wait of 1.5 s, and what is left of it."""
    found = [
        Timeline(0, 4711, 2, (0.5, 0.0, 0.0, 1.0, 0.0, 0.0), 0.0),
        Timeline(1, 4712, 1, (1.0, 0.0, 0.0, 0.5, 0.0, 0.0), 0.25, "10.0.0.2"),
    ]
    times = MessageTimes(*(np.ones(1) for _ in range(5)), np.ones((1, 6)))
    legs = dict.fromkeys(LEG_COLUMNS, 0.125)
    recorder.write_round(make_result(), LAPS, MEMORY, RoundTimelines(found, legs, times, {}))
    assert lines(recorder.folder, "timing.csv")[1].split(",")[11:] == [
        "1.75", "0.0", "2", "1.5", "0.0", "0.0", "1.5", "0.0", "0.0", *16 * ["0.125"]
    ]  # fmt: skip
    assert lines(recorder.folder, "timing/workers.csv")[1:] == [
        "1,0,4711,2,0.5,0.0,0.0,1.0,0.0,0.0,0.0,",
        "1,1,4712,1,1.0,0.0,0.0,0.5,0.0,0.0,0.25,10.0.0.2",
    ]
    assert len(lines(recorder.folder, "timing/messages-000001.csv")) == 2


def test_every_phase_has_a_column():
    assert set(PHASES) < set(TIMING.names)


def test_what_the_gate_rests_on_by_hand(recorder, make_result):
    """Of 50 windows both have 40 right, 6 only the own model, 2 only the offer: √(8 − 16/50)/50, 37/256."""
    result = make_result()
    gate = GateResult("rejected", 0.92, 0.84, False, Paired(40, 6, 2, 50), 0.5)
    result.leaves[0] = dataclasses.replace(
        result.leaves[0], gate=gate, personal=PersonalResult(0.92, 0.95, True), serves="personal"
    )
    recorder.write_round(result, LAPS, [])
    row = lines(recorder.folder, "metrics/leaf_rounds.csv")[1].split(",")
    assert row[3:6] == ["0.92", "0.84", "rejected"]
    assert row[16:21] == ["personal", "0.5", "50", "6", "2"]
    assert [float(cell) for cell in row[21:25]] == pytest.approx([7.68**0.5 / 50, 37 / 256, 0.92, 0.95])


def test_gate_off_and_no_cloud_step(recorder, make_result):
    recorder.write_round(make_result(decisions=("off", "off"), cloud=False), LAPS, [])
    assert [line.split(",")[4:6] for line in lines(recorder.folder, "metrics/leaf_rounds.csv")[1:]] == [
        ["", "off"]
    ] * 2
    assert lines(recorder.folder, "metrics/global_rounds.csv")[1].split(",")[9:11] == ["0", "0"]
    assert lines(recorder.folder, "clusters.jsonl") == []


def test_every_round_is_on_disk_before_the_next(recorder, make_result):
    """Nothing is closed yet: a run that is killed leaves all of its finished rounds."""
    for round_ in (1, 2, 3):
        recorder.write_round(make_result(global_round=round_), LAPS, MEMORY)
        for name, rows in (("metrics/global_rounds.csv", 1), ("metrics/clients.csv", 3), ("timing.csv", 1)):
            assert len(lines(recorder.folder, name)) == 1 + rows * round_
        assert len(lines(recorder.folder, "clusters.jsonl")) == round_


@given(st.floats(allow_nan=False), st.floats(0, 1), st.floats(0, 1e6))
def test_floats_round_trip(tmp_path_factory, make_result, loss, accuracy, seconds):
    result = make_result()
    object.__setattr__(result.clients[0], "train_loss", np.float64(loss))
    object.__setattr__(result.clients[0], "test_score", accuracy)
    folder = tmp_path_factory.mktemp("run")
    with Recorder(folder) as recorder:
        recorder.write_round(result, LAPS | {"wait": seconds}, [])
    row = next(csv.DictReader((folder / "metrics/clients.csv").open()))
    assert float(row["train_loss"]) == loss
    assert float(row["test_accuracy"]) == accuracy
    assert float(next(csv.DictReader((folder / "timing.csv").open()))["wait"]) == seconds


def test_what_is_not_a_number_is_left_empty(recorder, make_result):
    result = make_result()
    object.__setattr__(result.clients[0], "train_loss", float("nan"))
    recorder.write_round(result, LAPS, [])
    assert lines(recorder.folder, "metrics/clients.csv")[1] == "1,0,0,10,,4,0.5,0.25,1.5,0.9,0,,,0,,,,"


def test_equal_rounds_give_equal_bytes(tmp_path, make_result):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        with Recorder(tmp_path / name) as recorder:
            recorder.write_round(make_result(), LAPS, MEMORY)
    for name in [*HEADERS, "clusters.jsonl"]:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


# --- manifest -----------------------------------------------------------------------------------------


def test_the_manifest_grows_and_is_whole(recorder):
    recorder.update_manifest(status="running", seed=42)
    recorder.update_manifest(status="completed", config={"train.lr": 0.05})
    assert json.loads((recorder.folder / "manifest.json").read_text()) == {
        "status": "completed",
        "seed": 42,
        "config": {"train.lr": 0.05},
    }
    assert not (recorder.folder / "manifest.json.tmp").exists()


def test_a_reader_never_sees_half_a_manifest(recorder):
    recorder.update_manifest(number=0, filling="x" * 200_000)
    done = threading.Event()
    seen = []

    def read():
        while not done.is_set():
            seen.append(json.loads((recorder.folder / "manifest.json").read_text())["number"])

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(1, 100):
        recorder.update_manifest(number=number)
    done.set()
    reader.join()
    assert seen == sorted(seen)
    # whoever had the old file open keeps reading the old one
    with (recorder.folder / "manifest.json").open() as held:
        recorder.update_manifest(number=1000)
        assert json.load(held)["number"] == 99


def test_a_manifest_that_cannot_be_written_leaves_the_old_one(recorder):
    recorder.update_manifest(status="running")
    with pytest.raises(TypeError):
        recorder.update_manifest(broken=object())
    assert json.loads((recorder.folder / "manifest.json").read_text()) == {"status": "running"}


# --- a run that goes on -------------------------------------------------------------------------------


def test_a_run_goes_on_behind_the_rows_that_its_checkpoint_knows(tmp_path, make_result):
    """Rounds 1, 2 and half of 3; going on after 2 with rounds 3 and 4 gives the bytes of 1, 2, 3, 4."""
    for name in ("whole", "stopped"):
        (tmp_path / name).mkdir()
    with Recorder(tmp_path / "whole") as recorder:
        for round_ in (1, 2, 3, 4):
            recorder.write_round(make_result(global_round=round_), LAPS, MEMORY, timelines(round_))
    with Recorder(tmp_path / "stopped") as recorder:
        recorder.update_manifest(seed=1)
        for round_ in (1, 2):
            recorder.write_round(make_result(global_round=round_), LAPS, MEMORY, timelines(round_))
        offsets = recorder.offsets()
        recorder.write_round(make_result(global_round=3), LAPS, MEMORY, timelines(3))
    assert offsets.keys() == {path.relative_to(recorder.folder).as_posix() for path in recorder.paths}
    with (tmp_path / "stopped" / "metrics" / "clients.csv").open("a") as table:
        table.write("4,0,half a r")
    with Recorder(tmp_path / "stopped", offsets, {"seed": 1}) as recorder:
        recorder.update_manifest(status="running")
        for round_ in (3, 4):
            recorder.write_round(make_result(global_round=round_), LAPS, MEMORY, timelines(round_))
    messages = ["timing/messages-000001.csv", "timing/messages-000004.csv"]
    assert [str(p.relative_to(tmp_path / "stopped")) for p in message_files(tmp_path / "stopped")] == messages
    for name in [*HEADERS, "clusters.jsonl", *messages]:
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "stopped" / name).read_bytes()
    manifest = json.loads((tmp_path / "stopped" / "manifest.json").read_text())
    assert manifest == {"seed": 1, "status": "running"} == recorder.manifest


def test_a_table_that_another_version_began_gets_the_columns_of_this_one(tmp_path):
    """A column is missing, another is no longer known, and half a row was written after the checkpoint."""
    table = tmp_path / "metrics" / "clients.csv"
    table.parent.mkdir()
    begun = "global_round,client,mood,leaf\n1,0,good,2\n1,1,,2\n"
    table.write_text(begun + "2,0,b")
    with Recorder(tmp_path, {"metrics/clients.csv": len(begun)}):
        pass
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == CLIENTS.names
    assert [(row["client"], row["leaf"], row["tuned_accuracy"]) for row in rows] == [
        ("0", "2", ""), ("1", "2", ""),
    ]  # fmt: skip


def test_before_the_first_round_only_headers_are_known(recorder, make_result):
    offsets = recorder.offsets()
    recorder.write_round(make_result(), LAPS, MEMORY)
    recorder.__exit__()
    with Recorder(recorder.folder, offsets):
        pass
    assert {name: lines(recorder.folder, name) for name in HEADERS} == {n: [h] for n, h in HEADERS.items()}


def test_a_folder_that_cannot_be_written_to_is_one_line(tmp_path):
    (tmp_path / "metrics").write_text("a file")
    advice = "; leave the run's files in place, then start the run again$"
    with pytest.raises(RecordError, match=rf"^cannot write tables of .*: .*{advice}"):
        Recorder(tmp_path)
    (tmp_path / "checkpoints" / "round-000000").mkdir(parents=True)
    with pytest.raises(RecordError, match=f"; leave the run's files in place, then fedge resume {tmp_path}$"):
        Recorder(tmp_path)


# --- models -------------------------------------------------------------------------------------------


def models():
    rng = np.random.default_rng(0)
    return [
        {
            "head.weight": rng.normal(size=(2, 3)).astype(np.float32),
            "wide": np.asfortranarray(rng.normal(size=(2, 3, 4))),
            "num_batches_tracked": np.array(7 + leaf),
            "empty": np.zeros((0, 2), np.float32),
        }
        for leaf in range(2)
    ]


def test_final_models_are_named_by_leaf_with_shapes_and_dtypes(recorder):
    recorder.write_models(models())
    found = load_file(recorder.folder / "checkpoints" / "final.safetensors")
    expected = {f"leaf-{leaf}/{n}": a for leaf, m in enumerate(models()) for n, a in m.items()}
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert (found[name].shape, found[name].dtype) == (array.shape, array.dtype)
        assert (found[name] == array).all()
    assert found["leaf-1/num_batches_tracked"].shape == ()
    assert [p.name for p in (recorder.folder / "checkpoints").iterdir()] == ["final.safetensors"]


def test_equal_models_give_equal_bytes(tmp_path):
    written = []
    for name, order in (("one", 1), ("two", -1)):
        (tmp_path / name).mkdir()
        with Recorder(tmp_path / name) as recorder:
            recorder.write_models([dict(list(m.items())[::order]) for m in models()])
        written.append((tmp_path / name / "checkpoints" / "final.safetensors").read_bytes())
    assert written[0] == written[1]


def test_times_are_utc_to_the_second():
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", utc_now())


def test_the_newest_confusion_matrices_are_there(recorder, make_result):
    for round_ in (1, 2):
        result = make_result(global_round=round_)
        object.__setattr__(result.clients[0], "confusion", np.array([[round_, 0], [1, 2]]))
        recorder.write_round(result, LAPS, [])
    assert json.loads((recorder.folder / "metrics" / "confusion.json").read_text()) == {
        "global_round": 2,
        "clients": {"0": [[2, 0], [1, 2]]},
    }


CHANGES = {
    "emptied": lambda text: "",
    "cut": lambda text: text[:-5],
    "continued": lambda text: text + "1,2\n",
    "another digit": lambda text: text.translate(str.maketrans("0123456789", "1234567890")),
}


@pytest.mark.parametrize("how", CHANGES)
def test_a_table_that_another_program_changes_ends_no_run_as_completed(tmp_path, make_result, how):
    """Every table in turn: else the manifest would have the sum of rows that no run has computed."""
    (tmp_path / "names").mkdir()
    with Recorder(tmp_path / "names") as recorder:
        names = list(recorder.offsets())
    told = {}
    for name in names:
        folder = tmp_path / name.replace("/", "-")
        folder.mkdir()
        with Recorder(folder) as recorder:
            recorder.write_round(make_result(1), LAPS, MEMORY)
            before = (folder / name).read_text()
            (folder / name).write_text(CHANGES[how](before))
            if (folder / name).read_text() == before:  # a table without rows
                continue
            try:
                recorder.write_round(make_result(2), LAPS, MEMORY)
                recorder.end("completed", 0)
            except RecordError as error:
                told[name] = str(error)
    assert all("another program has changed" in words for words in told.values())
    assert all(name.rsplit("/")[-1] in words for name, words in told.items())
    assert told.keys() >= {"metrics/global_rounds.csv", "metrics/leaf_rounds.csv", "metrics/clients.csv"}


def test_the_first_end_counts(tmp_path):
    """Later ends are consequences: an interrupted run also loses its engine."""
    with Recorder(tmp_path) as recorder:
        recorder.update_manifest(status="running")
        first = recorder.end("failed", 130, reason="interrupted")
        assert recorder.end("failed", 4, reason="the engine stopped") == first
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest == first
    assert (manifest["status"], manifest["exit_code"], manifest["reason"]) == ("failed", 130, "interrupted")
    assert manifest["ended"]


def test_an_end_that_could_not_be_written_can_be_written_again(tmp_path):
    """As on a full disk on which room was made."""
    recorder = Recorder(tmp_path)
    (tmp_path / "manifest.json.tmp").mkdir()
    with pytest.raises(RecordError, match="Is a directory"):
        recorder.end("failed", 4, reason="no room")
    (tmp_path / "manifest.json.tmp").rmdir()
    assert recorder.end("failed", 4, reason="no room")["status"] == "failed"
    assert json.loads((tmp_path / "manifest.json").read_text())["reason"] == "no room"
