"""Measures of the studies: accuracy on seen and unseen users, rounds with right groups, costs.

All accuracies are shares, 0..1, of test windows after the last round, means over clients.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedge.records.reading.reader import RunData, load_run
from fedge.report.comparison.groups import Group
from fedge.report.comparison.statistics import Estimate, estimate, paired_difference
from fedge.report.comparison.sweep_page import Comparison
from fedge.report.comparison.yardsticks import Yardsticks
from fedge.report.html.tables import total
from fedge.sweep.plan import Sweep, read_sweep
from fedge.sweep.study import study_of
from fedge.sweep.summary import comparisons

Read = Callable[[RunData], float | None]


class MissingRuns(ValueError):
    """Runs of a study are missing or did not end; one line, the first of them is named."""


@dataclass(frozen=True)
class Study:
    """A sweep whose runs are all complete.

    Attributes:
        sweep: the file.
        comparisons: its methods, once per scenario.
    """

    sweep: Sweep
    comparisons: Sequence[Comparison]

    @property
    def runs(self) -> list[RunData]:
        """Every run."""
        return [run for c in self.comparisons for group in c.groups for run in group.runs]


def read_study(path: Path) -> Study:
    """Read a sweep file and its runs.

    Raises:
        MissingRuns: a run is not complete.
    """
    sweep = read_sweep(path)
    runs: dict[str, RunData] = {}
    for planned in sweep.runs:
        if not planned.folder.is_dir():
            raise MissingRuns(f"{planned.folder} must be there; carry it out with: fedge sweep {path}")
        run = load_run(planned.folder)
        if run.status != "completed":
            raise MissingRuns(
                f"{planned.folder} must be completed, but is {run.status}; resume with: fedge sweep {path}"
            )
        runs[planned.name] = run
    return Study(sweep, comparisons(study_of(sweep), runs))


# --- of one run ---------------------------------------------------------------------------------------


def last(column: str) -> Read:
    """Reader of a column of global_rounds.csv after the last round; None where a run lacks it."""
    return lambda run: run.rounds[column][-1] if column in run.rounds.columns else None


def seen(run: RunData) -> float | None:
    """The accuracy on users in training, of the model before any fine-tuning."""
    shared = last("shared_accuracy_mean")(run)
    return last("test_accuracy_mean")(run) if shared is None else shared


served = last("test_accuracy_mean")
tuned = last("tuned_accuracy_mean")
unseen = last("unseen_accuracy_mean")


def is_right(run: RunData, global_round: int) -> bool:
    """Whether the clusters were the planted groups (adjusted Rand index 1) after a global round."""
    return bool(run.rounds["ari"][global_round - 1] == 1.0)


def is_whole(run: RunData) -> bool:
    """Whether all leaves were one cluster after every round."""
    return bool((run.rounds["num_clusters"] == 1).all())


def clusters_at_end(run: RunData) -> float:
    """The number of clusters after the last round."""
    return float(run.rounds["num_clusters"][-1])


@dataclass(frozen=True)
class ClusteringCost:
    """Cost of the comparisons of leaves in a run.

    Attributes:
        comparisons: cloud steps with questions to clients.
        time_share: share of the wall time spent on all cloud steps, 0..1.
        bytes_ratio: models sent to clients for comparison, in units of all others sent to them.
        bytes_each: of one comparison, in units of one round's evaluation exchange (one model to each client).
    """

    comparisons: int
    time_share: float
    bytes_ratio: float
    bytes_each: float


def clustering_cost(run: RunData) -> ClusteringCost | None:
    """The costs of comparing leaves, or None where clients were not asked."""
    lines = (run.folder / "clusters.jsonl").read_text().splitlines()
    exchange_bytes = [json.loads(line).get("exchange_bytes", 0) for line in lines]
    exchanges = [size for size in exchange_bytes if size]
    if not exchanges:
        return None
    downlink = total(run.rounds, "downlink_bytes")
    model_bytes = sum(array.nbytes for array in run.models()[0].values())
    per_evaluation = model_bytes * run.known_clients["client"].n_unique()
    return ClusteringCost(
        len(exchanges),
        total(run.timing, "cluster") / total(run.timing, "total"),
        sum(exchanges) / (downlink - sum(exchanges)),
        sum(exchanges) / len(exchanges) / per_evaluation,
    )


def similarities(run: RunData) -> list[float]:
    """The similarities of all pairs of leaves in all cloud steps with a comparison."""
    pair_values = []
    for matrix in run.clusters["similarity"].drop_nulls():
        pairs = [list(row)[index + 1 :] for index, row in enumerate(matrix)]
        pair_values += [value for row in pairs for value in row if value is not None]
    return pair_values


def offers_taken(run: RunData) -> tuple[int, int]:
    """How many offers the gates took and how many they were made."""
    accepted, refused = (int(total(run.rounds, column)) for column in ("gate_accepted", "gate_rejected"))
    return accepted, accepted + refused


# --- over seeds ---------------------------------------------------------------------------------------


def values(group: Group, read: Read) -> dict[int, float]:
    """Seed → number."""
    values_by_seed = {seed: read(run) for seed, run in group.finished.items()}
    return {seed: value for seed, value in values_by_seed.items() if value is not None}


def over_seeds(group: Group, read: Read) -> Estimate | None:
    """The mean with its interval, or None where no run has the number."""
    numbers = values(group, read)
    return estimate(list(numbers.values())) if numbers else None


def difference(
    group: Group, reference: Group, read: Read, of_reference: Read | None = None
) -> Estimate | None:
    """The paired difference to a reference over common seeds.

    Args:
        group: whose numbers.
        reference: whose are subtracted.
        read: the number.
        of_reference: the reference's number, where it is another one.
    """
    return paired_difference(values(group, read), values(reference, of_reference or read))


def worse_off(comparison: Comparison, group: Group, unseen_clients: bool) -> Estimate | None:
    """The share of clients served worse than by local-only training."""
    return over_seeds(group, Yardsticks(comparison.groups).worse_off("local only", unseen_clients))


def by_label(comparison: Comparison) -> Mapping[str, Group]:
    """The groups of a comparison by name."""
    return {group.label: group for group in comparison.groups}
