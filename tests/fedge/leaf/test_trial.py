"""Trial of a method: the leaf's mean by hand, and the names of the models that clients evaluate."""

import contextlib
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedge.algorithm.algorithm import Algorithm, Sent
from fedge.algorithm.descent import Fit
from fedge.algorithm.leaf_part import LeafPart
from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError
from fedge.leaf.trial import WINDOWS, tiers_of, try_algorithm
from fedge.training.networks.models import build_model


class Notes(LeafPart):
    """Keeps what it is told of the last leaf round."""

    def start(self, model):
        return {"mean": 0.0, "of_numbers": 0.0, "weights": np.zeros(2), "clients": 0.0}

    def combine(self, leaf):
        leaf.memory["mean"] = float(next(iter(leaf.mean.values())).flat[0])
        leaf.memory["of_numbers"] = float(leaf.means["number"])
        leaf.memory["weights"] = np.array([brought.weight for brought in leaf.brought], dtype=float)
        leaf.memory["clients"] = float(leaf.clients)
        return leaf.mean


class Numbers(Algorithm):
    """A client's model has the number of its windows in all places; so has a number beside it."""

    leaf = Notes

    def __init__(self, known="", unseen=""):
        self.known, self.for_unseen = known.split(), unseen.split()

    def train(self, client):
        state = {name: np.full_like(array, client.windows) for name, array in client.received.items()}
        return Sent(Fit(state, 0.0, 1), arrays={"number": float(client.windows)})

    def models(self, client):
        return dict.fromkeys(self.known, client.received)

    def unseen(self, client):
        return dict.fromkeys(self.for_unseen, client.received)


def tried(carry_out, **arguments):
    named = {f"train.algorithm-args.{name}": value for name, value in arguments.items()}
    config = from_run_config(
        {
            "train.algorithm": f"{__name__}:Numbers",
            "train.model": "linear",
            "scaffold.enabled": False,
            **named,
        }
    )  # fmt: skip
    network = build_model("linear", (2, 8), 2, torch.Generator().manual_seed(0))
    x = np.random.default_rng(0).normal(size=(WINDOWS, 2, 8)).astype(np.float32)
    return carry_out(config, network, x, np.arange(WINDOWS) % 2)


def test_the_leafs_mean_by_hand():
    """Six windows and four: (6 · 6 + 4 · 4) / 10 = 5.2, of models and of numbers beside them."""
    kept = tried(tiers_of).leaf_keeps
    assert kept["mean"] == pytest.approx(5.2)
    assert kept["of_numbers"] == pytest.approx(5.2)
    assert (kept["weights"].tolist(), kept["clients"]) == ([6.0, 4.0], 2.0)


@pytest.mark.parametrize(
    ("known", "unseen", "names", "for_unseen"),
    [
        ("", "", (), False),
        ("own", "", ("own",), False),  # unseen clients have the leaf's model alone
        ("one two", "two one", ("one", "two"), True),
    ],
)
def test_unseen_clients_have_all_models_or_none(known, unseen, names, for_unseen):
    form = tried(try_algorithm, known=known, unseen=unseen)
    assert (form.models, form.unseen) == (names, for_unseen)


@pytest.mark.parametrize(("known", "unseen"), [("own other", "own"), ("own", "other"), ("", "own")])
def test_a_part_of_the_models_for_unseen_clients_is_refused(known, unseen):
    with pytest.raises(ConfigError, match="unseen must return none or all of"):
        tried(try_algorithm, known=known, unseen=unseen)


NO_STATES = {
    "nothing": (lambda state: None, "is None"),
    "a text": (lambda state: "weights", "is 'weights'"),
    "arrays without names": (lambda state: list(state.values()), r"is \[array"),
    "a number": (lambda state: dict.fromkeys(state, 0.5), r"has 0.5 for 'head\.\w+'"),
    "tensors": (
        lambda state: {k: torch.tensor(a) for k, a in state.items()},
        r"has tensor\(.* for 'head\.\w+'",
    ),
    "names that are none": (lambda state: dict(enumerate(state.values())), "has array.* for 0"),
}


class OddClient(Numbers):
    """Sends as it is told."""

    leaf = None
    made = None

    def train(self, client):
        return Fit(self.made(client.received), 0.0, 1)


def tried_with(monkeypatch, algorithm):
    monkeypatch.setattr(f"{__name__}.Numbers", algorithm)
    return tried(try_algorithm)


@pytest.mark.parametrize("of", ["combine", "train"])
@pytest.mark.parametrize("case", NO_STATES)
def test_what_is_no_state_is_told_as_what_it_is(monkeypatch, of, case):
    """Not by an attribute that it lacks."""
    made, words = NO_STATES[case]
    if of == "combine":
        part = type("Part", (LeafPart,), {"combine": lambda self, leaf: made(leaf.mean)})
        algorithm = type("Whole", (Numbers,), {"leaf": part})
        what = "what combine returns"
    else:
        algorithm = type("Whole", (OddClient,), {"made": staticmethod(made)})
        what = "the model that train returns"
    with pytest.raises(ConfigError, match=f"TypeError: {what} must be NumPy arrays by name, but {words}"):
        tried_with(monkeypatch, algorithm)


