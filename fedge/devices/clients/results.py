"""Results of an evaluation on the virtual clock, in the form of a global round's rows."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedge.config.tree import Path
from fedge.exchange.evaluate import Evaluation, pool_evaluations
from fedge.exchange.failure import Failure
from fedge.rounds.measurements.results import ClientResult, LeafResult, RoundResult, ServerResult
from fedge.serving.gate import GateResult
from fedge.tasks.configured import CLASSIFICATION
from fedge.tasks.task import Task


@dataclass(frozen=True)
class Population:
    """Clients and leaves of a run.

    Attributes:
        leaf_of: client → number of its leaf, unseen clients included.
        windows: client → training windows, for training clients.
        unseen: unseen clients.
        leaves: number of leaves.
        truth: true group of each leaf, if groups are planted.
    """

    leaf_of: Mapping[int, int]
    windows: Mapping[int, int]
    unseen: frozenset[int]
    leaves: int
    truth: Sequence[int] | None = None

    def devices_of(self, leaf: int) -> list[int]:
        """The training clients of a leaf, in order."""
        return [client for client in sorted(self.windows) if self.leaf_of[client] == leaf]

    def devices_by_leaf(self) -> list[list[int]]:
        """Training clients of each leaf, in order."""
        by_leaf: list[list[int]] = [[] for _ in range(self.leaves)]
        for client in sorted(self.windows):
            by_leaf[self.leaf_of[client]].append(client)
        return by_leaf

    def regrouped(self, child_of: Callable[[int], int], children: int) -> "Population":
        """The same clients under other servers: `children` in number, given the one above each leaf.

        >>> Population({7: 0, 8: 1, 9: 2}, {}, frozenset(), 3).regrouped([0, 0, 1].__getitem__, 2).leaf_of
        {7: 0, 8: 0, 9: 1}
        """
        leaf_of = {client: child_of(leaf) for client, leaf in self.leaf_of.items()}
        return Population(leaf_of, self.windows, self.unseen, children)

    def window_counts(self, clients: int) -> np.ndarray:
        """Training windows of clients 0, …, `clients` − 1, (N,) int64; 0 for clients that do not train."""
        counts = np.zeros(clients, np.int64)
        for client, count in self.windows.items():
            counts[client] = count
        return counts


@dataclass(frozen=True)
class Period:
    """Totals between two evaluations.

    Attributes:
        number: number of the evaluation at the end.
        losses: client → mean loss of its latest job.
        failures: client → its first failure.
        moved: "up", "down", "cloud_up", "cloud_down" → bytes.
        began: start on the run's real clock.
        learned: task of the run.
        validated: client → evaluation of its served model on validation windows.
    """

    number: int
    losses: Mapping[int, float]
    failures: Mapping[int, Failure]
    moved: Mapping[str, int]
    began: float
    learned: Task = CLASSIFICATION
    validated: Mapping[int, Evaluation] = field(default_factory=dict)


def round_result(
    population: Population,
    period: Period,
    evaluated: Mapping[int, Evaluation],
    labels: Sequence[int] | None = None,
) -> RoundResult:
    """Rows of a global round, for clients evaluated or trained in the period.

    Args:
        population: clients and leaves of the run.
        period: period up to the evaluation.
        evaluated: client → evaluation of its served model.
        labels: group of each leaf; None for one group.
    """
    groups = [0] * population.leaves if labels is None else labels
    clients = sorted({*evaluated, *period.losses})
    return RoundResult(
        global_round=period.number,
        clients=[_client_row(population, client, period, evaluated.get(client)) for client in clients],
        leaves=[
            _leaf_row(population, leaf, evaluated, groups[leaf], period.validated)
            for leaf in range(population.leaves)
        ],
        cloud=None,
        clients_ok=len(population.leaf_of) - len(period.failures),
        failures=dict(sorted(period.failures.items())),
        uplink_bytes=period.moved["up"],
        downlink_bytes=period.moved["down"],
        cloud_uplink_bytes=period.moved["cloud_up"],
        cloud_downlink_bytes=period.moved["cloud_down"],
        truth=population.truth,
        began=period.began,
        learned=period.learned,
    )


def _client_row(population: Population, client: int, period: Period, test: Evaluation | None) -> ClientResult:
    """The row of one client."""
    val = period.validated.get(client)
    return ClientResult(
        client=client,
        leaf=population.leaf_of[client],
        train_samples=population.windows.get(client, 0),
        train_loss=period.losses.get(client),
        test_samples=test.windows if test else 0,
        test_score=test.score if test else None,
        test_loss=test.loss if test else None,
        further=test.further if test else {},
        train_seconds=None,
        confusion=test.confusion if test else None,
        unseen_client=client in population.unseen,
        val_samples=val.windows if val else 0,
        val_score=val.score if val else None,
        val_loss=val.loss if val else None,
    )


def _leaf_row(
    population: Population,
    leaf: int,
    evaluated: Mapping[int, Evaluation],
    group: int,
    validated: Mapping[int, Evaluation],
) -> LeafResult:
    """The row of one leaf, which serves its group's model."""
    of_leaf = {
        client: evaluation for client, evaluation in evaluated.items() if population.leaf_of[client] == leaf
    }
    seen = pool_evaluations(
        [evaluation for client, evaluation in of_leaf.items() if client not in population.unseen]
    )
    unseen = pool_evaluations(
        [evaluation for client, evaluation in of_leaf.items() if client in population.unseen]
    )
    val = pool_evaluations(
        [v for c, v in validated.items() if population.leaf_of[c] == leaf and c not in population.unseen]
    )
    devices = population.devices_of(leaf)
    return LeafResult(
        leaf=leaf,
        cluster=group,
        gate=GateResult("off", math.nan, None, serves_offer=False),
        test_score=seen.score if seen else None,
        test_loss=seen.loss if seen else None,
        further=seen.further if seen else {},
        num_clients=len(devices),
        train_samples=sum(population.windows[client] for client in devices),
        unseen_score=unseen.score if unseen else None,
        unseen_loss=unseen.loss if unseen else None,
        unseen_further=unseen.further if unseen else {},
        unseen_clients=sum(population.leaf_of[client] == leaf for client in population.unseen),
        val_score=val.score if val else None,
        val_loss=val.loss if val else None,
    )


