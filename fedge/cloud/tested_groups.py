"""The cloud's groups with `cluster.count = "auto"`, where the deal test separates groups from chance.

    result     outcome of the deal test on the newest updates of all clients from one model: those of round 1,
               or of a probe, which trains the run's initial model again. Model and batches are always the
               same, so clients with unchanged data give bit-identical updates, and the test recomputes only
               the changed parts (`fedge.clustering.deal_test.deals`)
    watch      a jump in a client's training loss between rounds means changed data: the leaves are compared
               at once, by a probe
    proposals  changes towards the result, each decided by its own trial; also leaves better served by another
               cluster's model, and clusters whose models are equally good for each other's clients
               (`fedge.clustering.memberships.proposals`, `strangers`, `trials`)

Shape letters: S leaf servers, K clients.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedge.cloud.forks import Forks
from fedge.clustering.deal_test import deals
from fedge.clustering.deal_test.auto import p_of_cut, run_deal_tests
from fedge.clustering.deal_test.deals import DealTest
from fedge.clustering.likeness.evidence import Answers
from fedge.clustering.likeness.similarity import number_by_first_appearance
from fedge.clustering.likeness.updates import Likeness
from fedge.clustering.memberships import strangers
from fedge.clustering.memberships.proposals import (
    ClusterChange,
    Proposals,
    apply_changes,
    changes_between,
    next_groups,
)
from fedge.clustering.memberships.strangers import Folds, StrangerLosses, StrangerQuestions, is_simple_move
from fedge.clustering.memberships.trials import (
    TrialResult,
    change_gain,
    groups_after_moves,
    mergeable_pairs,
    misplaced_leaves,
    needs_longer_trial,
)
from fedge.config.sections.cluster import ClusterConfig
from fedge.seeding import Purpose, numpy_stream
from fedge.states.averaging import State
from fedge.states.restore_checks import checked_bool, checked_int, checked_ints, checked_number, group_labels

_DOUBTS = 2  # further rounds of training for the forks of a doubtful split
_MATURE = 3  # comparisons after a change before losses alone may propose another: models are still young


class DealtGroups:
    """Clusters of leaves, and proposed changes.

    Attributes:
        proposals: the current groups, and the pending changes.
        likeness: likeness of the newest updates from the run's first model, or None.
        tests: the result; empty before there is one.
        is_open: whether the current groups still differ from the result.
        too_few: reason why the newest updates give no result; empty if they do.
    """

    def __init__(self, config: ClusterConfig) -> None:
        """Start a run."""
        self._config = config
        self.proposals = Proposals()
        self.likeness: Likeness | None = None
        self.tests: list[DealTest] = []
        self.is_open = False
        self.too_few = ""
        self._losses: dict[int, float] = {}
        self._seed = 0
        self._since_change = 0
        self._changed_data: list[int] = []  # leaves whose data changed after the last change of groups
        self._jumped_leaves: list[int] = []
        self._asking: StrangerQuestions | None = None
        self._new_members: list[int] = []
        self._fork_models: dict[int, State | None] = {}
        self._forks = Forks()

    # --- due steps ----------------------------------------------------------------------------------

    @property
    def has_jumped(self) -> bool:
        """Whether jumps in training losses reveal new data at a leaf's clients."""
        return bool(self._jumped_leaves)

    @property
    def jumped(self) -> list[int]:
        """These leaves, in order."""
        return self._jumped_leaves

    @property
    def alone(self) -> frozenset[int]:
        """Leaves on their own, now or after a change on trial; judged by folds."""
        labels = self.proposals.labels
        sizes = np.zeros(0) if labels is None else np.bincount(labels)[labels]
        single = {int(k) for k in np.flatnonzero(sizes == 1)}
        single |= {part[0] for change in self.proposals.on_trial for part in change.after if len(part) == 1}
        return frozenset(single)

    def watch(self, losses: Mapping[int, float], leaf_of: Mapping[int, int]) -> None:
        """Record the training losses of a round, and find leaves where they jumped.

        Args:
            losses: client → mean training loss of the round, for clients in training.
            leaf_of: client → its leaf.
        """
        rises: dict[int, list[float]] = {}
        for client, loss in losses.items():
            previous = self._losses.get(client)
            if previous is not None and previous > 0 and loss > 0:
                rises.setdefault(leaf_of[client], []).append(float(np.log(loss / previous)))
        limit = self._config.watch
        self._jumped_leaves = [
            leaf for leaf, increases in sorted(rises.items()) if limit and np.mean(increases) > limit
        ]
        self._losses |= losses
        self._changed_data = sorted({*self._changed_data, *self._jumped_leaves})

    # --- a cloud step -------------------------------------------------------------------------------

    def record_updates(self, likeness: Likeness, seed: int) -> None:
        """Record updates from the run's first model, and run the deal test if they have changed.

        The same data is tested only once: if only the set of replies differs, the test is not repeated,
        unless too few clients had replied before.
        """
        old = self.likeness
        if old is not None and self.tests and likeness.is_same_update(old):
            self.likeness = likeness if np.array_equal(old.leaf_of, likeness.leaf_of) else old
            return
        self.likeness = likeness
        result = run_deal_tests(likeness, self._config, seed)
        self.too_few = result if isinstance(result, str) else ""
        self.tests, self.is_open = ([], False) if isinstance(result, str) else (result, True)

    def ask(
        self,
        models: Sequence[State],
        weights: Sequence[float],
        forks: Sequence[State | None],
        folds: Mapping[int, Folds],
        draw_key: tuple[int, int],
        taught: np.ndarray | None = None,
    ) -> list[dict[str, State]]:
        """Questions to clients: per leaf, role → model.

        Args:
            models: model of each leaf.
            weights: number of training windows of each leaf.
            forks: trained fork of each leaf on trial; empty or None for none.
            folds: leaf → client → model trained without this client.
            draw_key: seed and global round of the draw, if there are too many models to ask about.
            taught: (clients, C) training windows of each class, by partition id; None if unknown.
        """
        self._seed = draw_key[0]
        labels = self.proposals.present(len(models))
        self._forks.set_models(forks, folds)
        self._asking = StrangerQuestions(
            labels,
            models,
            weights,
            self.proposals.on_trial,
            forks,
            folds,
            _draw_orders(labels, *draw_key),
            taught,
        )
        return strangers.questions(self._asking)

    def settle(self, answers: Answers | None, leaves: int) -> tuple[np.ndarray, dict[str, Any]]:
        """The groups (S,) from now on, and facts of the step.

        Args:
            answers: to the questions; None if there were none.
            leaves: S.
        """
        config, proposals = self._config, self.proposals
        present = proposals.present(leaves)
        losses = (
            strangers.stranger_losses(answers, self._asking)
            if answers is not None and self._asking is not None
            else None
        )
        proposed = self._next_groups(present)
        by_result = changes_between(present, proposed)
        if losses is not None:
            is_young = self._since_change < _MATURE
            fixed = [leaf for leaf in range(leaves) if is_young and leaf not in self._changed_data]
            proposed = _propose_by_losses(losses, present, proposed, config.min_gain, fixed)
        proposals.find(proposed)
        trial_results = {
            change: None
            if losses is None
            else change_gain(change, losses, config.min_gain * proposals.gain_factor(change))
            for change in proposals.on_trial
        }
        facts = self._trial_facts(trial_results)
        adopted = proposals.decide(self._decide(trial_results, losses), leaves)
        self._new_members, self._fork_models = [], {}
        finest = deals.labels_after(self.tests, np.zeros_like(present))
        for change in adopted:
            result = trial_results[change]
            moved = (
                []
                if losses is None
                else self._move_misplaced(change, _misplaced_leaves(change, losses, finest, config))
            )
            self._note_contributions(change, () if result is None else result.home, moved)
            if moved:
                facts["misplaced"] = facts.get("misplaced", []) + moved
        labels = proposals.labels
        assert labels is not None
        self._since_change = 0 if adopted else self._since_change + 1
        if adopted:
            self._changed_data = []
            self.is_open = self.is_open and all(change in by_result for change in adopted)
            self._propose_finer_cuts(labels)
        self._forks.set_trials(proposals.call(config.patience), adopted)
        return labels, facts

    def _decide(
        self, trial_results: Mapping[ClusterChange, TrialResult | None], losses: StrangerLosses | None
    ) -> dict[ClusterChange, bool]:
        """Decision on each change, by its trial; forks of undecided changes train further."""
        known = {change: result for change, result in trial_results.items() if result is not None}
        return {
            change: result.useful
            for change, result in known.items()
            if self._forks.ages.get(change, 0) >= _DOUBTS
            or losses is None
            or not needs_longer_trial(change, losses, result, self._config.min_gain)
        }

    def _note_contributions(self, change: ClusterChange, home: Sequence[int], moved: Sequence[int]) -> None:
        """Record which leaves have not yet contributed to their new cluster's model, and which have forks.

        Args:
            change: the adopted change.
            home: for a merge, the cluster whose model serves the others, if any.
            moved: for a split, leaves moved to its other side.
        """
        if home:
            self._new_members += [leaf for leaf in change.leaves if leaf not in home]
        elif is_simple_move(change):
            self._new_members += change.movers
        else:
            self._new_members += moved
            self._fork_models |= {
                leaf: self._forks.model_of(leaf) for leaf in change.leaves if leaf not in moved
            }

    def cluster_models(
        self, models: Sequence[State], weights: Sequence[float]
    ) -> tuple[list[State], list[float]]:
        """The models and weights for averaging the current clusters after this step.

        After a useful change, the forks are the better models. A leaf that joins a cluster whose model suits
        it takes this model unchanged.

        Args:
            models: model of each leaf.
            weights: number of training windows of each leaf.
        """
        states = [self._fork_models.get(leaf) or model for leaf, model in enumerate(models)]
        return states, [0.0 if leaf in self._new_members else w for leaf, w in enumerate(weights)]

    def forks(self, models: Sequence[State], weights: Sequence[float]) -> list[State | None]:
        """Starting model of each leaf's fork until the next step; None for no fork."""
        return self._forks.starts(models, weights)

    def fold_starts(self, models: Sequence[State], weights: Sequence[float]) -> dict[int, list[State]]:
        """Leaf → starting models of its folds until the next step.

        Args:
            models: model of each leaf.
            weights: number of training windows of each leaf.
        """
        return (
            {} if self.likeness is None else self._forks.fold_starts(models, weights, self.likeness.leaf_of)
        )

    def _next_groups(self, present: np.ndarray) -> np.ndarray:
        """The groups after the next change towards the result; the current ones once it is reached."""
        if not self.is_open or not self.tests:
            return present
        target = deals.labels_after(self.tests, np.zeros_like(present))
        if not changes_between(present, target):
            self.is_open = False
            return present
        return next_groups(target, self.tests, present, self.proposals.failed)

    def _propose_finer_cuts(self, labels: np.ndarray) -> None:
        """Propose the result's finer cuts of the groups just adopted; one test found both."""
        for change in changes_between(labels, self._next_groups(labels)):
            self.proposals.agreed.setdefault(change, self._config.patience)

    def _move_misplaced(self, change: ClusterChange, misplaced_leaves: Sequence[int]) -> list[int]:
        """Move leaves of an adopted split to its other side, in groups and result; returns these leaves.

        Only if the resulting cut passes the deal test, because every adopted cut must. Other leaves may move
        by their losses later.
        """
        labels = self.proposals.labels
        assert labels is not None
        if not misplaced_leaves:
            return []
        first = {leaf for leaf in change.after[0] if leaf not in misplaced_leaves}
        first |= {leaf for leaf in change.after[1] if leaf in misplaced_leaves}
        test = next((t for t in self.tests if set(t.leaves) == set(change.leaves)), None)
        if test is None or self.likeness is None or not 0 < len(first) < len(change.leaves):
            return []
        p = p_of_cut(self.likeness, change.leaves, sorted(first), self._seed)
        if p > test.level:
            return []
        for leaf in misplaced_leaves:
            (other,) = (part for part in change.after if leaf not in part)
            stay = next(member for member in other if member not in misplaced_leaves or len(other) == 1)
            labels[leaf] = labels[stay]
            self.tests = [deals.move_leaf_beside(test, leaf, stay) for test in self.tests]
        cut_leaves = set(change.leaves)
        self.tests = [replace(test, p=p) if set(test.leaves) == cut_leaves else test for test in self.tests]
        self.proposals.labels = apply_changes(labels, [])
        return list(misplaced_leaves)

    def _trial_facts(self, trial_results: Mapping[ClusterChange, TrialResult | None]) -> dict[str, Any]:
        """The facts of the trials of a step."""
        known = {change: result for change, result in trial_results.items() if result is not None}
        if not known:
            return {}
        trials = [{**c.to_json(), **w.to_json()} for c, w in known.items()]
        best = max(known.values(), key=lambda result: (result.useful, result.gain))
        summary = {"gain": best.gain, "better": best.better, "clients": best.clients, "useful": best.useful}
        return {"trial": {"candidate": self._candidate().tolist(), **summary}, "trials": trials}

    def _candidate(self) -> np.ndarray:
        """The groups (S,) after all pending changes."""
        assert self.proposals.labels is not None
        return apply_changes(self.proposals.labels, list(self.proposals.agreed))

    def proposed(self) -> dict[str, Any]:
        """The facts about pending changes after a step."""
        agreed = self.proposals.agreed
        if not agreed:
            return {}
        waiting = [{**change.to_json(), "agreed": count} for change, count in agreed.items()]
        return {"candidate": self._candidate().tolist(), "agreed": max(agreed.values()), "proposed": waiting}

    def result(self) -> dict[str, Any]:
        """The facts about the result."""
        if self.likeness is None:
            return {}
        facts: dict[str, Any] = {"tests": [test.to_json() for test in self.tests]}
        return facts | {"tested_round": self.likeness.global_round}

    # --- state beyond the process ---------------------------------------------------------------------

    def facts(self) -> dict[str, Any]:
        """Everything but the likeness as JSON, for `restore`."""
        return {
            "proposals": self.proposals.facts(),
            "tests": [test.to_json() for test in self.tests],
            "is_open": self.is_open,
            "losses": sorted(self._losses.items()),
            "since_change": self._since_change,
            "changed": self._changed_data,
            "forks": self._forks.facts(),
        }

    def restore(self, likeness: Likeness | None, facts: Mapping[str, Any]) -> None:
        """Restore the result of `facts`."""
        self.likeness = likeness
        self.proposals.restore(facts["proposals"])
        self.tests = [DealTest.from_json(test) for test in facts["tests"]]
        self.is_open = checked_bool(facts["is_open"], "whether groups have not come to a result")
        self._since_change = checked_int(facts["since_change"], "the number of comparisons since a change")
        self._changed_data = checked_ints(facts["changed"], "leaves with other data")
        self._forks.restore(facts["forks"])
        self._losses = {
            checked_int(client, "a client with a loss"): checked_number(loss, "a training loss")
            for client, loss in facts["losses"]
        }

    def refuse_foreign_state(self, leaves: int) -> None:
        """Raise ValueError if a restored state is for a different number of leaves."""
        if self.tests and self.likeness is None:
            raise ValueError("the updates of the deal test's result must be there, but are missing")
        proposals = self.proposals
        if proposals.labels is not None:
            group_labels(proposals.labels.tolist(), "labels of proposals", leaves)
        changes = [*proposals.agreed, *proposals.on_trial, *proposals.failed, *self._forks.ages]
        checked_ints(
            [leaf for change in changes for leaf in change.leaves], "leaves of changes", below=leaves
        )
        checked_ints([leaf for test in self.tests for leaf in test.leaves], "leaves of tests", below=leaves)
        checked_ints(self._changed_data, "leaves with other data", below=leaves)


