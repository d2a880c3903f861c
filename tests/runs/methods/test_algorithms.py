"""Methods in whole runs: resumed after a stop, with a client that sends anything, with wrong code."""

import io
import json
import random
import re
import time
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from flower_runs import comparable, flwr_run, write_overrides
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from killed_runs import rounds_done
from killed_runs import start as start_killable
from safetensors.numpy import load_file
from small_runs import small_config

from fedge import simulate
from fedge.algorithm import Algorithm, Fit, LeafPart, Sent
from fedge.client_app import app as client_app
from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import ALGORITHMS
from fedge.data.prepared import all_windows
from fedge.engine.inprocess import InProcessGrid
from fedge.exchange.algorithm import EXTRA, KEPT
from fedge.exchange.content import MEMORY
from fedge.records.tables.model_tables import CLIENT_MODELS
from fedge.run.run import run
from fedge.states.records import to_record

pytestmark = pytest.mark.whole_runs
METHODS = [name for name in ALGORITHMS.names if name != "fedavg"]


def config_of(folder, method, **changes):
    return small_config(
        folder, train__algorithm=method, scaffold__enabled=False, train__model="mlp-tiny",
        hierarchy__num_servers=3, hierarchy__fraction_train=0.67, **changes,
    )  # fmt: skip


def carried_out(config, name):
    done = simulate({**config, "run-name": name}, terminal=io.StringIO())
    assert done.status == "completed", done.reason
    return done


@pytest.mark.parametrize("method", METHODS)
def test_a_method_goes_on_exactly_after_a_stop(method, tmp_path):
    """Two rounds and then two more are four in one go; the memories of two rounds that are undone go."""
    config = config_of(tmp_path, method, num_server_rounds=4, checkpoint__every=1)
    whole = carried_out(config, "whole")
    begun = carried_out({**config, "num-server-rounds": 2}, "begun")
    again = simulate({**config, "resume": str(begun.folder), "run-name": ""}, terminal=io.StringIO())
    assert again.status == "completed", again.reason
    assert comparable(again.folder) == comparable(whole.folder)
    if method in ("fedprox",):
        assert not (whole.folder / "memory").exists()


class Shared(torch.nn.Module):
    """Layers with two names; one step calls the BatchNorm twice."""

    def __init__(self, input_shape, classes):
        super().__init__()
        channels = input_shape[0]
        self.conv = torch.nn.Conv1d(channels, channels, 3, padding=1)
        self.norm, self.head = torch.nn.BatchNorm1d(channels), torch.nn.Linear(channels, classes)
        self.body = torch.nn.Sequential(self.conv, self.norm, torch.nn.ReLU())

    def forward(self, x):
        return self.head(self.body(self.body(x)).mean(2))


@pytest.mark.parametrize("method", ["fedavg", "moon"])
def test_layers_may_have_two_names_and_be_called_twice(method, tmp_path):
    """Nobody is refused for a counter that grows by two a step, and weights stay one under both names."""
    config = {**config_of(tmp_path, method), "train.model": f"{__name__}:Shared"}
    done = carried_out(config, "shared")
    assert done.rounds["clients_failed"].sum() == 0
    model = done.models()[0]
    calls = int(model["norm.num_batches_tracked"])
    assert calls > 0
    assert calls % 2 == 0
    assert not [name for name in model if name.startswith("body.")]


def test_the_table_of_personal_models_is_read_as_the_catalog_says(tmp_path):
    """A row per client and round."""
    done = carried_out(config_of(tmp_path, "apfl"), "apfl")
    assert done.client_models.columns == list(CLIENT_MODELS.names)
    assert done.client_models.height == 2 * 9
    assert set(done.client_models["model"]) == {"mixed"}


