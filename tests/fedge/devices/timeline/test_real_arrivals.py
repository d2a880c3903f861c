"""Real arrivals and their log: done again on the virtual clock, a run is the same, bit for bit."""

import csv
import io
import json
from pathlib import Path

import pytest
from small_data import nine_users
from virtual_world import config_of

from fedge import simulate
from fedge.config.registers.option import ConfigError
from fedge.devices.timeline.clock import Clock, Kind
from fedge.devices.timeline.real_arrivals import LOG, RealClock, read_job_ends, refuse_simulated_times

FILES = (
    "checkpoints/final.safetensors", "devices/versions.csv", "devices/jobs.csv", "devices/devices.csv",
    "devices/staleness.csv", "metrics/leaf_rounds.csv",
)  # fmt: skip
HEAD = "job,device,leaf,attempt,version,began_us,ended_us,outcome\n"


def test_what_is_there_together_has_one_time_and_comes_in_the_order_of_ids():
    found = [[(7, 2), (3, 5)], [(1, 9)]]
    clock = RealClock(lambda _: found.pop(0) if found else [])
    first, second, third = clock.next(), clock.next(), clock.next()
    assert [event.subject for event in (first, second, third)] == [3, 7, 1]
    assert first.time_us == second.time_us < third.time_us
    assert {event.kind for event in (first, second, third)} == {Kind.ARRIVE}


def test_an_arrival_is_later_than_all_that_has_happened():
    """Even within a microsecond: else it would come in another order when it is done again."""
    clock = RealClock(lambda _: [(0, 1)] if clock.now_us == 10**15 else [])
    clock.now_us = 10**15  # of an event that was noted for then
    clock._began -= 10**9 + 1
    assert clock.next().time_us > 10**15


def test_it_goes_on_where_a_checkpoint_stands_without_ends_that_only_replies_tell():
    there = Clock(5_000_000, 9, [(6_000_000, int(Kind.EVALUATE), 0, 2), (5_500_000, int(Kind.ARRIVE), 3, 8)])
    clock = RealClock(lambda _: [(4, 7)]).continued_from(there)
    assert (clock.now_us, clock.events, len(clock)) == (5_000_000, 9, 1)
    event = clock.next()
    assert (event.kind, event.subject, event.number) == (Kind.ARRIVE, 4, 7)
    assert 5_000_000 < event.time_us < 6_000_000
    assert clock.events == 10


def test_the_ends_of_a_log(tmp_path):
    path = tmp_path / "arrivals.csv"
    path.write_text(HEAD + "2,7,0,1,0,0,1500000,updates\n1,3,0,1,0,0,1600000,failed\n")
    ends = read_job_ends(str(path))
    assert ends.of_job(2, 7) == (1_500_000, False)
    assert ends.of_job(1, 3) == (1_600_000, True)
    assert ends.of_job(3, 7) == (10**18, False)  # had not ended when the run did
    with pytest.raises(ConfigError, match=r"job 2 of .* was device 7's, and here it is device 6's"):
        ends.of_job(2, 6)


@pytest.mark.parametrize(
    "text",
    ["", "job,device\n1,2\n", HEAD + "1,3,0,1,0,0,soon,updates\n", HEAD + "0,3,0,1,0,0,9,updates\n",
     HEAD + "1,3,0,1,0,0,9,updates\n1,4,0,1,0,0,9,updates\n", HEAD + "1,3\n"],
)  # fmt: skip
def test_what_is_no_log_is_refused_in_one_line(tmp_path, text):
    path = tmp_path / "arrivals.csv"
    path.write_text(text)
    if not text:
        assert read_job_ends(str(path)).by_job == {}
        return
    with pytest.raises(ConfigError, match=r"asynchrony.replay must be a run's devices/arrivals.csv"):
        read_job_ends(str(path))


