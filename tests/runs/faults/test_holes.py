"""A judge of lies finds each check that is missing: thousands of lies at the boundary, within one small run.

While an honest run goes on, each answer that its boundary lets in is made into lies, with all checks in place
and with each of them taken out in turn. What gets in and could not have been told honestly (`possible`, a
second opinion that nothing of Fedge is used for) is a hole.
"""

import copy
import io
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Lock
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, RecordDict
from holes import hole_of, holes_of
from lies import first_answer, reply_lie
from lying_runs import honest_record
from possible import evaluate_fault, first_fault, train_fault
from possible_leaf import LEAF_FAULTS
from sly import sly_account, sly_answer
from small_runs import small_config
from spoilt import Study, gone_at, plain, spoil_array, spoil_fact, spoil_states

from fedge.client_app import app as client_app
from fedge.data import own_windows
from fedge.data.prepared import all_windows
from fedge.edge import answers
from fedge.edge.packets import plain_json
from fedge.engine.inprocess import InProcessGrid
from fedge.exchange import algorithm, hello, schema
from fedge.exchange.algorithm import EXTRA, KEPT
from fedge.exchange.content import ARRAYS, CONFIG, MEMORY, METRICS, arrays_of
from fedge.launch.deal import deal_into
from fedge.leaf import counting
from fedge.link.frames import Packet
from fedge.rounds import evaluation
from fedge.run.run import run
from fedge.states.records import to_record
from hhar.synthetic.generate import synthetic_windows
from hhar.windows.window_file import save_windows

pytestmark = pytest.mark.extended

CLIENTS = 4
BASE = {
    "num-server-rounds": 2, "seed": 5, "hierarchy.num-servers": 2, "train.model": "mlp-tiny",
    "train.local-epochs": 1, "train.batch-size": 32, "partition.kind": "iid", "guard.retries": 0,
    "scaffold.enabled": False, "report": False,
}  # fmt: skip
NO_GATE = {"gate.enabled": False}
KINDS = {
    "scaffold": {"scaffold.enabled": True, "gate.min-gain": -1.0},
    "memory": {"train.algorithm": "feddyn"},
    "carried": {"train.algorithm": "ditto"},
    "beside": {"train.algorithm": "esperhfl"},
    "clipped": {"train.model": "linear", "privacy.kind": "client-adaptive", "privacy.noise-multiplier": 0.1},
    "described": {"cluster.method": "flux", "cluster.method-args.split-round": 1,
                  "cluster.count": "threshold", "cluster.patience": 1, **NO_GATE},
}  # fmt: skip


BESIDE = ("read_memory_of", "read_kept", "read_lost", "read_extra")  # what comes beside a model

BACKED = {  # checks that lies come to, behind which another one refuses the same in these runs
    "replies": {
        "check_loss: loss not finite",  # no range holds what is no number
        "check_differences: differences out of range",  # with classes they are counts, which add up
        "check_differences: differences do not add up",
        "read_extra:  must be arrays, but is ",  # another record has none of what is read
        "read_kept:  must be a checksum, but is ",
        "read_memory_of: a ",  # and is no ticket of a file
    },
    "first answers": set(),
    "leaf servers": {
        "Schema._check_summaries: summaries",  # those of nobody have no form
        "Schema.probed: states",
        "Schema.evaluated: evaluated",  # rows have a number
        "_refuse_repeated_clients: one client twice",
        "mapping:  is no table",  # and has no names
        "Schema.trained: dispersion",
    },
}  # fmt: skip
EACH = 150  # lies of each answer


class Prober:
    """Tries lies with each hole open, and keeps what got in.

    Attributes:
        holes: that are looked for.
        lies: told with all checks in place.
        wrong: of these, those that got in and nobody could have told.
    """

    def __init__(self, holes, each):
        self.holes, self._each = holes, each
        self.lies, self.wrong = 0, []

    def probe(self, lie, admit, refusal):
        """Try lies of one honest answer.

        Args:
            lie: random generator → (a lie, its judge, which gives why it cannot be, or None).
            admit: takes a lie in, or raises `refusal`.
        """
        for _ in range(self._each):
            self.lies += 1
            told, judge = lie(np.random.default_rng([61, self.lies]))
            try:
                admit(told)
            except refusal as error:
                self._tell_again(hole_of(error, self.holes), told, judge, admit, refusal)
            else:
                self._note(self.wrong.append, judge)

    def _tell_again(self, hole, told, judge, admit, refusal):
        """Tell a lie once more without the check that has refused it."""
        if hole is None or hole.let_in:
            return
        hole.reached += 1
        with suppress(refusal), hole.opened():
            admit(told)
            self._note(partial(setattr, hole, "let_in"), judge)

    def _note(self, note, judge):
        """Note why a lie that got in should not have, if so."""
        try:
            fault = judge()
        except (TypeError, KeyError, ValueError, IndexError, AttributeError) as error:
            fault = f"what cannot be looked at: {error!r:.80}"
        if fault:
            note(f"lie {self.lies}: {fault}")


