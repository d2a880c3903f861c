"""The noise that a leaf really adds, measured against what is claimed, and the norm that it goes by.

Statistical tests compare Σ ((x − mean) / std)² over d draws with the chi-square distribution. Each is
two-sided with a false-alarm probability of 1e-9, and its seed is fixed: it fails only when the code changes.
With d = 200,000 it notices a std that is 2 % off.
"""

import math

import numpy as np
import pytest
from scipy.stats import chi2

from fedge.config.flat import from_run_config
from fedge.config.sections.privacy import PrivacyConfig
from fedge.exchange.train import TrainReply
from fedge.leaf.strategies.private_mean import PrivateMean
from fedge.leaf.strategies.rules import ExactFedAvg, combine, make_strategy
from fedge.leaf.strategies.strategy_state import numbers_of, restore_strategy, states_of
from fedge.training.schedule import local_training

FALSE_ALARM = 1e-9
SIZE = 200_000
KINDS = ("server-fixed", "server-adaptive", "client-fixed", "client-adaptive")
CONFIG = {"scaffold.enabled": False, "train.model": "linear"}
SETTINGS = local_training(from_run_config(CONFIG).train, 1)
MODEL = {"w": np.zeros(SIZE - 7, np.float64), "b": np.ones((7, 1), np.float64)}


def leaf_strategy(kind, asked, **changes):
    config = from_run_config(
        {**CONFIG, "privacy.kind": kind, **{f"privacy.{key}": value for key, value in changes.items()}}
    )
    return make_strategy(config, asked)


def reply(length, samples=10, clipped=None):
    """An update of one number, of a length; a client that clips says whether it did."""
    state = {name: array.copy() for name, array in MODEL.items()}
    state["w"][0] += length
    return TrainReply(state, samples, 1, 0.5, 0, 0, clipped)


def released(strategy, replies, leaf_round=1, seed=42, leaf=0):
    return combine(strategy, MODEL, MODEL, replies, ["w", "b"], SETTINGS, seed, (leaf_round, leaf))


def flat(state):
    return np.concatenate([array.ravel() for array in state.values()])


def holds(noise, std):
    """Tell whether draws may be of N(0, std²): their sum of squares, and their sum."""
    low, high = chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], noise.size)
    within = low <= float(np.sum((noise / std) ** 2)) <= high
    return within and abs(noise.mean()) <= 6.2 * std / math.sqrt(noise.size)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("replying", [0, 1, 5, 8])
def test_noise_is_what_is_claimed(kind, replying):
    """z = 0.5, C = 3, eight asked: std z_Δ · 3 / 8 however many reply; adaptive: σ_b = 0.4."""
    strategy = leaf_strategy(kind, 8, **{"noise-multiplier": 0.5, "clip-norm": 3.0})
    z_mean = (0.5**-2 - 0.8**-2) ** -0.5 if kind.endswith("adaptive") else 0.5
    noise = flat(released(strategy, [reply(0.0, clipped=False)] * replying)) - flat(MODEL)
    assert holds(noise, z_mean * 3 / 8)
    for factor in (0.92, 0.97, 1.03, replying / 8 or 2):
        if factor != 1:
            assert not holds(noise, z_mean * 3 / 8 * factor)


@pytest.mark.parametrize("kind", KINDS)
def test_noise_is_on_what_clients_send_alone(kind):
    """Entries that a method keeps at its clients, as heads of their own, stay as they are to the bit."""
    strategy = leaf_strategy(kind, 8, **{"noise-multiplier": 0.5, "clip-norm": 3.0})
    replies = [reply(0.0, clipped=False)] * 8
    made = combine(strategy, MODEL, MODEL, replies, ["w", "b"], SETTINGS, 42, (1, 0), ("w",))
    assert np.array_equal(made["b"], MODEL["b"])
    z_mean = (0.5**-2 - 0.8**-2) ** -0.5 if kind.endswith("adaptive") else 0.5
    assert holds(made["w"] - MODEL["w"], z_mean * 3 / 8)


@pytest.mark.parametrize("kind", ["server-adaptive", "client-adaptive"])
def test_noise_is_measured_by_the_norm_that_clipped(kind):
    """clip-lr 5 moves the norm by exp(2.5) a round; a round's noise is that of the norm before it moved.

    All eight are clipped in every round, so the norm grows.
    """
    strategy = leaf_strategy(kind, 8, **{"noise-multiplier": 0.5, "clip-norm": 0.1, "clip-lr": 5.0})
    z_mean = (0.5**-2 - 0.8**-2) ** -0.5
    for leaf_round in range(1, 4):
        norm = strategy.clip_norm
        sent = reply(1e9, clipped=True)
        noise = flat(released(strategy, [sent] * 8, leaf_round)) - flat(MODEL)
        assert noise[0] == pytest.approx(norm, abs=6.2 * z_mean * norm / 8)  # eight updates of norm C
        assert holds(noise[1:], z_mean * norm / 8)
        assert strategy.clip_norm > 5 * norm