def test_a_log_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        read_job_ends(str(tmp_path))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"asynchrony__rule": "fedavg"}, "another asynchrony.rule, without rounds"),
        ({"devices__availability": "markov"}, 'devices.availability="always"'),
        (
            {"devices__dropout": 0.1, "asynchrony__timeout_s": 2.0},
            "devices.dropout=0.0, asynchrony.timeout-s=0.0",
        ),
        ({"asynchrony__replay": "runs/there"}, 'asynchrony.replay=""'),
    ],
)
def test_made_up_times_beside_real_ones_are_refused(changes, words):
    with pytest.raises(ConfigError, match=words):
        refuse_simulated_times(config_of(asynchrony__clock="real", **changes))


RUN = {
    "report": False, "train.model": "mlp-tiny", "train.local-epochs": 1, "seed": 5, "data.path": nine_users(),
    "scaffold.enabled": False, "cluster.enabled": False, "gate.enabled": False, "num-server-rounds": 3,
    "clients": 36, "devices.pieces": 2, "asynchrony.rule": "fedbuff", "asynchrony.rule-args": '{"buffer": 3}',
    "asynchrony.concurrency": 12, "asynchrony.evaluate-every-s": 0.4, "asynchrony.cloud-delay-s": 0.02,
    "devices.traced": 36,
}  # fmt: skip


def real_run_of_jobs(config, least=12):
    """A run on the real clock with more than `least` updates, three evaluations long.

    How many jobs end in a second depends on the machine and on its load, so a run that was too short is run
    again, five times as long.
    """
    for seconds in (0.4, 2.0, 10.0, 50.0):
        real = simulate(
            {
                **config,
                "run-name": f"real-{seconds}",
                "asynchrony.clock": "real",
                "asynchrony.evaluate-every-s": seconds,
            },
            workers=3,
            terminal=io.StringIO(),
        )
        if real.versions["updates"][-1] > least:
            return real, {**config, "asynchrony.evaluate-every-s": seconds}
    raise AssertionError(f"no run of more than {least} updates in 150 s")


@pytest.mark.whole_runs
@pytest.mark.parametrize(
    ("leaves", "private"),
    [
        (3, False),
        (1, True),
        pytest.param(1, False, marks=pytest.mark.extended),
        pytest.param(3, True, marks=pytest.mark.extended),
    ],
)
def test_the_log_of_a_run_repeats_it(tmp_path, leaves, private):
    changes = {"hierarchy.num-servers": leaves, "runs-dir": str(tmp_path)}
    if private:
        changes |= {"train.model": "linear", "privacy.kind": "server-fixed"}
    real, config = real_run_of_jobs({**RUN, **changes})
    again = simulate(
        {**config, "run-name": "again", "asynchrony.replay": str(real.folder)},
        workers=2,
        terminal=io.StringIO(),
    )
    for name in FILES:
        assert (again.folder / name).read_bytes() == (real.folder / name).read_bytes(), name
    with (real.folder / LOG).open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == real.versions["jobs"][-1]
    assert not (again.folder / LOG).exists()


@pytest.mark.whole_runs
@pytest.mark.extended
def test_a_run_that_goes_on_has_one_log(tmp_path):
    """Three evaluations, then three more: what is under way at the checkpoint ends when it does anew."""
    real, config = real_run_of_jobs({**RUN, "hierarchy.num-servers": 1, "runs-dir": str(tmp_path)})
    config["asynchrony.clock"] = "real"
    longer = simulate(
        {**config, "resume": str(real.folder), "num-server-rounds": 6, "run-name": ""}, terminal=io.StringIO()
    )
    again = simulate(
        {
            **config, "asynchrony.clock": "virtual", "asynchrony.replay": str(longer.folder),
            "run-name": "again", "num-server-rounds": 6,
        },
        terminal=io.StringIO(),
    )  # fmt: skip
    assert json.loads(Path(longer.folder, "manifest.json").read_text())["resumed"]
    for name in FILES:
        assert (again.folder / name).read_bytes() == (longer.folder / name).read_bytes(), name
