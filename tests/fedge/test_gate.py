import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.gate import GateResult, decide

SHARES = st.integers(0, 64).map(lambda n: n / 64)  # exact in binary: sums below are not rounded


@pytest.mark.parametrize(
    ("own", "offered", "min_gain", "decision"),
    [
        (0.5, 0.75, 0.0, "accepted"),
        (0.5, 0.5, 0.0, "accepted"),
        (0.5, 0.499, 0.0, "rejected"),
        (0.5, 0.75, 0.25, "accepted"),
        (0.5, 0.625, 0.25, "rejected"),
        (0.5, 0.375, -0.125, "accepted"),
        (0.5, 0.25, -0.125, "rejected"),
        (1.0, 1.0, 1.0, "rejected"),
    ],
)
def test_by_hand(own, offered, min_gain, decision):
    """Taken if offered ≥ own + min-gain: an equal accuracy is taken, a hair less is not."""
    result = decide(own, offered, enabled=True, min_gain=min_gain)
    assert result == GateResult(decision, own, offered, serves_offer=decision == "accepted")


def test_an_open_gate_takes_every_offer():
    assert decide(0.9, 0.1, enabled=False, min_gain=0.5) == GateResult("off", 0.9, 0.1, serves_offer=True)


@pytest.mark.parametrize("enabled", [True, False])
def test_without_an_offer_there_is_nothing_to_decide(enabled):
    assert decide(0.4, None, enabled, 0.0) == GateResult("off", 0.4, None, serves_offer=False)


@given(SHARES, SHARES, SHARES)
def test_a_stricter_gate_never_takes_what_a_looser_one_rejects(own, offered, min_gain):
    strict, loose = decide(own, offered, True, min_gain), decide(own, offered, True, 0.0)
    assert strict.serves_offer <= loose.serves_offer
    assert strict.serves_offer == (offered - own >= min_gain)


@given(SHARES, SHARES)
def test_of_two_models_one_is_always_taken(one, other):
    assert decide(one, other, True, 0.0).serves_offer or decide(other, one, True, 0.0).serves_offer


def test_an_accuracy_that_is_not_a_number_is_not_taken():
    assert not decide(0.5, float("nan"), True, 0.0).serves_offer
