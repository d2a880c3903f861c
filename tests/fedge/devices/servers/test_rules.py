"""Rules against numbers worked by hand from their papers' formulas, and what holds for any arrivals.

Worked cases of two children stand in the docstrings; here are longer ones.
"""

import inspect
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import SERVER_RULES
from fedge.config.registers.traits import ROUNDS
from fedge.devices.servers.arrivals import Arrival, Memory
from fedge.devices.servers.rules import ca2fl, fedasync, fedavg, fedbuff, fedfa, model_after_arrivals
from fedge.states.averaging import weighted_mean

NAMES = [name for name in SERVER_RULES.names if name != "off"]
VECTORS = st.lists(st.floats(-8, 8, width=32), min_size=3, max_size=3).map(
    lambda numbers: np.array(numbers, np.float32)
)


def vec(*numbers):
    return np.array(numbers, np.float64)


@given(st.lists(st.tuples(VECTORS, st.integers(1, 9)), min_size=1, max_size=60), VECTORS)
def test_fresh_children_make_the_weighted_mean_bit_for_bit(children, model):
    ends, weights = zip(*children, strict=True)
    arrivals = [Arrival(number, 0, model, end) for number, end in enumerate(ends)]
    found = model_after_arrivals(model, arrivals, weights, float(sum(weights))).astype(np.float32)
    expected = weighted_mean([{"w": end} for end in ends], weights)["w"]
    assert found.tobytes() == expected.tobytes()


@given(st.lists(st.tuples(VECTORS, VECTORS, st.floats(0.01, 2)), min_size=1, max_size=9), VECTORS)
def test_any_children_move_the_model_by_their_weighted_changes(children, model):
    arrivals = [Arrival(number, 1, start, end) for number, (start, end, _) in enumerate(children)]
    weights = [weight for *_, weight in children]
    step = sum(weight * each.delta for each, weight in zip(arrivals, weights, strict=True))
    assert model_after_arrivals(model, arrivals, weights, 4.0) == pytest.approx(model + step / 4, abs=1e-9)


def test_fedavg_by_hand():
    """η = ½, windows 1 and 3: 2 + ½ (¼ · (6 − 2) + ¾ · (−2 − 2)) = 1; who came first does not matter."""
    model, memory = vec(2.0), Memory(2)
    assert fedavg(model, memory, Arrival(1, 0, model, vec(-2.0), 3.0), lr=0.5) is None
    assert fedavg(model, memory, Arrival(0, 0, model, vec(6.0), 1.0), lr=0.5) is None
    assert fedavg(model, memory, None, lr=0.5).tolist() == [1.0]
    assert memory.buffer == []
    assert fedavg(model, memory, None) is None  # a round in which nobody came back


def test_fedasync_by_hand():
    """α = 0.6; hinge a = 10, b = 4: τ = 6 has s = 1/21, so 1 − 0.6/21 of the old model stays."""
    model = vec(1.0)
    found = fedasync(model, Memory(1), Arrival(0, 6, vec(9.0), vec(3.0)), staleness="hinge", a=10.0)
    assert found.tolist() == pytest.approx([1 + 0.6 / 21 * 2])
    fresh = fedasync(model, Memory(1), Arrival(0, 4, vec(9.0), vec(3.0)), staleness="hinge", a=10.0)
    assert fresh.tolist() == pytest.approx([1 + 0.6 * 2])


def test_fedbuff_by_hand():
    """K = 3, η = 2, s = 1, 1/√2, ½ for τ = 0, 1, 3; Δ = 3, 2, −4: 2/3 · (3 + √2 − 2) is added."""
    model, memory = vec(1.0), Memory(9)
    arrivals = [Arrival(0, 0, model, vec(4.0)), Arrival(1, 1, vec(5.0), vec(7.0)),
                Arrival(2, 3, vec(0.0), vec(-4.0))]  # fmt: skip
    *waiting, found = [fedbuff(model, memory, each, buffer=3, lr=2.0) for each in arrivals]
    assert waiting == [None, None]
    assert found.tolist() == pytest.approx([1 + 2 / 3 * (1 + math.sqrt(2))])
    assert memory.buffer == []


