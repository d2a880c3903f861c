"""Fedge's virtual clock and a second simulator, which shares no code with it, come to the same."""

from itertools import product

import numpy as np
import pytest
from any_case import RULES, WHEN, WHO, WITH_PARTIAL_WORK, cases, procedure_of
from hypothesis import given, settings
from independent_clock import Simulation


def refuse_difference(case):
    """Carry out a case twice, and compare who, when, version, fate, staleness, bytes, joules, models."""
    other = Simulation(case).run()
    procedure, told, ahead = procedure_of(case)
    procedure.begin()
    procedure.run_until(case.evaluations)
    assert sorted(told.ended) == sorted(other.ended)
    assert [row[:8] for row in told.ended if row[8] == "updates"] == [
        row[:8] for row in other.ended if row[8] == "updates"
    ]
    uploads = procedure.ledger.counts["uploads"].tolist()
    assert uploads == [other.uploads[device] for device in range(len(case.windows))]
    assert {tau: n for tau, n in procedure.ledger.staleness.items() if n} == dict(other.staleness)
    assert procedure.planning.begun == other.begun
    assert len(told.curve) == len(other.curve)
    for mine, theirs in zip(told.curve, other.curve, strict=True):
        for name in ("now", "version", "versions", "ended", "moved", "at work"):
            assert mine[name] == theirs[name], name
        assert mine["joules"] == pytest.approx(theirs["joules"])
        for one, two in zip([*mine["models"], mine["top"]], [*theirs["models"], theirs["top"]], strict=True):
            assert np.max(np.abs(one.astype(float) - two) / (1 + np.abs(one))) < 2e-5
    assert len(ahead.asked) == len(set(ahead.asked))  # no job is handed to the workers twice
    assert set(ahead.used) <= set(ahead.asked)
    assert procedure.has_ended == other.has_ended


@pytest.mark.parametrize("rule", RULES)
def test_every_rule(rule):
    @settings(max_examples=15)
    @given(cases(rules=(rule,)))
    def whatever_the_case(case):
        refuse_difference(case)

    whatever_the_case()


@settings(max_examples=25)
@given(cases(depth=3))
def test_regions_between_cloud_and_leaves(case):
    refuse_difference(case)


@pytest.mark.extended
@settings(max_examples=500)
@given(cases(depth=3) | cases(depth=4))
def test_hundreds_of_deep_trees(case):
    refuse_difference(case)


@pytest.mark.extended
@settings(max_examples=750)
@given(cases())
def test_hundreds_of_cases(case):
    refuse_difference(case)


def compared(some, count):
    """The cases, so many of a strategy, that have been compared."""
    seen = []

    @settings(max_examples=count, database=None)
    @given(some)
    def whatever_else(case):
        refuse_difference(case)
        seen.append(case)

    whatever_else()
    return seen


@pytest.mark.extended
@pytest.mark.parametrize("rule", RULES)
def test_every_combination(rule):
    """Each selection, availability, with and without a time limit, alone, with partial work or a shared link.

    Of each combination some cases, counted: 480 combinations and 2,400 cases over all rules.
    """
    ways = ["alone", "shared", *["partial"] * (rule in WITH_PARTIAL_WORK)]
    counts = []
    for who, when, is_late, way in product(WHO, WHEN, (False, True), ways):
        seen = compared(cases((rule,), (who,), (when,), is_late, way), 5)
        counts.append(len(seen))
        for case in seen:
            limit = case.deadline if rule == "fedavg" else case.timeout
            assert (case.selection, case.availability, limit > 0) == (who, when, is_late)
            assert (case.leaf_link > 0, case.partial) == (way == "shared", way == "partial")
    assert min(counts) >= 5
    assert len(counts) == 32 * len(ways)
    print(f"{rule}: {len(counts)} combinations, {sum(counts)} cases, 0 differences")