class Drawing(Algorithm):
    """FedAvg whose leaves add noise, and remember a sum of numbers of all their rounds."""

    def train(self, client):
        return client.fit()

    class leaf(LeafPart):
        reads_replies: ClassVar[bool] = False

        def start(self, model):
            return {"rounds": 0.0, "drawn": 0.0, "leaf": 0.0}

        def combine(self, leaf):
            turn, drawn = leaf.turn, leaf.rng("noise").standard_normal()
            assert turn.leaf_round == leaf.memory["rounds"] + 1
            assert drawn == leaf.rng("noise").standard_normal() != leaf.rng("other").standard_normal()
            leaf.memory |= {"rounds": float(turn.leaf_round), "drawn": drawn, "leaf": float(turn.leaf)}
            return {
                name: a + np.asarray(1e-3 * drawn, a.dtype) if name in leaf.parameters else a
                for name, a in leaf.mean.items()
            }


CLOCK = {
    "asynchrony.rule": "fedavg",
    "asynchrony.evaluate-every-s": 1.0,
    "gate.enabled": False,
    "hierarchy.fraction-train": 1.0,
}


@pytest.mark.parametrize("clock", [False, True])
def test_draws_of_leaves_differ_and_go_on_exactly_after_a_stop(clock, tmp_path):
    """Four rounds in one go, and two before a stop; on the virtual clock versions of leaves."""
    config = config_of(tmp_path, f"{__name__}:Drawing", num_server_rounds=4, checkpoint__every=1)
    config |= CLOCK if clock else {"hierarchy.leaf-rounds": 2}
    whole = carried_out(config, "whole")
    begun = carried_out({**config, "num-server-rounds": 2}, "begun")
    again = simulate({**config, "resume": str(begun.folder), "run-name": ""}, terminal=io.StringIO())
    assert again.status == "completed", again.reason
    assert comparable(again.folder) == comparable(whole.folder)
    (checkpoint,) = sorted((whole.folder / "checkpoints").glob("round-*"))[-1:]
    held = [load_file(file) for file in sorted(checkpoint.glob("*.safetensors"))]
    drawn = [float(a) for arrays in held for name, a in arrays.items() if name.endswith("drawn")]
    assert len(set(drawn)) == 3


class Numbered(Algorithm):
    """FedAvg whose clients remember their id, and report by a personal model whether it is still the same."""

    def start(self, client):
        return {"id": float(client.id)}

    def train(self, client):
        assert client.memory["id"] == client.id
        return Sent(client.fit(), arrays={"id": np.array([client.id], dtype=np.float32)})

    def models(self, client):
        assert client.memory["id"] == client.id
        return {"own": client.received}

    class leaf(LeafPart):
        def combine(self, leaf):
            assert all(brought.client == int(brought.arrays["id"][0]) for brought in leaf.brought)
            return leaf.mean


@pytest.mark.parametrize(
    "setting",
    [
        {},
        {"hierarchy.mobility": "markov", "hierarchy.mobility-args": '{"stay": 0.3}'},
        CLOCK,
    ],
    ids=["rounds", "mobile", "clock"],
)
def test_a_client_knows_its_id(setting, tmp_path):
    """In training and evaluation, wherever it moves; 0 for no other than client 0."""
    done = carried_out({**config_of(tmp_path, f"{__name__}:Numbered"), **setting}, "numbered")
    if setting is not CLOCK:
        assert done.rounds["clients_failed"].sum() == 0
    assert (done.folder / "memory").is_dir()


