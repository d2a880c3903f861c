"""Edges under the real cloud: clients train as arrays, the cloud step is that of a run."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from fedge.algorithm.algorithm import Algorithm
from fedge.cloud.aggregator import CloudAggregator
from fedge.cloud.settings import CloudSetting
from fedge.cloud.step import CloudStep
from fedge.clustering.likeness.evidence import Answers, Questions
from fedge.config.sections.cluster import ClusterConfig
from fedge.leaf.spread import dispersion
from fedge.leaf.strategies.aggregation import Contribution
from fedge.states.averaging import State
from fedge.training.settings import LocalTraining
from tests.support.methods.one_leaf import OneLeaf


class Net(nn.Module):
    """logits = W2 tanh(W1 x + b1) + b2, with the weights of a problem."""

    def __init__(self, problem: dict[str, Any]) -> None:
        super().__init__()
        self.base = nn.Linear(problem["inputs"], problem["hidden"])
        self.head = nn.Linear(problem["hidden"], problem["classes"])
        nn.utils.vector_to_parameters(torch.tensor(problem["initial_flat"]), self.parameters())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.base(x.flatten(1))))


NAMES = ("base.weight", "base.bias", "head.weight", "head.bias")


def flat(state: State) -> np.ndarray:
    return np.concatenate([np.ravel(state[name]) for name in NAMES])


def state_of(vector: Sequence[float], like: State) -> State:
    found, at = {}, 0
    for name in NAMES:
        size = like[name].size
        found[name] = np.array(vector[at : at + size], dtype=np.float32).reshape(like[name].shape)
        at += size
    return found


class Edges:
    """Leaves of a witness problem, all of whose clients take full-batch steps.

    Attributes:
        brought: per leaf the model that it brought last.
        spread: per leaf the dispersion of its clients' models.
    """

    def __init__(
        self,
        problem: dict[str, Any],
        given: dict[str, Any],
        make: Callable[[], Algorithm],
        config: ClusterConfig,
        make_part: Callable[[], Any] = lambda: None,
    ) -> None:
        self.problem, self._given = problem, given
        self.leaves = []
        for edge in problem["edges"]:
            windows = [
                (np.array(c["x"], dtype=np.float32)[:, :, None], np.array(c["y"], dtype=np.int64))
                for c in edge
            ]
            self.leaves.append(
                OneLeaf(make(), Net(problem), windows, self._settings(1, windows), make_part())
            )
        self.cloud = CloudAggregator(config, CloudSetting(NAMES, given["seed"]))
        self.weights = [float(sum(len(c["y"]) for c in edge)) for edge in problem["edges"]]
        self.brought: list[State] = []
        self.spread = np.zeros(0)
        self._round = 0

    def _settings(self, global_round: int, windows: Sequence[Any]) -> LocalTraining:
        given = self._given
        return LocalTraining(
            lr=given["lr"] * given["lr-decay"] ** (global_round - 1), weight_decay=given["weight-decay"],
            clip_norm=given["clip-norm"], epochs=given["local-epochs"],
            batch_size=max(len(y) for _, y in windows),
        )  # fmt: skip

    def round(self, answer: Callable[[Questions], Answers] | None = None) -> CloudStep:
        """A global round; every leaf goes on with what it is offered."""
        self._round += 1
        begun = self.cloud.begin([leaf.model for leaf in self.leaves], self._round)
        for leaf in self.leaves:
            leaf._settings = self._settings(self._round, leaf._windows)
            for _ in range(self._given["edge-rounds"]):
                leaf.round()
        self.brought = [leaf.model for leaf in self.leaves]
        self.spread = np.array([dispersion(leaf.sent, NAMES) for leaf in self.leaves])
        contributions = [
            Contribution(at, model, weight, self._round)
            for at, (model, weight) in enumerate(zip(self.brought, self.weights, strict=True))
        ]
        open_step = begun.receive(contributions, self._round, dispersion=self.spread).open()
        step = open_step.finish(answer(open_step.questions) if answer else None)
        for leaf, offer in zip(self.leaves, step.offers, strict=True):
            if offer is not None:
                leaf.model = offer
        return step

    def scores(self, questions: Questions) -> Answers:
        """Accuracy on each edge's test windows, as if one client of each edge had them."""
        accuracies: dict[str, np.ndarray] = {}
        for at, asked in enumerate(questions):
            test = self.problem["edge_tests"][at]
            for role, model in asked.items():
                column = accuracies.setdefault(role, np.full(len(self.leaves), np.nan))
                column[at] = accuracy(self.problem, model, test)
        windows = np.array([len(test["y"]) for test in self.problem["edge_tests"]])
        leaves = np.arange(len(self.leaves))
        losses = {role: -column for role, column in accuracies.items()}
        return Answers(losses, windows, leaves, 0, leaves, accuracies)


def logits(problem: dict[str, Any], model: State, x: Any) -> torch.Tensor:
    network = Net(problem)
    network.load_state_dict({name: torch.from_numpy(np.array(a)) for name, a in model.items()})
    with torch.no_grad():
        found: torch.Tensor = network(torch.tensor(x, dtype=torch.float32))
    return found


def accuracy(problem: dict[str, Any], model: State, test: dict[str, Any]) -> float:
    right = logits(problem, model, test["x"]).argmax(dim=1).numpy() == np.array(test["y"])
    return float(right.mean())