def test_what_a_leaf_sends_in_another_form_is_named(monkeypatch):
    """Its name, and both forms."""
    sizes = iter([2, 5] * 9)
    part = type("Part", (LeafPart,), {"send": lambda self, memory: {"at": np.zeros(next(sizes))}})
    with pytest.raises(ConfigError, match=r"what the leaf sends must .* but 'at' was float64 \(2,\) and"):
        tried_with(monkeypatch, type("Whole", (Numbers,), {"leaf": part}))


def halved(leaf):
    for array in leaf.model.values():
        array *= 0.5
    return leaf.model


def changed_in_replies(leaf):
    for brought in leaf.brought:
        for array in brought.state.values():
            array *= 0.5
    return leaf.mean


def zeroed(model):
    for array in model.values():
        array *= 0
    return {}


@pytest.mark.parametrize(
    "methods",
    [
        {"combine": lambda self, leaf: halved(leaf)},
        {"combine": lambda self, leaf: changed_in_replies(leaf)},
        {"start": lambda self, model: zeroed(model)},
    ],
    ids=["combine", "replies", "start"],
)
def test_a_leaf_part_that_writes_to_what_others_hold_is_refused(monkeypatch, methods):
    """All leaves begin with the same arrays, and so would go on with what one of them has made of its own."""
    algorithm = type("Whole", (OddClient,), {"leaf": type("Part", (LeafPart,), methods), "made": dict})
    with pytest.raises(ConfigError, match="read-only"):
        tried_with(monkeypatch, algorithm)


def test_a_leaf_part_may_write_to_the_mean_and_its_memory(monkeypatch):
    def combine(self, leaf):
        for name, array in leaf.mean.items():
            array += leaf.memory["v"][name]
            leaf.memory["v"][name] += 1
        return leaf.mean

    part = type("Part", (LeafPart,), {"start": lambda self, model: {"v": model}, "combine": combine})
    tried_with(monkeypatch, type("Whole", (OddClient,), {"leaf": part, "made": dict}))


def through_numpy(client):
    client.x.numpy()[:] = 0


def in_place(client):
    client.x[:1] *= 1


def labels(client):
    client.y.clamp_(min=0)


def anew(client):
    client.x = client.x / 2


def received(client):
    next(iter(client.received.values()))[:] = 0


@pytest.mark.parametrize("write", [through_numpy, in_place, labels, anew, received])
@pytest.mark.parametrize("where", ["train", "models"])
def test_a_client_that_writes_to_what_it_only_reads_is_refused(monkeypatch, write, where):
    class Writing(Numbers):
        leaf = None

        def train(self, client):
            if where == "train":
                write(client)
            return client.fit()

        def models(self, client):
            if where == "models":
                write(client)
            return {}

    with pytest.raises(ConfigError, match=r"read-only|client\.[xy] is read only, but was changed; change "):
        tried_with(monkeypatch, Writing)


MESSAGES = {
    "loss": (lambda fit: replace(fit, loss=float("nan")), "loss not finite"),
    "no number": (lambda fit: replace(fit, loss="0.5"), None),
    "a text": (lambda fit: replace(fit, loss="much"), "must be a number, but is 'much'"),
    "NumPy's": (lambda fit: replace(fit, loss=np.float32(0.5)), None),
    "PyTorch's": (lambda fit: replace(fit, loss=torch.tensor(0.5)), None),
    "several": (lambda fit: replace(fit, loss=np.zeros(2)), "must be a number, but is"),
    "too large": (
        lambda fit: replace(fit, state={n: np.full_like(a, 1e30) for n, a in fit.state.items()}),
        "too large",
    ),
    "outside": (lambda fit: Sent(fit, arrays={"m": 2.0}), "beside out of range"),
}


@pytest.mark.parametrize("case", MESSAGES)
def test_what_no_leaf_would_take_is_refused_before_the_run(monkeypatch, case):
    """The trial's messages pass the boundary that a run's do."""
    make, words = MESSAGES[case]

    class Sending(Numbers):
        leaf = None
        within = {"m": (0.0, 1.0)} if case == "outside" else {}

        def train(self, client):
            return make(client.fit())

    if words is None:
        tried_with(monkeypatch, Sending)
        return
    with pytest.raises(ConfigError, match=words) as caught:
        tried_with(monkeypatch, Sending)
    assert "\n" not in str(caught.value)


