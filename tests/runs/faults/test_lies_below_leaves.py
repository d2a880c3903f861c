"""A client that lies to its leaf server loses only itself: an honest leaf server's answer always counts.

What passes a leaf server's boundary passes the cloud's, too: otherwise all of its clients would pay for one.
Lies are those of `lies.reply_lie`, of replies to work and to evaluation, and of what messages carry beside a
model; leaf servers are in this process. `-m soak` tries 2,000 and prints what became of them.
"""

import logging
from collections import Counter

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, RecordDict
from lies import reply_lie
from safetensors.numpy import load_file
from small_runs import small_config
from spoilt import Study, honest, rows_of

from fedge.client_app import app as client_app
from fedge.exchange.algorithm import KEPT
from fedge.exchange.content import ARRAYS, METRICS, arrays_of
from fedge.exchange.hello import HELLO
from fedge.states.records import to_record

pytestmark = pytest.mark.whole_runs
BAD = 4  # a client of the second leaf server
KINDS = {
    "scaffold": {"train.model": "mlp-tiny"},
    "two levels": {"scaffold.levels": 2, "cluster.tau": -1.0, "gate.enabled": False},
    "fedadam": {"scaffold.enabled": False, "leaf.strategy": "fedadam", "train.model": "mlp-tiny"},
    "memory": {"scaffold.enabled": False, "train.algorithm": "feddyn", "train.model": "mlp-tiny"},
    "uplink": {"scaffold.enabled": False, "uplink.clients": "sign", "train.model": "mlp-tiny"},
    "groups": {
        "cluster.signal": "affinity", "cluster.method": "agglomerative", "cluster.count": "auto",
        "cluster.level": 0.5, "cluster.patience": 2, "gate.enabled": False,
        "scenario": "label-permutation", "scenario-sizes": "2,1",
    },
    "norms": {"guard.max-norm-factor": 5.0, "train.model": "mlp-tiny", "leaf.strategy": "fedavgm",
              "scaffold.enabled": False},
}  # fmt: skip
TIMES = ("train_seconds", "seconds")


class Liar:
    """A ClientApp whose client `BAD` spoils the replies that `spoil` is given; None: it is honest."""

    def __init__(self):
        self.spoil, self.replies = None, 0

    def __call__(self, message, context):
        reply = client_app(message, context)
        if context.node_config["partition-id"] != BAD or message.metadata.message_type == HELLO:
            return reply
        self.replies += 1
        return reply if self.spoil is None else self.spoil(self.replies - 1, reply)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder, liar = tmp_path_factory.mktemp("below"), Liar()
    base = {"gate.min-gain": -1.0, "guard.retries": 0}
    made, known = Study(folder, {**small_config(folder / "data"), **base}, liar), {}

    def carry_out(kind, spoil):
        liar.spoil, liar.replies = spoil, 0
        outcome, gate, shown = made.carry_out(KINDS[kind], honest)
        return outcome, gate, shown, liar.replies

    def gone_at(kind, places):
        """All others' results where the client raises at some replies; how many there are, for none."""
        if (kind, places) not in known:

            def fail(at, reply):
                if at in places:
                    raise RuntimeError("sensor unplugged")
                return reply

            outcome, _, _, replies = carry_out(kind, fail)
            known[kind, places] = of_the_others(outcome.folder) if places else replies
        return known[kind, places]

    yield carry_out, gone_at
    made.close()


def of_the_others(folder):
    """All that a run leaves of everybody but the liar."""
    rows = {}
    for table in ("clients.csv", "leaf_rounds.csv"):
        rows[table] = [
            {name: value for name, value in row.items() if name not in TIMES}
            for row in rows_of(folder, table) if row.get("client") != str(BAD)
        ]  # fmt: skip
    files = ("clusters.jsonl", "checkpoints/final.safetensors")
    return {**rows, **{name: (folder / name).read_bytes() for name in files}}