def note_found(prober, found):
    """Note holes of a prober: name → [the lie that got in, whether lies came to the hole]."""
    for hole in prober.holes:
        before = found.get(hole.name, ["", False])
        found[hole.name] = [before[0] or hole.let_in, before[1] or hole.reached > 0]


def looked_at(found):
    """Say what became of all holes; return those that let nothing in, each of which lies have come to."""
    for name, (why, is_reached) in found.items():
        print(f"  {name}: {why or ('lets nothing in' if is_reached else 'NOT REACHED')}")
    assert [name for name, (_, is_reached) in found.items() if not is_reached] == []
    return {name for name, (why, _) in found.items() if not why}


def one_by_one(function):
    """Let leaves, which count side by side, go through a function one after the other."""
    lock = Lock()

    def alone(*words):
        with lock:
            return function(*words)

    return alone


# --- replies of clients --------------------------------------------------------------------------------


def parts_of(message):
    """Arrays and metrics of a reply, copied, names of its other records, and content of those beside."""
    arrays = {name: np.array(array) for name, array in (arrays_of(message, ARRAYS) or {}).items()}
    names = set(message.content) - {METRICS}
    beside = {name: content_of(message.content[name]) for name in names & {MEMORY, KEPT, EXTRA}}
    return arrays, copy.deepcopy(dict(message.content[METRICS])), names, beside


def content_of(record):
    """Arrays of a record by name, copied, or its values."""
    return {
        name: np.array(value.numpy()) if isinstance(record, ArrayRecord) else value
        for name, value in record.items()
    }


def record_of(content):
    """A record that says something else; values of any type."""
    if any(isinstance(value, np.ndarray) for value in content.values()):
        return to_record(content)
    record = ConfigRecord()
    record.__dict__["_data"] = content
    return record


def with_parts(message, arrays, metrics, names, beside):
    """A reply that says something else; values of any type, as over a wire that checks nothing."""
    other = copy.copy(message)
    other.__dict__ = dict(message.__dict__)
    records = {name: message.content[name] for name in names if name in message.content}
    records |= {name: record_of(content) for name, content in beside.items() if name in records}
    records[METRICS] = copy.copy(message.content[METRICS])
    records[METRICS].__dict__ = {**records[METRICS].__dict__, "_data": metrics}
    made = {"extra": lambda: to_record({"x": np.zeros(3)}), "arrays": lambda: to_record(arrays),
            "kept": lambda: ConfigRecord({"checksum": "0" * 64, "bytes": 5})}  # fmt: skip
    for name in names & made.keys():
        if name == ARRAYS or name not in records:
            records[name] = made[name]()
    other.content = RecordDict()
    other.content.__dict__["_data"] = records
    return other


def a_lie(message, fault, rng):
    """Make a lie of a reply; return it and its judge."""
    arrays, metrics, names, beside = parts = parts_of(message)
    reply_lie(rng, arrays, metrics, names, beside)
    return with_parts(message, *parts), lambda: fault(parts)


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    path = tmp_path_factory.mktemp("holes") / "four.npz"
    save_windows(path, synthetic_windows(CLIENTS, seed=1))
    return path


class Apart(InProcessGrid):
    """Clients that see no file of the server's: messages carry what they keep."""

    def hand_out(self, data_folder):
        return str(data_folder)


GRIDS = {"carried": Apart}


def probed(kind, windows, tmp_path):
    """Tell lies in a run of a kind; return the prober."""
    prober = Prober([*holes_of(schema), *holes_of(algorithm, BESIDE)], EACH)
    config = {**BASE, **KINDS[kind], "data.path": str(windows), "runs-dir": str(tmp_path)}

    def train(message, task, folder=None):
        reply = schema.admit_train(message, task, folder)
        asked = {
            "given": task.samples,
            "batch": 32,
            "epochs": 1,
            "most_s": task.timeout_s + 30,
            "is_free": task.form is not None,
        }
        fault = partial(train_fault, task.model, parts_of(message))
        prober.probe(
            lambda rng: a_lie(message, lambda told: fault(told, asked), rng),
            lambda told: schema.admit_train(told, task, folder), schema.ReplyRejected,
        )  # fmt: skip
        return reply

    def evaluations(message, *asked):
        reply = schema.admit_evaluations(message, *asked)
        honest = parts_of(message)[1]
        prober.probe(
            lambda rng: a_lie(message, lambda told: evaluate_fault(honest, told[1]), rng),
            lambda told: schema.admit_evaluations(told, *asked), schema.ReplyRejected,
        )  # fmt: skip
        return reply

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(counting, "admit_train", one_by_one(train))
        patched.setattr(evaluation, "admit_evaluations", one_by_one(evaluations))
        patched.setattr("fedge.client_app.take", lambda folder: all_windows(Path(folder)))
        with GRIDS.get(kind, InProcessGrid)(client_app, CLIENTS, config, 1) as grid:
            outcome = run(grid, config, "inprocess", {}, lambda _: io.StringIO())
    assert outcome.status == "completed", outcome.reason
    return prober


