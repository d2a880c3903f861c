"""How the cloud combines the models of a group: the mean, or a Flower strategy with a state per group.

    x_g ← rule(x_g; models of the leaves of g, their weights)

x_g is the group's last model from the rule, from which a server optimiser continues: momentum (Hsu et al.
2019), Adagrad, Adam, Yogi (Reddi et al. 2021). At a region, x_g is the model sent by the parent since then,
if any, because the region's children started from it. A group with other members starts without moments, from
the mean of its leaves' last offers, because another group's moments do not apply to it. A group with fewer
models than the rule needs gets no offer, and its leaves keep their own models.

Shape letter: S leaf servers.
"""

import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.serverapp.strategy import Strategy

from fedge.config.registers.failing import own_errors
from fedge.exchange.failure import words_of
from fedge.leaf.strategies.aggregation import Contribution, mean_of
from fedge.leaf.strategies.strategy_state import (
    numbers_of,
    refuse_incompatible_state,
    restore_strategy,
    states_of,
)
from fedge.states.averaging import State, weighted_mean
from fedge.states.named_states import states_under
from fedge.states.restore_checks import MOST, checked_ints, state

logger = logging.getLogger(__name__)

_MODEL, _STRATEGY = "rule-model-", "rule-strategy-"  # prefix of their numbers, among the states

Key = tuple[int, ...]
"""Key of a group from one cloud step to the next: its leaves, or its number."""


