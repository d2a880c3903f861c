"""The loop: the same bits for any number of workers, and what must hold of any fleet."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_world import REVIVED, START, carried_out, config_of, outcome, world

from fedge.config.registers.parts import SERVER_RULES
from fedge.devices.population.fleet import Fleet
from fedge.states.averaging import weighted_mean

RULES = [name for name in SERVER_RULES.names if name != "off"]
SMALL = {"asynchrony__concurrency": 5, "asynchrony__evaluate_every_s": 1.5, "devices__dropout": 0.1}
ARGUMENTS = {
    "fedbuff": '{"buffer": 3}',
    "ca2fl": '{"buffer": 3}',
    "fedfa": '{"buffer": 3}',
    "fedrevive": REVIVED.replace("{", '{"buffer": 2, '),
}
FAILS = {(1, 1), (4, 2)}


def small(rule, **changes):
    arguments = ARGUMENTS.get(rule, "")
    return config_of(asynchrony__rule=rule, asynchrony__rule_args=arguments, **{**SMALL, **changes})


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_any_number_of_workers_gives_the_same_bits(rule):
    """Failing clients and dropouts among them."""
    one, two, four = (
        outcome(*carried_out(small(rule), 12, workers=workers, fails=FAILS)) for workers in (1, 2, 4)
    )
    assert one == two == four
    assert sum(one["counts"]["updates"]) >= 20
    assert sum(one["counts"]["failed"]) == 2
    assert sum(one["counts"]["dropped"]) > 0
    assert one["models"] != [START["w"].tobytes()]


AVAILABILITIES = st.sampled_from(
    [("always", ""), ("diurnal", '{"day_s": 0.5, "share": 0.4}'), ("markov", '{"on_s": 0.3, "off_s": 0.2}')]
)


@st.composite
def fleets(draw):
    """(devices, fleet) of any speeds, equal ones among them."""
    count = draw(st.integers(2, 9))
    speeds = st.lists(st.sampled_from([0.0, 0.001, 0.02, 0.02, 0.3]), min_size=count, max_size=count)
    per_window, per_job, down_s = (np.array(draw(speeds)) for _ in range(3))
    endless = np.full(count, np.inf)
    noise = draw(st.sampled_from(["log-normal", "exponential", "half-normal"]))
    return count, Fleet(per_window, per_job + 0.01, endless, endless, down_s, down_s, noise, 0.3)


@pytest.mark.slow
@settings(max_examples=40)
@given(
    fleets(), st.sampled_from(RULES), st.integers(1, 9), st.sampled_from([0.0, 0.3]), AVAILABILITIES,
    st.sampled_from([1.0, 1.5]), st.sampled_from([0.0, 0.05]), st.sampled_from([0, 2]),
)  # fmt: skip
def test_whatever_the_fleet(made, rule, concurrency, dropout, availability, over, deadline, most):
    """Jobs are conserved, arrivals in order, nobody works twice at a time, nor where it is not there."""
    devices, fleet = made
    changes = {"asynchrony__max_staleness": most} if rule != "fedavg" else {
        "asynchrony__over_selection": over, "asynchrony__deadline_s": deadline
    }  # fmt: skip
    config = small(
        rule, asynchrony__concurrency=min(concurrency, devices), devices__dropout=dropout,
        devices__availability=availability[0], devices__availability_args=availability[1],
        asynchrony__evaluate_every_s=0.2, **changes,
    )  # fmt: skip
    procedure, noted = carried_out(config, devices, fleet=fleet)
    counts = procedure.ledger.counts
    ways = ("updates", "dropped", "away", "late", "stale", "failed")
    assert counts["jobs"].tolist() == sum(counts[way] for way in ways).tolist()
    in_line = [job for line in procedure.lines for job in line.waiting]
    assert procedure.planning.begun == counts["jobs"].sum() + len(procedure.jobs) + len(in_line)
    assert procedure.planning.begun == procedure.choosing.history.begun.sum()
    assert len(noted.jobs) == counts["jobs"].sum()
    ends = [row.job.end_us for row in noted.jobs if row.outcome == "updates"]
    assert ends == sorted(ends)
    all_jobs = [row.job for row in noted.jobs] + list(procedure.jobs.values()) + in_line
    for device in range(devices):
        mine = sorted((job for job in all_jobs if job.device == device), key=lambda job: job.number)
        assert [job.attempt for job in mine] == list(range(1, len(mine) + 1))
        assert all(one.end_us <= two.began_us for one, two in pairwise(mine))
        roster = procedure.choosing.rosters[0]
        assert (device in roster.there or device in roster.away) != any(
            job.device == device for job in procedure.jobs.values()
        )
    assert len(procedure.jobs) <= config.asynchrony.concurrency
    assert all(row.staleness is None or row.staleness <= most for row in noted.jobs
               if most and row.outcome == "updates")  # fmt: skip
    assert sum(procedure.ledger.staleness.values()) == counts["updates"].sum() + counts["stale"].sum()
    assert [row.evaluation for row in noted.rows] == [1, 2, 3]
    assert 0 <= noted.rows[-1].utilisation <= 1


@pytest.mark.slow
@pytest.mark.parametrize(("concurrency", "buffer"), [(12, 3), (12, 1), (6, 2)])
def test_mean_staleness_is_concurrency_over_buffer(concurrency, buffer):
    """Little's law: from start to arrival of a job C − 1 others arrive on average: (C − 1)/K versions."""
    config = config_of(
        asynchrony__concurrency=concurrency, asynchrony__rule_args=f'{{"buffer": {buffer}}}',
        asynchrony__evaluate_every_s=8.0,
    )  # fmt: skip
    procedure, _ = carried_out(config, 40)
    assert procedure.ledger.total("updates") > 10 * concurrency
    assert procedure.ledger.mean_staleness == pytest.approx((concurrency - 1) / buffer, rel=0.05)


