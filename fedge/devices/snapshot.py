"""Conversion between a procedure at rest and a checkpoint: groups of states, and facts as JSON.

Saved: events ahead, jobs under way with their starting models, servers with the state of their rules, idle
devices, and the ledger. Not saved: random streams, which follow from seed and counts, and results of jobs
under way, which are trained again. An array with several users, such as the version at which many jobs
started, is saved once. Devices' memories have their own files (`fedge.states.memory`); a checkpoint only
saves which versions are valid.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedge.config.registers.option import ConfigError, shown
from fedge.devices.clients.algorithms import ClockAlgorithms, WaitingReply
from fedge.devices.procedure import Procedure
from fedge.devices.restoring import counters_like, model_vector, refuse_foreign_facts
from fedge.devices.servers.arrivals import Arrival, unrestorable_entry
from fedge.devices.servers.server import DeviceServer
from fedge.devices.servers.vectors import Version
from fedge.devices.tiers.parent import Parent, ParentLink
from fedge.devices.timeline.arrival_queue import ServerQueue
from fedge.devices.timeline.clock import Clock
from fedge.devices.timeline.real_arrivals import RealClock
from fedge.devices.work.jobs import Job, restore_job
from fedge.devices.work.routes import OpenRound, Route
from fedge.states.averaging import State
from fedge.states.restore_checks import (
    checked_int,
    checked_list,
    checked_number,
    refuse_other_states,
    refuse_unequal_facts,
)

Groups = dict[str, dict[str, State]]
_VECTORS, _COUNTERS, _MEMORY, _COUNTS, _CHOOSING = "vectors", "counters", "memory", "counts", "choosing"
_PARTS, _EXTRA = "parts", "beside"
_GROUPS = (_VECTORS, _COUNTERS, _MEMORY, _COUNTS, _CHOOSING, _PARTS, _EXTRA)
_ENTRY = "vector"
_FORM = 4  # of the checkpoint; 3 lacked uploads of lost jobs, 2 servers between cloud and leaves


class _SavedArrays:
    """Arrays to save, each once, by number."""

    def __init__(self) -> None:
        self.vectors: dict[str, State] = {}
        self.counters: dict[str, State] = {}
        self._numbers: dict[int, int] = {}

    def vector(self, array: np.ndarray) -> int:
        """Add a vector (P,); returns its number."""
        if id(array) not in self._numbers:  # the id stays unique while `vectors` holds the array
            self._numbers[id(array)] = len(self._numbers)
            self.vectors[str(self._numbers[id(array)])] = {_ENTRY: array}
        return self._numbers[id(array)]

    def counter(self, counters: Mapping[str, np.ndarray]) -> int:
        """Add a model's counters; returns their number, −1 for none."""
        return _add_numbered(self.counters, dict(counters))

    def version(self, version: Version) -> list[int]:
        """Add a version; returns the numbers of its vector and counters."""
        return [self.vector(version.vector), self.counter(version.counters)]


class _LoadedArrays:
    """Arrays of a checkpoint by number; each is copied once, so shared arrays stay shared."""

    def __init__(
        self, groups: Mapping[str, Mapping[str, State]], like: Version,
        put_aside: Callable[[np.ndarray], np.ndarray],
    ) -> None:  # fmt: skip
        self._groups = groups
        self._put_aside = put_aside
        self._like = like
        self._layout = like.layout
        self._vectors: dict[int, np.ndarray] = {}
        self._versions: dict[int, Version] = {}

    def vector(self, number: int, size: int | None = None) -> np.ndarray:
        """A read-only vector of P numbers, (P,), or of `size`."""
        if number not in self._vectors:
            array = np.array(self._groups[_VECTORS][str(number)][_ENTRY])
            model_vector(array, self._layout, len(self._like.vector) if size is None else size)
            array.flags.writeable = False
            self._vectors[number] = self._put_aside(array)
        return self._vectors[number]

    def counters(self, number: int) -> dict[str, np.ndarray]:
        """A model's counters."""
        counters = self._groups[_COUNTERS][str(number)] if number >= 0 else {}
        return {name: np.array(array) for name, array in counters_like(counters, self._like.counters).items()}

    def version(self, numbers: list[int]) -> Version:
        """A version; equal vectors give the same object."""
        vector, counters = numbers
        if vector not in self._versions:
            self._versions[vector] = Version(self._layout, self.vector(vector), self.counters(counters))
        return self._versions[vector]