class LeavesTraces(Algorithm):
    """Leaves on the network what a user may forget there, and counts on a new one in every leaf round."""

    def __init__(self, trace="hook"):
        self.trace = trace

    def train(self, client):
        network = client.network
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in network.modules())
        assert all(parameter.requires_grad for parameter in network.parameters())
        assert not hasattr(network, "noted")
        if self.trace == "hook":
            network.register_forward_hook(lambda *_: None)
        if self.trace == "recorder":
            client.features(network)
        if self.trace == "frozen":
            next(network.parameters()).requires_grad_(False)
        if self.trace == "attribute":
            network.noted = 1
        return client.fit(penalty=lambda network, x, y: 0.0)


@pytest.mark.parametrize("trace", ["hook", "recorder", "frozen", "attribute"])
def test_every_client_of_the_trial_gets_a_network_without_traces_as_in_a_run(trace):
    """Otherwise the trial would refuse methods that a run carries out."""
    config = own_config("LeavesTraces", trace=trace)
    assert try_algorithm(config, small_network(), *windows()).arrays == {}


class BuildsNetwork(LeafPart):
    """Builds a network at the leaf, as for a distillation on a public set."""

    def __init__(self, forks=False):
        self.forks = forks

    def combine(self, leaf):
        with torch.random.fork_rng(devices=[]) if self.forks else contextlib.nullcontext():
            network = small_network()
        network.load_state_dict({name: torch.from_numpy(np.array(a)) for name, a in leaf.mean.items()})
        return {name: tensor.numpy().copy() for name, tensor in network.state_dict().items()}


class WithNetwork(Algorithm):
    """FedAvg with it."""

    leaf = BuildsNetwork

    def train(self, client):
        return client.fit()


def test_a_leaf_part_may_build_a_network_in_the_way_that_the_refusal_tells():
    try_algorithm(own_config("WithNetwork", forks=True), small_network(), *windows())
    with pytest.raises(ConfigError, match=r"global stream of torch .*leaf.rng\(name\), build a leaf part's"):
        try_algorithm(own_config("WithNetwork"), small_network(), *windows())


class Fails(Algorithm):
    """Fails in its first leaf round."""

    def train(self, client):
        raise KeyError("w")


@pytest.mark.parametrize("carry_out", [tiers_of, try_algorithm])
def test_an_error_of_the_method_is_one_line_in_a_run_and_in_fedge_methods(carry_out):
    with pytest.raises(
        ConfigError, match=r"^train.algorithm \S+:Fails fails in a trial .*: KeyError: 'w' \(.*; fix it"
    ) as caught:
        carry_out(own_config("Fails"), small_network(), *windows())
    assert "\n" not in str(caught.value)


def small_network():
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3), torch.nn.Linear(3, 2))


def windows():
    x = np.random.default_rng(0).normal(size=(WINDOWS, 2, 8)).astype(np.float32)
    return x, np.arange(WINDOWS) % 2


def own_config(name, **arguments):
    given = {f"train.algorithm-args.{key}": value for key, value in arguments.items()}
    own = {"train.algorithm": f"{__name__}:{name}", "train.model": "linear", "scaffold.enabled": False}
    return from_run_config({**own, **given})


class KeptMean(LeafPart):
    """Keeps the mean of the clients' second models, and sends it to them."""

    def start(self, model):
        return {"v": model}

    def send(self, memory):
        return memory

    def combine(self, leaf):
        leaf.memory["v"] = {name: leaf.means[f"v/{name}"] for name in leaf.model}
        return leaf.mean


class SecondModel(Algorithm):
    """Trains a second model beside the leaf's, from the mean of the other clients' second ones."""

    leaf = KeptMean
    beside_models = frozenset({"v"})

    def start(self, client):
        return {"v": client.received}

    def train(self, client):
        client.memory["v"] = client.fit(client.beside["v"]).state
        return Sent(client.fit(), arrays={"v": client.memory["v"], "steps": 3})

    def models(self, client):
        return {"own": client.memory["v"]}


class Counting(torch.nn.Module):
    """Counts its batches, and has a mask."""

    def __init__(self):
        super().__init__()
        self.norm, self.head = torch.nn.BatchNorm1d(2), torch.nn.Linear(16, 2)
        self.register_buffer("mask", torch.ones(16, dtype=torch.bool))

    def forward(self, x):
        return self.head(self.norm(x).flatten(1) * self.mask)


def test_integers_of_a_model_beside_the_model_stay_integers():
    """As floats they would fit neither the leaf's memory nor a model to evaluate."""
    config = from_run_config(
        {"train.algorithm": f"{__name__}:SecondModel", "train.model": "linear", "scaffold.enabled": False}
    )
    x = np.random.default_rng(0).normal(size=(WINDOWS, 2, 8)).astype(np.float32)
    form = try_algorithm(config, Counting(), x, np.arange(WINDOWS) % 2)
    assert (form.arrays["v/norm.num_batches_tracked"], form.arrays["v/mask"][1]) == (((), "<i8"), "|b1")
    assert (form.arrays["v/head.weight"][1], form.arrays["steps"]) == ("<f4", ((), "<f8"))
    assert form.models == ("own",)
