"""Jobs over a leaf's shared link: by hand, whoever trains them, and from any checkpoint."""

import random

import numpy as np
import pytest
from virtual_world import carried_out, config_of, outcome, stopped_and_gone_on

from fedge.devices.population.fleet import Fleet

BYTES = 16  # of the model of `virtual_world`
DEVICES, FAILS = 12, {(1, 1), (4, 2)}


def fleet_of(trains, down=np.inf, up=np.inf):
    count, nothing = len(trains), np.zeros(len(trains))
    return Fleet(nothing, np.array(trains, float), np.full(count, down), np.full(count, up), nothing, nothing)


def jobs_of(config, fleet, **where):
    _, noted = carried_out(config, len(fleet), fleet=fleet, **where)
    return [
        (row.job.device, *(us / 1e6 for us in (row.job.there_us, row.job.trained_us, row.job.end_us)),
         row.outcome)
        for row in noted.jobs
    ]  # fmt: skip


def refuse_others(found, expected):
    """A third of 16 bytes per second is 5.333, rounded down: jobs are by 0.2 ms later."""
    assert [(job[0], job[4]) for job in found] == [(job[0], job[4]) for job in expected]
    assert [job[1:4] for job in found] == [pytest.approx(job[1:4], abs=1e-3) for job in expected]


def over_link(places, until_s, **changes):
    """A run of one evaluation over the link."""
    return config_of(
        asynchrony__concurrency=places, asynchrony__evaluate_every_s=until_s, num_server_rounds=1,
        asynchrony__leaf_link_megabytes_s=BYTES / 1e6, **changes,
    )  # fmt: skip


def test_one_device_has_the_link_alone():
    """A second down, one of training, a second up."""
    assert jobs_of(over_link(1, 3.0), fleet_of([1])) == [(0, 1, 2, 3, "updates")]


def test_two_devices_take_twice_as_long_either_way():
    found = jobs_of(over_link(2, 5.0), fleet_of([1, 1]))
    assert found == [(0, 2, 3, 5, "updates"), (1, 2, 3, 5, "updates")]


def test_upload_and_download_do_not_disturb_each_other():
    """Both down until 2; device 0 up from 3 to 4 alone and down until 5, when 1 begins to send."""
    found = jobs_of(over_link(2, 6.5), fleet_of([1, 3]))
    assert found == [(0, 2, 3, 4, "updates"), (1, 2, 5, 6, "updates")]


def test_a_slow_device_leaves_the_rest_of_the_link():
    """Of 16 bytes per second device 1 takes 4 at most: the other has 12, and its model after 4/3 s.

    From 10/3 s on it receives the next one, at 12 until device 1 has its own at 4 s, then at 16: 4.5 s. It
    sends from 5.5 s on, when device 1 has half of its own to send: both at 8 until 6.5, then alone until 7.
    """
    fleet = fleet_of([1, 1])
    fleet.down[1] = 4.0
    (one, two, three) = jobs_of(over_link(2, 7.0), fleet)
    assert one[:4] == pytest.approx((0, 4 / 3, 7 / 3, 10 / 3), abs=2e-6)
    assert two[:4] == pytest.approx((1, 4, 5, 6.5), abs=2e-6)
    assert three[:4] == pytest.approx((0, 4.5, 5.5, 7), abs=2e-6)


def test_a_job_that_others_have_slowed_down_is_given_up_at_its_time():
    """Alone it would take device 0 just 3 s; the link is shared, so that it has only been trained by then."""
    found = jobs_of(over_link(2, 3.2, asynchrony__timeout_s=3.0), fleet_of([1, 4]))
    assert found == [(0, 2, 3, 3, "late"), (1, 2, 6, 3, "late")]
    assert jobs_of(over_link(1, 3.2, asynchrony__timeout_s=3.0), fleet_of([1])) == [(0, 1, 2, 3, "updates")]


def test_a_device_that_goes_frees_its_share():
    """Device 1 goes at 1 s, with half of its model: the other has the link alone, and its own at 1.5 s."""

    def presence(device, now_us):
        return (True, 10**6) if device and now_us < 10**6 else (not device, 10**9)

    found = jobs_of(over_link(2, 4.0), fleet_of([1, 1]), presence=presence)
    assert found == [(1, *[2**61 / 1e6] * 2, 1, "away"), (0, 1.5, 2.5, 3.5, "updates")]


def test_a_round_ends_with_the_results_that_it_waits_for():
    """Three are asked for two results: all down until 3, the two quick ones up until 6, then 2 is stopped."""
    of = over_link(3, 6.5, asynchrony__rule="fedavg", asynchrony__over_selection=1.5)
    found = jobs_of(of, fleet_of([1, 1, 9]))
    refuse_others(found, [(0, 3, 4, 6, "updates"), (1, 3, 4, 6, "updates"), (2, 3, 12, 6, "late")])


