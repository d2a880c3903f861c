"""Memories of devices, and leaf parts, on the virtual clock: small worlds computed by hand."""

import random
from typing import ClassVar

import numpy as np
import pytest
from daily import daily
from remembering import Adding, Halfway, Remembering
from virtual_world import REVIVED, carried_out, config_of, outcome, stopped_and_gone_on

from fedge.algorithm.leaf_part import LeafPart
from fedge.devices.clients.algorithms import versions_in_use
from fedge.devices.clients.results import Population
from fedge.devices.population.fleet import Fleet
from fedge.devices.servers.server import DeviceServer
from fedge.devices.servers.vectors import version_of
from fedge.devices.work.jobs import Job
from fedge.states.memory import KeptVersion, read_memory

ZERO = {"w": np.zeros(2, np.float32), "steps": np.array(0)}
NOTHING, ENDLESS = np.zeros(2), np.full(2, np.inf)
APART = Fleet(NOTHING, np.array([1.0, 2.0]), ENDLESS, ENDLESS, NOTHING, NOTHING)  # 1 s and 2 s a job
ALIKE = Fleet(NOTHING, np.ones(2), ENDLESS, ENDLESS, NOTHING, NOTHING)


class Beyond(LeafPart):
    """As far beyond what the rule has made as that is from the leaf's model."""

    reads_replies: ClassVar[bool] = False

    def combine(self, leaf):
        return {**leaf.mean, "w": 2 * leaf.mean["w"] - leaf.model["w"]}


def mixed(**changes):
    """Two devices at work; the model becomes the mean of itself and of what arrives."""
    given = {"asynchrony__rule": "fedasync", "asynchrony__evaluate_every_s": 3.5, "num_server_rounds": 2}
    arguments = '{"alpha": 0.5, "staleness": "constant"}'
    return config_of(**{**given, "asynchrony__rule_args": arguments, "asynchrony__concurrency": 2, **changes})


def rounds(**changes):
    """Two devices in three rounds, of a second each."""
    given = {"asynchrony__rule": "fedavg", "asynchrony__evaluate_every_s": 1.0}
    return config_of(**{**given, "asynchrony__concurrency": 2, **changes})


def in_world(method, of, fleet=APART, **where):
    """(procedure, noted) of such a run of two devices."""
    return carried_out(of, 2, fleet=fleet, start=ZERO, method=method, **where)


def personal(noted):
    """Per evaluation device → the number of the model of its own."""
    return [{one.client: one.test_loss for one in result.models} for result in noted.results]


def served(noted):
    """Per evaluation the number of the served model."""
    return [result.clients[0].test_loss for result in noted.results]


def versions(procedure):
    """Device → version of its memory."""
    return {device: kept.leaf_round for device, kept in procedure.algorithms.kept_memories().items()}


def test_each_job_goes_on_from_the_memory_of_the_device_s_last_one(tmp_path):
    """By hand: v = (v + w) / 2 of the w that the job began with, and w = (w + w_job + 1 + d) / 2 as it ends.

    At 3.5 s device 0 has ended jobs from w = 0, 0.5 and 1.5, device 1 one from 0; at 7 s seven and three.
    """
    procedure, noted = in_world(Remembering(tmp_path), mixed())
    assert served(noted) == [2.0, 5.0]
    assert personal(noted) == [{0: 0.875, 1: 0.0}, {0: 3.6796875, 1: 1.875}]
    assert versions(procedure) == {0: 7, 1: 3}
    kept = procedure.algorithms.kept_memories()[1]
    assert read_memory(tmp_path, 1, kept)["v"].tolist() == [1.875, 1.875]
    assert {(row.client, row.model, row.leaf) for row in noted.results[0].models} == {
        (0, "personal", 0), (1, "personal", 0)
    }  # fmt: skip


def test_a_job_that_fails_leaves_the_memory_as_it_was(tmp_path):
    """Device 0's second job fails: its third goes on from the first, v = (0 + 1.25) / 2."""
    method = Remembering(tmp_path, fails={(0, 2)})
    procedure, noted = in_world(method, mixed(num_server_rounds=1))
    assert (served(noted), personal(noted)) == ([1.75], [{0: 0.625, 1: 0.0}])
    assert versions(procedure) == {0: 3, 1: 1}


