"""End of a period: clients evaluate their served models, children of the cloud are compared if due."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedge.cloud.step import CloudStep
from fedge.devices.clients.results import Period, clock_server_rows, mean_score, round_result
from fedge.devices.servers.private import releases_of
from fedge.devices.servers.vectors import Version
from fedge.devices.timeline.clock import SECOND_US
from fedge.devices.work.ledger import gini
from fedge.exchange.evaluate import Evaluation
from fedge.exchange.failure import Failure
from fedge.rounds.measurements.moment import VersionRow
from fedge.rounds.measurements.results import ModelResult, RoundResult, ServerResult
from fedge.tasks.chosen import task_of

if TYPE_CHECKING:
    from fedge.devices.procedure import Procedure


def end_period(procedure: "Procedure") -> tuple[RoundResult, VersionRow]:
    """Evaluate the models of the moment; the rows of the ending period. The next one begins."""
    world, ledger = procedure.world, procedure.ledger
    began = world.clock.began
    world.clock.lap("configure")
    step = _compare(procedure)
    tops = [top.version for top in procedure.tops]

    def served(client: int) -> Version:
        return tops[world.who.leaf_of[client]]

    evaluated, failures = world.evaluating.evaluate(served, procedure.evaluated)
    validated, failed_too = world.evaluating.validate(served, procedure.evaluated)
    models: list[ModelResult] = []
    failed_last: dict[int, Failure] = {}
    if procedure.algorithms is not None:
        models, failed_last = world.evaluating.own_models(served, world.who, procedure.evaluated)
    for client, failure in (*failures.items(), *failed_too.items(), *failed_last.items()):
        ledger.failures.setdefault(client, failure)
    world.clock.lap("wait")
    moved = {name: count - procedure.moved_before[name] for name, count in ledger.moved.items()}
    period = Period(
        procedure.evaluated, ledger.losses, ledger.failures, moved, began, task_of(world.config.train),
        validated,
    )  # fmt: skip
    labels = [0] if procedure.above is None else procedure.above.labels()
    row = replace(
        moment(procedure),
        seen_score=mean_score(world.who, evaluated, unseen=False),
        unseen_score=mean_score(world.who, evaluated, unseen=True),
    )
    result = replace(
        round_result(world.who, period, evaluated, labels),
        cloud=step,
        models=models,
        moment=row,
        releases=releases(procedure),
        servers=_server_rows(procedure, evaluated),
        tier_names=world.config.hierarchy.tier_names,
    )
    procedure.moved_before, procedure.between_before = dict(ledger.moved), ledger.between.copy()
    ledger.begin_period()
    return result, row


def _compare(procedure: "Procedure") -> CloudStep | None:
    """Compare the cloud's children, leaves or regions, if due; let them share models by the result."""
    groups, above, world = procedure.groups, procedure.above, procedure.world
    evaluation, ledger = procedure.evaluated, procedure.ledger
    if groups is None or above is None or not groups.is_due(evaluation):
        return None
    who = world.who.under(above.branch_of, len(above.branches))
    if groups.asks_updates:
        assert world.probing is not None
        probed = world.probing.updates(who, evaluation)
        ledger.moved["down"] += probed.downlink_bytes
        ledger.moved["up"] += probed.uplink_bytes
        for device, failure in probed.failures.items():
            ledger.failures.setdefault(device, failure)
        world.clock.lap("wait")
        return _share_models(
            procedure, groups.test(probed.likeness, evaluation, probed.downlink_bytes + probed.uplink_bytes)
        )
    answers, models = None, [server.version for server in above.branches]
    if groups.asks_losses:
        answers, failures = world.evaluating.cross_losses(models, who, evaluation)
        for client, failure in failures.items():
            ledger.failures.setdefault(client, failure)
        world.clock.lap("wait")
    states = [model.state for model in models]
    return _share_models(procedure, groups.compare(states, above.cloud.weights, answers, evaluation))


def _share_models(procedure: "Procedure", step: CloudStep) -> CloudStep:
    """Let the cloud's children share models as a comparison has found."""
    above = procedure.above
    assert above is not None
    if step.labels.tolist() != above.cloud.labels:
        above.cloud.regroup(step.labels.tolist(), above.branches, procedure.clock, procedure.ledger)
    procedure.world.clock.lap("cluster")
    return step


def _server_rows(procedure: "Procedure", evaluated: Mapping[int, Evaluation]) -> list[ServerResult]:
    """Rows of all servers of a tree with regions; of leaves under one cloud the tables of leaves have all."""
    above = procedure.above
    if above is None or len(above.parents) < 2:
        return []
    moved = (procedure.ledger.between - procedure.between_before).tolist()
    return clock_server_rows(procedure.world.who, evaluated, above.paths, above.labels(), moved)


def moment(procedure: "Procedure") -> VersionRow:
    """The row of this moment, without accuracies."""
    ledger, now_us, jobs = procedure.ledger, procedure.clock.now_us, procedure.jobs.values()
    at_work = ledger.total("busy_us") + sum(now_us - job.began_us for job in jobs)
    at_work += sum(job.busy_us for line in procedure.lines for job in line.waiting)
    updates = ledger.counts["updates"][np.fromiter(sorted(procedure.world.who.windows), np.int64)]
    above = procedure.above
    return VersionRow(
        evaluation=procedure.evaluated,
        virtual_s=now_us / SECOND_US,
        version=procedure.versions,
        updates=ledger.taken,
        jobs=ledger.total("jobs"),
        seen_score=None,
        unseen_score=None,
        up=ledger.moved["up"],
        down=ledger.moved["down"],
        cloud_up=ledger.moved["cloud_up"],
        cloud_down=ledger.moved["cloud_down"],
        mean_staleness=ledger.mean_staleness,
        utilisation=at_work / (sum(procedure.places) * now_us) if now_us else 0.0,
        wasted=ledger.total("wasted_us") / max(1, ledger.total("busy_us")),
        gini=gini(updates),
        events=procedure.clock.events,
        server_busy=_share(
            sum(line.done_us(now_us) for line in procedure.lines), len(procedure.lines) * now_us
        ),
        in_line=sum(len(line.waiting) for line in procedure.lines),
        at_work=sum(procedure.at_work),
        leaf_versions=ledger.leaf_versions,
        cloud_staleness=ledger.mean_cloud_staleness,
        cloud_busy=0.0 if above is None else _share(above.done_us(now_us), now_us),
        cloud_in_line=0 if above is None else above.in_line,
        joules=ledger.joules,
        places=sum(procedure.places),
        partial=ledger.total("partial"),
    )


def releases(procedure: "Procedure") -> int:
    """Releases of the device with the most, for counting privacy; 0 without privacy.

    If the leaf adds the noise, those of its buffers. If the device adds noise, all its updates count, used or
    not.
    """
    kind = procedure.world.config.privacy.kind
    if kind == "local":
        counts = procedure.ledger.counts
        return int((counts["updates"] + counts["stale"] + counts["failed"]).max())
    return releases_of([server.memory for server in procedure.servers])


def _share(part_us: float, whole_us: int) -> float:
    """One time over another; 0 at the beginning."""
    return part_us / whole_us if whole_us else 0.0