@pytest.mark.parametrize("kind", ["server-adaptive", "client-adaptive"])
def test_noise_of_the_count_is_what_is_claimed(kind):
    """Nobody within C: log(C⁺/C) = −η (N(0, σ_b²)/n − γ), σ_b = n/20, over 2,000 rounds of one number."""
    strategy = leaf_strategy(kind, 8, **{"noise-multiplier": 0.5, "clip-norm": 1.0, "clip-lr": 0.2})
    small = {"w": np.zeros(1)}
    sent = TrainReply({"w": np.full(1, 1e9)}, 10, 1, 0.5, 0, 0, True)
    draws = []
    for leaf_round in range(1, 2001):
        before, strategy.clip_norm = strategy.clip_norm, 1.0
        strategy.released(small, [sent] * 8, 42, (leaf_round, 0))
        draws.append((math.log(strategy.clip_norm) - 0.2 * 0.5) / -0.2)
        assert before > 0
    assert holds(np.array(draws), 1 / 20)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_and_dishonest_clients_do_not_matter(kind):
    """Two of four reply, one with 1,000 windows and an update of 1e9 that is not clipped: C / n each."""
    strategy = leaf_strategy(kind, 4, **{"noise-multiplier": 0.0, "clip-norm": 2.0})
    state = released(strategy, [reply(1e9, 1000, False), reply(-1.0, 1, False)])
    assert state["w"][0] == pytest.approx((2 - 1) / 4)
    assert not state["w"][1:].any()


@pytest.mark.parametrize("kind", KINDS)
def test_draws_of_rounds_leaves_and_seeds_are_different_ones(kind):
    """The same place gives the same bits; any other place, other noise."""
    places = [(1, 42, 0), (2, 42, 0), (1, 42, 1), (1, 43, 0)]
    noises = {}
    for place in places * 2:
        strategy = leaf_strategy(kind, 8, **{"noise-multiplier": 0.5})
        noise = flat(released(strategy, [], *place)) - flat(MODEL)
        assert (noises.setdefault(place, noise) == noise).all()
    for a in places:
        for b in places:
            if a != b:
                assert abs(np.corrcoef(noises[a], noises[b])[0, 1]) < 6.2 / math.sqrt(SIZE)


def test_the_norm_goes_by_who_says_what():
    """server: by the norms that came, C itself within. client: by what is said; who says nothing counts ½."""
    near, far = reply(1.0), reply(1.1)
    strategy = leaf_strategy("server-adaptive", 2, **{"noise-multiplier": 0.0, "clip-quantile": 0.5})
    released(strategy, [near, near])
    assert strategy.clip_norm == pytest.approx(math.exp(-0.1))
    strategy = leaf_strategy("server-adaptive", 2, **{"noise-multiplier": 0.0, "clip-quantile": 0.5})
    released(strategy, [near, far])
    assert strategy.clip_norm == pytest.approx(1.0)
    strategy = leaf_strategy("client-adaptive", 2, **{"noise-multiplier": 0.0, "clip-quantile": 0.5})
    released(strategy, [reply(1.0, clipped=True), reply(1.0)])
    assert strategy.clip_norm == pytest.approx(math.exp(0.2 * 0.25))


def test_the_norm_is_kept():
    strategy = leaf_strategy("server-adaptive", 8, **{"noise-multiplier": 0.5})
    released(strategy, [reply(9.0)] * 8)
    other = leaf_strategy("server-adaptive", 8, **{"noise-multiplier": 0.5})
    restore_strategy(other, states_of(strategy), numbers_of(strategy))
    assert other.clip_norm == strategy.clip_norm != 1.0
    assert other.noise_std == strategy.noise_std


def test_only_released_makes_a_private_mean():
    """FedAvg's own aggregation would leave the noise out."""
    with pytest.raises(NotImplementedError, match="released"):
        PrivateMean(PrivacyConfig(kind="server-fixed"), 4).aggregate_train(1, [])


def test_which_kinds_have_a_private_mean():
    kinds = {kind: type(leaf_strategy(kind, 20)) for kind in ("off", "local", *KINDS)}
    assert kinds == {"off": ExactFedAvg, "local": ExactFedAvg, **dict.fromkeys(KINDS, PrivateMean)}
