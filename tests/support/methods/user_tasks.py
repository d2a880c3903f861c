"""Projects of users whose task is no classification: files in an empty folder, and options."""

_COUNTS = '''
"""Counts of events, by Poisson regression: a task with a loss and scores of its own, and its data."""

import numpy as np
import torch
from fedge.tasks import Score, Task
from hhar import Windows


def deviance(sums):
    return float(sums["deviance"]) / int(sums["n"])


def bias(sums):
    return float(sums["over"]) / int(sums["n"])


class Counts(Task):
    scores = (
        Score("deviance", deviance, higher_is_better=False, lowest=0.0),
        Score("bias", bias, higher_is_better=False, unit="events"),
    )
    takes = "float32 (N,), counts"
    least_loss = -1e30

    def refuse(self, y, outputs):
        if y.dtype != np.float32 or y.ndim != 1 or (y < 0).any():
            raise ValueError(f"y must be float32 (N,) and 0 or more, is {y.dtype} {y.shape}")

    def losses(self, answers, y, smoothing=0.0):
        return answers[:, 0].exp() - y * answers[:, 0]

    def form(self, outputs):
        return {"deviance": np.zeros(()), "over": np.zeros(()), "n": np.zeros((), np.int64)}

    def values(self, answers, y):
        rate, y = answers[:, 0].double().exp(), y.double()
        return -2 * (torch.special.xlogy(y, y / rate) - (y - rate))

    def sums(self, answers, y):
        over = (answers[:, 0].double().exp() - y.double()).sum()
        return {"deviance": -self.values(answers, y).sum(), "over": over, "n": torch.tensor(len(y))}


def visits(users=8, lowest=0):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40 * users, 3)).astype(np.float32)
    y = rng.poisson(np.exp(x @ [0.5, -0.3, 0.0] + 0.2)).astype(np.float32)
    user = np.repeat([f"shop-{number}" for number in range(users)], 40)
    return Windows(x, np.maximum(y, lowest) if lowest else y, user, None, None, ("visits",), ("a", "b", "c"))


class NoDirection(Counts):
    scores = (Score("deviance", deviance, higher_is_better=None),)


class NotANumber(Counts):
    def losses(self, answers, y, smoothing=0.0):
        return (answers[:, 0] - answers[:, 0].detach() - 1).log() * y


class DoesNotPool(Counts):
    def sums(self, answers, y):
        return {**super().sums(answers, y), "deviance": self.values(answers, y)}


class OutOfRange(Counts):
    scores = (Score("deviance", lambda sums: -1.0, higher_is_better=False, lowest=0.0),)


class NoScores(Counts):
    scores = ()


class WrongName(Counts):
    scores = (Score("My deviance", deviance, higher_is_better=False),)


class Mean(Counts):
    def losses(self, answers, y, smoothing=0.0):
        return super().losses(answers, y).mean()


class OfWholeNumbers(Counts):
    def refuse(self, y, outputs):
        if y.dtype != np.int64:
            raise ValueError(f"y must be int64, is {y.dtype}")


def weighted(answers, y):
    return (answers[:, 0].exp() - y * answers[:, 0]) * (1 + y)


events = Score("events", lambda sums: int(sums["n"]), higher_is_better=True, unit="events")
'''

SMALL = {"clients": 4, "hierarchy.num-servers": 2, "num-server-rounds": 2, "train.local-epochs": 1}
COUNTS = {
    **SMALL,
    "train.task": "counts:Counts",
    "train.model": "linear",
    "train.lr": 0.05,
    "data.path": "counts:visits",
}
FILES = {"regression": {}, "characters": {}, "counts": {"counts.py": _COUNTS.lstrip()}}
OPTIONS = {
    "regression": {
        **SMALL, "data.path": "diabetes", "train.task": "regression", "train.model": "linear",
        "evaluate.every": 2,
    },
    "characters": {
        **SMALL, "data.path": "sonnets", "data.path-args.step": 32, "train.task": "sequence",
        "train.model": "my_characters:Gru", "train.model-args.hidden": 8, "train.optimizer": "adam",
        "train.lr": 0.01, "scaffold.enabled": False,
    },
    "notes": {**SMALL, "data.path": "notes", "train.task": "multilabel", "train.model": "linear"},
    "counts": {
        **COUNTS, "train.loss": "counts:weighted", "train.metrics": "counts:events",
        "gate.rule": "one-standard-error",
    },
}  # fmt: skip
FIRST_SCORES = {"regression": "rmse", "characters": "accuracy", "notes": "f1", "counts": "deviance"}
# of a wrong task or loss: what its one line says
WRONG = {
    "counts:NoDirection": r"score deviance must say which direction is better, but higher_is_better is None",
    "counts:NotANumber": r"must have finite losses, but has nan",
    "counts:DoesNotPool": r"sums must be of the names, shapes and kinds that form\(1\) says",
    "counts:OutOfRange": r"score deviance must lie in 0\.\.inf, as declared, but is -1",
    "counts:NoScores": r"must have scores, by the first of which models are compared, but has none",
    "counts:WrongName": r"a score's name must be small letters, digits and underscores",
    "counts:Mean": r"must return a loss for each of \d+ examples, but returned",
    "counts:OfWholeNumbers": r"of client \d+ do not fit: y must be int64, is float32",
    "counts:Missing": r"counts has no Missing",
    "multilabel": r"takes int64 \(N, classes\)",
    "classification": r"takes int64 \(N,\), a class of each example",
}
