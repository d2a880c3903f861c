"""State of the cloud between cloud steps, saved in checkpoints: groups, methods' models, due comparisons."""

from collections.abc import Mapping
from typing import Any

from fedge.cloud.by_deals import GroupsByDeals
from fedge.cloud.by_method import GroupsByMethod
from fedge.cloud.groups import Groups
from fedge.cloud.method_memory import MethodMemory
from fedge.cloud.rule import CloudRule
from fedge.clustering.likeness.updates import Likeness
from fedge.clustering.methods.ifca import Pool
from fedge.config.sections.cluster import ClusterConfig
from fedge.states.averaging import State
from fedge.states.restore_checks import checked_int, checked_ints, finite

_LIKENESS = "likeness"  # among the states
_OWN = "method"


class CloudMemory(MethodMemory):
    """State of the cloud between two cloud steps.

    Attributes:
        groups: current and proposed groups.
        pool: the cloud's models, for a method with several of them, or None.
        likeness: likeness of clients' newest updates from one start, if the method needs it.
        rule: combines the models of a group, with its state; None for the mean.
        rests: whether the coming step skips the comparison, because a leaf has no clients.
    """

    def __init__(self, config: ClusterConfig, pool: Pool | None = None) -> None:
        """Start a run."""
        super().__init__(config)
        self.groups: Groups = GroupsByDeals(config) if config.deals else GroupsByMethod(config)
        self.pool = pool
        self.likeness: Likeness | None = None
        self.rule: CloudRule | None = None
        self.rests = False

    @property
    def compares(self) -> bool:
        """Whether the coming step compares leaves, or only averages the current clusters.

        Methods with several cloud models, or with their own schedule, run in every step.
        """
        always = self.pool is not None or self.method.by_time or self.groups.has_jumped
        return self.config.enabled and not self.rests and (always or self.pace.is_due or self.groups.decides)

    def can_compare(self, leaves: int) -> bool:
        """Whether the coming step compares, and there are enough leaves to find groups in."""
        return self.compares and leaves >= self.groups.fewest

    def is_probe_due(self, common_start: bool) -> bool:
        """Whether leaves make a probe after a round, given whether they had a common start."""
        every = self.config.probe_every
        return self.groups.has_jumped or (every > 0 and not common_start and self.since_probe + 1 >= every)

    # --- state beyond the process ---------------------------------------------------------------------

    def states(self) -> dict[str, State]:
        """Arrays for the next cloud step, by name."""
        recent = self.groups.states()
        if self.likeness is not None:
            recent[_LIKENESS] = self.likeness.to_state()
        if self.own:
            recent[_OWN] = self.own
        if self.rule is not None:
            recent |= self.rule.states()
        return recent if self.pool is None else recent | self.pool.states()

    def facts(self) -> dict[str, Any]:
        """Other state, as JSON."""
        return {
            **self.groups.facts(),
            "since_probe": self.since_probe,
            "pace": self.pace.facts(),
            "taken": None if self.pool is None else self.pool.facts(),
            **({"kept": self.kept} if self.kept else {}),
            **({} if self.rule is None else {"rule": self.rule.facts()}),
        }

    def restore(self, states: Mapping[str, State], facts: Mapping[str, Any]) -> None:
        """Restore the result of `states` and `facts`; ValueError if they do not belong to this cloud's."""
        self.since_probe = checked_int(facts["since_probe"], "the number of comparisons since a probe")
        self.pace.restore(facts["pace"])
        self.kept = facts.get("kept", {})
        if _LIKENESS in states:
            self.likeness = Likeness.from_state(states[_LIKENESS])
        self.groups.restore(self.likeness, states, facts)
        self.own = finite(states.get(_OWN, {}), "the method's own arrays")
        if self.rule is not None:
            self.rule.restore(states, facts["rule"])
        if self.pool is not None:
            self.pool.restore(states, facts["taken"])

    def refuse_foreign_state(self, like: State, children: int) -> None:
        """Raise ValueError if a restored state does not belong to this cloud.

        Args:
            like: a child's model.
            children: number of the cloud's children.
        """
        self.groups.refuse_foreign_state(children)
        if self.likeness is not None:
            self.likeness.refuse_foreign_state(children)
        if self.kept and self.method.refuses is not None:
            self.method.refuses(self.kept, self.config, children)
        if self.rule is not None:
            self.rule.refuse_foreign_state(like, children)
        if self.pool is not None and self.pool.taken is not None:
            checked_ints(self.pool.taken.tolist(), "models that leaves took", children)
