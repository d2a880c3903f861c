"""Rules of servers on any tier of a tree, beside a second implementation in double precision.

A server's round is one recursion: give the model to the servers below, take theirs back, combine them by the
rule from the model given. Clients train on all their windows at once, so no order of windows matters.
"""

import io

import numpy as np
import pytest
from reference_rounds import Oracle, SmoothNet, gradient, initial_weights, like, mean, plus

from fedge import simulate
from hhar.windows.window_file import Windows

pytestmark = pytest.mark.whole_runs

EPOCHS, ROUNDS, LEAF_ROUNDS, LR = 2, 3, 2, 0.2
TREES = {  # clients of leaves, and rounds of regions from the top
    "three": ([[1, 2], [3, 3]], "2"),
    "four": ([[[2, 1], [1, 1]], [[1, 1], [1, 1]]], "1,2"),
}
ARGUMENTS = {
    "fedavgm": {"server-momentum": 0.5, "server-learning-rate": 0.7},
    "fedadam": {"eta": 0.05, "tau": 0.001, "beta-1": 0.9, "beta-2": 0.99},
    "fedyogi": {"eta": 0.05, "tau": 0.001, "beta-1": 0.9, "beta-2": 0.99},
    "fedadagrad": {"eta": 0.05, "tau": 0.001},
    "fedmedian": {},
}  # fmt: skip
CLIENTS = 9


def windows(users=CLIENTS, classes=3):
    """Windows of users of different sizes, each with an offset of its own."""
    rng = np.random.default_rng(3)
    prototypes = rng.standard_normal((classes, 2, 3))
    labels = [np.r_[np.arange(classes).repeat(8), rng.integers(0, classes, 4 * u)] for u in range(users)]
    x = [prototypes[y] + rng.standard_normal((2, 1)) + rng.standard_normal((len(y), 2, 3)) for y in labels]
    user = np.repeat([f"u{u}" for u in range(users)], [len(y) for y in labels])
    session = np.array([f"s{k // 4}" for k in range(len(user))])
    return Windows(
        np.concatenate(x).astype(np.float32), np.concatenate(labels), user, None,
        np.char.add(user, session), ("a", "b", "c"), ("p", "q"),
    )  # fmt: skip


class ServerRule:
    """x ← rule(x; models, weights): Hsu et al. 2019; Reddi et al. 2021, algorithm 2; Yin et al. 2018."""

    def __init__(self, name):
        self.name, self.arguments, self.m, self.v = name, ARGUMENTS[name], None, None

    def __call__(self, model, models, weights):
        if self.name == "fedmedian":
            return {name: np.median([each[name] for each in models], axis=0) for name in model}
        delta, of = plus(mean(models, weights), model, -1.0), self.arguments
        if self.name == "fedavgm":
            self.m = delta if self.m is None else plus(delta, self.m, of["server-momentum"])
            return plus(model, self.m, of["server-learning-rate"])
        if self.m is None:
            self.m, self.v = like(model), {n: np.full_like(a, of["tau"] ** 2) for n, a in model.items()}
        first, second = of.get("beta-1", 0.0), of.get("beta-2", 1.0)
        self.m = {n: first * self.m[n] + (1 - first) * d for n, d in delta.items()}
        self.v = {n: self._v(self.v[n], d**2, second) for n, d in delta.items()}
        return {
            n: a + of["eta"] * self.m[n] / (np.sqrt(self.v[n]) + of["tau"]) for n, a in model.items()
        }  # fmt: skip

    def _v(self, v, square, second):
        if self.name == "fedadagrad":
            return v + square
        if self.name == "fedyogi":
            return v - (1 - second) * square * np.sign(v - square)
        return second * v + (1 - second) * square


def leaves(node, path=()):
    """Leaves below a node of a tree, as (path, number of clients)."""
    if isinstance(node, int):
        return [(path, node)]
    return [leaf for number, child in enumerate(node) for leaf in leaves(child, (*path, number))]


