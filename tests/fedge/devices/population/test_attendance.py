"""Devices that are there as a file says: by hand, against a plain search, and what is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from virtual_world import carried_out, config_of

from fedge.config.registers.option import ConfigError
from fedge.devices.population.attendance import read_attendance, trace
from fedge.devices.population.availability import FOREVER_US

US = 10**6
HEAD = "device,from_s,until_s\n"


def written(tmp_path, text):
    path = tmp_path / "there.csv"
    path.write_text(text)
    return str(path)


def test_two_devices_by_hand(tmp_path):
    """a is there from 0 to 2 and 3 to 4, b from 1 to 4; the file is 4 s long, and begins anew."""
    path = written(tmp_path, HEAD + "a,0,1\nb,1,4\na,1,2\na,3,4\n")
    there = trace(3, 0, path, shuffle=False)
    assert there(0, 0) == (True, 2 * US)
    assert there(0, 2 * US) == (False, 3 * US)
    assert there(0, 3 * US) == (True, 6 * US)  # on from 4 s, where the file begins anew, to its second 2
    assert there(1, 0) == (False, US)
    assert there(1, 4 * US) == (False, 5 * US)
    assert there(2, 2 * US) == there(0, 2 * US)  # used again in turn


def test_who_is_always_there_is(tmp_path):
    path = written(tmp_path, HEAD + "a,0,5\n")
    assert trace(1, 0, path)(0, 7 * US) == (True, FOREVER_US)


def test_a_period_beyond_the_file_is_time_away(tmp_path):
    there = trace(1, 0, written(tmp_path, HEAD + "a,0,5\n"), period_s=10.0)
    assert there(0, 6 * US) == (False, 10 * US)
    assert there(0, 12 * US) == (True, 15 * US)


@given(times=st.lists(st.tuples(st.integers(0, 20), st.integers(1, 6)), min_size=1, max_size=6))
def test_it_is_what_a_plain_search_finds(times, tmp_path_factory):
    """Second by second over three turns; and what is told to hold does until then."""
    rows = "".join(f"x,{begins},{begins + long}\n" for begins, long in times)
    there = trace(1, 0, written(tmp_path_factory.mktemp("there"), HEAD + rows))
    period = max(begins + long for begins, long in times)
    known = [any(b <= t % period < b + n for b, n in times) for t in range(4 * period)]
    for second in range(3 * period):
        is_there, until_us = there(0, second * US)
        assert is_there == known[second]
        if until_us != FOREVER_US:
            assert until_us > second * US
            assert all(known[at] == is_there for at in range(second, min(until_us // US, len(known))))


def test_a_run_gives_work_to_those_that_are_there(tmp_path):
    path = written(tmp_path, HEAD + "a,0,100\nb,50,100\n")
    config = config_of(
        asynchrony__concurrency=2, devices__preset="equal", devices__availability="trace",
        devices__availability_args=f'{{"path": "{path}", "shuffle": false}}',
        asynchrony__evaluate_every_s=10.0,
    )  # fmt: skip
    procedure, _ = carried_out(config, 4)
    jobs = procedure.ledger.counts["jobs"]
    assert jobs[[0, 2]].min() > 0
    assert jobs[[1, 3]].sum() == 0


def test_touching_times_are_one(tmp_path):
    (((begins, ends), period),) = read_attendance(written(tmp_path, HEAD + "a,2,3\na,0,1\na,1,1.5\n"))
    assert period is None
    assert begins.tolist() == [0, 2 * US]
    assert np.array_equal(ends, [1_500_000, 3 * US])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HEAD, "must have a row for each time"),
        ("device,from,until\na,0,1\n", "must have the columns device,from_s,until_s"),
        (HEAD + "a,0,0.0009\n", "until 0.001 s or later, since .* but that is 0.0009; fix it"),
        (HEAD + "a,3,2\n", "end after they begin, .* line 2 has 3 until 2; fix it"),
        (HEAD + "a,0,soon\n", "line 2, until_s is 'soon'; fix it"),
        (HEAD + "a,0,nan\n", "line 2, until_s is 'nan'; fix it"),
        (HEAD + "a,0\n", "line 2, until_s is empty; fix it"),
        (HEAD + "a,0,1700000000\n", "is '1700000000'; subtract the earliest time of the file from all"),
        (
            HEAD + "a,2024-01-01T00:00:00+01:00,9\n",
            "counted from the beginning of the run, but .*from_s is '2024",
        ),
        (HEAD + "a,-1,2\n", "line 2, from_s is '-1'; fix it"),
        (HEAD + ",0,2\n", "line 2 has not"),
        (HEAD + "a,0,1,5\n", "line 2 has more"),
    ],
)
def test_what_is_no_such_file_is_refused_in_one_line(tmp_path, text, words):
    with pytest.raises(ConfigError, match=words):
        trace(2, 0, written(tmp_path, text))


def test_a_file_that_is_not_there_and_a_period_that_is_too_short(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        trace(2, 0, str(tmp_path / "none.csv"))
    with pytest.raises(ConfigError, match="must name a CSV or Parquet file"):
        trace(2, 0)
    for period in (float("nan"), -1.0, "a day", True):
        with pytest.raises(ConfigError, match=r"period_s must be seconds of 0 to 1e.09, but is"):
            trace(2, 0, written(tmp_path, HEAD + "a,0,9\n"), period_s=period)
    with pytest.raises(ConfigError, match="at least the last second"):
        trace(2, 0, written(tmp_path, HEAD + "a,0,9\n"), period_s=5.0)


def test_each_device_begins_anew_after_its_own_period(tmp_path):
    """a: 0 to 1 of every 4 s; b: 1 to 3 of every 5 s."""
    text = "device,from_s,until_s,period_s\na,0,1,4\nb,1,3,5\n"
    there = trace(2, 0, written(tmp_path, text), shuffle=False)
    assert [there(0, second * US) for second in (0, 1, 4, 9)] == [
        (True, 1 * US), (False, 4 * US), (True, 5 * US), (False, 12 * US),
    ]  # fmt: skip
    assert [there(1, second * US) for second in (0, 2, 3, 6)] == [
        (False, 1 * US), (True, 3 * US), (False, 6 * US), (True, 8 * US),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "given", "words"),
    [
        ("a,0,1,4\na,2,3,5\n", 0.0, "one period_s for all rows of a device, but .*line 3"),
        ("a,0,4,3\n", 0.0, "periods at least as long"),
        ("a,0,1,0\n", 0.0, "periods of at least 0.001 s, .* line 2 has 0 until 1, period 0"),
        ("a,0,1e-6,2e-6\n", 0.0, "periods of at least 0.001 s, .* period 2e-06; fix it"),
        ("a,0,1,4\n", 9.0, "must be left out"),
    ],
)
def test_a_period_that_does_not_fit_is_one_line(tmp_path, rows, given, words):
    with pytest.raises(ConfigError, match=words):
        trace(1, 0, written(tmp_path, "device,from_s,until_s,period_s\n" + rows), period_s=given)
