"""Answers of leaf servers made into lies, each by a seed, and runs whose leaf servers are in this process.

A lie is drawn over all that an answer has: any value in its facts becomes any other, is lost or occurs twice;
any entry of a model any array; states lose or change their names; notes come that are none; the answer is of
another kind, or far too long. Between cloud and leaf servers everything passes as bytes
(`fedge.link.frames`), so what cannot be read is refused where it would be; the link itself, with its streams
and times, is left out (tests/fedge/link, tests/deployed/test_rogues.py have it).
"""

import copy
import csv
import io
import json

import numpy as np
from leaf_servers import host_of
from lies import TEXTS, any_value, places

from fedge.client_app import app as client_app
from fedge.config.registers import engines
from fedge.edge.engine import EdgeEngine
from fedge.edge.packets import orders
from fedge.engine.federation import Federation
from fedge.launch.preflight import check
from fedge.link.frames import LinkError, Packet, chunks_of, packet_of
from fedge.link.gate import NOTE, NUMBER, OVER, LeafGone, LeafRefused
from fedge.run.run import run

LEAVES, CLIENTS, LIAR = 3, 9, 1
TIMES = ("train_seconds", "seconds")
MINE = {str(client) for client in range(LIAR * CLIENTS // LEAVES, (LIAR + 1) * CLIENTS // LEAVES)}
ORDERS = (orders.TRAIN, orders.PROBE, orders.EVALUATE)
VALUES = [np.nan, np.inf, -np.inf, 1e17, -1e30, 3e38, -1.0, -1e-6, 0.0]
DTYPES = [np.float64, np.int32, np.float16, np.int64, np.bool_]


class Direct:
    """The cloud's questions to leaf servers, carried in this process as bytes; a `LeafGate` but for its link.

    Attributes:
        orders: that the liar was asked in this run, in order.
        refused: places of those of its answers that did not count.
        whys: and why not.
    """

    def __init__(self, hosts, act):
        self.hosts, self.act, self.orders, self.refused, self.whys = hosts, act, [], [], []

    def hellos(self):
        return {leaf: host.hello() for leaf, host in enumerate(self.hosts)}

    def processes(self, leaves, fact):
        return [[leaf] for leaf in leaves]

    def ask(self, leaf, packet, timeout_s, on_note=None, limit_s=0.0, most=(2**36, 2**28), keep=dict):
        assert callable(keep)  # models here are small: none goes to a file
        asked = carried(packet, (2**36, 2**28))
        answer = self.hosts[leaf].answer(asked, lambda facts: None)
        if leaf == LIAR and packet.kind in ORDERS and answer.kind == orders.DONE:
            self.orders.append(packet.kind)
            return self.act(len(self.orders) - 1, answer, on_note, most)
        return carried(answer, most)


def with_changes(facts, changes):
    """A copy of facts with other values at paths, as "rounds__0__1"; a number is a place in a list."""
    facts = copy.deepcopy(facts)
    for path, value in changes.items():
        *outer, last = [int(word) if word.isdecimal() else word for word in path.split("__")]
        holder = facts
        for key in outer:
            holder = holder[key]
        holder[last] = value
    return facts


def carried(packet, most):
    """A packet as it arrives; LeafRefused where it cannot be read."""
    try:
        return packet_of(chunks_of(packet), *most)
    except LinkError as error:
        raise LeafRefused(f"leaf server: {error}") from None


def honest(_, answer, on_note, most):
    return carried(answer, most)


def gone_at(places, otherwise=honest):
    """An act of the liar: away at some of its orders."""

    def act(at, answer, on_note, most):
        if at in places:
            raise LeafGone(f"leaf server {LIAR} was away")
        return otherwise(at, answer, on_note, most)

    return act


def lies_at(lies):
    """An act of the liar: order → how its answer is spoilt; None: not at all."""

    def act(at, answer, on_note, most):
        lie = lies(at)
        if lie is None:
            return carried(answer, most)
        try:
            found, notes = lie(answer)
            for note in notes:
                on_note(carried(note, most))
        except ValueError as error:  # of a note that cannot be, as `fedge.link.gate` takes it
            raise LeafRefused(f"leaf server {LIAR}: {error}") from None
        return carried(found, most)

    return act


class _Noting(EdgeEngine):
    """Tells the gate which of the liar's answers do not count."""

    def make_port(self, facts, around):
        port, gate = super().make_port(facts, around), self._gate
        dispatch = port._dispatch
        note = dispatch._record_failure

        def noting(leaf, clients, error):
            if leaf == LIAR:
                gate.refused.append(len(gate.orders) - 1)
                gate.whys.append(str(error))
            note(leaf, clients, error)

        dispatch._record_failure = noting
        return port


class Study:
    """Small runs of one kind each, whose leaf servers stay from run to run."""

    def __init__(self, folder, config, app=client_app):
        self.config = {**config, "runs-dir": str(folder / "runs")}
        self.hosts = [host_of(folder, leaf, app) for leaf in range(LEAVES)]

    def carry_out(self, changes, act):
        """Carry out a run; return its outcome, its gate, and what the terminal showed."""
        config, federation = {**self.config, **changes}, Federation(CLIENTS)
        prepared, terminal = check(config, federation, is_sized=True), io.StringIO()
        gate = Direct(self.hosts, act)
        engine = _Noting(gate, [CLIENTS // LEAVES] * LEAVES)
        described = {**federation.describe(), "leaves": LEAVES}
        try:
            outcome = run(engine, config, engines.LEAVES.name, described, lambda _: terminal, False, prepared)
        finally:
            engine.dismiss()
        return outcome, gate, terminal.getvalue()

    def close(self):
        for host in self.hosts:
            host.answer(Packet(OVER), lambda _: None)


def rows_of(folder, table):
    with (folder / "metrics" / table).open(newline="") as file:
        return list(csv.DictReader(file))


def of_the_others(folder):
    """All that a run leaves of everybody but the liar, and the liar's model."""
    rows = {
        table: [
            {name: value for name, value in row.items() if name not in TIMES}
            for row in rows_of(folder, table)
            if row.get("client") not in MINE
        ]
        for table in ("clients.csv", "leaf_rounds.csv")
    }
    files = ("clusters.jsonl", "checkpoints/final.safetensors")
    return {**rows, **{name: (folder / name).read_bytes() for name in files}}


# --- lies -----------------------------------------------------------------------------------------------


def lie_of(seed, is_first=False):
    """A seed's lie: its kind, and answer → (another answer, notes before it).

    The first answer of a leaf server is never an honest "failed": that ends a run before it has begun.
    """
    kind = str(np.random.default_rng([24, seed]).choice(list(LIES), p=[0.4, 0.3, 0.1, 0.08, 0.06, 0.06]))
    return kind, lambda answer: LIES[kind](np.random.default_rng([25, seed]), answer, is_first)


def plain(facts):
    """Facts as JSON has them."""
    return json.loads(json.dumps({key: value for key, value in facts.items() if key != NUMBER}))


def spoil_fact(rng, answer, _):
    """Change one value of the facts, lose it, or have it twice; a table's own names are drawn first."""
    facts = plain(answer.facts)
    deep = list(places(facts))
    shallow = [path for path in deep if len(path) <= 2]
    of = shallow if rng.random() < 0.5 else deep
    *outer, last = of[rng.integers(len(of))]
    holder = facts
    for key in outer:
        holder = holder[key]
    how = rng.integers(6)
    if how < 3:
        holder[last] = any_value(rng)
    elif how == 3 and type(holder[last]) in (int, float):
        holder[last] = type(holder[last])(holder[last] * float(rng.choice([-1.0, 0.0, 0.5, 2.0, 1e3, 1e9])))
    elif how == 4:
        del holder[last]
    elif isinstance(holder, list):
        holder.append(copy.deepcopy(holder[last]))
    else:
        holder[str(TEXTS[rng.integers(len(TEXTS))])] = any_value(rng)
    return Packet(answer.kind, facts, answer.states), []


def spoil_array(rng, answer, is_first):
    """Change one entry of one state: its values, shape, dtype or name."""
    if not answer.states:
        return spoil_fact(rng, answer, is_first)
    states = {name: {e: np.array(a) for e, a in state.items()} for name, state in answer.states.items()}
    name = sorted(states)[rng.integers(len(states))]
    state = states[name]
    entry = sorted(state)[rng.integers(len(state))]
    array, how = state[entry], rng.integers(8)
    if how < 4 and array.size and np.issubdtype(array.dtype, np.floating):
        value = VALUES[rng.integers(len(VALUES))]
        with np.errstate(over="ignore"):
            if how == 0:
                array[...] = value
            else:
                array.reshape(-1)[rng.integers(array.size)] = value
    elif how < 4:
        state[entry] = array + np.asarray(rng.choice([-5, 10**6, 2**40])).astype(array.dtype)
    elif how == 4:
        state[entry] = array.reshape(-1)[: rng.integers(3)]
    elif how == 5:
        with np.errstate(over="ignore", invalid="ignore"):
            state[entry] = array.astype(DTYPES[rng.integers(len(DTYPES))])
    elif how == 6:
        del state[entry]
    else:
        state[TEXTS[rng.integers(len(TEXTS))]] = state.pop(entry)
    return Packet(answer.kind, answer.facts, states), []


def spoil_states(rng, answer, is_first):
    """Lose a state, call it otherwise, or bring one that nobody asked for."""
    states, names = dict(answer.states), sorted(answer.states)
    how = rng.integers(3)
    if how == 2 or not names:
        other = [
            "strategy.__class__.min_fit",
            "strategy.aggregate_train()",
            "summary.0",
            "summary.x",
            "told",
            "x",
        ]
        states[other[rng.integers(len(other))]] = {"": np.zeros(int(rng.integers(3)))}
    elif how == 0:
        del states[names[rng.integers(len(names))]]
    else:
        states[TEXTS[rng.integers(len(TEXTS))]] = states.pop(names[rng.integers(len(names))])
    return Packet(answer.kind, answer.facts, states), []


def spoil_kind(rng, answer, is_first):
    """Answer something else than that it was done."""
    kinds = ["", "\x1b[2J", "x" * 5000, NOTE, OVER, orders.TRAIN]
    kind = kinds[rng.integers(len(kinds))] if is_first or rng.random() < 0.5 else orders.FAILED
    return Packet(kind, {"words": any_value(rng)} if rng.random() < 0.7 else {}), []


def spoil_note(rng, answer, _):
    """Tell something before the answer that is no note, or speaks of others."""
    facts = {"kind": "train", "asked": [3, 4, 5], "back": [3], "failed": []}
    facts[sorted(facts)[rng.integers(4)]] = any_value(rng)
    if rng.random() < 0.3:
        facts[TEXTS[rng.integers(len(TEXTS))]] = any_value(rng)
    return answer, [Packet(NOTE, facts)]


def spoil_size(rng, answer, _):
    """Bring far more than was asked for."""
    facts = plain(answer.facts)
    if rng.random() < 0.5 or not answer.states:
        facts["book"]["failures"] = [[3, "exception", "x" * 10**6]] * int(rng.choice([1, 40]))
        return Packet(answer.kind, facts, answer.states), []
    name = sorted(answer.states)[rng.integers(len(answer.states))]
    states = {**answer.states, name: {"w": np.zeros(int(rng.choice([10**5, 10**7])), np.float32)}}
    return Packet(answer.kind, facts, states), []


LIES = {
    "fact": spoil_fact,
    "array": spoil_array,
    "states": spoil_states,
    "kind": spoil_kind,
    "note": spoil_note,
    "size": spoil_size,
}
