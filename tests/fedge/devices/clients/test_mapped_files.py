"""Large models in files: the same bits as in memory, and nothing left behind."""

import gc
import io
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Error, Message, RecordDict
from small_data import nine_users

from fedge import simulate
from fedge.devices.clients.mapped_files import ArraySpill
from fedge.exchange.content import ARRAYS
from fedge.states.records import to_record
from fedge.states.state_files import SharedStates


def aside_of(folder, above_bytes):
    shared = SharedStates(folder, in_one_process=True)
    shared.prepare(above_bytes, 4000, 10**6)
    return ArraySpill(shared), shared


def test_a_large_vector_is_mapped_from_a_file_which_goes(tmp_path):
    aside, shared = aside_of(tmp_path, 100)
    vector = np.arange(1000, dtype=np.float32)
    found = aside.vector(vector)
    assert found is not vector
    assert found.tobytes() == vector.tobytes()
    assert not found.flags.writeable
    gc.collect()
    assert not [path for path in Path(shared.folder).iterdir() if path.name.startswith("server-")]
    aside.give_back()
    assert found.tobytes() == vector.tobytes()  # it comes again when it is touched
    shared.close()


def test_a_small_one_stays_where_it_is(tmp_path):
    aside, shared = aside_of(tmp_path, 100)
    vector = np.arange(10, dtype=np.float32)
    assert aside.vector(vector) is vector
    shared.close()


def test_a_reply_keeps_its_model_in_a_file(tmp_path):
    aside, shared = aside_of(tmp_path, 100)
    question = Message(RecordDict(), 1, "train")
    state = {"w": np.arange(600, dtype=np.float32).reshape(2, 300), "n": np.array(3)}
    reply = aside.reply(Message(RecordDict({ARRAYS: to_record(state)}), reply_to=question))
    record = reply.content[ARRAYS]
    assert [path for path in Path(shared.folder).iterdir() if path.name.startswith("server-")]
    for name, array in state.items():
        assert np.array_equal(record[name].numpy(), array)
    failed = Message(Error(2, "broken"), reply_to=question)
    assert aside.reply(failed) is failed
    shared.close()


RUN = {
    "report": False, "train.model": "mlp-tiny", "train.local-epochs": 1, "seed": 5, "data.path": nine_users(),
    "scaffold.enabled": False, "cluster.enabled": False, "gate.enabled": False, "hierarchy.num-servers": 2,
    "clients": 18, "devices.pieces": 2, "asynchrony.rule": "fedbuff", "asynchrony.rule-args": '{"buffer": 2}',
    "asynchrony.concurrency": 8, "asynchrony.evaluate-every-s": 2.0, "asynchrony.cloud-delay-s": 0.1,
    "run-name": "",
}  # fmt: skip


@pytest.mark.whole_runs
def test_a_run_with_models_in_files_has_the_same_bits_also_when_it_goes_on(tmp_path):
    runs = []
    for above_mb in (50.0, 0.0):
        options = {**RUN, "runs-dir": str(tmp_path / str(above_mb)), "transfer.spill-above-mb": above_mb}
        first = simulate({**options, "num-server-rounds": 3}, terminal=io.StringIO())
        runs.append(
            simulate({**options, "num-server-rounds": 5, "resume": str(first.folder)}, terminal=io.StringIO())
        )
    for name in ("checkpoints/final.safetensors", "devices/versions.csv", "devices/devices.csv"):
        one, two = ((run.folder / name).read_bytes() for run in runs)
        assert one == two, name
    assert not list(runs[1].folder.glob("fedge-states-*"))