@pytest.mark.extended
@pytest.mark.parametrize("method", METHODS)
def test_ray_gives_the_same_bits(method, tmp_path):
    """Every method by Flower on Ray, and in process."""
    config = config_of(tmp_path, method)
    whole = carried_out(config, "whole")
    done = flwr_run(tmp_path, {**config, "run-name": "ray"}, seed="3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert comparable(tmp_path / "runs" / "ray") == comparable(whole.folder)


@pytest.mark.parametrize("method", ["ditto", "feddyn"])
def test_rounds_that_a_crash_undoes_leave_no_trace(method, tmp_path):
    """The checkpoints after round 2 are lost, files of memories are not: the run is the same."""
    config = config_of(tmp_path, method, num_server_rounds=4, checkpoint__every=1, checkpoint__keep=4)
    whole = carried_out(config, "whole")
    other = carried_out(config, "other")
    for number in (3, 4):
        for file in (other.folder / "checkpoints" / f"round-{number:06d}").iterdir():
            file.unlink()
        (other.folder / "checkpoints" / f"round-{number:06d}").rmdir()
    manifest = json.loads((other.folder / "manifest.json").read_text())
    (other.folder / "manifest.json").write_text(
        json.dumps({**manifest, "status": "running", "exit_code": None})
    )
    again = simulate({**config, "resume": str(other.folder), "run-name": ""}, terminal=io.StringIO())
    assert again.status == "completed", again.reason
    assert comparable(again.folder) == comparable(whole.folder)


@pytest.mark.extended
def test_the_same_bits_with_any_number_of_workers(tmp_path):
    """One worker or four, every method."""
    for method in METHODS:
        config = config_of(tmp_path, method)
        one = simulate({**config, "run-name": f"{method}-1"}, workers=1, terminal=io.StringIO())
        four = simulate({**config, "run-name": f"{method}-4"}, workers=4, terminal=io.StringIO())
        assert comparable(one.folder) == comparable(four.folder), method


def test_fedprox_is_the_option(tmp_path):
    """And Flower's strategy of that name, whose proximal-mu the default algorithm reads."""
    more = {"train__batch_size": 4, "train__local_epochs": 2}
    strategy = {
        "leaf__strategy": "flwr.serverapp.strategy:FedProx",
        "leaf__strategy_args": '{"proximal_mu": 0.5}',
    }
    by_method = config_of(tmp_path, "fedprox", train__algorithm_args='{"mu": 0.5}', **more)
    by_option = config_of(tmp_path, "fedavg", train__prox_mu=0.5, **more)
    by_flower, none = (config_of(tmp_path, "fedavg", **of, **more) for of in (strategy, {}))
    named = {"method": by_method, "option": by_option, "flower": by_flower, "none": none}
    models = {name: next(iter(carried_out(config, name).models())) for name, config in named.items()}
    for entry, array in models["option"].items():
        assert np.array_equal(models["method"][entry], array)
        np.testing.assert_allclose(models["flower"][entry], array, rtol=1e-4, atol=1e-5)
    assert not np.allclose(models["none"]["head.weight"], models["option"]["head.weight"], atol=1e-4)


def test_keys_that_nobody_reads_are_refused_by_name(tmp_path):
    """Flower's FedProx beside a method that does not read its key."""
    config = config_of(tmp_path, "ditto", leaf__strategy="flwr.serverapp.strategy:FedProx")
    with pytest.raises(ConfigError, match="proximal-mu"):
        simulate(config, terminal=io.StringIO())


# --- memories that messages carry ---------------------------------------------------------------------


class Apart(InProcessGrid):
    """Clients that see no file of the server's but their windows, as on other machines of a Ray cluster."""

    def hand_out(self, data_folder):
        return str(data_folder)


@pytest.fixture
def apart(monkeypatch):
    """Carries out a run whose clients are apart; `tests/runs/engines/test_ray_cluster.py` has real ones."""
    monkeypatch.setattr("fedge.client_app.take", lambda folder: all_windows(Path(folder)))

    def carry_out(given, app=client_app):
        with Apart(app, 9, given, 2) as grid:
            return run(grid, given, "inprocess", {}, lambda _: io.StringIO())

    return carry_out


def files_of(folder):
    return {file.relative_to(folder): file.read_bytes() for file in folder.glob("memory/*/*")}


@pytest.mark.parametrize("method", ["ditto", "feddyn"])
def test_memories_that_messages_carry_are_the_same_files(method, tmp_path, apart):
    """And the same bits and bytes, also of a run that goes on."""
    config = config_of(tmp_path, method, num_server_rounds=3, checkpoint__every=1)
    whole = carried_out(config, "whole")
    begun = apart({**config, "run-name": "begun", "num-server-rounds": 2})
    again = apart({**config, "resume": str(begun.folder), "run-name": ""})
    assert again.status == "completed", again.reason
    assert comparable(again.folder) == comparable(whole.folder)
    assert files_of(again.folder) == files_of(whole.folder) != {}


MEMORIES = [
    None, np.full(3, np.nan, np.float32), np.full(3, np.inf), np.ones(3, "S1"), np.ones(3, complex),
    np.ones(3, np.longdouble),
]  # fmt: skip


def test_a_carried_memory_that_no_file_can_hold_loses_only_its_client(tmp_path, apart):
    """Missing, not finite, of other dtypes, under a name that files need, or no arrays at all."""
    config = config_of(tmp_path, "ditto", guard__retries=0)

    def outcome(name, content):
        def app(message, context):
            reply = client_app(message, context)
            if context.node_config["partition-id"] != 1 or MEMORY not in reply.content:
                return reply
            if content is None:
                raise RuntimeError("lost")
            return Message(RecordDict(content(reply)), reply_to=message)

        done = apart({**config, "run-name": name}, app)
        assert done.status == "partial", (name, done.reason)
        return comparable(done.folder)["models"]

    def spoilt(array):
        if array is None:
            return without(MEMORY)
        return lambda reply: {**reply.content, MEMORY: to_record({"v": array})}

    wanted = outcome("raised", None)
    others = [
        lambda reply: {**reply.content, MEMORY: to_record({"__metadata__": np.ones(2)})},
        lambda reply: {**reply.content, MEMORY: ConfigRecord({"a": 1})},
    ]
    for number, content in enumerate([*map(spoilt, MEMORIES), *others]):
        assert outcome(f"spoilt-{number}", content) == wanted, number


# --- hostile replies ------------------------------------------------------------------------------------


class Talker(Algorithm):
    """Sends an array, a state and a number beside the model, and keeps one."""

    def start(self, client):
        return {"rounds": 0}

    def train(self, client):
        client.memory["rounds"] += 1
        fit = client.fit()
        return Sent(fit, arrays={"a": np.ones((2, 3), np.float32), "s": {"w": np.ones(4)}, "n": 1.5})


class Listener(LeafPart):
    """Keeps the mean of the array, and sends it down."""

    def start(self, model):
        return {"a": np.zeros((2, 3), np.float32)}

    def send(self, memory):
        return {"a": memory["a"]}

    def combine(self, leaf):
        leaf.memory["a"] = leaf.means["a"]
        return leaf.mean


Talker.leaf = Listener
F32 = np.float32
ARRAYS = [
    None, np.ones((3, 2), F32), np.ones((2, 3)), np.ones((2, 3), np.int64), np.ones((2, 3), np.float16),
    np.ones(6, F32), np.ones((2, 3, 1), F32), np.ones((0, 3), F32), np.array(1.0, F32), np.ones((2, 3), bool),
    np.full((2, 3), np.nan, F32), np.full((2, 3), np.inf, F32), np.full((2, 3), -np.inf, F32),
    np.full((2, 3), 3e38, F32), np.ones((2, 3), complex), np.ones((2, 3), "S1"), np.ones((2, 3), np.uint8),
    np.eye(2, 3, dtype=F32) * np.nan,
]  # fmt: skip
WRONG = (
    [("a", a) for a in ARRAYS]
    + [("s/w", a) for a in ARRAYS]
    + [("n", a) for a in ARRAYS if a is None or a.ndim]
)
KEPTS = [
    None, {}, {"checksum": "x", "bytes": 8}, {"checksum": "0" * 64}, {"checksum": "0" * 64, "bytes": -1},
    {"checksum": "g" * 64, "bytes": 8}, {"checksum": "0" * 64, "bytes": "8"}, {"checksum": 5, "bytes": 8},
]  # fmt: skip


def spoilt_extra(name, array):
    def spoil(reply):
        extra = {key: np.array(value.numpy()) for key, value in reply.content[EXTRA].items()}
        if array is None:
            del extra[name]
        else:
            extra[name] = array
        return {**reply.content, EXTRA: to_record(extra)}

    return spoil


def without(record):
    return lambda reply: {k: r for k, r in reply.content.items() if k != record}


SPOILS = [
    *(spoilt_extra(name, array) for name, array in WRONG),
    *(lambda reply, k=k: {**reply.content, KEPT: ConfigRecord(k)} for k in KEPTS if k is not None),
    without(KEPT), without(EXTRA),
    lambda reply: {**reply.content, EXTRA: ConfigRecord({"a": 1})},
    lambda reply: {**reply.content, KEPT: ArrayRecord()},
    spoilt_extra("more", np.ones(1)),
]  # fmt: skip


def test_hostile_arrays_lose_only_their_client(tmp_path):
    """Every kind, of six clients at a time: the others have the bits of a run in which these raised."""
    config = small_config(
        tmp_path, train__algorithm=f"{Talker.__module__}:Talker", scaffold__enabled=False, guard__retries=0,
        hierarchy__num_servers=2,
    )  # fmt: skip
    assert len(SPOILS) >= 64
    liars = (1, 3, 4, 5, 7, 8)

    def outcome(name, spoils):
        def app(message, context):
            reply = client_app(message, context)
            partition = context.node_config["partition-id"]
            if partition not in liars or message.metadata.message_type != "train":
                return reply
            if spoils is None:
                raise RuntimeError("lost")
            return Message(RecordDict(spoils[liars.index(partition)](reply)), reply_to=message)

        given = {**config, "run-name": name}
        ALGORITHMS._objects[given["train.algorithm"]] = Talker
        with InProcessGrid(app, 9, given, 1) as grid:
            done = run(grid, given, "inprocess", {}, lambda _: io.StringIO())
        assert done.status == "partial", (name, done.reason)
        return comparable(done.folder)["models"]

    wanted = outcome("raised", None)
    for first in range(0, len(SPOILS), len(liars)):
        spoils = [SPOILS[(first + at) % len(SPOILS)] for at in range(len(liars))]
        assert outcome(f"spoilt-{first}", spoils) == wanted, f"one of {first} to {first + len(liars) - 1}"


# --- wrong methods --------------------------------------------------------------------------------------


class Wrong(Algorithm):
    """A method that is right but for what its heirs do."""

    def train(self, client):
        return client.fit()


class NoTrain(Algorithm):
    pass


class ReturnsNothing(Wrong):
    def train(self, client):
        client.fit()


class GrowingMemory(Wrong):
    def start(self, client):
        return {"seen": np.zeros(1)}

    def train(self, client):
        client.memory["seen"] = np.zeros(len(client.memory["seen"]) + 1)
        return client.fit()


class NanInMemory(Wrong):
    def start(self, client):
        return {"v": np.array([np.nan])}


class TextInMemory(Wrong):
    def start(self, client):
        return {"v": "words"}


class ArraysByWindows(Wrong):
    def train(self, client):
        return Sent(client.fit(), arrays={"q": np.zeros(client.windows)})


class NanSent(Wrong):
    def train(self, client):
        return Sent(client.fit(), arrays={"q": np.nan})


class UnknownEntries(Wrong):
    def train(self, client):
        return Sent(client.fit(), only=["no.such.weight"])


class HeavyWeight(Wrong):
    def train(self, client):
        return Sent(client.fit(), weight=1e9)


class UnknownRange(Wrong):
    within: ClassVar = {"m": (0.0, 1.0)}

    def train(self, client):
        return client.fit()


class OtherModel(Wrong):
    def models(self, client):
        return {"own": {name: array[:1] for name, array in client.received.items() if array.ndim}}


class Raises(Wrong):
    def train(self, client):
        raise KeyError("beside")


class BadLeaf(LeafPart):
    def combine(self, leaf):
        return {name: array.astype(float) for name, array in leaf.mean.items()}


class OtherDtypeAtLeaf(Wrong):
    leaf = BadLeaf


class Draws(Wrong):
    def train(self, client):
        return client.fit(only=["nowhere"])


class MomentumInObject(LeafPart):
    """Would be mixed up by forks, and lost in a stop."""

    def __init__(self):
        self.last = None

    def combine(self, leaf):
        last, self.last = self.last, leaf.mean
        return {n: a if last is None else a + (a - last[n]) / 2 for n, a in leaf.mean.items()}


class SendsFromObject(LeafPart):
    def __init__(self):
        self.rounds = 0

    def send(self, memory):
        self.rounds += 1
        return {"rounds": self.rounds}


class StateInPart(Wrong):
    leaf = MomentumInObject


class StateSent(Wrong):
    leaf = SendsFromObject

    def train(self, client):
        return client.fit(lr=client.lr / client.beside["rounds"])


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (StateInPart, "must keep its state in leaf.memory, but keeps some in its object"),
        (StateSent, "must keep its state in leaf.memory, but keeps some in its object"),
        (NoTrain, "must have a method train"),
        (ReturnsNothing, "train must return what client.fit returns"),
        (GrowingMemory, "memory must keep its names, shapes and dtypes"),
        (NanInMemory, "memory 'v' is not finite"),
        (TextInMemory, "must be an array or a number"),
        (ArraysByWindows, "arrays must keep their shapes"),
        (NanSent, "is not finite"),
        (UnknownEntries, "only must name entries of the model"),
        (HeavyWeight, "weight must be above 0 and at most"),
        (UnknownRange, "within and beside_models must name arrays that are sent, but 'm' is not"),
        (OtherModel, "must be one of the run's"),
        (Raises, "KeyError"),
        (OtherDtypeAtLeaf, "combine must keep the model's"),
        (Draws, "only must name parameters that train"),
        (dict, "must be a class derived from fedge.algorithm.Algorithm"),
    ],
)
def test_a_wrong_method_is_refused_in_one_line(method, words, tmp_path):
    """Before anything starts: no run folder is made."""
    config = small_config(tmp_path, scaffold__enabled=False)
    with pytest.raises(ConfigError) as refused:
        simulate(config, algorithm=method, terminal=io.StringIO())
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("argument", ["stregth", "mixx"])
def test_a_misspelt_argument_of_any_tier_is_recognised(argument, tmp_path):
    """Of the client's class, or of its leaf part alone."""
    method = {"stregth": "ditto", "mixx": "esperhfl"}[argument]
    config = small_config(tmp_path, scaffold__enabled=False, train__algorithm=method)
    meant = {"stregth": "strength", "mixx": "mix"}[argument]
    with pytest.raises(ConfigError, match=f"did you mean {meant}\\?"):
        simulate({**config, f"train.algorithm-args.{argument}": 0.5}, terminal=io.StringIO())