def test_a_job_that_is_too_stale_leaves_no_memory(tmp_path):
    """Device 1 comes two versions late: it has none yet, and would begin with the served model's number."""
    of = mixed(num_server_rounds=1, asynchrony__max_staleness=1)
    procedure, noted = in_world(Remembering(tmp_path), of)
    assert [row.outcome for row in noted.jobs if row.job.device == 1] == ["stale"]
    assert (served(noted), personal(noted)) == ([1.5], [{0: 0.625, 1: 1.5}])
    assert versions(procedure) == {0: 3}


def test_a_lost_job_leaves_none_either(tmp_path):
    """A timeout of 1.5 s is too short for device 1."""
    procedure, noted = in_world(Remembering(tmp_path), mixed(asynchrony__timeout_s=1.5))
    assert {row.outcome for row in noted.jobs if row.job.device == 1} == {"late"}
    assert versions(procedure) == {0: 7}


def test_entries_that_are_not_sent_are_those_of_the_start(tmp_path):
    """The counter of steps stays at the device."""
    procedure, noted = in_world(Remembering(tmp_path, only_w=True), mixed())
    whole, _ = in_world(Remembering(tmp_path), mixed())
    assert served(noted) == [2.0, 5.0]
    assert procedure.served.counters["steps"] == 0
    assert whole.served.counters["steps"] > 0
    assert procedure.ledger.moved["up"] == 10 * 8


def test_a_leaf_part_combines_the_replies_of_each_round(tmp_path):
    """By hand: w = mean + m; m grows by the means 1.5, 2.5, 3.5 of devices' numbers, and is sent down."""
    procedure, noted = in_world(Remembering(tmp_path, Adding), rounds(), ALIKE)
    assert served(noted) == [3.0, 10.0, 23.0]
    assert procedure.algorithms.leaves[0].memory["m"] == 7.5
    assert procedure.algorithms.waiting == [[]]
    assert procedure.ledger.moved == {
        "up": 6 * (2 * 4 + 8 + 8), "down": 6 * (2 * 4 + 8 + 8), "cloud_up": 0, "cloud_down": 0
    }  # fmt: skip


@pytest.mark.parametrize("told", [np.ones(2), np.nan, np.array(1, np.int64), -100.0])
def test_a_lie_beside_the_model_loses_only_its_job(tmp_path, told):
    """Of another shape, not finite, of another dtype, and one that the leaf part raises on: m = 1.5 + 2."""
    lying = in_world(Remembering(tmp_path / "l", Adding, told={(1, 2): told}), rounds(), ALIKE)
    failing = in_world(Remembering(tmp_path / "f", Adding, fails={(1, 2)}), rounds(), ALIKE)
    assert served(lying[1])[:2] == [3.0, 9.0]
    assert outcome(*lying) == outcome(*failing)
    assert versions(lying[0]) == versions(failing[0]) == {0: 3, 1: 3}
    assert [row.outcome for row in lying[1].jobs if row.job.device == 1][:2] == ["updates", "failed"]


def test_a_leaf_part_of_the_leaf_s_model_alone_works_without_rounds(tmp_path):
    """Each arrival moves the model a quarter of the way: 0, ¼, ½, then ½ + (2 − ½) / 4 = ⅞, …"""
    _, noted = in_world(Remembering(tmp_path, Halfway), mixed(num_server_rounds=1))
    w = [0.0]
    for start in (0, 1):  # device 0 from w = 0, then from ¼
        w.append(w[-1] + (w[start] + 1 - w[-1]) / 4)
    w.append(w[-1] + (2 - w[-1]) / 4)  # device 1, from 0
    w.append(w[-1] + (w[3] + 1 - w[-1]) / 4)
    assert served(noted) == [w[-1]]


