import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from fedge.config.registers.groupings import GATES
from fedge.config.registers.option import ConfigError
from fedge.config.sections.serving import GateConfig
from fedge.serving.gate import GateResult, Paired, takes_offer

COUNTS = st.integers(0, 60)
PAIRS = st.builds(
    lambda both, b, c, wrong: Paired(both, b, c, both + b + c + wrong),
    COUNTS,
    COUNTS,
    COUNTS,
    st.integers(1, 60),
)


def takes(pair, rule="published", **settings):
    return takes_offer(pair, GateConfig(rule=rule, **settings))


def of(own, offered, windows=1000):
    """A pair of which the better model has right what the other one has."""
    both = min(own, offered)
    return Paired(both, own - both, offered - both, windows)


@pytest.mark.parametrize(
    ("own", "offered", "min_gain", "taken"),
    [
        (500, 750, 0.0, True),
        (500, 500, 0.0, True),
        (500, 499, 0.0, False),
        (500, 750, 0.25, True),
        (500, 625, 0.25, False),
        (500, 375, -0.125, True),
        (500, 250, -0.125, False),
        (1000, 1000, 1.0, False),
    ],
)
@pytest.mark.parametrize("rule", ["published", "after-round"])
def test_the_published_rule_by_hand(rule, own, offered, min_gain, taken):
    """Taken if offered ≥ own + min-gain: an equal accuracy is taken, a hair less is not."""
    pair = of(own, offered)
    assert (pair.score_own, pair.score_offered) == (own / 1000, offered / 1000)
    assert takes(pair, rule, min_gain=min_gain) is taken


@pytest.mark.parametrize(
    ("b", "c", "published", "one_standard_error", "paired"),
    [
        (6, 2, False, False, True),
        (4, 2, False, True, True),
        (8, 0, False, False, False),
        (5, 0, False, False, False),
        (4, 0, False, False, True),
        (1, 0, False, False, True),
        (2, 1, False, True, True),
        (0, 0, True, True, True),
        (2, 6, True, True, True),
    ],
)
def test_the_other_rules_by_hand(b, c, published, one_standard_error, paired):
    """50 windows, 40 of which both models have right.

    6 against 2: gain −0.08, standard error √(8 − 16/50)/50 = 0.0554; McNemar (28 + 8 + 1)/256 = 0.145.
    4 against 2: gain −0.04, √(6 − 4/50)/50 = 0.0487; (15 + 6 + 1)/64 = 0.344.
    8 against 0: 1/256 = 0.004. 5 against 0: 1/32 = 0.031. 4 against 0: gain −0.08, √(4 − 16/50)/50 = 0.0384;
    1/16 = 0.0625. 1 against 0: gain −0.02, √(1 − 1/50)/50 = 0.0198; 1/2.
    2 against 1: gain −0.02, √(3 − 1/50)/50 = 0.0345; (3 + 1)/8 = 0.5.
    """
    pair = Paired(40, b, c, 50)
    found = [takes(pair, rule) for rule in ("published", "one-standard-error", "paired")]
    assert found == [published, one_standard_error, paired]


def test_the_numbers_by_hand():
    pair = Paired(40, 6, 2, 50)
    assert (pair.score_own, pair.score_offered) == (0.92, 0.84)
    assert pair.standard_error == pytest.approx(math.sqrt(7.68) / 50)
    assert pair.p_value == pytest.approx(37 / 256)
    assert pair.swapped == Paired(40, 2, 6, 50)
    assert pair.swapped.p_value == pytest.approx(1 - 9 / 256)


def test_level_and_min_gain():
    """1/16 is significant at 0.1; 0.02 below is not more than one standard error below when 0.01 is asked."""
    assert not takes(Paired(40, 4, 0, 50), "paired", rule_args='{"level": 0.1}')
    assert takes(Paired(40, 2, 1, 50), "one-standard-error", min_gain=0.01)
    assert not takes(Paired(40, 2, 1, 50), "one-standard-error", min_gain=0.02)


def test_a_test_for_equality_has_no_min_gain():
    with pytest.raises(
        ConfigError, match=r"^gate\.rule paired needs gate\.min-gain to be 0, .* but it is 0\.1; "
    ):
        GateConfig(rule="paired", min_gain=0.1)


@given(PAIRS)
def test_p_values_are_those_of_scipy(pair):
    b, c = pair.only_own, pair.only_offered
    expected = binomtest(b, b + c, 0.5, alternative="greater").pvalue if b + c else 1.0
    assert pair.p_value == pytest.approx(expected, rel=1e-9)


@given(PAIRS)
def test_the_standard_error_is_that_of_the_window_by_window_difference(pair):
    """+1 on c windows, −1 on b, 0 on the rest: population variance over N."""
    gains = [1] * pair.only_offered + [-1] * pair.only_own
    gains += [0] * (pair.windows - len(gains))
    mean = sum(gains) / len(gains)
    variance = sum((g - mean) ** 2 for g in gains) / len(gains)
    assert pair.standard_error == pytest.approx(math.sqrt(variance / len(gains)), abs=1e-12)
    assert mean == pytest.approx(pair.score_offered - pair.score_own)


@given(PAIRS)
def test_every_rule_takes_what_is_at_least_as_good(pair):
    """Every rule takes all that the published rule takes, so of two models one is always taken."""
    for rule in GATES.names:
        assert takes(pair, rule) >= takes(pair)
        assert takes(pair, rule) or takes(pair.swapped, rule)


@given(PAIRS, st.integers(0, 60))
def test_a_better_offer_is_never_turned_down_for_being_better(pair, more):
    better = Paired(pair.both, pair.only_own, pair.only_offered + more, pair.windows + more)
    for rule in ("published", "paired"):
        assert takes(better, rule) >= takes(pair, rule)


@given(st.integers(0, 64), st.integers(0, 64), st.integers(0, 64))
def test_a_stricter_gate_never_takes_what_a_looser_one_rejects(own, offered, gain):
    """64 windows: shares are exact in binary."""
    pair, min_gain = of(own, offered, 64), gain / 64
    assert takes(pair, min_gain=min_gain) <= takes(pair)
    assert takes(pair, min_gain=min_gain) == (offered - own >= gain)


def test_a_result_goes_on_with_the_own_model_unless_told():
    assert GateResult("off", 0.5, None, serves_offer=False).role == "own"


@pytest.mark.parametrize("answer", [None, "no", 1, [True]], ids=str)
def test_a_gate_of_the_users_must_say_yes_or_no(answer):
    """A word is true in Python: "no" would take every offer."""
    name = GATES.given(lambda pair, config: answer)
    try:
        with pytest.raises(ConfigError, match="must return True or False, but returned"):
            takes(of(1, 2), rule=name)
    finally:
        GATES.forget(name)


def test_a_gate_of_the_users_that_fails_is_named():
    name = GATES.given(lambda pair, config: 1 / 0)
    try:
        with pytest.raises(
            ConfigError, match=r"^gate\.rule .* failed: ZeroDivisionError: .*test_gate\.py, line"
        ):
            takes(of(1, 2), rule=name)
    finally:
        GATES.forget(name)
