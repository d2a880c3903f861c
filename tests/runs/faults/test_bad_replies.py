"""One bad client loses only itself: whatever it sends, the others have the bits of a run in which it raised.

Replies are drawn over the schema of a reply (`fedge.exchange.schema`): every number in it becomes any number,
every entry of a model any array, every record any other, in any leaf round. `make soak` tries 2,000 and
prints how many of them were refused; a sample runs with all tests.
"""

import copy
import csv
import io
import json
import logging
from collections import Counter

import numpy as np
import pytest
from flwr.app import Message, RecordDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from possible import evaluate_fault, train_fault

from fedge.client_app import app as client_app
from fedge.config.flat import from_run_config
from fedge.engine.inprocess import InProcessGrid
from fedge.exchange.content import ARRAYS, METRICS, arrays_of
from fedge.run.run import run
from fedge.states.records import to_record
from hhar.synthetic.generate import synthetic_windows
from hhar.windows.window_file import save_windows

CLIENTS, BAD = 4, 1
BASE = {
    "num-server-rounds": 2,
    "seed": 5,
    "hierarchy.num-servers": 2,
    "train.model": "mlp-tiny",
    "train.local-epochs": 1,
    "partition.kind": "iid",
    "guard.retries": 0,
    "gate.min-gain": -1.0,
    "report": False,
}
KINDS = {
    "scaffold": {},
    "fedavg": {"scaffold.enabled": False},
    "fedadam": {"scaffold.enabled": False, "leaf.strategy": "fedadam"},
    "qfedavg": {"scaffold.enabled": False, "leaf.strategy": "qfedavg", "leaf.strategy-args.q": 2.0},
    "two levels": {"scaffold.levels": 2},
}
TIMES = ("train_seconds", "seconds")


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Carry out a small run in which one client may answer otherwise."""
    folder = tmp_path_factory.mktemp("bad-replies")
    windows = folder / "four.npz"
    save_windows(windows, synthetic_windows(CLIENTS, seed=1))
    known = {}

    def carry_out(kind, spoil):
        config = {**BASE, **KINDS[kind], "data.path": str(windows), "runs-dir": str(folder / "runs")}
        from_run_config(config)

        def app(message, context):
            reply = client_app(message, context)
            is_bad = context.node_config["partition-id"] == BAD
            return spoil(message, reply) if is_bad else reply

        with InProcessGrid(app, CLIENTS, config, 1) as grid:
            return run(grid, config, "inprocess", {}, lambda _: io.StringIO())

    def raised_at(kind, where):
        """Results of the others when the client raises at a call."""

        def fail(message, reply):
            if place(message) == where:
                raise RuntimeError("sensor unplugged")
            return reply

        if (kind, where) not in known:
            known[kind, where] = of_the_others(carry_out(kind, fail).folder)
        return known[kind, where]

    return carry_out, raised_at


def place(message):
    """Place of a message among a run's calls."""
    return message.metadata.message_type, message.content["config"].get("global_round")


def of_the_others(folder):
    """All that a run leaves of everybody but the bad client."""
    rows = {}
    for table in ("clients.csv", "leaf_rounds.csv"):
        with (folder / "metrics" / table).open(newline="") as file:
            rows[table] = [
                {name: value for name, value in row.items() if name not in TIMES}
                for row in csv.DictReader(file)
                if row.get("client") != str(BAD)
            ]
    files = {"clusters.jsonl", "checkpoints/final.safetensors"}
    return {**rows, **{name: (folder / name).read_bytes() for name in files}}


# --- what a reply can be turned into ----------------------------------------------------------------------

numbers = st.one_of(
    st.integers(), st.floats(),
    st.sampled_from([0, -1, 10**400, -(10**400), 1e308, -1e308, 1e39, 2**63, 0.5]),
    st.none(), st.booleans(), st.text(max_size=5), st.lists(st.integers(), max_size=4),
)  # fmt: skip
values = st.sampled_from([np.nan, np.inf, -np.inf, 1e17, -1e30, 3e38, -1.0, -1e-6, 0.0])
texts = st.sampled_from(["\x1b[2J", "\x1b]0;x\x07", "=cmd|' /C calc'!A0", "\u202e", "a\nb", "x" * 5000])


