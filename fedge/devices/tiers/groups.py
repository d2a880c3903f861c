"""Groups of leaves with a common model at the cloud: as configured, or found at evaluations.

In a deeper tree, "leaf" here means any child of the cloud: a region has its own model, and the clients of all
its leaves.

Groups are found by a method of `fedge.clustering` with no needs beyond models and losses, or by the deal
test. Every `cluster.every` evaluations from `cluster.start-round` on, clients evaluate all leaves' models on
their validation windows; labels change once `cluster.patience` comparisons in a row have found the same
groups.

The deal test is made once: at the first of these evaluations all devices compute an update of the run's
first model (`fedge.devices.clients.probing`), and the groups found are used from then on. A second test would
give the same result, because data on the virtual clock never change. Trials of groups take whole rounds and
are meaningless without rounds: the level of the test is the chance of a false split. Shape letter: S leaves.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedge.cloud.step import CloudStep
from fedge.clustering.deal_test.auto import run_deal_tests
from fedge.clustering.deal_test.deals import labels_after, leaf_similarity
from fedge.clustering.likeness.evidence import Answers, Evidence
from fedge.clustering.likeness.updates import Likeness
from fedge.clustering.memberships.membership import Membership, events_between
from fedge.clustering.registry import method_named
from fedge.config.config import Config
from fedge.config.leaf_groups import static_groups
from fedge.config.registers.option import ConfigError
from fedge.config.sections.cluster import ClusterConfig
from fedge.states.averaging import State
from fedge.states.restore_checks import checked_bool

ALLOWED = {"cross-losses"}  # measures possible at any moment


class ClockGroups:
    """Current labels, and their changes.

    Attributes:
        labels: (S,) int64, group of each leaf, numbered by first appearance.
        membership: groups proposed by comparisons.
        is_tested: whether the deal test has been made.
    """

    def __init__(self, config: Config, parameters: Sequence[str], seed: int, truth: Any = None) -> None:
        """Start with the groups of `asynchrony.groups`, or with one group.

        Args:
            config: configuration; its sections on clustering, hierarchy and asynchrony are read.
            parameters: names of the trainable entries of a model, in layer order.
            seed: root of the random streams of tests.
            truth: (S,) groups planted by a scenario; None without one.
        """
        leaves = config.hierarchy.branches
        self.labels = np.array(static_groups(config.asynchrony.groups, leaves), dtype=np.int64)
        self.membership = Membership()
        self.is_tested = False
        self._config = config.cluster
        self._method = method_named(config.cluster) if config.cluster.enabled else None
        self._parameters = tuple(parameters)
        self._seed = seed
        self._truth = None if truth is None else np.array(truth, dtype=np.int64)

    def is_due(self, evaluation: int) -> bool:
        """Whether leaves should be compared at evaluation 1, 2, …"""
        since = evaluation - self._config.start_round
        return self._config.enabled and since >= 0 and since % self._config.every == 0 and not self.is_tested

    @property
    def asks_updates(self) -> bool:
        """Whether the next comparison needs devices' updates of the run's first model."""
        return self._config.deals

    @property
    def asks_losses(self) -> bool:
        """Whether comparisons need clients' losses of all leaves' models."""
        needed = self._method is not None and "cross-losses" in self._method.needs(self._config)
        return needed and not self.asks_updates

    def test(self, likeness: Likeness | None, evaluation: int, exchange_bytes: int) -> CloudStep:
        """Split the leaves as the deal test allows; returns the findings.

        If too few devices have replied, nothing changes until the next comparison is due.

        Args:
            likeness: comparison of updates of the run's first model; None without any reply.
            evaluation: 1, 2, …
            exchange_bytes: bytes of the messages for it.
        """
        config, before = self._config, self.labels
        tests = "no device has answered" if likeness is None else run_deal_tests(likeness, config, self._seed)
        facts: dict[str, Any] = {"probe": True, "exchange_bytes": exchange_bytes}
        similarity = None
        if isinstance(tests, str) or likeness is None:
            facts["skipped"] = tests
        else:
            self.is_tested = True
            self.labels = self.membership.settle(labels_after(tests, np.zeros_like(before)), patience=1)
            facts |= {"tests": [test.to_json() for test in tests], "tested_round": evaluation}
            similarity = leaf_similarity(likeness.cosines, likeness.leaf_of, len(before))
        if events := events_between(before, self.labels):
            facts["events"] = events
        method, signal = config.method, config.signal
        return CloudStep(signal, self.labels, similarity, config.tau, True, [], method, facts)

    def compare(
        self, models: Sequence[State], weights: Sequence[float], answers: Answers | None, evaluation: int
    ) -> CloudStep:
        """Compare the leaves, and update `labels`; returns the findings.

        Args:
            models: models of the leaves.
            weights: their training windows.
            answers: losses of all models by the leaves' clients; None if clients were not asked.
            evaluation: 1, 2, …
        """
        assert self._method is not None
        config, before = self._config, self.labels
        evidence = Evidence(
            models, None, weights, self._parameters, common_start=False, answers=answers, truth=self._truth,
            global_round=evaluation, seed=self._seed,
        )  # fmt: skip
        grouping = self._method.group(evidence, config, before)
        facts: dict[str, Any] = dict(grouping.facts)
        if "skipped" not in facts:
            self.labels = self.membership.settle(grouping.labels, config.patience)
        if events := events_between(before, self.labels):
            facts["events"] = events
        if answers is not None:
            facts["exchange_bytes"] = answers.downlink_bytes
        signal = self._method.compares or config.signal
        return CloudStep(
            signal, self.labels, grouping.similarity, config.tau, False, [], config.method, facts
        )

    def facts(self) -> dict[str, Any]:
        """The whole state as JSON, for `restore`."""
        return {
            "labels": self.labels.tolist(),
            "membership": self.membership.facts(),
            "is_tested": self.is_tested,
        }

    def restore(self, facts: Mapping[str, Any]) -> None:
        """Restore the result of `facts`."""
        self.labels = np.array(facts["labels"], dtype=np.int64)
        self.membership.restore(facts["membership"])
        self.membership.refuse_foreign_state(len(self.labels))
        self.is_tested = checked_bool(facts["is_tested"], "whether the deal test is made")


def refuse_methods_of_rounds(config: ClusterConfig) -> None:
    """Raise ConfigError for a grouping method that needs a whole round from one model."""
    method = method_named(config)
    needs = set() if config.deals else {need for need in method.needs(config) if need not in ALLOWED}
    if needs or method.by_time:
        needed = " and ".join(sorted(needs)) or "rounds of its own"
        raise ConfigError(
            f"cluster.method {config.method} (signal {config.signal}, count {config.count}) needs {needed}, "
            f"which is of whole rounds, on the virtual clock; the deal test is made there: cluster.signal="
            f'"affinity", cluster.method="agglomerative", cluster.count="auto", cluster.patience=2'
        )