def test_each_check_of_replies_that_is_missing_is_found(windows, tmp_path):
    found = {}
    for kind in KINDS:
        prober = probed(kind, windows, tmp_path / kind)
        assert prober.wrong == [], kind
        print(f"\n{kind}: {prober.lies} replies, none let in that cannot be")
        note_found(prober, found)
    assert looked_at(found) <= BACKED["replies"]


# --- first answers -------------------------------------------------------------------------------------


def test_each_check_of_first_answers_that_is_missing_is_found(tmp_path):
    config = small_config(tmp_path / "data")
    deal_into(tmp_path / "dealt", {**config, "clients": 9})
    honest = honest_record(tmp_path / "dealt")
    prober = Prober(
        [*holes_of(own_windows, ("of_text", "_count", "_numbers")), *holes_of(hello, ("read_hello",))], 2000
    )

    def lie(rng):
        _, spoil = first_answer(int(rng.integers(2**31)))
        told = sly_account(rng, dict(honest)) if rng.random() < 0.1 else spoil(dict(honest))
        return told, lambda: first_fault(honest, told)

    def admit(told):
        record = ConfigRecord()
        record.__dict__["_data"] = told
        hello.read_hello(SimpleNamespace(content=RecordDict({CONFIG: record})))

    prober.probe(lie, admit, Exception)
    assert prober.wrong == []
    print(f"\n{prober.lies} first answers, none let in that cannot be")
    found = {}
    note_found(prober, found)
    assert looked_at(found) <= BACKED["first answers"]


# --- answers of leaf servers ---------------------------------------------------------------------------

LEAF_KINDS = {
    "two levels": {"scaffold.levels": 2, "cluster.tau": -1.0, "gate.enabled": False},
    "fedadam": {"scaffold.enabled": False, "leaf.strategy": "fedadam"},
    "groups": {
        "cluster.signal": "affinity", "cluster.method": "agglomerative", "cluster.count": "auto",
        "cluster.level": 0.5, "cluster.patience": 2, "gate.enabled": False,
        "scenario": "label-permutation", "scenario-sizes": "2,1", "cluster.probe-every": 1,
        "num-server-rounds": 3,
    },
    "cfl": {
        "scaffold.enabled": False, "cluster.method": "cfl", "cluster.method-args.still-below": "auto",
        "cluster.method-args.pull-above": "auto", "cluster.count": "threshold", "cluster.patience": 1,
        "gate.enabled": False,
    },
    "mixtures": {
        "scaffold.enabled": False, "gate.enabled": False, "cluster.method": "soft-family",
        "cluster.method-args": '{"dial": 1.0, "warmup": 1}',
    },
}  # fmt: skip


LEAF_LIES, SHARES = (spoil_fact, spoil_array, spoil_states, sly_answer), (0.3, 0.2, 0.1, 0.4)


def leaf_probed(kind, study):
    """Tell lies of a leaf server in a run of a kind; return the prober."""
    prober, lock = Prober([*holes_of(answers), *holes_of(plain_json)], EACH), Lock()
    read = {name: getattr(answers.Schema, name) for name in ("trained", "probed", "evaluated")}

    def around(name):
        def reading(self, answer, *asked):
            with lock:
                honest = Packet(answer.kind, plain(answer.facts), answer.states)
                look = partial(LEAF_FAULTS[name], honest, self, *asked)

                def lie(rng):
                    made, _ = LEAF_LIES[rng.choice(4, p=SHARES)](rng, honest, True)
                    return made, lambda: look(made)

                prober.probe(lie, lambda made: read[name](self, made, *asked), Exception)
                return read[name](self, answer, *asked)

        return reading

    with pytest.MonkeyPatch.context() as patched:
        for name in read:
            patched.setattr(answers.Schema, name, around(name))
        outcome, _, _ = study.carry_out(LEAF_KINDS[kind], gone_at(()))
    assert outcome.status == "completed", outcome.reason
    return prober


def test_each_check_of_leaf_servers_answers_that_is_missing_is_found(tmp_path):
    found = {}
    study = Study(tmp_path, {**small_config(tmp_path / "data"), "gate.min-gain": -1.0, "guard.retries": 0})
    for kind in LEAF_KINDS:
        prober = leaf_probed(kind, study)
        assert prober.wrong == [], kind
        print(f"\n{kind}: {prober.lies} answers, none let in that cannot be")
        note_found(prober, found)
    study.close()
    assert looked_at(found) <= BACKED["leaf servers"]
