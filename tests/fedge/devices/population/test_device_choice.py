"""Each idle device that is there is as likely; places stay taken while anybody is there."""

from collections import Counter

import numpy as np
import pytest
from any_case import cases, procedure_of
from hypothesis import given, settings

from fedge.config.registers.option import ConfigError
from fedge.devices.population.availability import FOREVER_US, always
from fedge.devices.population.device_choice import Choosing


def choosing_of(devices, presence=None, **more):
    count = sum(map(len, devices))
    return Choosing(
        1, devices, presence or always(count, 1), [2] * len(devices), np.ones(count, np.int64), **more
    )


def test_every_idle_device_is_as_likely():
    choosing = choosing_of([range(4)])
    counts = Counter()
    for _ in range(4000):
        device, until_us = choosing.pick(0, 0)
        counts[device] += 1
        assert until_us == FOREVER_US
        assert device not in choosing.rosters[0].there
        choosing.put(0, device, 0)
    assert all(900 < counts[device] < 1100 for device in range(4))
    assert choosing.history.begun.tolist() == [counts[device] for device in range(4)]


def test_leaves_have_devices_and_draws_of_their_own():
    choosing = choosing_of([range(4), range(4, 8)])
    assert choosing.pick(0, 0)[0] < 4 <= choosing.pick(1, 0)[0]
    assert [turn.draws.count for turn in choosing.turns] == [1, 1]


def test_who_is_away_is_not_picked():
    """Devices 0 and 1 are away until 70 and 50, device 2 is there until 90."""
    until = {0: (False, 70), 1: (False, 50), 2: (True, 90)}
    choosing = choosing_of([range(3)], lambda device, now_us: until[device])
    assert choosing.pick(0, 10) == (2, 90)
    assert choosing.pick(0, 10) is None
    assert choosing.next_change_us(0) == 50


def test_nobody_is_idle():
    assert choosing_of([()]).pick(0, 10) is None
    assert choosing_of([()]).next_change_us(0) is None


def test_rounds_count_how_often_all_places_were_given_work():
    choosing = choosing_of([range(4)])
    for _ in range(4):
        choosing.pick(0, 0)
    assert sorted(choosing.history.given_in.tolist()) == [1, 1, 2, 2]


@pytest.mark.parametrize(
    ("selection", "words"),
    [
        (lambda there, history, turn: 7, "must return a device that is there, or None, but returned 7"),
        (lambda there, history, turn: "0", "must return a device that is there"),
        (
            lambda there, history, turn: 1 / 0,
            r"raised ZeroDivisionError: division by zero \(\S+, line \d+\) at 0 virtual s",
        ),
    ],
)
def test_a_selection_that_does_not_fit_is_one_line(selection, words):
    with pytest.raises(ConfigError, match=words):
        choosing_of([range(4)], selection=selection).pick(0, 0)


def test_a_selection_may_wait_and_answer_as_numpy_does():
    answers = iter([None, np.int64(2)])
    choosing = choosing_of([range(4)], selection=lambda there, history, turn: next(answers))
    assert choosing.pick(0, 0) is None
    assert choosing.pick(0, 0) == (2, FOREVER_US)


@settings(max_examples=25)
@given(cases(rules=("fedbuff",)))
def test_concurrency_holds_exactly(case):
    """At the end of every moment all places of a leaf are taken, or nobody idle is there."""
    case.refill, case.selection, case.selection_arguments = 1, "balanced", {}
    procedure, _, _ = procedure_of(case)
    procedure.begin()
    for events in range(1, 150):
        procedure.run_until(case.evaluations, events)
        now_us = procedure.clock.now_us
        if procedure.clock.facts()["ahead"][0][0] == now_us:
            continue
        for leaf, roster in enumerate(procedure.choosing.rosters):
            roster.advance(now_us)
            free = procedure.places[leaf] - procedure.at_work[leaf]
            assert free == 0 or not len(roster.there)
            assert len(roster) + procedure.at_work[leaf] == len(case.leaves[leaf])
        if procedure.evaluated == case.evaluations or procedure.has_ended:
            break
