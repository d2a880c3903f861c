"""The gate at a leaf: take the offered model, or keep its own. The published rule (contract C7) and others.

Every rule is a pure function of the results of two models on the same N validation windows, pooled over the
leaf's clients: both models are right on `a` windows, only the own model on `b`, and only the offered one on
`c`. So the accuracies are (a + b) / N and (a + c) / N, and the offer gains (c − b) / N.

    published           gain ≥ min-gain
    after-round         the same, of two models that have both been trained for one global round by this
                        leaf's clients, one from the offer, one from the leaf's own (see
                        `fedge.serving.decision`)
    one-standard-error  gain ≥ min-gain − √(b + c − (b − c)² / N) / N: no worse than by the standard error of
                        a paired difference of two shares (McNemar 1947; the rule is that of Breiman et al.
                        1984 for choosing between trees)
    paired              McNemar's exact test: if both were equally good, each of the b + c windows on which
                        they differ would be a coin toss; the offer is turned down only if b or more tosses
                        of b + c come up "own" with probability at most `level`

In tasks without right and wrong windows (`fedge.tasks`), each window has a value, larger for better, and the
first score improves with their sum; examples are minus the squared error, and F1 of its classes. Clients send
the sum S and the sum of squares Q of the differences between both models, window by window. With their mean d
= S / N the offer gains g in the score, g = 0 where S = 0, and

    published           g ≥ min-gain, in the unit of the score
    one-standard-error  g ≥ min-gain − √(Q − S² / N) / N · g / d: the standard error of d, in units of the
                        score; g / d is the slope of the score between both models (the delta method), 1 for a
                        mean. Of right and wrong S = c − b and Q = b + c, which is the formula above
    paired              Student's paired t-test: if both were equally good, d / √((Q − S² / N) / (N (N − 1)))
                        would follow Student's t with N − 1 degrees of freedom (Student 1908, "The probable
                        error of a mean"); turned down only if as low a value has a probability of at most
                        `level`

Both tests assume independent windows. Overlapping windows, or windows of one recording, are not independent:
their effective number is smaller, so the true standard error is larger, and so is the true p-value.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedge.config.registers.determinism import call_checked
from fedge.config.registers.groupings import GATES
from fedge.config.registers.option import ConfigError, shown
from fedge.config.sections.serving import GateConfig
from fedge.tasks.classification import CONFUSION
from fedge.tasks.task import Task

Decision = Literal["accepted", "rejected", "off"]


@dataclass(frozen=True)
class Paired:
    """Results of two models on the same windows.

    Attributes:
        both: windows on which both models are right, `a`.
        only_own: windows on which only the own model is right, `b`.
        only_offered: windows on which only the offered model is right, `c`.
        windows: all of them, N ≥ 1.
    """

    both: int
    only_own: int
    only_offered: int
    windows: int

    @property
    def swapped(self) -> "Paired":
        """The same with the models' parts changed over."""
        return Paired(self.both, self.only_offered, self.only_own, self.windows)

    @property
    def score_own(self) -> float:
        """Share of windows on which the own model is right."""
        return (self.both + self.only_own) / self.windows

    @property
    def score_offered(self) -> float:
        """Share of windows on which the offered model is right."""
        return (self.both + self.only_offered) / self.windows

    @property
    def merit_own(self) -> float:
        """Score of the own model, oriented so that more is better."""
        return self.score_own

    @property
    def merit_offered(self) -> float:
        """Score of the offered model, oriented so that more is better."""
        return self.score_offered

    @property
    def standard_error(self) -> float:
        """Standard error of score_offered − score_own."""
        b, c = self.only_own, self.only_offered
        return math.sqrt(b + c - (b - c) ** 2 / self.windows) / self.windows

    @property
    def p_value(self) -> float:
        """Probability of at least `only_own` of the differing windows, if both models were equally good."""
        from scipy.special import bdtrc  # a run without a gate need not load SciPy

        b, c = self.only_own, self.only_offered
        return float(bdtrc(b - 1, b + c, 0.5)) if b else 1.0


