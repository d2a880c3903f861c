"""Paces of synchronous rounds by hand, and HierFAVG's published numbers."""

import json
from dataclasses import replace

import numpy as np
import pytest
from small_runs import carry_out, small_config

from fedge import simulate
from fedge.algorithm import Algorithm, Sent
from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError
from fedge.devices.pace import pace_of

TIMED = {"devices.time-rounds": True, "devices.preset": "hierfavg"}


def paced(windows, **changes):
    """The pace of a run with these options."""
    return pace_of(from_run_config({**TIMED, **changes}), 3, np.array(windows))


def test_hierfavg_takes_the_time_and_energy_of_its_paper():
    """Liu et al. 2020 for MNIST: a step of 20 windows .024 s, .0024 J; 21,840 weights .1233 s, .0616 J.

    The cloud is ten times as far; here 0.1418 MB/s of a link count both ways.
    """
    links = {"asynchrony.cloud-delay-s": 0.0, "asynchrony.cloud-megabytes-s": 0.1418}
    pace = paced([20, 0], **{"train.local-epochs": 60, "train.batch-size": 20}, **links)
    weights = 21_840 * 4
    trains_s, trains_j = pace.job(0, 1, weights, 0)
    assert (trains_s / 60, trains_j / 60) == pytest.approx((0.024, 0.0024))
    seconds, joules = pace.job(1, 1, weights, weights)
    assert (seconds, joules) == pytest.approx((0.1233, 0.0616), abs=1e-4)
    assert 2 * pace.link(weights, 0) == pytest.approx(10 * seconds, rel=1e-3)
    assert pace.link(0, 0) == 0.0


def test_a_fleet_with_links_both_ways_and_no_known_power():
    """A job of 7 s whatever it sends; between servers half a second beside the bytes."""
    changes = {"devices.preset": "equal", "devices.preset-args": '{"seconds": 7.0}'}
    pace = paced([4], **changes, **{"asynchrony.cloud-delay-s": 0.5, "asynchrony.cloud-megabytes-s": 1.0})
    assert pace.job(0, 1, 100, 100) == (7.0, None)
    assert pace.link(250_000, 0) == 0.75


def test_a_server_ten_times_as_far_takes_uploads_ten_times_as_long_and_as_dear():
    """Training and downloads stay as they are."""
    near, far = (paced([20], **{"devices.preset-args": f'{{"distance": {d}}}'}) for d in (1.0, 10.0))
    assert near.job(0, 1, 10**6, 0) == far.job(0, 1, 10**6, 0)
    trains = near.job(0, 1, 0, 0)
    ups = [[a - b for a, b in zip(pace.job(0, 1, 0, 87_360), trains, strict=True)] for pace in (near, far)]
    assert ups[1] == pytest.approx([10 * each for each in ups[0]])


def test_edges_below_regions_may_be_others_than_those_below_the_cloud():
    pace = paced([4] * 8, **{
        "hierarchy.tree": "2x2x2", "asynchrony.cloud-delay-s": 0.5, "asynchrony.cloud-megabytes-s": 1.0,
        "asynchrony.tiers.region.megabytes-s": 2.0,
    })  # fmt: skip
    assert (pace.link(10**6, 0), pace.link(10**6, 1)) == (1.5, 1.0)  # the delay is the cloud's


@pytest.mark.parametrize(
    ("tiers", "words"),
    [
        ({"region": {"rule": "fedavg"}}, r"region must have delay-s, megabytes-s, but has 'rule'"),
        ({"cloud": {"delay-s": 1.0}}, r"whose options are asynchrony\.cloud-rule"),
    ],
)
def test_edges_of_rounds_that_are_only_timed_have_no_rules(tiers, words):
    with pytest.raises(ConfigError, match=words):
        simulate({**TIMED, "hierarchy.tree": "2x2x*", "asynchrony.tiers": json.dumps(tiers)})


def test_rounds_take_real_time_only_unless_they_are_to_be_timed():
    assert pace_of(from_run_config({}), 3, np.array([4])) is None