class LateLeaf(LeafPart):
    """Sends something else in the fourth leaf round, after every trial."""

    sent: ClassVar = {
        "raises": lambda: {}["no such name"],
        "another name": lambda: {"other": np.zeros(2)},
        "another shape": lambda: {"at": np.zeros(5)},
        "not finite": lambda: {"at": np.full(2, np.nan)},
        "nothing": lambda: None,
    }

    def __init__(self, how="raises"):
        self.how = how

    def start(self, model):
        return {"rounds": 0}

    def send(self, memory):
        return self.sent[self.how]() if memory["rounds"] == 3 else {"at": np.zeros(2)}

    def combine(self, leaf):
        leaf.memory["rounds"] += 1
        return leaf.mean


class Late(Algorithm):
    """Its leaf part is at fault."""

    leaf = LateLeaf

    def train(self, client):
        return client.fit()


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("raises", "KeyError: 'no such name' ({file}, line "),
        (
            "another name",
            "ValueError: what the leaf sends must keep .* but 'at' was float64 (2,) and became absent",
        ),
        ("another shape", "ValueError: what the leaf sends must keep .* and became float64 (5,)"),
        ("not finite", "FloatingPointError: what the leaf sends 'at' is not finite"),
        ("nothing", "TypeError: what the leaf sends must be a mapping .* but is None"),
    ],
)
def test_a_leaf_part_that_fails_late_is_named(how, words, tmp_path):
    """A name that changed was sent as it was, and an error was told without its part."""
    code = f"{__name__}:Late"
    config = config_of(tmp_path, code, num_server_rounds=4, train__algorithm_args=f'{{"how": "{how}"}}')
    done = simulate(config, terminal=io.StringIO())
    words = ".*".join(map(re.escape, words.format(file=__file__).split(" .* ")))
    assert (done.status, done.exit_code) == ("failed", 4)
    assert re.match(f"train.algorithm {code} failed: {words}.*; fix it$", done.reason), done.reason


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "scaffold.enabled=false"),
        ({"scaffold__enabled": False, "train__algorithm_args": '{"strenght": 1}'}, "did you mean"),
        ({"scaffold__enabled": False, "train__processes": 2}, "train.processes=1"),
    ],
)
def test_what_does_not_go_together_is_refused(changes, words, tmp_path):
    """SCAFFOLD's control variates, other arguments, several processes."""
    with pytest.raises(ConfigError, match=words):
        simulate(small_config(tmp_path, train__algorithm="ditto", **changes), terminal=io.StringIO())


