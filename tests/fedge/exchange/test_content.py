"""Content of all messages: a client's times, and states as arrays or as files."""

import json
import os
import shutil
import socket
import stat
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from fedge.exchange.content import (
    ARRAYS,
    HELD,
    METRICS,
    WORK,
    metric_list,
    node_processes,
    replied_state,
    reply_path,
    work_of,
)
from fedge.exchange.evaluate import evaluate_reply, read_evaluate
from fedge.exchange.round_context import RoundContext
from fedge.exchange.train import train_messages, train_reply
from fedge.states.files import StateFileError, map_state, write_state
from fedge.states.records import to_record
from fedge.timing.calls import NUMBERS
from fedge.training.local import TrainResult

CONTEXT = RoundContext(42, 3, 7, "/data", "/run.log", 99, 1.5)
STATE = {"w": np.arange(4, dtype=np.float32)}
NUMBERS_OF_A_CALL = [float(n) for n in range(NUMBERS)]


@pytest.fixture
def asked():
    (message,) = train_messages([1], to_record({}), CONTEXT)
    message.metadata.__dict__["_message_id"] = "1"
    return message


def test_numbers_come_back_beside_the_metrics(asked):
    trained = train_reply(asked, TrainResult({}, 0.5, 3), 7, 1.5, None, lambda: NUMBERS_OF_A_CALL)
    evaluated = evaluate_reply(asked, {}, lambda: NUMBERS_OF_A_CALL)
    assert work_of(trained) == work_of(evaluated) == NUMBERS_OF_A_CALL
    assert read_evaluate(evaluated) == {}


def test_a_client_may_tell_nothing(asked):
    assert work_of(train_reply(asked, TrainResult({}, 0.5, 3), 7, 1.5)) is None
    assert work_of(evaluate_reply(asked, {})) is None


@pytest.mark.parametrize(
    "records",
    [
        {},
        {METRICS: MetricRecord()},
        {METRICS: MetricRecord({WORK: 1.0})},
        {METRICS: MetricRecord({WORK: NUMBERS_OF_A_CALL[1:]})},
        {METRICS: MetricRecord({WORK: [10**400] * NUMBERS})},
        {METRICS: ArrayRecord()},
    ],
    ids=["nothing", "empty", "a number", "too short", "whole numbers", "arrays"],
)
def test_what_cannot_be_read_is_nothing(asked, records):
    assert work_of(Message(RecordDict(records), reply_to=asked)) is None


@pytest.mark.parametrize("held", [[0.0, 9.0, 1.5, 3.0, 2.0], [0.0], [10**400], 1.0])
def test_what_a_node_says_of_its_processes_never_costs_its_reply(asked, held):
    metrics = MetricRecord({WORK: NUMBERS_OF_A_CALL, HELD: held})
    reply = Message(RecordDict({METRICS: metrics}), reply_to=asked)
    assert [one.pid for one in node_processes(reply)] == ([9] if held == [0.0, 9.0, 1.5, 3.0, 2.0] else [])
    assert read_evaluate(reply) == {}


@pytest.mark.parametrize("told", [3, 0.5, "12", [True, 1], ["1"], [[1.0]], [None], {"a": 1}, b"12", [1j]])
def test_a_list_of_numbers_holds_numbers_alone(told):
    """A record refuses most of these; what comes over a wire that checks nothing is looked at once more."""
    metrics = MetricRecord({"moments": [1, 2]})
    np.testing.assert_array_equal(metric_list(metrics, "moments"), np.array([1.0, 2.0]))
    assert metric_list(metrics, "differences") is None
    metrics.__dict__["_data"] = {"moments": told}
    with pytest.raises(TypeError, match="moments must be a list of numbers"):
        metric_list(metrics, "moments")


def test_a_client_that_is_no_node_says_nothing_of_its_processes(asked):
    assert HELD not in evaluate_reply(asked, {}, lambda: NUMBERS_OF_A_CALL).content[METRICS]


# --- tickets ----------------------------------------------------------------------------------------------


@pytest.fixture
def own_file(tmp_path, asked):
    """The reply to a message, and the ticket of the file that is its to write."""
    folder = tmp_path / "states"
    folder.mkdir()
    ticket = write_state(reply_path(folder, "1"), STATE)
    return folder, ticket


