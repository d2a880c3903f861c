"""How the cloud combines the models of a group: the mean, or a Flower strategy with a state per group.

    x_g ← rule(x_g; models of the leaves of g, their weights)

x_g is the group's last model from the rule, from which a server optimiser continues: momentum (Hsu et al.
2019), Adagrad, Adam, Yogi (Reddi et al. 2021). At a region it is the model that the server above has given
since, if any: with this the servers below began. A group of other leaves begins anew, without momentum, from
the mean of its leaves' last offers, for moments of another group's way say nothing of its own. A group with
fewer models than the rule needs is offered nothing: its leaves keep their own.

Shape letter: S leaf servers.
"""

import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.serverapp.strategy import Strategy

from fedge.config.registers.failing import OWN_ERRORS
from fedge.exchange.failure import words_of
from fedge.leaf.strategies.aggregation import Contribution, mean_of
from fedge.leaf.strategies.strategy_state import numbers_of, refuse_other, restore_strategy, states_of
from fedge.states.averaging import State, weighted_mean
from fedge.states.named import under
from fedge.states.restored import MOST, state, wholes

logger = logging.getLogger(__name__)

_MODEL, _STRATEGY = "rule-model-", "rule-strategy-"  # before their numbers, among the states

Key = tuple[int, ...]
"""Key of a group from one cloud step to the next: its leaves, or its number."""


@dataclass(frozen=True)
class RuleMaker:
    """Parts from which a run's rule is made.

    Attributes:
        make: gives a fresh strategy.
        needed: number of models required for its guarantee.
        names: trainable entries of a model.
        variances: its non-negative entries.
    """

    make: Callable[[], Strategy]
    needed: int
    names: tuple[str, ...]
    variances: tuple[str, ...] = ()


@dataclass
class _Group:
    strategy: Strategy
    model: State = field(repr=False)


