"""Remarks at the end of a run: parts of the method that never acted, failed clients."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedge.cloud.step import CloudStep
from fedge.clustering.deal_test.reach import STRONG
from fedge.clustering.memberships.membership import GroupEvent, event_description
from fedge.config.registers.option import shown
from fedge.records.tables.server_table import path_text
from fedge.rounds.measurements.results import RoundResult
from hhar.quantity import quantity

_MOST_CHANGES = 6  # number of reported cluster changes
_WHOLE, _NUMBER, _LINE = (int,), (int, float), (str,)
_FORMS: dict[str, tuple[type, tuple[type, ...], tuple[type, ...]]] = {  # types: own, keys', values'
    "_cluster_counts": (list, (), _NUMBER), "_similarities": (list, (), _NUMBER),
    "_num_leaves": (int, (), ()), "_accepted": (int, (), ()), "_rejected": (int, (), ()),
    "_failed": (dict, _WHOLE, _LINE), "_notes": (list, (), _LINE),
    "_kept_model": (dict, _WHOLE, _WHOLE), "_empty": (dict, _WHOLE, _WHOLE), "_changes": (list, (), _LINE),
    "_skipped": (dict, _LINE, _WHOLE), "_lowest_p": (list, (), _NUMBER), "_failed_trials": (int, (), ()),
    "_best_failed": (list, (), _NUMBER), "_rule_failed": (list, (), _WHOLE), "on_privacy": (str, (), ()),
    "_num_above_leaves": (int, (), ()),
}  # fmt: skip


class Remarks:
    """Caveats for readers of a run's scores, collected round by round.

    Attributes:
        on_privacy: privacy cost up to the newest round, and quantities not covered; empty without privacy.
    """

    def __init__(self) -> None:
        """Remarks of a run before its first round."""
        self._cluster_counts: list[float] = []  # smallest and largest
        self._similarities: list[float] = []  # smallest and largest
        self._num_leaves = 0  # children of the cloud
        self._num_above_leaves = 0  # of these, servers other than leaves
        self._accepted = self._rejected = 0
        self._failed: dict[int, str] = {}
        self._notes: list[str] = []
        self._kept_model: dict[int, int] = {}
        self._empty: dict[int, int] = {}  # leaf → global rounds without clients
        self._changes: list[str] = []  # changes of clusters
        self._skipped: dict[str, int] = {}  # reason for an unchanged grouping → number of cloud steps
        self._lowest_p: list[float] = []  # smallest p-value of all tests for groups
        self._failed_trials = 0
        self._best_failed: list[float] = []  # largest gain of a failed trial, as a list
        self._rule_failed: list[int] = []  # first global round in which cloud.rule failed, and their number
        self.on_privacy = ""
        self._said_once: set[str] = set()  # notes of this process that its end does not repeat

    def observe(self, result: RoundResult) -> None:
        """Record one global round."""
        decisions = [gate.decision for gate in result.gates]
        self._accepted += decisions.count("accepted")
        self._rejected += decisions.count("rejected")
        for client, failure in result.failures.items():
            self._failed.setdefault(client, f"round {result.global_round}: {failure}")
        for leaf in result.leaves:
            if not leaf.num_clients:
                self._empty[leaf.leaf] = self._empty.get(leaf.leaf, 0) + 1
            if leaf.kept_model:
                self._kept_model[leaf.leaf] = self._kept_model.get(leaf.leaf, 0) + leaf.kept_model
        self._changes += changes_of(result)
        if any("rule_failed" in step.facts for _, step in _steps_of(result)):
            first, count = self._rule_failed or (result.global_round, 0)
            self._rule_failed = [first, count + 1]
        cloud = result.cloud
        if cloud is None:
            return
        if "skipped" in cloud.facts:
            reason = str(cloud.facts["skipped"])
            self._skipped[reason] = self._skipped.get(reason, 0) + 1
        tried = cloud.facts.get("trial")
        if tried is not None and not tried["useful"]:
            self._failed_trials += 1
            self._best_failed = _bounds([*self._best_failed, tried["gain"]])[-1:]
        self._lowest_p = _bounds([*self._lowest_p, *(test["p"] for test in cloud.facts.get("tests", ()))])[:1]
        if cloud.similarity is not None:
            self._cluster_counts = _bounds([*self._cluster_counts, int(cloud.labels.max()) + 1])
            self._num_leaves = len(cloud.labels)
            self._num_above_leaves = 0 if groups_leaves(result) else self._num_leaves
            above_diagonal = cloud.similarity[np.triu_indices(self._num_leaves, k=1)]
            self._similarities = _bounds([*self._similarities, *map(float, above_diagonal)])

    def note(self, line: str, repeat: bool = True) -> None:
        """Add a remark unchanged; unless `repeat`, it is not among those printed at the end."""
        self._notes.append(line)
        self._said_once |= set() if repeat else {line}

    def facts(self) -> dict[str, Any]:
        """State as JSON, mappings as pairs, for `restore`."""
        kept = {name: vars(self)[name] for name in vars(self) if name in _FORMS}
        return {name: list(v.items()) if isinstance(v, dict) else v for name, v in kept.items()}

    def restore(self, facts: Mapping[str, Any]) -> None:
        """Restore the state from `facts`.

        Raises:
            ValueError: `facts` has another form.
        """
        for name, value in facts.items():
            vars(self)[name] = _converted(name, value)

    @property
    def any_failed(self) -> bool:
        """Whether a client failed in any round."""
        return bool(self._failed)

    def last_lines(self) -> list[str]:
        """The remarks to print at the end, most important first."""
        return [line for line in self.lines() if line not in self._said_once]

    def lines(self) -> list[str]:
        """All remarks, most important first."""
        remarks = [
            f"client {client} failed, first in {reason}" for client, reason in sorted(self._failed.items())
        ]
        remarks += [
            f"leaf {leaf} kept its model in {quantity(count, 'leaf round')}, because it had too few valid "
            f"replies"
            for leaf, count in sorted(self._kept_model.items())
        ]
        remarks += [
            f"leaf {leaf} had no clients in {quantity(count, 'global round')}; it kept its model and did not "
            f"take part"
            for leaf, count in sorted(self._empty.items())
        ]
        if self._rule_failed:
            first, count = self._rule_failed
            remarks.append(
                f"cloud.rule failed in {quantity(count, 'global round')}, first in round {first}: "
                f"leaves kept their models; run.log gives the reason"
            )
        remarks += self._cluster_remarks()
        decisions = self._accepted + self._rejected
        every = "its one offer was" if decisions == 1 else f"all {decisions} offers were"
        if decisions and not self._rejected:
            remarks.append(f"the gate never rejected: {every} accepted")
        if decisions and not self._accepted:
            remarks.append(f"the gate always rejected: {every} rejected")
        return remarks + [self.on_privacy] * bool(self.on_privacy) + self._notes

    def _cluster_remarks(self) -> list[str]:
        """Remarks on the effect of clustering, or on its absence."""
        remarks = self._changes
        if len(remarks) > _MOST_CHANGES:
            remarks = [
                *remarks[: _MOST_CHANGES - 1],
                f"{quantity(len(remarks) - _MOST_CHANGES, 'further change')} of clusters, see clusters.jsonl",
                remarks[-1],
            ]
        remarks = remarks + [
            f"clusters stayed as they were in {quantity(count, 'cloud step')}: {reason}"
            for reason, count in self._skipped.items()
        ]
        if self._failed_trials:
            remarks.append(
                f"trials in which new groups did not prove useful: {self._failed_trials}, with a gain in log "
                f"loss of at most {self._best_failed[0]:.3f}"
            )
        if self._cluster_counts and self._similarities:
            low, high = min(self._similarities), max(self._similarities)
            children, child = (
                ("the cloud's children", "child") if self._num_above_leaves else ("leaves", "leaf")
            )
            evidence = f"similarities between {children} were {low:.4f} to {high:.4f}"
            if self._lowest_p:
                evidence += f", the lowest p of a split was {self._lowest_p[0]:.3f}"
            if max(self._cluster_counts) == 1:
                remarks.append(
                    f"clustering never split: all {children} were one cluster in every cloud step; {evidence}"
                )
            elif min(self._cluster_counts) == self._num_leaves:
                remarks.append(
                    f"clustering never joined: every {child} stayed alone in every cloud step; {evidence}"
                )
        return remarks


def _converted(name: str, value: Any) -> Any:
    """A restored value in its own type; ValueError if its type, keys or values are wrong."""
    kind, keys, values = _FORMS.get(name, (type(None), (), ()))
    restored = dict(value) if kind is dict and isinstance(value, list) else value
    fits = type(restored) is kind
    if fits and kind is dict:
        fits = all(type(key) in keys and type(item) in values for key, item in restored.items())
    elif fits and kind is list:
        fits = all(type(item) in values for item in restored)
    if not fits:
        raise ValueError(f"remarks have no {shown(name)} of {shown(value)}")
    return restored


def _steps_of(result: RoundResult) -> list[tuple[str, CloudStep]]:
    """Place, in words, and step of the cloud and of servers between it and the leaves."""
    at_cloud = "" if groups_leaves(result) else ", cloud"
    steps = [(at_cloud, result.cloud)] if result.cloud else []
    return steps + [(f", server {path_text(inner.path)}", inner.step) for inner in result.inner_steps]


def groups_leaves(result: RoundResult) -> bool:
    """Whether the cloud's children are the leaves, as in two tiers."""
    return result.cloud is None or len(result.cloud.labels) == len(result.leaves)


