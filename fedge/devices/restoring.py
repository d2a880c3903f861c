"""Checks of a checkpoint of the virtual clock, before and after a procedure is restored from it.

Before, every number must be in range: devices at their own leaf, servers of this tree, no times before the
checkpoint, and an end ahead for each job under way. After, a new snapshot must equal the checkpoint
(`fedge.states.restore_checks`). Every check raises a ValueError with a one-line message.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

import numpy as np

from fedge.devices.procedure import Procedure
from fedge.devices.servers.vectors import Layout
from fedge.devices.timeline.clock import Kind
from fedge.devices.timeline.real_arrivals import RealClock
from fedge.devices.work.jobs import Fate
from fedge.devices.work.routes import BACK
from fedge.states.averaging import State
from fedge.states.memory import version_from_facts
from fedge.states.restore_checks import (
    MOST,
    checked_bool,
    checked_choice,
    checked_int,
    checked_ints,
    checked_list,
    checked_number,
    finite,
    form,
    group_labels,
)

_WHOLE_JOB, _STEPS = 11, 2  # entries in `Job.facts`
_TIMES = slice(6, 10)  # among them
_LATEST_US = 2**63  # unknown times and "never" are 2^61 and 2^62, far beyond any count
_ABOVE = (Kind.SEND_BETWEEN, Kind.UP, Kind.DOWN, Kind.SERVED_ABOVE)
_AT_LEAVES = (Kind.SERVED, Kind.ROUND_END, Kind.START)
_AT_DEVICES = (Kind.SEND, Kind.ARRIVE)


def refuse_foreign_facts(procedure: Procedure, facts: Mapping[str, Any]) -> None:
    """Refuse facts that no procedure of this world can have written.

    Args:
        procedure: the procedure, before it is restored.
        facts: JSON of its checkpoint.
    """
    leaves, devices = len(procedure.servers), procedure.world.population.devices_by_leaf()
    parents = [] if procedure.above is None else procedure.above.parents
    nodes = sum(len(parent.nodes) for parent in parents)
    jobs_begun = checked_int(facts["begun"], "jobs begun")
    checked_int(facts["evaluated"], "evaluations")
    checked_choice(facts["ending"], "the reason of an end")
    jobs = [_checked_job(job, devices, jobs_begun) for job, _ in checked_list(facts["jobs"], "jobs", width=2)]
    _refuse_other_events(procedure, facts, jobs, (leaves, nodes, len(parents)))
    for line in checked_list(facts["lines"], "lines", leaves, 3):
        _refuse_impossible_line(line)
        for job, _ in checked_list(line[0], "jobs in a line", width=2):
            _checked_job(job, devices, jobs_begun)
    _refuse_other_rosters(facts["choosing"], devices, [job[1] for job in jobs])
    checked_ints(facts["wakes"], "looks of leaves for devices", leaves, -1, _LATEST_US)
    _refuse_other_transfers(procedure, facts, {job[0] for job in jobs})
    if procedure.groups is not None:
        group_labels(facts["groups"]["labels"], "groups", len(procedure.groups.labels))
    for parent, links in zip(
        parents, checked_list(facts["above"], "servers above", len(parents)), strict=True
    ):
        _refuse_other_links(links, len(parent.links))
    for name in procedure.moved_before:
        checked_int(facts["moved_before"][name], f"bytes {name}")
    _require_pairs(facts["between_before"], "bytes between servers", nodes)
    _refuse_other_ledgers(facts["ledger"], {device for group in devices for device in group}, nodes)


def _checked_job(
    facts: Sequence[Any], devices: Sequence[Sequence[int]], jobs_begun: int
) -> tuple[int, int, int, int]:
    """Number, device, leaf and end of a job."""
    names = ("number", "device", "leaf", "attempt", "period", "version", "begin", "end", "way", "training")
    if len(facts) not in (_WHOLE_JOB, _WHOLE_JOB + _STEPS, _WHOLE_JOB + _STEPS + 3):
        raise ValueError(f"a job must have {_WHOLE_JOB} facts or more, but has {len(facts)}")
    for name, value in zip(names, facts, strict=False):
        limit = _LATEST_US if name in names[_TIMES] else MOST
        checked_int(value, f"the {name} of a job", below=limit)
    count, device, leaf, _, _, _, began, end = facts[:8]
    checked_int(count, "the number of a job", 1, jobs_begun + 1)
    checked_int(leaf, "the leaf of a job", 0, len(devices))
    if device not in devices[leaf] or end < began:
        raise ValueError(
            f"job {count} must be of a device of leaf {leaf}, and end after its begin, but is not"
        )
    checked_choice(facts[10], "the fate of a job", get_args(Fate))
    steps, *memory_facts = facts[_WHOLE_JOB : _WHOLE_JOB + _STEPS], *facts[_WHOLE_JOB + _STEPS :]
    if steps and not 0 <= checked_int(steps[0], "steps of a job") <= checked_int(
        steps[1], "all steps of a job"
    ):
        raise ValueError(f"job {count} must have taken at most {steps[1]} steps, but took {steps[0]}")
    if memory_facts:
        version_from_facts(memory_facts)
    return count, device, leaf, end


def _require_time(value: Any, label: str, least: int = 0) -> int:
    """A virtual time in microseconds."""
    return checked_int(value, label, least, _LATEST_US)


def _refuse_other_events(
    procedure: Procedure, facts: Mapping[str, Any], jobs: Sequence[tuple[int, int, int, int]],
    counts: tuple[int, int, int],
) -> None:  # fmt: skip
    """Refuse events of unknown subjects, events in the past, and ends without a job."""
    clock, (leaves, nodes, parents) = facts["clock"], counts
    now_us = _require_time(clock["now_us"], "the time of a checkpoint")
    checked_int(clock["events"], "events")
    devices = {
        device for leaf_devices in procedure.world.population.devices_by_leaf() for device in leaf_devices
    }
    ends, evaluations = [], 0
    for time_us, kind, subject, count in checked_list(clock["ahead"], "events ahead", width=4):
        _require_time(time_us, "the time of an event", now_us)
        checked_int(count, "the number of an event")
        if kind in _AT_DEVICES:
            is_valid = type(subject) is int and subject in devices
        else:
            subjects = {Kind.SENT: len(procedure.network.links), Kind.LEAVE: parents, Kind.EVALUATE: 1}
            count_limit = leaves if kind in _AT_LEAVES else nodes if kind in _ABOVE else subjects.get(kind, 0)
            is_valid = type(subject) is int and 0 <= subject < count_limit
        if not is_valid:
            raise ValueError(
                f"events must be of this run's servers and devices, but one is of {subject!r:.40}"
            )
        if kind == Kind.ARRIVE:
            ends.append((count, subject, time_us))
        if kind == Kind.EVALUATE:
            evaluations += 1
            least = facts["evaluated"] + (not facts["ending"])  # an early end has its own
            checked_int(count, "the number of the next evaluation", least, facts["evaluated"] + 2)
    if not evaluations:
        raise ValueError("an evaluation must be ahead, but is missing")
    has_ends = not procedure.network.at_leaves and not isinstance(procedure.clock, RealClock)
    if has_ends and sorted(ends) != sorted((count, device, end) for count, device, _, end in jobs):
        raise ValueError("each job under way must end once, at its time, but does not")


def _refuse_other_rosters(
    facts: Mapping[str, Any], devices: Sequence[Sequence[int]], busy: Iterable[int]
) -> None:
    """Refuse idle devices of another leaf, or with a job."""
    busy_devices = set(busy)
    for name in ("picks", "given"):
        checked_ints(facts[name], f"{name} of leaves", len(devices))
    for roster, leaf_devices in zip(
        checked_list(facts["rosters"], "rosters", len(devices)), devices, strict=True
    ):
        members = set(leaf_devices)
        idle = [
            *checked_ints(roster["there"], "devices there"),
            *checked_ints(roster["away"], "devices away"),
        ]
        if sorted(idle) != sorted(members - busy_devices):
            raise ValueError(
                "the idle devices of a leaf must be those of its devices without work, but are not"
            )
        for time_us, device in checked_list(roster["changes"], "comings and goings", width=2):
            _require_time(time_us, "the time at which a device comes or goes")
            if type(device) is not int or device not in members:
                raise ValueError(f"device {device!r:.40} must be of the leaf at which it comes, but is not")


def _refuse_other_transfers(procedure: Procedure, facts: Mapping[str, Any], jobs: set[int]) -> None:
    """Refuse impossible transfers over shared links, routes of jobs, and open rounds."""
    links = procedure.network.links
    for changes, now_us, keys, *arrays in checked_list(facts["network"], "shared links", len(links), 7):
        checked_int(changes, "changes of a link")
        _require_time(now_us, "the time of a link")
        count = len(checked_ints(keys, "transfers"))
        for values, least in zip(arrays, (1, 0, 1, 0), strict=True):
            checked_ints(values, "caps, bytes, rates and ends of transfers", count, least, _LATEST_US)
    routes = checked_list(facts["routes"], "ways of jobs", len(jobs) if procedure.network.at_leaves else 0, 2)
    for job, (down, train, up, back, cut, lost_as, leg) in routes:
        for time_us in (down, train, up, back, 0 if cut is None else cut):
            _require_time(time_us, "a time of a way")
        checked_choice(lost_as, "the outcome of a job", get_args(Fate))
        checked_int(leg, "the part of a way", 0, BACK + 1)
        if job not in jobs:
            raise ValueError(f"a way must be of a job under way, but is of {job!r:.40}")
    for open_round in checked_list(facts["rounds"], "open rounds", len(procedure.servers)):
        if open_round is not None:
            *counts, is_ending = checked_list(open_round, "an open round", 5)
            checked_ints(counts, "job, goal and results of an open round")
            checked_bool(is_ending, "the end of a round")


def _refuse_other_links(facts: Mapping[str, Any], children: int) -> None:
    """Refuse links between a server and others than its children."""
    groups = max(group_labels(facts["labels"], "groups of children", children).tolist(), default=0) + 1
    for _, base_number, made, _, answer, exchange in checked_list(facts["links"], "links", children, 6):
        checked_ints([base_number, made, exchange], "versions and exchanges of a link")
        if answer is not None:
            checked_int(checked_list(answer, "an answer", 2)[1], "the version of an answer")
    for waiting in checked_list(facts["waiting"], "models in buffers", groups):
        checked_ints(waiting, "children in a buffer", below=children)
    checked_ints(facts["due"], "children to be answered", below=children)
    for line in checked_list(facts["lines"], "lines", groups, 3):
        _refuse_impossible_line(line)
        checked_ints(line[0], "children in a line", below=children)
    _require_time(facts["dissolved_us"], "the time of former groups")
    checked_int(facts.get("dissolved_versions", 0), "versions of former groups")


def _refuse_impossible_line(facts: Sequence[Any]) -> None:
    """Refuse impossible times of a queue."""
    _require_time(facts[1], "the time for which a server was busy")
    _require_time(facts[2], "the time until which a server is busy")


def _require_pairs(facts: Any, label: str, count: int) -> None:
    """Refuse anything but `count` pairs of whole numbers."""
    for pair in checked_list(facts, label, count, 2):
        checked_ints(pair, label)


def _refuse_other_ledgers(facts: Mapping[str, Any], devices: set[int], nodes: int) -> None:
    """Refuse ledgers with negative numbers, or with devices of another run."""
    for name in ("staleness", "cloud_staleness"):
        _require_pairs(facts[name], name, len(checked_list(facts[name], name)))
    checked_int(facts["leaf_versions"], "versions of leaves")
    checked_number(facts["joules"], "joules", 0)
    for name, moved in facts["moved"].items():
        checked_int(moved, f"bytes {name}")
    _require_pairs(facts["between"], "bytes between servers", nodes)
    for device, loss in checked_list(facts["losses"], "losses", width=2):
        checked_number(loss, "the loss of a job")
        _require_known(device, devices)
    for device, kind, detail in checked_list(facts["failures"], "failures", width=3):
        checked_choice(kind, "a failure")
        checked_choice(detail, "the detail of a failure")
        _require_known(device, devices)


def _require_known(device: Any, devices: set[int]) -> None:
    """Refuse a device of another run."""
    if type(device) is not int or device not in devices:
        raise ValueError(f"the books must be of this run's devices, but are of {device!r:.40}")


def model_vector(array: np.ndarray, layout: Layout, size: int) -> np.ndarray:
    """A model's vector (P,), checked to be finite."""
    form(array, "a model", layout.dtype.type, (size,))
    finite({"numbers": array}, "a model")
    return array


def counters_like(counters: State, like: State) -> State:
    """A model's counters, checked to have another's entries, shapes and dtypes."""
    for name in like.keys() | counters.keys():
        if name not in counters or name not in like:
            raise ValueError(f"counters must be those of the model, but differ in {name}")
        form(counters[name], f"the counter {name}", like[name].dtype.type, like[name].shape)
    return counters
