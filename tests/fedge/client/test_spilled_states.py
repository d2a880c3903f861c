"""Large states of a ClientApp's message, in files of its node."""

import sys
from contextlib import suppress

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, RecordDict

from fedge.client import spilled_states
from fedge.client.memory import KEY
from fedge.client.spilled_states import FOLDER, states_in_files
from fedge.config.sections.guard import TransferConfig
from fedge.exchange.content import ARRAYS, CONTROL, arrays_of
from fedge.states.files import FileState
from fedge.states.records import record_of, to_record

MODEL = {"w": np.arange(100, dtype=np.float32), "n": np.array(3, dtype=np.int64)}
ALL = TransferConfig(spill_above_mb=0.0)


@pytest.fixture(autouse=True)
def client_app(monkeypatch):
    """This process is called as Flower's program is."""
    monkeypatch.setattr(sys, "argv", ["/opt/bin/flwr-clientapp", "--token", "t"])


def question(**more):
    """A message as Flower has received it: its arrays are bytes."""
    record = record_of(ArrayRecord, {name: Array(array) for name, array in MODEL.items()})
    return Message(RecordDict({ARRAYS: record, **more}), 1, "train")


def is_aside(message):
    return isinstance(arrays_of(message, ARRAYS), FileState)


def test_states_of_message_and_reply_lie_in_files_that_go(tmp_path):
    message, node = question(), {KEY: str(tmp_path)}
    with states_in_files(message, ALL, node) as put_aside:
        assert is_aside(message)
        assert len(list(tmp_path.glob(f"{FOLDER}/fedge-states-*/server-*"))) == 1
        reply = Message(RecordDict({ARRAYS: to_record({"w": MODEL["w"] + 1})}), reply_to=message)
        put_aside(reply)
        assert is_aside(reply)
    assert list((tmp_path / FOLDER).iterdir()) == []
    for name, array in MODEL.items():
        np.testing.assert_array_equal(arrays_of(message, ARRAYS)[name], array)
    np.testing.assert_array_equal(arrays_of(reply, ARRAYS)["w"], MODEL["w"] + 1)
    sent = reply.content[ARRAYS]["w"]  # as Flower sends it
    assert sent.data == Array(MODEL["w"] + 1).data


def test_an_error_of_the_client_leaves_no_file(tmp_path):
    with suppress(ZeroDivisionError), states_in_files(question(), ALL, {KEY: str(tmp_path)}):
        raise ZeroDivisionError
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_the_files_of_a_client_that_was_killed_go_with_the_next_message(tmp_path):
    left = tmp_path / FOLDER / "fedge-states-1-left"
    left.mkdir(parents=True)
    (left / "server-1").write_bytes(b"x")
    with states_in_files(question(), ALL, {KEY: str(tmp_path)}):
        assert not left.exists()


@pytest.mark.parametrize(
    ("transfer", "free", "control", "expected"),
    [
        (TransferConfig(), 1e12, False, False),
        (TransferConfig(), 0, False, True),
        (TransferConfig(), 1e12, True, True),
        (TransferConfig(spill_above_mb=1.0), 0, False, False),
        (ALL, 1e12, False, True),
    ],
    ids=["much memory", "little memory", "scaffold", "small", "always"],
)
def test_free_memory_decides_as_it_does_in_one_process(
    tmp_path, monkeypatch, transfer, free, control, expected
):
    """By default; message, network, gradients and the trained model are five models of 408 bytes at most."""
    monkeypatch.setattr("fedge.config.sections.guard._LARGE_BYTES", 0.0)
    asked = []
    monkeypatch.setattr(spilled_states, "fits_in_memory", lambda size: (asked.append(size), size <= free)[1])
    message = question(**({CONTROL: to_record({"w": np.zeros(2)})} if control else {}))
    with states_in_files(message, transfer, {KEY: str(tmp_path)}):
        assert is_aside(message) == expected
    assert asked in ([], [4 * 408])


def test_threads_and_workers_of_ray_keep_theirs(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/opt/bin/fedge", "run"])
    message = question()
    with states_in_files(message, ALL, {KEY: str(tmp_path)}):
        assert not is_aside(message)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_leaves_models_in_memory(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    message = question()
    with states_in_files(message, ALL, {KEY: str(tmp_path / "file")}):
        assert not is_aside(message)
    assert "models stay in memory" in caplog.text