@dataclass(frozen=True)
class PairedScores:
    """Results of two models on the same windows, for tasks without right and wrong windows.

    Attributes:
        score_own, score_offered: scores of both models, pooled over the windows.
        total, squares: sum, and sum of squares, of windows' gains by the offered model.
        windows: all of them, N ≥ 1.
        higher_is_better: whether higher scores are better.
    """

    score_own: float
    score_offered: float
    total: float
    squares: float
    windows: int
    higher_is_better: bool
    only_own = only_offered = None  # nothing is right or wrong

    @property
    def swapped(self) -> "PairedScores":
        """The same with the models' parts changed over."""
        return PairedScores(
            self.score_offered, self.score_own, -self.total, self.squares, self.windows, self.higher_is_better
        )

    @property
    def merit_own(self) -> float:
        """Score of the own model, oriented so that more is better."""
        return self.score_own if self.higher_is_better else -self.score_own

    @property
    def merit_offered(self) -> float:
        """Score of the offered model, oriented so that more is better."""
        return self.score_offered if self.higher_is_better else -self.score_offered

    @property
    def standard_error(self) -> float:
        """Standard error of score_offered − score_own; 0 if the total gain is 0.

        >>> pair = PairedScores(2.0, 1.0, total=30.0, squares=100.0, windows=10, higher_is_better=False)
        >>> round(pair.standard_error, 6)  # √(100 − 90) / 10 · 1 / 3
        0.105409
        """
        if self.total == 0:
            return 0.0
        slope = (self.merit_offered - self.merit_own) / (self.total / self.windows)
        return math.sqrt(max(0.0, self._centred_squares)) / self.windows * abs(slope)

    @property
    def p_value(self) -> float:
        """Probability of a gain this small or smaller, if both models were equally good."""
        from scipy.special import stdtr

        if self._centred_squares <= 0 or self.windows < 2:
            return 1.0 if self.total >= 0 else 0.0
        error = math.sqrt(self._centred_squares / (self.windows * (self.windows - 1)))
        return float(stdtr(self.windows - 1, self.total / self.windows / error))

    @property
    def _centred_squares(self) -> float:
        """Sum of squares around the mean."""
        return self.squares - self.total**2 / self.windows


AnyPaired = Paired | PairedScores


@dataclass(frozen=True)
class GateResult:
    """One leaf's decision and its basis.

    Attributes:
        decision: "off" where the gate did not decide: the gate is disabled, or there was only the leaf's own
            model.
        score_own: validation score of the leaf's own model, pooled over its clients' windows.
        score_offered: the same of the offered model; None without an offer.
        serves_offer: whether the leaf continues with the offered model.
        pair: the windows behind the scores; None without an offer.
        blend: λ of the offer; None without one (see `fedge.cloud.offers`).
        role: role of the leaf's next model in its clients' evaluations.
        unseen_role: role of the unseen clients' model; None if the same.
    """

    decision: Decision
    score_own: float
    score_offered: float | None
    serves_offer: bool
    pair: AnyPaired | None = None
    blend: float | None = None
    role: str = "own"
    unseen_role: str | None = None


Rule = Callable[..., bool]
"""(how two models do, configuration, further arguments) → whether the offer is taken."""


def takes_offer(pair: AnyPaired, config: GateConfig) -> bool:
    """Whether the configured rule takes the offer."""
    rule: Rule = GATES.load(config.rule)
    with GATES.explaining_errors(config.rule):
        answer = call_checked(GATES, config.rule, lambda: rule(pair, config, **config.arguments("rule")))
    if not isinstance(answer, bool | np.bool_):
        raise ConfigError(
            f"gate.rule {config.rule} must return True or False, but returned {shown(answer)}; fix it"
        )
    return bool(answer)


def refuse_gate_that_fails(config: GateConfig, task: Task, outputs: int) -> None:
    """Raise ConfigError for a user's rule that fails, or gives no decision, on made-up pairs.

    Args:
        config: section `gate`.
        task: task of the run; windows are right or wrong if its sums are a confusion matrix.
        outputs: U.
    """
    pair: AnyPaired = Paired(60, 10, 20, 100)
    if CONFUSION not in task.form(outputs):
        score = task.scores[0]
        own, offered = (min(max(value, score.lowest), score.highest) for value in (0.7, 0.8))
        scores = (own, offered) if score.higher_is_better else (offered, own)
        pair = PairedScores(*scores, 10.0, 30.0, windows=100, higher_is_better=score.higher_is_better)
    for example in (pair, pair.swapped):
        takes_offer(example, config)


def published(pair: AnyPaired, config: GateConfig) -> bool:
    """Accept for a gain of at least min-gain (contract C7): acc_new ≥ acc_own + min-gain.

    >>> equal = Paired(both=70, only_own=10, only_offered=10, windows=100)
    >>> published(equal, GateConfig()), published(equal, GateConfig(min_gain=0.01))
    (True, False)
    """
    return pair.merit_offered >= pair.merit_own + config.min_gain


def one_standard_error(pair: AnyPaired, config: GateConfig) -> bool:
    """Accept unless the gain is below min-gain by more than one standard error."""
    return pair.merit_offered >= pair.merit_own + config.min_gain - pair.standard_error


def not_significantly_worse(pair: AnyPaired, config: GateConfig, level: float) -> bool:
    """Accept unless McNemar's exact one-sided test, or Student's, rejects the offer as worse at the level."""
    return pair.p_value > level