class Tree:
    """A tree of servers: `shape` nested to the numbers of clients of leaves, rules on some tiers."""

    def __init__(self, shape, rounds, rule, tiers, data):
        self.rounds = [1, *map(int, rounds.split(","))]
        self.rule, self.tiers, self.rules, self.data = rule, tiers, {}, data
        self.shape, self.first, count = shape, {}, 0
        for path, size in leaves(shape):
            self.first[path], count = (count, size), count + size

    def weight(self, path):
        """Training windows of all clients below."""
        return sum(
            len(self.data[first + k][1])
            for at, (first, size) in self.first.items()
            if at[: len(path)] == path
            for k in range(size)
        )

    def trained(self, client, model, lr):
        x, y = self.data[client]
        for _ in range(EPOCHS):
            model = plus(model, gradient(model, x, y, 0.0), -lr)
        return model

    def made(self, node, path, model, lr):
        """Model of a server after a round of the server above, which has given it `model`."""
        if isinstance(node, int):
            first, size = self.first[path]
            clients = range(first, first + size)
            for _ in range(LEAF_ROUNDS):
                model = mean(
                    [self.trained(c, model, lr) for c in clients], [len(self.data[c][1]) for c in clients]
                )
            return model
        below = [(*path, number) for number in range(len(node))]
        weights = [self.weight(child) for child in below]
        for _ in range(self.rounds[len(path)]):
            models = [self.made(child, at, model, lr) for child, at in zip(node, below, strict=True)]
            if len(path) in self.tiers:
                model = self.rules.setdefault(path, ServerRule(self.rule))(model, models, weights)
            else:
                model = mean(models, weights)
        return model


CASES = [
    *((tree, rule, at) for tree in TREES for rule in ("fedavgm", "fedadam") for at in ("0", "1", "0,1")),
    ("four", "fedavgm", "2"), ("four", "fedadam", "2"), ("four", "fedyogi", "0,2"),
    ("three", "fedyogi", "1"), ("three", "fedadagrad", "0,1"), ("three", "fedmedian", "0,1"),
]  # fmt: skip


@pytest.mark.parametrize(("tree", "rule", "tiers"), CASES)
def test_a_server_steps_from_the_model_with_which_those_below_began(tmp_path, tree, rule, tiers):
    shape, region_rounds = TREES[tree]
    said = str(shape).replace("[", "(").replace("]", ")").replace(" ", "")
    config = {
        "report": False, "num-server-rounds": ROUNDS, "seed": 5, "runs-dir": str(tmp_path),
        "hierarchy.tree": said, "hierarchy.region-rounds": region_rounds,
        "hierarchy.leaf-rounds": LEAF_ROUNDS,
        "cloud.rule": rule, "cloud.rule-tiers": tiers, "cluster.enabled": False, "gate.enabled": False,
        "scaffold.enabled": False, "train.local-epochs": EPOCHS, "train.batch-size": 1000, "train.lr": LR,
        "train.lr-decay": 0.9, "train.momentum": 0.0, "train.weight-decay": 0.0, "train.clip-norm": 0.0,
        "train.label-smoothing": 0.0, "train.kernel": "torch",
        **{f"cloud.rule-args.{key}": value for key, value in ARGUMENTS[rule].items()},
    }  # fmt: skip
    found = windows()
    run = simulate(config, model=SmoothNet, data=found, clients=CLIENTS, workers=1, terminal=io.StringIO())
    assert run.status == "completed", run.reason
    options = {**run.manifest["config"], "seed": 5}
    of_clients = Oracle(options, found, tuple(size for _, size in leaves(shape))).data
    numbers = tuple(map(int, tiers.split(",")))
    servers = Tree(shape, region_rounds, rule, numbers, [of_clients[c][0] for c in range(CLIENTS)])
    model = initial_weights(5, found.x.shape[1:], 3)
    for round_ in range(ROUNDS):
        model = servers.made(shape, (), model, LR * 0.9**round_)
    for name, array in run.models()[0].items():
        np.testing.assert_allclose(array, model[name], rtol=1e-4, atol=2e-5)