def snapshot(procedure: Procedure) -> tuple[Groups, dict[str, Any]]:
    """Content of a procedure's checkpoint: group → name → state, and facts as JSON.

    Raises:
        ConfigError: a user's rule keeps something that a checkpoint cannot restore.
    """
    # memories first, because they may be refused
    memories, saved = _server_memories(procedure), _SavedArrays()
    servers = [_server_facts(server, saved) for server in _servers(procedure)]
    facts = {
        "form": _FORM,
        "clock": procedure.clock.facts(),
        "jobs": [_job_facts(job, saved) for job in procedure.jobs.values()],
        "lines": [
            [[_job_facts(job, saved) for job in line.waiting], line.busy_us, line.until_us]
            for line in procedure.lines
        ],
        "servers": servers,
        "above": [_parent_facts(parent, saved) for parent in _parents(procedure)],
        "groups": None if procedure.groups is None else procedure.groups.facts(),
        "choosing": procedure.choosing.facts(),
        "wakes": procedure.wakes,
        "network": procedure.network.facts(),
        "routes": [[number, route.facts()] for number, route in procedure.routes.items()],
        "rounds": [None if open_round is None else open_round.facts() for open_round in procedure.rounds],
        "evaluated": procedure.evaluated,
        "ending": procedure.ending,
        "begun": procedure.planning.begun,
        "moved_before": procedure.moved_before,
        "between_before": procedure.between_before.tolist(),
        "ledger": procedure.ledger.facts(),
    }
    groups: Groups = {
        _VECTORS: saved.vectors,
        _COUNTERS: saved.counters,
        _MEMORY: memories,
        _COUNTS: {_COUNTS: dict(procedure.ledger.counts)},
        _CHOOSING: procedure.choosing.arrays(),
        _PARTS: {},
        _EXTRA: {},
    }
    algorithms = procedure.algorithms
    if algorithms is not None:
        facts["algorithms"] = algorithms.facts()
        facts["waiting"] = [
            [
                [
                    *_arrival_facts(reply.arrival, saved, with_counters=True),
                    _add_numbered(groups[_EXTRA], reply.extra),
                ]
                for reply in waiting
            ]
            for waiting in algorithms.waiting
        ]
        groups[_PARTS] = algorithms.memories()
    return groups, facts


def _job_facts(job: Job, saved: _SavedArrays) -> list[Any]:
    """A job under way as JSON; its starting model is added to `saved`."""
    return [job.facts(), saved.version(job.start)]


def _server_memories(procedure: Procedure) -> dict[str, State]:
    """Arrays kept by servers' rules, by number of the server.

    Raises:
        ConfigError: a user's rule keeps something that a checkpoint cannot restore.
    """
    memories: dict[str, State] = {}
    for index, server in enumerate(_servers(procedure)):
        if problem := unrestorable_entry(server.memory, server.version.vector):
            raise ConfigError(f"{server.rule_label} {problem}; fix it")
        if server.memory.arrays:
            memories[str(index)] = dict(server.memory.arrays)
    return memories