def told_otherwise(reply, rng):
    """A reply of which one thing is a lie."""
    records = dict(reply.content)
    arrays = (
        {n: np.array(a) for n, a in (arrays_of(reply, ARRAYS) or {}).items()} if ARRAYS in records else {}
    )
    metrics, others = dict(records[METRICS]), set(records) - {METRICS}
    beside = {KEPT: dict(records[KEPT])} if KEPT in records else {}
    reply_lie(rng, arrays, metrics, others, beside)
    made = {name: records[name] for name in others if name in records and name != METRICS}
    made[METRICS] = type(records[METRICS])()
    made[METRICS].__dict__["_data"] = metrics
    if ARRAYS in others:
        made[ARRAYS] = to_record(arrays)
    if KEPT in others:
        content = beside.get(KEPT, {"checksum": "0" * 64, "bytes": 5})
        is_array = any(isinstance(value, np.ndarray) for value in content.values())
        made[KEPT] = ArrayRecord() if is_array else ConfigRecord()
        made[KEPT].__dict__["_data"] = dict(to_record(content)) if is_array else content
    if "extra" in others and "extra" not in made:
        made["extra"] = to_record({"x": np.zeros(3)})
    reply.content = RecordDict()
    reply.content.__dict__["_data"] = made
    return reply


def look(study, kind, spoil, places, where):
    """Let replies at some places be lies; assert what holds; return how many did not count."""
    carry_out, gone_at = study
    outcome, gate, shown, _ = carry_out(kind, spoil)
    assert outcome.status in ("completed", "partial"), (where, outcome.reason)
    assert gate.refused == [], (where, gate.whys)
    log = (outcome.folder / "run.log").read_text()
    assert "Traceback" not in log, where
    assert all(line.isprintable() for line in [*log.splitlines(), *shown.splitlines()]), where
    for name, array in load_file(outcome.folder / "checkpoints" / "final.safetensors").items():
        assert np.isfinite(array).all(), (where, name)
    refused = log.count(f"client {BAD} failed: rejected") // 2  # its leaf server says so, and the cloud
    if refused == len(places):
        found, wanted = of_the_others(outcome.folder), gone_at(kind, frozenset(places))
        assert [name for name in wanted if found[name] != wanted[name]] == [], where
    return refused


def lie_once(study, kind, seed):
    """Let one reply be a lie, by a seed; return what became of it."""
    place = seed % study[1](kind, frozenset())

    def spoil(at, reply):
        return told_otherwise(reply, np.random.default_rng([71, seed])) if at == place else reply

    return look(study, kind, spoil, [place], f"{kind}, reply {place}, seed {seed}")


def lie_always(study, kind, seed):
    """Let all replies of a run be lies, by a seed; return (how many, how many did not count)."""
    replies = study[1](kind, frozenset())

    def spoil(at, reply):
        return told_otherwise(reply, np.random.default_rng([72, seed, at]))

    return replies, look(study, kind, spoil, range(replies), f"{kind}, all replies, seed {seed}")


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_whatever_a_client_says_its_leaf_server_is_believed(study, kind):
    lie_once(study, kind, sorted(KINDS).index(kind))
    lie_always(study, kind, 0)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(4))
def test_two_thousand_replies(study, capsys, part):
    """500 of them by the seeds of a part."""
    logging.disable(logging.INFO)
    told, refused, seed, kinds = Counter(), Counter(), 10_000 * (part + 1), sorted(KINDS)
    while told.total() < 500:
        kind, seed = kinds[seed % len(kinds)], seed + 1
        if seed % 4:
            lies, out = lie_always(study, kind, seed)
        else:
            lies, out = 1, lie_once(study, kind, seed)
        told[kind] += lies
        refused[kind] += out
    with capsys.disabled():
        print(
            f"\n{told.total()} replies under leaf servers, {refused.total()} refused, by kind: {dict(told)}"
        )