def test_a_round_ends_at_its_deadline():
    of = over_link(3, 6.5, asynchrony__rule="fedavg", asynchrony__deadline_s=6.2)
    found = jobs_of(of, fleet_of([1, 1, 9]))
    refuse_others(found, [(0, 3, 4, 6, "updates"), (1, 3, 4, 6, "updates"), (2, 3, 12, 6.2, "late")])


def test_an_ample_link_changes_nothing():
    """To the microsecond: each part of a job is rounded by itself."""
    plain = config_of(
        asynchrony__concurrency=4, asynchrony__evaluate_every_s=2.0, devices__preset="half-normal",
        devices__dropout=0.2,
    )  # fmt: skip
    ample = config_of(
        asynchrony__concurrency=4, asynchrony__evaluate_every_s=2.0, devices__preset="half-normal",
        devices__dropout=0.2, asynchrony__leaf_link_megabytes_s=1e5,
    )  # fmt: skip
    one, two = (carried_out(of, 8)[1].jobs for of in (plain, ample))
    assert [(row.job.device, row.outcome, row.staleness) for row in one] == [
        (row.job.device, row.outcome, row.staleness) for row in two
    ]
    assert [row.job.end_us for row in one] == pytest.approx([row.job.end_us for row in two], abs=200)


def coming_and_going(rule, **changes):
    given = {
        "asynchrony__rule": rule, "asynchrony__concurrency": 6, "asynchrony__evaluate_every_s": 0.8,
        "devices__dropout": 0.1, "devices__availability": "markov",
        "devices__availability_args": '{"on_s": 2.0, "off_s": 0.2}',
    }  # fmt: skip
    return config_of(**{**given, **changes})


ROUNDS = {"asynchrony__over_selection": 1.5, "asynchrony__deadline_s": 3.0}


@pytest.mark.parametrize(
    ("rule", "changes"), [("fedbuff", {"asynchrony__timeout_s": 2.5}), ("fedavg", {}), ("fedavg", ROUNDS)]
)
def test_from_any_checkpoint_and_with_any_number_of_workers(rule, changes, tmp_path):
    of = coming_and_going(rule, asynchrony__leaf_link_megabytes_s=80e-6, **changes)
    procedure, noted = carried_out(of, DEVICES, fails=FAILS)
    whole, last = outcome(procedure, noted), procedure.clock.events
    outcomes = {row.outcome for row in noted.jobs}
    assert "updates" in outcomes
    assert len(outcomes) > 1
    assert outcome(*carried_out(of, DEVICES, workers=4, fails=FAILS)) == whole
    for events in random.Random(rule).sample(range(1, last), 6):
        found = stopped_and_gone_on(of, DEVICES, events, tmp_path, fails=FAILS)
        assert outcome(*found) == whole, f"after {events} of {last} events"


def test_over_the_cloud_s_link_from_any_checkpoint(tmp_path):
    of = coming_and_going(
        "fedbuff", asynchrony__rule_args='{"buffer": 2}', hierarchy__num_servers=3,
        asynchrony__cloud_link_megabytes_s=20e-6, asynchrony__evaluate_every_s=3.0,
        asynchrony__cloud_delay_s=0.1, asynchrony__leaf_link_megabytes_s=80e-6,
    )  # fmt: skip
    procedure, noted = carried_out(of, DEVICES, fails=FAILS)
    whole, last = outcome(procedure, noted), procedure.clock.events
    assert procedure.ledger.moved["cloud_down"]
    for events in random.Random(3).sample(range(1, last), 6):
        found = stopped_and_gone_on(of, DEVICES, events, tmp_path, fails=FAILS)
        assert outcome(*found) == whole, f"after {events} of {last} events"


def test_two_leaves_share_the_cloud_s_link_by_hand():
    """Devices take 1 s. Both leaves send at 1 s, over a link that takes a model in a second: there at 3 s,
    where the first makes a version and is answered alone, then the second: 0.1 s before, then shared, 1.9 s.
    """
    config = config_of(
        hierarchy__num_servers=2, asynchrony__concurrency=2, asynchrony__rule="fedasync",
        asynchrony__cloud_rule="fedasync", asynchrony__cloud_delay_s=0.1, devices__preset="equal",
        asynchrony__cloud_link_megabytes_s=BYTES / 1e6, asynchrony__evaluate_every_s=1.0, num_server_rounds=6,
        asynchrony__cloud_megabytes_s=1000.0,
    )  # fmt: skip
    _, noted = carried_out(config, 2)
    assert [row.version for row in noted.rows] == [0, 0, 0, 2, 2, 2]
    assert [row.cloud_up for row in noted.rows] == [2 * BYTES] * 5 + [4 * BYTES]