@dataclass(frozen=True)
class RuleMaker:
    """How to make a run's rule.

    Attributes:
        make: makes a new strategy.
        needed: minimum number of models for its guarantee.
        names: trainable entries of a model.
        variances: entries that must not be negative.
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
        offered: (S,) each leaf's last offer, or its own model if it had none; empty before the first step.
    """

    def __init__(self, maker: RuleMaker) -> None:
        """Start without groups."""
        self._maker = maker
        self._groups: dict[Key, _Group] = {}
        self._next_groups: dict[Key, _Group] = {}
        self._first_model: State | None = None
        self._failed_groups: list[list[int]] = []
        self.offered: list[State] = []

    def set_initial_model(self, model: State) -> None:
        """Store the common initial model of all leaves."""
        self._first_model = model

    def step_from(self, model: State, children: int) -> None:
        """Let all groups step from a model of the parent; their strategies keep their state.

        Args:
            model: the model from which all children continue.
            children: number of children.
        """
        self.offered = [model] * children
        for group in self._groups.values():
            group.model = model

    def combined(self, key: Key, contributions: Sequence[Contribution], global_round: int) -> State | None:
        """Model of a group; None if it has too few models for the rule, or the rule fails.

        The cause may be extreme values from a leaf as well as the rule itself. As with a leaf whose strategy
        fails (contract C12), the group keeps its models; its rule then starts without moments.

        Args:
            key: key of the group, the same in every step while the group exists.
            contributions: contributions of its leaves, in order.
            global_round: 1, 2, …
        """
        # imported here, because it loads torch, which the check before a run and the mean do not need
        from fedge.exchange.train import TrainReply
        from fedge.leaf.strategies.checks import refuse_impossible
        from fedge.leaf.strategies.rules import combine
        from fedge.training.settings import LocalTraining

        if len(contributions) < self._maker.needed:
            return None
        previous = self._groups.get(key)
        current = self._start_model(contributions) if previous is None else previous.model
        strategy = self._maker.make() if previous is None else copy.deepcopy(previous.strategy)
        replies = [
            TrainReply(c.state, round(c.weight), 1, 0.0, 0.0, 0, weight=float(c.weight))
            for c in contributions
        ]
        names, round_key = self._maker.names, (global_round, 0)
        try:
            result = combine(
                strategy, current, mean_of(contributions), replies, names, LocalTraining(), 0, round_key
            )
            refuse_impossible(result, self._maker.variances, " of a group's model")
        except own_errors() as error:  # arithmetic, or an error in a strategy
            members = [contribution.child for contribution in contributions]
            logger.warning(
                "global round %d: cloud.rule cannot combine the models of children %s, which keep theirs: %s",
                global_round, ", ".join(map(str, members)), words_of(error),
            )  # fmt: skip
            self._failed_groups.append(members)
            return None
        self._next_groups[key] = _Group(strategy, result)
        return result

    def offers(
        self,
        labels: np.ndarray,
        contributions: Sequence[Contribution],
        global_round: int,
        keep: Callable[[State], State],
    ) -> tuple[list[State | None], dict[str, Any]]:
        """Each leaf's group model (None for a leaf on its own or too few models), and facts of the step.

        Args:
            labels: (S,) current groups.
            contributions: contribution of each leaf.
            global_round: 1, 2, …
            keep: stores large states in files or in memory.
        """
        offers: list[State | None] = [None] * len(contributions)
        too_few = []
        for group in np.unique(labels):
            members = [int(leaf) for leaf in np.flatnonzero(labels == group)]
            if len(members) > 1:
                model = self.combined(tuple(members), [contributions[m] for m in members], global_round)
                too_few += [members] if len(members) < self._maker.needed else []
                for member in members:
                    offers[member] = model
        self.end_step(offers, contributions)
        self.keep_states(keep)
        return offers, ({"too_few_for_rule": too_few} if too_few else {}) | self.failures()

    def failures(self) -> dict[str, Any]:
        """Facts of a cloud step: groups for which the rule has failed since the last call."""
        failed, self._failed_groups = self._failed_groups, []
        return {"rule_failed": failed} if failed else {}

    def _start_model(self, contributions: Sequence[Contribution]) -> State:
        """The model from which a new group steps; the last offer itself if all its leaves share one."""
        if not self.offered:
            assert self._first_model is not None
            return self._first_model
        offered = [self.offered[contribution.child] for contribution in contributions]
        if all(model is offered[0] for model in offered):
            return offered[0]
        return weighted_mean(offered, [contribution.weight for contribution in contributions])

    def end_step(self, offers: Sequence[State | None], contributions: Sequence[Contribution]) -> None:
        """End a cloud step, and drop the state of vanished groups.

        Args:
            offers: offer of each leaf, None without one.
            contributions: contribution of each leaf.
        """
        self._groups, self._next_groups = self._next_groups, {}
        self.offered = [
            contribution.state if offer is None else offer
            for offer, contribution in zip(offers, contributions, strict=True)
        ]

    def keep_states(self, keep: Callable[[State], State]) -> None:
        """Pass the models through `keep`, which stores them; sharing is preserved."""
        kept = {id(model): keep(model) for model in self._models()}
        self.offered = [kept[id(model)] for model in self.offered]
        for group in self._groups.values():
            group.model = kept[id(group.model)]

    def _models(self) -> list[State]:
        all_models = [*self.offered, *(group.model for group in self._groups.values())]
        return list({id(model): model for model in all_models}.values())

    # --- state beyond the process ---------------------------------------------------------------------

    def states(self) -> dict[str, State]:
        """Arrays for the next cloud step, by name."""
        result = {f"{_MODEL}{i}": model for i, model in enumerate(self._models())}
        for i, group in enumerate(self._groups.values()):
            strategy_states = states_of(group.strategy)
            result |= {f"{_STRATEGY}{i}.{name}": state for name, state in strategy_states.items()}
        return result

    def facts(self) -> dict[str, Any]:
        """Other state, as JSON."""
        index_of = {id(model): number for number, model in enumerate(self._models())}
        return {
            "offered": [index_of[id(model)] for model in self.offered],
            "groups": [
                {"key": list(key), "model": index_of[id(group.model)], "numbers": numbers_of(group.strategy)}
                for key, group in self._groups.items()
            ],
        }

    def restore(self, states: Mapping[str, State], facts: Mapping[str, Any]) -> None:
        """Restore the result of `states` and `facts`; ValueError if they do not belong to this rule's."""
        models = states_under(_MODEL, states)
        self.offered = [models[str(index)] for index in facts["offered"]]
        for number, saved in enumerate(facts["groups"]):
            strategy, strategy_states = self._maker.make(), states_under(f"{_STRATEGY}{number}.", states)
            model = models[str(saved["model"])]
            refuse_incompatible_state(strategy, strategy_states, saved["numbers"], model)
            restore_strategy(strategy, strategy_states, saved["numbers"])
            self._groups[tuple(checked_ints(saved["key"], "key of a group", least=-MOST))] = _Group(
                strategy, model
            )

    def refuse_foreign_state(self, like: State, leaves: int) -> None:
        """Raise ValueError if a restored state does not fit this number of leaves and form of model."""
        if len(self.offered) not in (0, leaves):
            raise ValueError(
                f"the rule's offers must be those of {leaves} leaves, but are {len(self.offered)}"
            )
        for model in self._models():
            state(model, like, "a model of the cloud's rule")