def test_every_update_is_seen_by_all_others_at_work():
    """With K = 1 an update makes a version, which C − 1 jobs see: the lost and those under way, too."""
    args = {"asynchrony__rule_args": '{"buffer": 1}', "devices__dropout": 0.3}
    config = config_of(**{**SMALL, **args})
    procedure, noted = carried_out(config, 12)
    updates, made, seen = procedure.ledger.total("updates"), 0, 0
    for row in noted.jobs:
        seen += made - row.job.staleness_from
        made += row.outcome == "updates"
    seen += sum(made - job.staleness_from for job in procedure.jobs.values())
    assert procedure.ledger.total("dropped") > 10
    assert seen == updates * (config.asynchrony.concurrency - 1)


def test_without_delays_a_full_buffer_is_a_round_of_federated_averaging():
    """Equal times, K = C = all, equal windows: after each second every device's model has the same share."""
    config = config_of(
        asynchrony__concurrency=7, asynchrony__rule_args='{"buffer": 7}', devices__preset="equal",
        asynchrony__evaluate_every_s=1.0,
    )  # fmt: skip
    procedure, _ = carried_out(config, 7, workers=3)
    state = START
    for attempt in (1, 2, 3):
        steps = [np.random.default_rng([device, attempt]).normal(size=2) for device in range(7)]
        ends = [np.float32(0.9) * state["w"] + step.astype(np.float32) for step in steps]
        state = weighted_mean([{"w": end} for end in ends], [1] * 7)
    assert procedure.served.vector.tobytes() == state["w"].tobytes()
    assert procedure.served.counters["steps"] == 3
    assert dict(procedure.ledger.staleness) == {0: 21}


def test_who_arrives_while_a_server_is_busy_waits_in_line():
    """Three devices of a second each, a rule of 0.4 s: the first round is in at 1.4, 1.8 and 2.2 s.

    The devices begin anew at 1 s, from version 0, and arrive at 2 s, while the third is being taken in. So
    their staleness is 3 (at 2.6 s), then 4 (3.0) and 5 (3.4). Those that begin at 2 s do so from version 2:
    the first of them is taken in at 3.8 s, as the seventh.
    """

    def busy(model, memory, arrival):
        return arrival.end.astype(np.float64)

    busy.seconds_of = lambda memory, arguments: 0.4
    name = SERVER_RULES.given(busy)
    try:
        config = config_of(
            asynchrony__rule=name, asynchrony__concurrency=3, devices__preset="equal",
            asynchrony__evaluate_every_s=1.3,
        )  # fmt: skip
        _, noted = carried_out(config, 3, workers=2)
    finally:
        SERVER_RULES.forget(name)
    assert [row.staleness for row in noted.jobs] == [0, 1, 2, 3, 4, 5, 4]
    assert [row.version for row in noted.rows] == [0, 4, 7]
    assert [row.in_line for row in noted.rows] == [3, 2, 2]
    assert [row.server_busy for row in noted.rows] == pytest.approx([0.3 / 1.3, 1.6 / 2.6, 2.9 / 3.9])
    assert noted.rows[-1].utilisation == 1.0


def test_devices_that_are_lost_never_train():
    """Of ten that are asked five are waited for; the others, and those that drop out, are never begun."""
    config = small("fedavg", asynchrony__concurrency=10, asynchrony__over_selection=2.0)
    with world(config, 12) as (procedure, noted):
        asked = []
        ahead = procedure.world.look_ahead
        begin = ahead.begin
        ahead.begin = lambda job: asked.append(job.number) or begin(job)
        procedure.begin()
        procedure.run_until(3)
    lost = [row.job.number for row in noted.jobs if row.outcome in ("late", "dropped")]
    assert lost
    assert not set(lost) & set(asked)


def test_a_version_is_held_once():
    config = small("fedbuff", asynchrony__concurrency=12)
    with world(config, 12) as (procedure, _):
        procedure.begin()
        procedure.run_until(3, events=13)
        starts = {id(job.start) for job in procedure.jobs.values()}
        assert len(procedure.jobs) > 5
        assert len(starts) == 1