def reply_with(asked, **changes):
    """A reply with a ticket."""
    return Message(RecordDict({ARRAYS: ConfigRecord(changes)}), reply_to=asked)


def test_a_reply_s_own_file_is_read(asked, own_file):
    folder, ticket = own_file
    found = replied_state(reply_with(asked, **asdict(ticket)), folder)
    assert np.array_equal(found["w"], STATE["w"])


@pytest.mark.parametrize(
    "where",
    [
        "elsewhere",
        "inside, another's",
        "another run's",
        "by dots",
        "by a folder's link",
        "relative",
        "nowhere to share",
        "a device",
        "a pipe",
        "no name",
    ],
)
def test_a_ticket_for_any_other_file_is_refused(asked, own_file, tmp_path, where, monkeypatch):
    folder, ticket = own_file
    monkeypatch.chdir(folder)
    other = tmp_path / "other" / "states"
    shutil.copytree(folder, other)
    (tmp_path / "link").symlink_to(folder)
    paths = {
        "another run's": other / "reply-1",
        "by a folder's link": tmp_path / "link" / "reply-1",
        "a pipe": f"/proc/self/fd/{os.pipe()[0]}",
        "elsewhere": tmp_path / "reply-1",
        "inside, another's": reply_path(folder, "2"),
        "by dots": folder / ".." / "states" / "reply-1",
        "relative": "reply-1",
        "nowhere to share": ticket.path,
        "a device": "/dev/zero",
        "no name": "",
    }
    for place in (tmp_path / "reply-1", folder / "reply-2"):
        shutil.copy(ticket.path, place)
    changed = reply_with(asked, **{**asdict(ticket), "path": str(paths[where])})
    with pytest.raises(StateFileError, match="names a file that is not its own"):
        replied_state(changed, None if where == "nowhere to share" else folder)


@pytest.mark.parametrize(
    ("kind", "telling"),
    [
        ("fifo", "no regular file"), ("folder", "no regular file"), ("device", "no regular file"),
        ("link", "cannot read state"), ("dangling link", "cannot read state"), ("gone", "cannot read state"),
        ("socket", "cannot read state"), ("empty", "damaged"), ("cut", "damaged"), ("other size", "damaged"),
    ],
)  # fmt: skip
def test_what_is_no_regular_file_is_refused_at_once(asked, own_file, kind, telling):
    """Opening a FIFO that nobody writes to would wait for ever; reading a device may do something."""
    folder, ticket = own_file
    path = Path(ticket.path)
    kept = path.rename(folder / "kept")
    content = kept.read_bytes()
    make = {
        "fifo": lambda: os.mkfifo(path),
        "link": lambda: path.symlink_to(kept),
        "dangling link": lambda: path.symlink_to(folder / "none"),
        "device": lambda: device(path),
        "folder": path.mkdir,
        "empty": path.touch,
        "socket": lambda: socket.socket(socket.AF_UNIX).bind(str(path)),
        "gone": lambda: None,
        "cut": lambda: path.write_bytes(content[:-1]),
        "other size": lambda: path.write_bytes(content),
    }
    make[kind]()
    size = 10**6 if kind == "other size" else ticket.array_bytes
    began = time.monotonic()
    with pytest.raises(StateFileError, match=telling):
        replied_state(reply_with(asked, **{**asdict(ticket), "array_bytes": size}), folder)
    assert time.monotonic() - began < 30  # a pipe would be waited for without end


def device(path):
    """Make a device, of zeros; only root may."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))
    except PermissionError as error:
        pytest.skip(f"cannot make a device: {error}")


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]},
        {"dtype": "F32", "shape": [-1], "data_offsets": [0, -4]},
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [2], "data_offsets": [1000, 1008]},
        {"dtype": "F32", "shape": [1.5], "data_offsets": [0, 6]},
        {"dtype": "O", "shape": [1], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": None, "data_offsets": []},
        [],
    ],
    ids=str,
)
def test_entries_that_do_not_lie_in_their_file_are_refused_before_they_are_read(tmp_path, entry):
    header = json.dumps({"w": entry}).encode()
    path = tmp_path / "state"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(16))
    with pytest.raises(StateFileError):
        map_state(path)