@pytest.mark.parametrize(("made", "kept"), [(1.0, 3.0), (6.0, 4.5)])
@pytest.mark.parametrize("variances", [(), ("w",)])
def test_a_leaf_part_cannot_make_a_variance_negative(tmp_path, made, kept, variances, caplog):
    """From 3 to 1, and beyond by as much to −1: the leaf keeps its model, 3; halfway to 6 is 4.5."""
    part = Halfway if made > 3 else Beyond
    algorithms = Remembering(tmp_path, part).at_leaves(Population({0: 0}, {0: 1}, frozenset(), 1), ZERO)
    before = version_of({"w": np.full(2, 3, np.float32), "steps": np.array(0)}, variances)
    server = DeviceServer(before, None, {}, 1)
    server.change(np.full(2, made, np.float32), {})
    algorithms.combine(0, before, server, 1)
    assert server.version.state["w"].tolist() == [kept if variances or made > 3 else -1.0] * 2
    assert ("entry 'w', a variance, would be negative" in caplog.text) == (bool(variances) and made < 3)


SMALL = {
    "asynchrony__concurrency": 6, "asynchrony__evaluate_every_s": 0.4, "devices__dropout": 0.1,
    "num_server_rounds": 8, "devices__availability": "markov",
    "devices__availability_args": '{"on_s": 0.5, "off_s": 0.1}',
}  # fmt: skip
RULES = {
    "fedavg": "", "fedasync": "", "fedbuff": '{"buffer": 4}', "ca2fl": '{"buffer": 4}',
    "fedfa": '{"buffer": 4}', "fedrevive": REVIVED,
}  # fmt: skip
FAILS = {(1, 1), (4, 2)}
SHARED = {"asynchrony__leaf_link_megabytes_s": 0.001}


def remembered(procedure, noted):
    """Outcome of a run with memories; models of the last evaluation."""
    algorithms = procedure.algorithms
    return {
        **outcome(procedure, noted),
        "memories": algorithms.kept_memories(),
        "parts": [float(leaf.memory.get("m", 0)) for leaf in algorithms.leaves],
        "models": noted.results[-1].models,
    }


CASES = [
    *((rule, {}, 1) for rule in RULES), ("fedavg", {"asynchrony__over_selection": 1.5}, 1),
    ("fedbuff", SHARED, 1), ("fedavg", {"asynchrony__cloud_delay_s": 0.1}, 3),
    ("fedbuff", {"asynchrony__cloud_delay_s": 0.1}, 3),
]  # fmt: skip


@pytest.mark.parametrize("case", daily(CASES, [CASES[0]]))
def test_memories_are_the_same_by_any_number_of_workers_and_after_a_stop(case, tmp_path):
    """With dropouts, failures and busy servers; stopped after random events, among files that are undone."""
    rule, more, leaves = case
    of = config_of(
        asynchrony__rule=rule, asynchrony__rule_args=RULES[rule],
        **{**SMALL, "hierarchy__num_servers": leaves, **more},
    )  # fmt: skip
    part = {"part": Adding} if rule == "fedavg" else {}
    method = Remembering(tmp_path / "one", fails=FAILS, **part)
    procedure, noted = carried_out(of, 12, method=method)
    whole, last = remembered(procedure, noted), procedure.clock.events
    assert max(kept.leaf_round for kept in whole["memories"].values()) > 1
    for workers in (2, 4):
        method = Remembering(tmp_path / str(workers), fails=FAILS, **part)
        assert remembered(*carried_out(of, 12, workers=workers, method=method)) == whole
    for events in random.Random(rule).sample(range(1, last), 4):
        method = Remembering(tmp_path / "stopped", fails=FAILS, **part)
        (tmp_path / f"checkpoint-{events}").mkdir()
        found = stopped_and_gone_on(of, 12, events, tmp_path / f"checkpoint-{events}", method=method)
        assert remembered(*found) == whole, f"after {events} of {last} events"


def test_versions_in_use_are_those_that_jobs_read_and_those_that_they_make():
    start = version_of({"w": np.zeros(1, np.float32)})
    first = Job(1, 5, 0, 1, 1, 0, 0, 9, 0, 9, "trains", start)
    second = Job(2, 6, 0, 4, 1, 0, 0, 9, 0, 9, "trains", start, kept=KeptVersion(2, "", 0))
    assert versions_in_use([first, second]) == ({(6, 2)}, {(5, 1), (6, 4)})