def test_staleness_weighted_fedbuff_by_hand():
    """FedRevive without distillation: 1 − β(τ), s_max = 10, K = 1: of τ = 10 half counts, of 20 nothing."""
    model = vec(1.0)
    for tau, expected in ((0, 5.0), (10, 3.0), (20, 1.0), (99, 1.0)):
        arrival = Arrival(0, tau, vec(0.0), vec(4.0))
        found = fedbuff(model, Memory(1), arrival, buffer=1, staleness="cosine", b=10.0)
        assert found.tolist() == pytest.approx([expected])


def test_ca2fl_by_hand():
    """n = 2, M = 2, η = ½. First both: h = 0, v = (2 + 4)/2 = 3, then h_0 = 2, h_1 = 4, h = 3.

    Then child 0 twice, Δ = 6 and 0: v = 3 + ((6 − 2) + (0 − 2))/2 = 4; h_0 becomes 0, so h = 2.
    """
    model, memory = vec(0.0), Memory(2)
    assert ca2fl(model, memory, Arrival(0, 0, model, vec(2.0)), buffer=2, lr=0.5) is None
    assert ca2fl(model, memory, Arrival(1, 9, model, vec(4.0)), buffer=2, lr=0.5).tolist() == [1.5]
    assert memory.arrays["mean"].tolist() == [3.0]
    assert ca2fl(model, memory, Arrival(0, 0, model, vec(6.0)), buffer=2, lr=0.5) is None
    assert ca2fl(model, memory, Arrival(0, 0, model, vec(0.0)), buffer=2, lr=0.5).tolist() == [2.0]
    assert memory.arrays["mean"].tolist() == [2.0]
    assert memory.arrays["last-0"].tolist() == [0.0]
    assert memory.arrays["last-1"].tolist() == [4.0]


def test_fedfa_by_hand():
    """K = 3: nothing until three are there, then the mean of the last three, whatever they started from."""
    model, memory = vec(7.0), Memory(1)
    found = [fedfa(model, memory, Arrival(0, 5, vec(9.0), vec(end)), buffer=3) for end in (1, 2, 6, 4)]
    assert found[:2] == [None, None]
    assert [each.tolist() for each in found[2:]] == [pytest.approx([3.0]), pytest.approx([4.0])]
    assert len(memory.buffer) == 2


@pytest.mark.parametrize("name", NAMES)
@given(ends=st.lists(VECTORS, min_size=1, max_size=7), model=VECTORS)
def test_a_rule_writes_to_nothing_that_it_is_given(name, ends, model):
    rule, memory = SERVER_RULES.load(name), Memory(3)
    arguments = {"buffer": 2} if "buffer" in inspect.signature(rule).parameters else {}
    for array in (model, *ends):
        array.flags.writeable = False
    in_rounds = [None] if SERVER_RULES.has(name, ROUNDS) else []
    arrivals = [Arrival(number % 3, number, model, end) for number, end in enumerate(ends)]
    for arrival in (*arrivals, *in_rounds):
        found = rule(model, memory, arrival, **arguments)
        assert found is None or (found.shape == model.shape and found is not model)


@pytest.mark.parametrize("name", NAMES)
def test_a_rule_says_its_formula_and_source(name):
    words = SERVER_RULES.load(name).__doc__
    assert "←" in words
    assert "Source: " in words


@pytest.mark.parametrize(
    ("rule", "arguments", "words"),
    [
        (fedbuff, {"buffer": 0}, "buffer of a rule must be a whole number of at least 1"),
        (fedbuff, {"lr": 0}, "lr of a rule must be a number above 0"),
        (ca2fl, {"lr": "fast"}, "lr of a rule"),
        (fedasync, {"alpha": 1.5}, "alpha of a rule must be a number above 0, at most 1"),
        (fedfa, {"buffer": 2.0}, "buffer of a rule"),
        (fedavg, {"lr": float("inf")}, "lr of a rule"),
    ],
)
def test_arguments_that_cannot_be_are_refused(rule, arguments, words):
    model = vec(0.0)
    with pytest.raises(ConfigError, match=words):
        rule(model, Memory(1), Arrival(0, 0, model, model), **arguments)
