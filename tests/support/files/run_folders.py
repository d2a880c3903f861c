"""Run folders for tests, written by the real recorder from numbers that a test chooses."""

import numpy as np

from fedge.cloud.step import CloudStep
from fedge.config.flat import from_run_config, to_run_config
from fedge.data.composition import holdings
from fedge.data.partition import Partition
from fedge.exchange.failure import EXCEPTION, Failure
from fedge.metrics.scores import accuracy
from fedge.process.resources.memory import ProcessMemory
from fedge.records.recorder import Recorder
from fedge.rounds.measurements.results import ClientResult, LeafResult, RoundResult
from fedge.serving.gate import GateResult
from fedge.timing.laps import PHASES
from fedge.timing.timeline import ExchangeTimes, TimelineBook
from hhar.windows.window_file import Windows

CLASSES = ("walk", "<sit>")
LAPS = dict.fromkeys(PHASES, 0.0) | {"wait": 1.5, "aggregate": 0.5}


def timelines(number):
    """A round's timelines: a wait of 1.5 s, client 0 on worker 0, clients 1, 2, 3 on worker 1.

    Worker 0: 0.2 s load, 1.1 s train, 0.1 s serialise. Worker 1: 0.5 and 0.4 s train, 0.2 s evaluate, 0.1 s
    serialise, and then nothing for 0.2 s while worker 0 is still at work.
    """
    calls = [
        (0, 21, 0.0, (0.0, 0.2, 1.1, 0.0, 0.1)), (1, 22, 0.0, (0.0, 0.0, 0.5, 0.0, 0.0)),
        (2, 22, 0.5, (0.0, 0.0, 0.4, 0.0, 0.0)), (3, 22, 0.9, (0.0, 0.0, 0.0, 0.2, 0.1)),
    ]  # fmt: skip
    began = 100.0 * number
    exchange = ExchangeTimes([(began, began + 1.5)])
    for client, worker, at, parts in calls:
        exchange.add(client, began, began + 1.5, [11, worker, began + at, *parts, 0, 0])
    return TimelineBook(11).round(began, [exchange], (21, 22))


def confusion(right):
    """The matrix of a client that gets `right` of 10 windows of each of two classes right."""
    return np.array([[right, 10 - right], [10 - right, right]])


def round_result(
    number,
    rights,
    labels=(0, 0),
    decisions=("accepted", "rejected"),
    similarity=0.5,
    unseen_clients=(),
    truth=None,
    tuned=None,
):
    """A round of two leaves with two clients each; client k gets rights[k] of 10 right, or failed.

    Both leaves' scores are of the clients that are no unseen clients. With `tuned`, fine-tuned models that
    are served have these rights of known clients, and `rights` are those before it.
    """
    shared = rights
    if tuned is not None:
        rights = [rights[k] if k in unseen_clients else tuned[k] for k in range(len(rights))]
    matrices = [None if right is None else confusion(right) for right in rights]
    scores = [None if m is None else accuracy(m) for m in matrices]
    clients = [
        ClientResult(
            k, k // 2, 0 if k in unseen_clients else 20, None if k in unseen_clients else 0.5 + k,
            0 if score is None else 20, score, None if score is None else 1 - score,
            {} if score is None else {"macro_f1": score}, 1.5, matrices[k],
            k in unseen_clients,
            *(() if tuned is None or score is None or k in unseen_clients else (shared[k] / 10, score)),
        )
        for k, score in enumerate(scores)
    ]  # fmt: skip
    leaves = []
    for leaf in (0, 1):
        members = [(k, scores[k]) for k in (2 * leaf, 2 * leaf + 1) if scores[k] is not None]
        own = [s for k, s in members if k not in unseen_clients]
        new = [s for k, s in members if k in unseen_clients]
        mean = float(np.mean(own)) if own else None
        unseen = float(np.mean(new)) if new else None
        gate = GateResult(decisions[leaf], 0.5, None if decisions[leaf] == "off" else 0.75, True)
        leaves.append(
            LeafResult(
                leaf, labels[leaf], gate, mean, mean and 1 - mean,
                {"macro_f1": mean} if own else {}, 2 - len(new), 40, 0,
                unseen, unseen and 1 - unseen, {"macro_f1": unseen} if new else {}, len(new),
            )
        )  # fmt: skip
    matrix = np.array([[1.0, similarity], [similarity, 1.0]])
    return RoundResult(
        number, clients, leaves, CloudStep("weights", np.array(labels), matrix, 0.7, number == 1, []),
        sum(m is not None for m in matrices),
        {k: Failure(EXCEPTION, "gone") for k, m in enumerate(matrices) if m is None},
        1000, 2000, 100, 200, None if number == 1 else 0.0, truth,
    )  # fmt: skip


def write_run(
    folder,
    rounds,
    seed=1,
    status="completed",
    config=None,
    data=None,
    planned=None,
    unseen_clients=(),
    **manifest,
):
    """Write a run folder of four clients with the given `RoundResult`s; returns it."""
    folder.mkdir(parents=True)
    settings = {"num-server-rounds": planned or max(len(rounds), 1), "seed": seed, **(config or {})}
    y = np.tile([0, 1], 20)
    windows = Windows(
        np.zeros((40, 1, 2), np.float32), y, np.repeat(list("abcd"), 10), None, None, CLASSES, ("acc_x",)
    )
    parts = [tuple(np.arange(10 * k + a, 10 * k + b) for a, b in ((0, 6), (6, 8), (8, 10))) for k in range(4)]
    with Recorder(folder) as recorder:
        recorder.update_manifest(
            status=status, seed=seed, seed_source="config", engine="inprocess",
            federation={"num-supernodes": 4}, config=to_run_config(from_run_config(settings)),
            versions={"fedge": "0.1.0"}, started="2025-01-02T03:04:05+00:00",
            data={
                "name": "tiny.npz", "fingerprint": "0" * 64, "synthetic": False, "windows": 40,
                "classes": list(CLASSES), "channels": ["acc_x"], "split": "blocks", **(data or {}),
            },
            clients_per_leaf=[2, 2], **manifest,
        )  # fmt: skip
        dealt = Partition(parts, "blocks", frozenset(unseen_clients))
        recorder.write_partition(holdings(windows, dealt, [2, 2]))
        for result in rounds:
            recorder.write_round(
                result,
                LAPS,
                [
                    ProcessMemory("server", 11, 100.0 + result.global_round, 20, 80.0, 6),
                    ProcessMemory("worker", 12, 50.0, 10, 30.0 - result.global_round, 4),
                ],
                timelines(result.global_round),
            )
        if status == "completed":
            recorder.write_models([{"w": np.full(2, leaf, np.float32)} for leaf in (0, 1)])
    (folder / "run.log").write_text("INFO the last words\n")
    return folder