def clock_server_rows(
    population: Population,
    evaluated: Mapping[int, Evaluation],
    paths: Sequence[Path],
    labels: Sequence[int],
    moved: Sequence[Sequence[int]],
) -> list[ServerResult]:
    """Rows of all servers, from the root down; each is followed by those below it.

    Args:
        population: clients and leaves of the run.
        evaluated: client → evaluation of its served model.
        paths: paths of all servers but the root, leaves last.
        labels: number of each leaf's group at the root.
        moved: path → bytes to the server's parent and back.
    """
    leaves = dict(enumerate(paths[len(paths) - population.leaves :]))
    traffic = dict(zip(paths, moved, strict=True))
    rows = []
    for path in sorted([(), *paths]):
        leaves_below = {leaf for leaf, leaf_path in leaves.items() if leaf_path[: len(path)] == path}
        clients = [client for client in population.windows if population.leaf_of[client] in leaves_below]
        of_server = {
            client: evaluation
            for client, evaluation in evaluated.items()
            if population.leaf_of[client] in leaves_below
        }
        seen = pool_evaluations(
            [evaluation for client, evaluation in of_server.items() if client not in population.unseen]
        )
        unseen = pool_evaluations(
            [evaluation for client, evaluation in of_server.items() if client in population.unseen]
        )
        up, down = traffic.get(path, (0, 0))
        rows.append(
            ServerResult(
                path=path,
                cluster=labels[min(leaves_below)] if path else None,
                gate=None,
                uplink_bytes=up or None,
                downlink_bytes=down or None,
                num_clients=len(clients),
                train_samples=sum(population.windows[client] for client in clients),
                test_score=seen.score if seen else None,
                unseen_score=unseen.score if unseen else None,
            )
        )
    return rows


def mean_score(population: Population, evaluated: Mapping[int, Evaluation], unseen: bool) -> float | None:
    """Mean over clients, seen or unseen, of the first test score; None without any."""
    scores = [e.score for client, e in evaluated.items() if (client in population.unseen) == unseen]
    return float(np.mean(scores)) if scores else None
