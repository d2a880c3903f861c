"""Fedge's virtual clock and a second simulator, which shares no code with it, come to the same."""

import numpy as np
import pytest
from any_case import cases, procedure_of
from hypothesis import given, settings
from independent_clock import Simulation

RULES = ("fedavg", "fedasync", "fedbuff", "ca2fl", "fedfa", "fedrevive")


def refuse_difference(case):
    """Carry out a case twice, and compare who, when, version, fate, staleness, bytes, joules, models."""
    other = Simulation(case).run()
    procedure, told, ahead = procedure_of(case)
    procedure.begin()
    procedure.go_on(case.evaluations)
    assert sorted(told.ended) == sorted(other.ended)
    assert [row[:8] for row in told.ended if row[8] == "updates"] == [
        row[:8] for row in other.ended if row[8] == "updates"
    ]
    assert {tau: n for tau, n in procedure.ledger.staleness.items() if n} == dict(other.staleness)
    assert procedure.planning.begun == other.begun
    assert len(told.curve) == len(other.curve)
    for mine, theirs in zip(told.curve, other.curve, strict=True):
        for name in ("now", "version", "versions", "ended", "moved", "at work"):
            assert mine[name] == theirs[name], name
        assert mine["joules"] == pytest.approx(theirs["joules"])
        for one, two in zip([*mine["leaves"], mine["top"]], [*theirs["leaves"], theirs["top"]], strict=True):
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


@pytest.mark.extended
@settings(max_examples=750)
@given(cases())
def test_hundreds_of_cases(case):
    refuse_difference(case)