@pytest.mark.extended
@pytest.mark.parametrize("method", ["feddyn", "ditto", "fedala"])
def test_a_method_goes_on_exactly_after_a_kill(method, tmp_path):
    """Its process is killed at a random moment of its rounds, twice, and it goes on."""
    config = {**config_of(tmp_path, method, num_server_rounds=30, train__lr_decay=1.0), "run-name": "killed"}
    whole = simulate({**config, "runs-dir": str(tmp_path / "whole")}, terminal=io.StringIO()).folder
    folder, rng = tmp_path / "runs" / "killed", random.Random(method)
    for _ in range(2):
        more = {"resume": str(folder), "run-name": ""} if folder.exists() else {}
        process = start_killable("", "run", "-c", write_overrides(tmp_path, {**config, **more}))
        begun, wanted = rounds_done(folder), rng.randint(2, 12)
        while process.poll() is None and rounds_done(folder) < begun + wanted:
            time.sleep(rng.random() / 50)
        process.kill()
        process.communicate()
    again = simulate({**config, "resume": str(folder), "run-name": ""}, terminal=io.StringIO())
    assert again.status == "completed", again.reason
    assert comparable(folder) == comparable(whole)


class TwoViews(Algorithm):
    """A step passes two batches through the network: the windows, and noisy ones."""

    def train(self, client):
        def loss(network, x, y):
            return client.settings.task.loss(network(x), y) + network(x + 0.1).square().mean()

        return client.fit(loss=loss)


class Sharp(Algorithm):
    """Sharpness-aware steps (Foret et al. 2021): the gradient is that of a place further up."""

    def train(self, client):
        trainer, losses = client.trainer(client.received), []
        for x, y in client.batches():
            _, up = trainer.gradients(x, y)
            with torch.no_grad():
                for weight, gradient in zip(trainer.weights, up, strict=True):
                    weight += 0.01 * gradient
            loss, gradients = trainer.gradients(x, y)
            with torch.no_grad():
                for weight, gradient in zip(trainer.weights, up, strict=True):
                    weight -= 0.01 * gradient
            trainer.move(gradients)
            losses.append(loss.item())
        return Fit(trainer.state(), float(np.mean(losses)), trainer.steps)


@pytest.mark.parametrize("algorithm", [TwoViews, Sharp])
def test_a_step_may_pass_several_batches_through_batch_norm(algorithm, tmp_path):
    """BatchNorm counts batches, of which a method's step may take several."""
    config = {**config_of(tmp_path, "fedavg", num_server_rounds=1), "train.model": "mlp-tiny"}
    del config["train.algorithm"]
    done = simulate(config, algorithm=algorithm, terminal=io.StringIO())
    assert done.status == "completed", done.reason
