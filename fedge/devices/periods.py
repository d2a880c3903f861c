"""End of a period: clients evaluate their served models; if due, the cloud's children are compared."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fedge.cloud.step import CloudStep
from fedge.devices.clients.results import Period, clock_server_rows, mean_score, round_result
from fedge.devices.servers.private_buffer import releases_of
from fedge.devices.servers.vectors import Version
from fedge.devices.state import ClockState
from fedge.devices.timeline.clock import SECOND_US
from fedge.devices.work.ledger import gini
from fedge.exchange.evaluate import Evaluation
from fedge.exchange.failure import Failure
from fedge.rounds.measurements.moment import VersionRow
from fedge.rounds.measurements.results import ModelResult, RoundResult, ServerResult
from fedge.tasks.configured import task_of


def end_period(state: ClockState) -> tuple[RoundResult, VersionRow]:
    """Evaluate the current models, and begin the next period; returns the rows of the ended one."""
    world, ledger = state.world, state.ledger
    started = world.clock.began
    world.clock.lap("configure")
    step = _compare(state)
    tops = [top.version for top in state.tops]

    def served(client: int) -> Version:
        return tops[world.population.leaf_of[client]]

    evaluated, failures = world.evaluation.evaluate(served, state.evaluated)
    validated, validation_failures = world.evaluation.validate(served, state.evaluated)
    models: list[ModelResult] = []
    model_failures: dict[int, Failure] = {}
    if state.algorithms is not None:
        models, model_failures = world.evaluation.own_models(served, world.population, state.evaluated)
    for client, failure in (*failures.items(), *validation_failures.items(), *model_failures.items()):
        ledger.failures.setdefault(client, failure)
    world.clock.lap("wait")
    moved = {name: count - state.moved_before[name] for name, count in ledger.moved.items()}
    period = Period(
        state.evaluated, ledger.losses, ledger.failures, moved, started, task_of(world.config.train),
        validated,
    )  # fmt: skip
    labels = [0] if state.above is None else state.above.labels()
    row = replace(
        moment(state),
        seen_score=mean_score(world.population, evaluated, unseen=False),
        unseen_score=mean_score(world.population, evaluated, unseen=True),
    )
    result = replace(
        round_result(world.population, period, evaluated, labels),
        cloud=step,
        models=models,
        moment=row,
        releases=releases(state),
        servers=_server_rows(state, evaluated),
        tier_names=world.config.hierarchy.tier_names,
    )
    state.moved_before, state.between_before = dict(ledger.moved), ledger.between.copy()
    ledger.begin_period()
    return result, row


def _compare(state: ClockState) -> CloudStep | None:
    """Compare the cloud's children (leaves or regions) if due, and share models accordingly."""
    groups, above, world = state.groups, state.above, state.world
    evaluation, ledger = state.evaluated, state.ledger
    if groups is None or above is None or not groups.is_due(evaluation):
        return None
    population = world.population.regrouped(above.branch_of, len(above.branches))
    if groups.asks_updates:
        assert world.probe is not None
        probed = world.probe.updates(population, evaluation)
        ledger.moved["down"] += probed.downlink_bytes
        ledger.moved["up"] += probed.uplink_bytes
        for device, failure in probed.failures.items():
            ledger.failures.setdefault(device, failure)
        world.clock.lap("wait")
        return _share_models(
            state, groups.test(probed.likeness, evaluation, probed.downlink_bytes + probed.uplink_bytes)
        )
    answers, models = None, [server.version for server in above.branches]
    if groups.asks_losses:
        answers, failures = world.evaluation.cross_losses(models, population, evaluation)
        for client, failure in failures.items():
            ledger.failures.setdefault(client, failure)
        world.clock.lap("wait")
    states = [model.state for model in models]
    return _share_models(state, groups.compare(states, above.cloud.weights, answers, evaluation))


def _share_models(state: ClockState, step: CloudStep) -> CloudStep:
    """Share models between the cloud's children according to a comparison."""
    above = state.above
    assert above is not None
    if step.labels.tolist() != above.cloud.labels:
        above.cloud.regroup(step.labels.tolist(), above.branches, state.clock, state.ledger)
    state.world.clock.lap("cluster")
    return step


def _server_rows(state: ClockState, evaluated: Mapping[int, Evaluation]) -> list[ServerResult]:
    """Rows of all servers of a tree with regions; empty otherwise, as the leaves' tables say all."""
    above = state.above
    if above is None or len(above.parents) < 2:
        return []
    moved = (state.ledger.between - state.between_before).tolist()
    return clock_server_rows(state.world.population, evaluated, above.paths, above.labels(), moved)


def moment(state: ClockState) -> VersionRow:
    """The row of the current moment, without accuracies."""
    ledger, now_us = state.ledger, state.clock.now_us
    busy_us = ledger.total("busy_us") + state.unrecorded_us.total()
    updates = ledger.counts["updates"][np.fromiter(sorted(state.world.population.windows), np.int64)]
    above = state.above
    return VersionRow(
        evaluation=state.evaluated,
        virtual_s=now_us / SECOND_US,
        version=state.versions,
        updates=ledger.taken,
        jobs=ledger.total("jobs"),
        seen_score=None,
        unseen_score=None,
        up=ledger.moved["up"],
        down=ledger.moved["down"],
        cloud_up=ledger.moved["cloud_up"],
        cloud_down=ledger.moved["cloud_down"],
        mean_staleness=ledger.mean_staleness,
        utilisation=busy_us / (sum(state.places) * now_us) if now_us else 0.0,
        wasted=ledger.total("wasted_us") / max(1, ledger.total("busy_us")),
        gini=gini(updates),
        events=state.clock.events,
        server_busy=_ratio(sum(line.done_us(now_us) for line in state.lines), len(state.lines) * now_us),
        in_line=sum(len(line.waiting) for line in state.lines),
        at_work=sum(state.at_work),
        leaf_versions=ledger.leaf_versions,
        cloud_staleness=ledger.mean_cloud_staleness,
        cloud_busy=0.0 if above is None else _ratio(above.done_us(now_us), now_us),
        cloud_in_line=0 if above is None else above.queued_models,
        joules=ledger.joules,
        places=sum(state.places),
        partial=ledger.total("partial"),
    )


def releases(state: ClockState) -> int:
    """Largest number of releases by one device, for privacy accounting; 0 without privacy.

    If the leaf adds the noise, releases are those of its buffers. If devices add it, every update counts once
    a device has begun to send it, whether used or lost.
    """
    if state.world.config.privacy.kind == "local":
        uploads = state.ledger.counts["uploads"].copy()
        for job in state.pending_jobs:
            uploads[job.device] += job.trained_us <= state.clock.now_us
        return int(uploads.max())
    return releases_of([server.memory for server in state.servers])


def _ratio(part_us: float, whole_us: int) -> float:
    """Ratio of one time to another; 0 at the beginning."""
    return part_us / whole_us if whole_us else 0.0