def _propose_by_losses(
    losses: StrangerLosses, present: np.ndarray, proposed: np.ndarray, min_gain: float, fixed: Sequence[int]
) -> np.ndarray:
    """Groups (S,) with changes proposed by clients' losses where the result proposes none.

    Args:
        losses: the clients' answers.
        present: (S,) in force.
        proposed: (S,) proposed by the result.
        min_gain: largest loss difference at which two clusters are merged, and smallest for a leaf to move.
        fixed: leaves that may not move yet, because the models are young.
    """
    labels = proposed.copy()
    target = groups_after_moves(losses, present, _changed_leaves(present, labels), min_gain)
    for leaf in np.flatnonzero(target != present):
        if leaf in fixed:
            continue
        home = np.flatnonzero((present == target[leaf]) & (target == present))
        if home.size:
            labels[leaf] = labels[home[0]]
    for one, other in (
        () if len(fixed) else mergeable_pairs(losses, present, _changed_leaves(present, labels), min_gain)
    ):
        labels[present == other] = labels[np.flatnonzero(present == one)[0]]
    return number_by_first_appearance(labels)


def _misplaced_leaves(
    change: ClusterChange, losses: StrangerLosses, finest: np.ndarray, config: ClusterConfig
) -> list[int]:
    """Leaves of a split better served by the other side, except on a side still to be cut.

    Such a side still mixes several groups, so the other side's model may be better for a leaf only until its
    own group is separated.

    Args:
        change: adopted.
        losses: the clients' answers.
        finest: (S,) groups after all cuts of the result.
        config: configuration of the run.
    """
    cut_again = {leaf for part in change.after if len({*finest[list(part)]}) > 1 for leaf in part}
    return [leaf for leaf in misplaced_leaves(change, losses, config.min_gain) if leaf not in cut_again]


def _changed_leaves(present: np.ndarray, new: np.ndarray) -> list[int]:
    """The leaves affected by changes between two groupings (S,)."""
    return [leaf for change in changes_between(present, new) for leaf in change.leaves]


def _draw_orders(labels: np.ndarray, seed: int, global_round: int) -> list[list[int]]:
    """Per leaf, the other clusters in random order, because only some of many are asked about."""
    orders = []
    for leaf, own_cluster in enumerate(labels.tolist()):
        clusters = [k for k in range(int(labels.max()) + 1) if k != own_cluster]
        if len(clusters) > 1:
            rng = numpy_stream(seed, Purpose.CLUSTERING, 2, global_round, leaf)
            clusters = rng.permutation(clusters).tolist()
        orders.append(clusters)
    return orders