@st.composite
def spoilings(draw):
    """(name of a change, function that makes it in (arrays, metrics, records))."""
    kind = draw(
        st.sampled_from(["metric", "metric", "value", "value", "shape", "dtype", "entry", "record", "name"])
    )
    at, number, value = draw(st.integers(0, 30)), draw(numbers), draw(values)
    text = draw(texts)

    def spoil(arrays, metrics, records):
        names = sorted(arrays)
        name = names[at % len(names)] if names else None
        if kind == "metric" or name is None:
            keys = sorted(metrics)
            metrics[keys[at % len(keys)]] = number
        elif kind == "value" and np.issubdtype(arrays[name].dtype, np.floating):
            arrays[name].reshape(-1)[at % arrays[name].size] = value
        elif kind == "value":
            arrays[name] = np.array(-1 if value < 0 else 2**40)
        elif kind == "shape":
            arrays[name] = arrays[name].reshape(-1)[: at % 3]
        elif kind == "dtype":
            arrays[name] = arrays[name].astype([np.float64, np.int32, np.float16, np.complex64][at % 4])
        elif kind == "entry":
            del arrays[name]
        elif kind == "name":
            arrays[text] = arrays.pop(name)
        else:
            records.pop([ARRAYS, METRICS][at % 2])

    return kind, spoil


places = st.sampled_from([("train", 1), ("train", 2), ("evaluate", 1), ("evaluate", 2)])
seen = Counter()


def spoilt(reply, spoil):
    """A reply with other content; values of any type, as over a wire that checks nothing."""
    arrays = {n: np.array(a) for n, a in (arrays_of(reply, ARRAYS) or {}).items()}
    metrics, records = dict(reply.content[METRICS]), {METRICS: reply.content[METRICS]}
    if ARRAYS in reply.content:
        records[ARRAYS] = None
    spoil(arrays, metrics, records)
    if METRICS in records:
        records[METRICS].__dict__["_data"] = metrics
    if ARRAYS in records:
        records[ARRAYS] = to_record(arrays)
    reply.content = RecordDict(records)
    return reply


def others_keep_their_bits(study, kind, where, drawn):
    carry_out, raised_at = study
    what, spoil = drawn

    faults = []

    def act(message, reply):
        if place(message) != where:
            return reply
        honest, asked = parts_of(reply), message.metadata.message_type
        told = spoilt(reply, spoil)
        faults.append(fault_of(message, honest, parts_of(told), asked))
        return told

    outcome = carry_out(kind, act)
    manifest = json.loads((outcome.folder / "manifest.json").read_text())
    assert outcome.status in ("completed", "partial"), manifest["reason"]
    log = (outcome.folder / "run.log").read_text()
    assert all(line.isprintable() for line in log.splitlines() if "failed:" in line)
    failed = any("rejected" in row["failures"] for row in rows_of(outcome.folder, "global_rounds.csv"))
    seen[what, "refused" if failed else "counted"] += 1
    if failed:
        assert of_the_others(outcome.folder) == raised_at(kind, where)
    else:
        assert not any(faults), (what, faults)
        check_finite(outcome.folder)


def parts_of(reply):
    """Arrays and metrics of a reply, copied, and names of its other records."""
    records = reply.content
    arrays = (
        {n: np.array(a) for n, a in (arrays_of(reply, ARRAYS) or {}).items()} if ARRAYS in records else {}
    )
    return arrays, copy.deepcopy(dict(records.get(METRICS, {}))), set(records) - {METRICS}


def fault_of(message, honest, told, asked):
    """Reason why nobody could have told a reply honestly, or None; the judge knows nothing of the checks."""
    try:
        if asked != "train":
            return evaluate_fault(honest[1], told[1])
        start = {n: np.array(a) for n, a in arrays_of(message, ARRAYS).items()}
        given = {"given": 145, "batch": 32, "epochs": 1, "most_s": 3700.0, "is_free": False}
        return train_fault(start, honest, told, given)
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        return f"what cannot be looked at: {error!r:.80}"