def restore(
    procedure: Procedure, groups: Mapping[str, Mapping[str, State]], facts: Mapping[str, Any]
) -> None:
    """Restore a snapshot into a new procedure of the same world, to continue from there.

    Raises:
        ConfigError: the checkpoint is of a version of Fedge with another form.
        ValueError: the checkpoint is of another run, or damaged.
    """
    if facts.get("form") != _FORM:
        raise ConfigError(
            f"the checkpoint must be of this version's virtual clock (form {_FORM}), but is "
            f"{shown(facts.get('form', 1))}: its content has changed since; start the run again, or "
            "resume it with the version that wrote it (versions in manifest.json)"
        )
    refuse_foreign_facts(procedure, facts)
    groups = {name: groups.get(name, {}) for name in _GROUPS}
    loaded = _LoadedArrays(groups, procedure.servers[0].version, procedure.servers[0].store_vector)
    clock = Clock(**facts["clock"])
    procedure.clock = (
        procedure.clock.continued_from(clock) if isinstance(procedure.clock, RealClock) else clock
    )
    _restore_groups(procedure, facts)
    for index, (server, entry) in enumerate(zip(_servers(procedure), facts["servers"], strict=True)):
        arrays = {name: np.array(array) for name, array in groups[_MEMORY].get(str(index), {}).items()}
        _restore_server(server, entry, arrays, loaded)
    for parent, entry in zip(_parents(procedure), facts["above"], strict=True):
        _restore_parent(parent, entry, loaded)
    jobs = [restore_job(job, loaded.version(start)) for job, start in facts["jobs"]]
    procedure.jobs = {job.number: job for job in jobs}
    procedure.at_work = [0] * len(procedure.servers)
    for job in jobs:
        procedure.at_work[job.server] += 1
    procedure.lines = [
        ServerQueue(
            deque(restore_job(job, loaded.version(start)) for job, start in waiting), busy_us, until_us
        )
        for waiting, busy_us, until_us in facts["lines"]
    ]
    procedure.choosing.restore(facts["choosing"], groups[_CHOOSING])
    procedure.wakes = list(facts["wakes"])
    procedure.network.restore(facts["network"])
    procedure.routes = {number: Route(*route) for number, route in facts["routes"]}
    procedure.rounds = [None if each is None else OpenRound(*each) for each in facts["rounds"]]
    procedure.evaluated, procedure.planning.begun = facts["evaluated"], facts["begun"]
    procedure.ending = facts["ending"]
    procedure.moved_before = dict(facts["moved_before"])
    procedure.between_before = np.array(facts["between_before"], np.int64).reshape(-1, 2)
    procedure.ledger.restore(facts["ledger"], groups[_COUNTS][_COUNTS])
    if procedure.algorithms is not None:
        _restore_algorithms(procedure.algorithms, groups, facts, loaded)
    _refuse_unlike(procedure, groups, facts)


def _refuse_unlike(
    procedure: Procedure, groups: Mapping[str, Mapping[str, State]], facts: Mapping[str, Any]
) -> None:
    """Raise ValueError unless a new snapshot of the restored procedure equals the checkpoint."""
    new_groups, new_facts = snapshot(procedure)
    if isinstance(procedure.clock, RealClock):  # replies are requested again
        new_facts["clock"] = facts["clock"]
    refuse_unequal_facts(facts, new_facts)
    for name in _GROUPS:
        refuse_other_states(groups[name], new_groups[name])


def _restore_algorithms(
    algorithms: ClockAlgorithms, groups: Mapping[str, Mapping[str, State]], facts: Mapping[str, Any],
    loaded: _LoadedArrays,
) -> None:  # fmt: skip
    """Restore the leaf parts of the clients' algorithm."""
    algorithms.restore({name: _copied(state) for name, state in groups[_PARTS].items()}, facts["algorithms"])
    algorithms.waiting = [
        [
            WaitingReply(
                Arrival(
                    checked_int(child, "the device of a reply"),
                    checked_int(staleness, "the staleness of a reply"),
                    loaded.vector(start), loaded.vector(end),
                    checked_number(weight, "the weight of a reply", 0),
                    loaded.counters(counters), checked_number(share, "the share of a reply", 0),
                ),
                _copied(groups[_EXTRA].get(str(extra), {})),
            )
            for child, staleness, start, end, weight, share, counters, extra in waiting
        ]
        for waiting in facts["waiting"]
    ]  # fmt: skip


def _copied(state: State) -> dict[str, np.ndarray]:
    """A copy of a state in memory, independent of the checkpoint's file."""
    return {name: np.array(array) for name, array in state.items()}


def _add_numbered(states: dict[str, State], state: State) -> int:
    """Add a state to others; returns its number, −1 for an empty one."""
    if not state:
        return -1
    states[str(len(states))] = state
    return len(states) - 1


def _servers(procedure: Procedure) -> list[DeviceServer]:
    """All servers: leaves first, then those above them."""
    return [*procedure.servers, *(server for parent in _parents(procedure) for server in parent.servers)]


def _parents(procedure: Procedure) -> list[Parent]:
    """Servers with servers below them."""
    return [] if procedure.above is None else procedure.above.parents


