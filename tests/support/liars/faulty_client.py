"""A ClientApp that fails on demand, for any engine: `fedge.client_app` with faults put in between.

The environment variable FEDGE_FAULTS holds what is to go wrong, as JSON: a list of objects with

    what     a fault of `FAULTS`, or of `CHANGES` for a reply that is tampered with
    client   partition id
    rounds   global rounds (default: all)
    message  "train" or "evaluate" (default: "train")
    times    how often it happens at most; needs `marks`
    marks    folder where the times are counted, so that they are known in every process

FEDGE_RELEASED, if set, names a file that gets a line of every trained model before anything happens to it:
client, leaf round, sha256 of its arrays.
"""

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from fedge.client.guarded_app import GuardedApp
from fedge.client_app import evaluate_round, hello, train_round
from fedge.exchange.content import ARRAYS, METRICS, NUM_EXAMPLES, arrays_of
from fedge.states.records import to_record

HANG_S = 120.0  # as good as for ever, but a thread that hangs so in a test run goes some day


def inject(message, context, call_next):
    """Flower mod: let the faults that are due happen."""
    call_next = noting(call_next)
    for fault in json.loads(os.environ.get("FEDGE_FAULTS", "[]")):
        if is_due(fault, message, context.node_config["partition-id"]):
            what = fault["what"]
            if what in FAULTS:
                return FAULTS[what](message, context, call_next)
            return changed(call_next(message, context), message, CHANGES[what])
    return call_next(message, context)


def noting(call_next):
    """The same with a line of every trained model in a file."""

    def call(message, context):
        reply, path = call_next(message, context), os.environ.get("FEDGE_RELEASED")
        if path and message.metadata.message_type == "train":
            arrays = arrays_of(reply, ARRAYS)
            digest = hashlib.sha256(b"".join(arrays[name].tobytes() for name in sorted(arrays))).hexdigest()
            where = context.node_config["partition-id"], message.content["config"]["leaf_round"]
            with open(path, "a") as file:
                file.write(f"{where[0]} {where[1]} {digest}\n")
        return reply

    return call


def is_due(fault, message, client):
    """Tell whether a fault happens now, and count it."""
    if message.metadata.message_type != fault.get("message", "train") or client != fault["client"]:
        return False
    if message.content["config"]["global_round"] not in fault.get("rounds", range(10**6)):
        return False
    for number in range(fault.get("times", 0)):
        mark = Path(fault["marks"]) / f"{fault['what']}-{client}-{number}"
        try:
            mark.touch(exist_ok=False)
            return True
        except FileExistsError:
            continue
    return "times" not in fault


def raise_error(*_):
    raise RuntimeError("sensor unplugged")


def exit_process(code):
    def leave(*_):
        sys.exit(code)

    return leave


def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def kill_after_training(message, context, call_next):
    call_next(message, context)
    os.kill(os.getpid(), signal.SIGKILL)


def raise_after_training(message, context, call_next):
    call_next(message, context)
    raise RuntimeError("lost on the way")


def run_out_of_memory(*_):
    np.empty(2**46)


def hang(message, context, call_next):
    """Hang, then answer as if nothing had been: the reply comes too late."""
    time.sleep(HANG_S)
    return call_next(message, context)


def answer_late(message, context, call_next):
    """Work, wait until the deadline of 3 s is over, and answer."""
    reply = call_next(message, context)
    time.sleep(5.0)
    return reply


FAULTS = {
    "raise": raise_error,
    "exit-0": exit_process(0),
    "exit-3": exit_process(3),
    "none": lambda *_: None,
    "number": lambda *_: 7,
    "other-message": lambda message, *_: Message(RecordDict(), 1, "train"),
    "empty": lambda message, *_: Message(RecordDict(), reply_to=message),
    "kill": kill,
    "kill-after-training": kill_after_training,
    "raise-after-training": raise_after_training,
    "out-of-memory": run_out_of_memory,
    "hang": hang,
    "late": answer_late,
}


def changed(reply, message, change):
    """A reply with other arrays or metrics; `change` works on (start, end, metrics) in place."""
    start, end = (
        {n: np.array(a) for n, a in arrays_of(m, ARRAYS).items()} if ARRAYS in m.content else {}
        for m in (message, reply)
    )
    metrics = reply.content[METRICS]
    change(start, end, metrics)
    content = {METRICS: metrics}
    if isinstance(reply.content.get(ARRAYS), ArrayRecord | ConfigRecord):
        content[ARRAYS] = to_record(end)
    return Message(RecordDict(content), reply_to=message)


def is_float(array):
    return np.issubdtype(array.dtype, np.floating)


def fill(value):
    def change(start, end, metrics):
        for array in end.values():
            if is_float(array):
                array[...] = value

    return change


def one_entry(value):
    def change(start, end, metrics):
        next(a for a in end.values() if is_float(a)).flat[0] = value

    return change


def away(factor):
    """Send start + factor × update."""

    def change(start, end, metrics):
        for name, array in end.items():
            if is_float(array):
                array[...] = start[name] + factor * (array - start[name])

    return change


def replace_first(make):
    def change(start, end, metrics):
        name = next(iter(end))
        end[name] = make(end[name])

    return change


def metric(name, value):
    def change(start, end, metrics):
        metrics[name] = value

    return change


def drop_first(start, end, metrics):
    del end[next(iter(end))]


def add_entry(start, end, metrics):
    end["more"] = np.zeros(3, np.float32)


CHANGES = {
    "nan": one_entry(np.nan),
    "all-nan": fill(np.nan),
    "infinite": one_entry(-np.inf),
    "huge": fill(1e15),
    "far-too-huge": fill(1e30),
    "sign-flip": away(-10),
    "shape": replace_first(lambda a: a.reshape(-1)[:-1]),
    "dtype": replace_first(lambda a: a.astype(np.float64)),
    "missing": drop_first,
    "extra": add_entry,
    "samples": metric(NUM_EXAMPLES, 10**9),
    "no-samples": metric(NUM_EXAMPLES, 0),
    "half-sample": metric(NUM_EXAMPLES, 0.5),
    "no-steps": metric("steps", 0),
    "nan-loss": metric("train-loss", float("nan")),
    "negative-count": lambda start, end, m: m["own/val/sums/confusion"].__setitem__(0, -1),
    "too-many": lambda start, end, m: m["own/test/sums/confusion"].__setitem__(0, 10**6),
    "no-own": lambda start, end, m: m.pop("own/val/loss"),
    "wrong-counts": metric("offered/val/differences", [0.0, 1e6]),
    "half-counts": metric("offered/val/differences", [0.5, 0.5]),
    "evaluated-nan": metric("own/test/loss", float("nan")),
}

app = GuardedApp(mods=[inject])
app.query("hello")(hello)
app.train()(train_round)
app.evaluate()(evaluate_round)