class CloudRule:
    """A strategy per group of leaves.

    Attributes:
        offered: (S,) each leaf's last offer, or its own model without an offer; empty before the first step.
    """

    def __init__(self, maker: RuleMaker) -> None:
        """Begin without any group."""
        self._maker = maker
        self._groups: dict[Key, _Group] = {}
        self._coming: dict[Key, _Group] = {}
        self._first: State | None = None
        self._failed: list[list[int]] = []
        self.offered: list[State] = []

    def know_first(self, model: State) -> None:
        """Store the common initial model of all leaves."""
        self._first = model

    def step_from(self, model: State, children: int) -> None:
        """Let all groups step from a model of the server above; their strategies keep their state.

        Args:
            model: with which all children go on.
            children: how many there are.
        """
        self.offered = [model] * children
        for group in self._groups.values():
            group.model = model

    def combined(self, key: Key, brought: Sequence[Contribution], global_round: int) -> State | None:
        """Model of a group; None for too few models for the rule, or where the rule fails on them.

        The failure may be a leaf's, with finite numbers of any size, as well as the rule's: the group keeps
        its models, as does a leaf whose strategy fails (contract C12), and begins anew.

        Args:
            key: of the group; equal from step to step for a continuing group.
            brought: by its leaves, with their weights, in order.
            global_round: 1, 2, …
        """
        # they load torch, for which neither the check before a run nor the mean has to wait
        from fedge.exchange.train import TrainReply
        from fedge.leaf.strategies.checks import refuse_impossible
        from fedge.leaf.strategies.rules import combine
        from fedge.training.settings import LocalTraining

        if len(brought) < self._maker.needed:
            return None
        before = self._groups.get(key)
        current = self._current(brought) if before is None else before.model
        strategy = self._maker.make() if before is None else copy.deepcopy(before.strategy)
        replies = [
            TrainReply(each.state, round(each.weight), 1, 0.0, 0.0, 0, weight=float(each.weight))
            for each in brought
        ]
        names, where = self._maker.names, (global_round, 0)
        try:
            made = combine(strategy, current, mean_of(brought), replies, names, LocalTraining(), 0, where)
            refuse_impossible(made, self._maker.variances, " of a group's model")
        except OWN_ERRORS as error:  # of arithmetic, or raised in a strategy
            members = [each.child for each in brought]
            logger.warning(
                "global round %d: cloud.rule cannot combine the models of children %s, which keep theirs: %s",
                global_round, ", ".join(map(str, members)), words_of(error),
            )  # fmt: skip
            self._failed.append(members)
            return None
        self._coming[key] = _Group(strategy, made)
        return made

    def offers(
        self,
        labels: np.ndarray,
        brought: Sequence[Contribution],
        global_round: int,
        keep: Callable[[State], State],
    ) -> tuple[list[State | None], dict[str, Any]]:
        """Per leaf its group's model, None for a leaf alone or too few models; and facts of the step.

        Args:
            labels: (S,) groups in force.
            brought: per leaf.
            global_round: 1, 2, …
            keep: decides where the models lie.
        """
        offers: list[State | None] = [None] * len(brought)
        too_few = []
        for group in np.unique(labels):
            members = [int(leaf) for leaf in np.flatnonzero(labels == group)]
            if len(members) > 1:
                made = self.combined(tuple(members), [brought[m] for m in members], global_round)
                too_few += [members] if len(members) < self._maker.needed else []
                for member in members:
                    offers[member] = made
        self.go_on(offers, brought)
        self.keep_states(keep)
        return offers, ({"too_few_for_rule": too_few} if too_few else {}) | self.failures()

    def failures(self) -> dict[str, Any]:
        """Facts of a cloud step: groups on whose models the rule has failed, since the last call."""
        failed, self._failed = self._failed, []
        return {"rule_failed": failed} if failed else {}

    def _current(self, brought: Sequence[Contribution]) -> State:
        """The model from which a new group steps: the offer itself if common to all its leaves."""
        if not self.offered:
            assert self._first is not None
            return self._first
        offered = [self.offered[each.child] for each in brought]
        if all(model is offered[0] for model in offered):
            return offered[0]
        return weighted_mean(offered, [each.weight for each in brought])

    def go_on(self, offers: Sequence[State | None], brought: Sequence[Contribution]) -> None:
        """End a cloud step: former groups are forgotten.

        Args:
            offers: per leaf, None for none.
            brought: per leaf.
        """
        self._groups, self._coming = self._coming, {}
        self.offered = [
            each.state if offer is None else offer for offer, each in zip(offers, brought, strict=True)
        ]

    def keep_states(self, keep: Callable[[State], State]) -> None:
        """Let `keep` decide where the models lie; shared objects stay shared."""
        kept = {id(model): keep(model) for model in self._models()}
        self.offered = [kept[id(model)] for model in self.offered]
        for group in self._groups.values():
            group.model = kept[id(group.model)]

    def _models(self) -> list[State]:
        every = [*self.offered, *(group.model for group in self._groups.values())]
        return list({id(model): model for model in every}.values())

    # --- state beyond the process ---------------------------------------------------------------------

    def states(self) -> dict[str, State]:
        """Arrays needed by the next cloud step, by name."""
        found = {f"{_MODEL}{at}": model for at, model in enumerate(self._models())}
        for at, group in enumerate(self._groups.values()):
            own = states_of(group.strategy)
            found |= {f"{_STRATEGY}{at}.{name}": state for name, state in own.items()}
        return found

    def facts(self) -> dict[str, Any]:
        """Further state as JSON."""
        at = {id(model): number for number, model in enumerate(self._models())}
        return {
            "offered": [at[id(model)] for model in self.offered],
            "groups": [
                {"key": list(key), "model": at[id(group.model)], "numbers": numbers_of(group.strategy)}
                for key, group in self._groups.items()
            ],
        }

    def restore(self, states: Mapping[str, State], facts: Mapping[str, Any]) -> None:
        """Restore the result of `states` and `facts`; ValueError where they are none of this rule's."""
        models = under(_MODEL, states)
        self.offered = [models[str(at)] for at in facts["offered"]]
        for number, known in enumerate(facts["groups"]):
            strategy, own = self._maker.make(), under(f"{_STRATEGY}{number}.", states)
            model = models[str(known["model"])]
            refuse_other(strategy, own, known["numbers"], model)
            restore_strategy(strategy, own, known["numbers"])
            self._groups[tuple(wholes(known["key"], "key of a group", least=-MOST))] = _Group(strategy, model)

    def refuse_others(self, like: State, leaves: int) -> None:
        """Raise ValueError for a restored state that is none over so many leaves with models like one."""
        if len(self.offered) not in (0, leaves):
            raise ValueError(
                f"the rule's offers must be those of {leaves} leaves, but are {len(self.offered)}"
            )
        for model in self._models():
            state(model, like, "a model of the cloud's rule")