def rows_of(folder, table):
    with (folder / "metrics" / table).open(newline="") as file:
        return list(csv.DictReader(file))


def check_finite(folder):
    """Replies that pass the schema are finite, and so are all results of them."""
    from safetensors.numpy import load_file

    for name, array in load_file(folder / "checkpoints" / "final.safetensors").items():
        assert np.isfinite(array).all(), name


common = {
    "deadline": None,
    "database": None,
    "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
}


@settings(max_examples=40, **common)
@given(st.sampled_from(sorted(KINDS)), places, spoilings())
def test_whatever_one_client_sends_the_others_keep_their_bits(study, kind, where, drawn):
    others_keep_their_bits(study, kind, where, drawn)


@pytest.mark.soak
def test_two_thousand_replies(study, capsys):
    logging.disable(logging.INFO)
    seen.clear()

    @settings(max_examples=2000, **common)
    @given(st.sampled_from(sorted(KINDS)), places, spoilings())
    def many(kind, where, drawn):
        others_keep_their_bits(study, kind, where, drawn)

    many()
    with capsys.disabled():
        refused = sum(count for (_, what), count in seen.items() if what == "refused")
        print(f"\n{sum(seen.values())} replies, {refused} refused, by kind: {dict(sorted(seen.items()))}")
    assert sum(seen.values()) >= 2000


# --- by hand: what was seen once ------------------------------------------------------------------------


def metric(name, value):
    def spoil(arrays, metrics, records):
        if name in metrics:
            metrics[name] = value

    return spoil


def entry(name, value):
    def spoil(arrays, metrics, records):
        arrays[name] = np.full_like(arrays[name], value)

    return spoil


BY_HAND = {
    "negative variance": ("train", entry("norm.running_var", -1.0)),
    "counter of ages": ("train", entry("norm.num_batches_tracked", 2**62)),
    "huge weights": ("train", entry("head.weight", 1e30)),
    "steps beyond floats": ("train", metric("steps", 10**400)),
    "one step": ("train", metric("steps", 1)),
    "seconds beyond floats": ("train", metric("train-seconds", 10**400)),
    "endless seconds": ("train", metric("train-seconds", float("inf"))),
    "negative loss": ("train", metric("train-loss", -5.0)),
    "loss beyond floats": ("evaluate", metric("own/val/loss", 10**400)),
    "loss of -1e308": ("evaluate", metric("own/val/loss", -1e308)),
    "windows by halves": ("evaluate", metric("own/val/sums/confusion", [0.5] * 36)),
}


@pytest.mark.parametrize("kind", ["scaffold", "fedavg"])
@pytest.mark.parametrize("name", sorted(BY_HAND))
def test_what_once_harmed_the_others(study, name, kind):
    carry_out, raised_at = study
    where = (BY_HAND[name][0], 1)

    def act(message, reply):
        return spoilt(reply, BY_HAND[name][1]) if place(message) == where else reply

    outcome = carry_out(kind, act)
    first, _ = rows_of(outcome.folder, "global_rounds.csv")
    assert first["failures"].startswith("rejected: ")
    assert of_the_others(outcome.folder) == raised_at(kind, where)


@pytest.mark.parametrize("power", [3, 8, 12, 16, 17, 20, 25, 30, 38])
@pytest.mark.parametrize("kind", ["scaffold", "qfedavg", "fedadam"])
def test_no_size_of_an_update_makes_a_leaf_infinite(study, kind, power):
    """A reply of 10^power in every round: refused, or the leaf stays finite."""
    carry_out, _ = study

    def act(message, reply):
        if place(message)[0] != "train":
            return reply
        return spoilt(reply, entry("head.weight", np.float32(10.0**power)))

    check_finite(carry_out(kind, act).folder)


def test_a_reply_is_its_own_question_s(study):
    """A client that answers for another client, as from its node: the other's reply still counts."""
    carry_out, _ = study

    def act(message, reply):
        forged = Message(reply.content, reply_to=message)
        forged.metadata.__dict__["_src_node_id"] = 1
        return forged

    def honest(_, reply):
        return reply

    assert of_the_others(carry_out("scaffold", act).folder) == of_the_others(
        carry_out("scaffold", honest).folder
    )