def _restore_groups(procedure: Procedure, facts: Mapping[str, Any]) -> None:
    """Give the cloud one server per saved group."""
    if procedure.groups is not None and facts.get("groups") is not None:
        procedure.groups.restore(facts["groups"])
    cloud = procedure.cloud
    if cloud is not None:
        labels = facts["above"][0]["labels"]
        template, cloud.labels = cloud.servers[0], list(labels)
        cloud.servers = [
            template.like(template.version, len(cloud.group_members(group)), group)
            for group in range(max(labels) + 1)
        ]


def _parent_facts(parent: Parent, saved: _SavedArrays) -> dict[str, Any]:
    """The links below a server as JSON; their models are added to `saved`."""
    links = [
        [
            saved.version(link.base),
            link.base_number,
            link.versions_made,
            None if link.sent is None else saved.version(link.sent),
            None if link.answer is None else [saved.version(link.answer[0]), link.answer[1]],
            link.exchange,
        ]
        for link in parent.links
    ]
    lines = [[list(line.waiting), line.busy_us, line.until_us] for line in parent.lines]
    return {
        "links": links, "waiting": parent.waiting, "due": parent.due, "labels": parent.labels, "lines": lines,
        "dissolved_us": parent.dissolved_us,
        **({"dissolved_versions": parent.dissolved_versions} if parent.dissolved_versions else {}),
    }  # fmt: skip


def _restore_parent(parent: Parent, facts: Mapping[str, Any], loaded: _LoadedArrays) -> None:
    """Restore the links below a server."""
    parent.links = [
        ParentLink(
            loaded.version(base), base_number, made,
            None if sent is None else loaded.version(sent),
            None if answer is None else (loaded.version(answer[0]), answer[1]), exchange,
        )
        for base, base_number, made, sent, answer, exchange in facts["links"]
    ]  # fmt: skip
    parent.due = list(facts["due"])
    parent.waiting = [list(waiting) for waiting in facts["waiting"]]
    parent.lines = [
        ServerQueue(deque(waiting), busy_us, until_us) for waiting, busy_us, until_us in facts["lines"]
    ]
    parent.dissolved_us = facts["dissolved_us"]
    parent.dissolved_versions = facts.get("dissolved_versions", 0)


def _server_facts(server: DeviceServer, saved: _SavedArrays) -> dict[str, Any]:
    """A server as JSON; its arrays are added to `saved`."""
    waiting = server.counters
    return {
        "version": saved.version(server.version),
        "number": server.number,
        "range": None if server.range is None else [saved.vector(array) for array in server.range],
        "counters": None if waiting is None else [waiting[0], saved.counter(waiting[1])],
        "buffer": [_arrival_facts(arrival, saved) for arrival in server.memory.buffer],
    }  # fmt: skip


def _arrival_facts(arrival: Arrival, saved: _SavedArrays, with_counters: bool = False) -> list[Any]:
    """An arrival as JSON; its arrays are added to `saved`, with the counters if `with_counters`."""
    entries = [
        arrival.child, arrival.staleness, saved.vector(arrival.start), saved.vector(arrival.end),
        arrival.weight,
    ]  # fmt: skip
    if with_counters:
        return [*entries, arrival.share, saved.counter(arrival.counters)]
    return [*entries, *([arrival.share] if arrival.share < 1 else [])]


def _restore_server(
    server: DeviceServer, facts: Mapping[str, Any], arrays: dict[str, np.ndarray], loaded: _LoadedArrays
) -> None:
    """Restore a server."""
    buffer = [
        Arrival(
            checked_int(child, "the child of an arrival"),
            checked_int(staleness, "the staleness of an arrival"),
            loaded.vector(start), loaded.vector(end),
            checked_number(weight, "the weight of an arrival", 0),
            share=checked_number(share[0], "the share of an arrival", 0) if share else 1.0,
        )
        for child, staleness, start, end, weight, *share in facts["buffer"]
    ]  # fmt: skip
    waiting, server.range = facts["counters"], None
    if facts["range"] is not None:
        low, high = checked_list(facts["range"], "a range", 2)
        variances = len(server.version.layout.variances)
        server.range = loaded.vector(low, variances), loaded.vector(high, variances)
    server.restore(
        loaded.version(facts["version"]),
        checked_int(facts["number"], "versions of a server"),
        replace(server.memory, buffer=buffer, arrays=arrays),
        None if waiting is None else (checked_int(waiting[0], "a device"), loaded.counters(waiting[1])),
    )