def test_a_preset_that_makes_no_fleet_is_refused():
    with pytest.raises(ConfigError, match=r"^devices\.preset-args\.bits must be above 0"):
        paced([4], **{"devices.preset-args": '{"bits": 0.0}'})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [({"bitz": 1.0}, r"hierfavg\(.*did you mean"), ({"bits": 0.0}, "must be above 0")],
)
def test_arguments_are_looked_at_before_anything_starts(arguments, words):
    with pytest.raises(ConfigError, match=words):
        simulate({**TIMED, "devices.preset-args": json.dumps(arguments)})


TREES = {
    "flat": {"hierarchy.leaf-rounds": 2},
    "regions": {
        "hierarchy.tree": "((3,3),(3))", "hierarchy.region-rounds": "2", "gate.enabled": False,
        "scaffold.levels": 3, "cluster.tau": -1.0,
    },
}  # fmt: skip


def computed(found):
    """Rows of global rounds without virtual time and energy."""
    return [{k: v for k, v in row.items() if k not in ("virtual_s", "joules")} for row in found["global"]]


@pytest.mark.whole_runs
@pytest.mark.parametrize("tree", TREES)
def test_nothing_that_is_computed_changes_and_time_goes_on_after_a_stop(tree, tmp_path):
    """Models, partition, clusters, tables apart from the new columns; four rounds, or two and two."""
    config = small_config(tmp_path, num_server_rounds=4, checkpoint__every=1) | TREES[tree]
    untimed, timed = carry_out(config, "untimed"), carry_out({**config, **TIMED}, "timed")
    assert {**untimed, "global": computed(untimed)} == {**timed, "global": computed(timed)}
    times = [float(row["virtual_s"]) for row in timed["global"]]
    energies = [float(row["joules"]) for row in timed["global"]]
    assert times == sorted(set(times))
    assert energies == sorted(set(energies))
    assert energies[0] > 0
    begun = simulate({**config, **TIMED, "num-server-rounds": 2, "run-name": "begun"})
    again = simulate({**config, **TIMED, "resume": str(begun.folder), "run-name": ""})
    assert again.status == "completed", again.reason
    assert again.rounds["virtual_s"].to_list() == times
    assert again.rounds["joules"].to_list() == energies


class Absent(Algorithm):
    """Clients of which every third fails in each round."""

    def train(self, client):
        if client.place.where[1] % 3 == 2:
            raise RuntimeError("gone")
        return Sent(client.fit())


class Far(Algorithm):
    """Clients of which every third sends a model so far off that its leaf refuses it."""

    def train(self, client):
        fit, far = client.fit(), 1e6 * (client.id % 3 == 2)
        return Sent(
            replace(fit, state={name: array + array.dtype.type(far) for name, array in fit.state.items()})
        )


@pytest.mark.whole_runs
def test_clients_that_do_not_count_leave_the_time_of_others_as_it_is(tmp_path):
    """264 bytes come at 264 a second, go at 132, training takes a second: 4 s and 2 + 3 J a round each."""
    speeds = tmp_path / "speeds.csv"
    speeds.write_text("seconds_per_job,down_bytes_s,up_bytes_s\n1,264,132\n")
    config = small_config(tmp_path) | {
        "devices.time-rounds": True, "devices.preset": "trace",
        "devices.preset-args": json.dumps({"path": str(speeds)}), "devices.train-watts": 2.0,
        "devices.radio-watts": 1.0, "hierarchy.num-servers": 1, "scaffold.enabled": False,
    }  # fmt: skip
    ways = ("all", None, 9), ("some", {"algorithm": Absent}, 6), ("far", {"algorithm": Far}, 6)
    for name, method, there in ways:
        guard = {"guard.max-norm-factor": 5.0} if name == "far" else {}
        run = simulate({**config, **guard, "run-name": name}, **(method or {}))
        assert run.rounds["clients_ok"].to_list() == [there] * 2
        assert run.rounds["virtual_s"].to_list() == [4.0, 8.0]
        assert run.rounds["joules"].to_list() == [5.0 * there, 10.0 * there]