def changes_of(result: RoundResult) -> list[str]:
    """Changes of the clusters in a round, one line each."""
    return [
        f"round {result.global_round}{place}: {event_description(event, 'children' if place else 'leaves')}"
        f"{_worth_of_split(event, tests)}"
        for place, step in _steps_of(result)
        for tests in [step.facts.get("tests", ())]
        for event in step.facts.get("events", ())
    ]


def _worth_of_split(event: GroupEvent, tests: Sequence[Mapping[str, Any]]) -> str:
    """The p-value of the cut splitting a cluster, in words; empty unless a deal test made the cut."""
    first, *rest = (set(cluster) for cluster in event["after"])
    cuts = [
        test
        for test in tests
        if "level" in test
        and test["p"] <= test["level"]
        and any(first & set(one) and all(part & set(other) for part in rest) for one, other in _sides(test))
    ]
    if event["kind"] != "split" or not cuts:
        return ""
    p, deals = cuts[0]["p"], cuts[0]["deals"]
    by_chance = f"; dealing clients to leaves by chance does as well in {round(p * deals)} of {deals:,} cases"
    return f" (p = {p:.2g}{', weak evidence' if p > STRONG else ''}{by_chance})"


def _sides(test: Mapping[str, Any]) -> list[tuple[list[int], list[int]]]:
    """The two parts of a cut, in both orders."""
    first, second = test["parts"]
    return [(first, second), (second, first)]


def _bounds(values: Sequence[float]) -> list[float]:
    """Smallest and largest value; empty for no values."""
    return [min(values), max(values)] if values else []
