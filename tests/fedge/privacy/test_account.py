"""Privacy spent: by hand, against published values, and against neighbours worked out exactly."""

import math
import sys

import dp_accounting
import numpy as np
import pytest
from dp_accounting import rdp
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.config.sections.privacy import PrivacyConfig
from fedge.privacy.account import Account, noise_multiplier
from fedge.privacy.mechanism import gaussian_log_delta

ALL = [(9, 9)]  # one leaf, all of whose nine clients train
DELTA = 1e-5


def account(multiplier, drawn=ALL, kind="server-fixed", **changes):
    return Account(PrivacyConfig(kind=kind, noise_multiplier=multiplier, **changes), drawn)


# --- without sampling -------------------------------------------------------------------------------------


def test_one_release_by_hand():
    """z = 1, δ = 1e-5: ε = 4.3772 (Balle and Wang 2018, theorem 8; RDP says 4.7285)."""
    assert account(1.0).spent(1) == pytest.approx(4.3772, abs=1e-4)


@pytest.mark.parametrize("multiplier", [0.05, 0.7, 1.0, 12.0])
@pytest.mark.parametrize("releases", [1, 8, 1000])
def test_epsilon_is_the_one_of_which_delta_comes(multiplier, releases):
    """δ(ε) of a Gaussian with z/√T is 1e-5, by the formula that is tested against the integral."""
    epsilon = account(multiplier).spent(releases)
    assert gaussian_log_delta(epsilon, multiplier / math.sqrt(releases)) == pytest.approx(
        math.log(DELTA), rel=1e-6
    )


@given(st.floats(0.05, 50), st.integers(1, 10_000))
def test_more_rounds_spend_more(multiplier, releases):
    opened = account(multiplier)
    assert 0.0 == opened.spent(0) <= opened.spent(releases) < opened.spent(releases + 1)


def test_an_adaptive_norm_spends_what_a_fixed_one_does():
    """Thanks to z_Δ."""
    assert account(0.5, kind="client-adaptive").spent(7) == account(0.5).spent(7)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 6.0])
def test_a_leaf_round_of_local_privacy_spends_its_budget(epsilon):
    opened = account(1.0, kind="local", epsilon=epsilon, delta=1e-6)
    assert opened.spent(1) == pytest.approx(epsilon, rel=1e-6)
    assert epsilon < opened.spent(4) < 4 * epsilon


# --- with sampling ----------------------------------------------------------------------------------------


def classical_epsilon(q, multiplier, releases, delta):
    """ε by the moments accountant (Abadi et al. 2016, section 3.2): min_λ (T α(λ) − log δ) / λ.

    α(λ) = log Σ_k C(λ+1, k) (1−q)^(λ+1−k) q^k exp(k(k−1)/2z²): the moment of a Gaussian that is sampled by
    coin flips.
    """
    found = []
    for moment in range(1, 65):
        order = moment + 1
        terms = [
            math.lgamma(order + 1) - math.lgamma(k + 1) - math.lgamma(order - k + 1)
            + (order - k) * math.log1p(-q) + k * math.log(q) + k * (k - 1) / (2 * multiplier**2)
            for k in range(order + 1)
        ]  # fmt: skip
        alpha = np.logaddexp.reduce(terms)
        found.append((releases * alpha - math.log(delta)) / moment)
    return min(found)


def test_the_library_agrees_with_published_values():
    """Abadi et al. 2016, section 5: q = 0.01, z = 4, T = 10,000, δ = 1e-5: ε = 1.26 by moments.

    The library has the moments and a later, tighter way from them to ε; the truth is 0.94 or more.
    """
    assert classical_epsilon(0.01, 4.0, 10_000, DELTA) == pytest.approx(1.26, abs=0.005)
    accountant = rdp.RdpAccountant()
    event = dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(4.0))
    accountant.compose(event, 10_000)
    assert 0.94 <= accountant.get_epsilon(DELTA) <= 1.26


def exact_delta(epsilon, multiplier, asked, known):
    """The smallest δ of one release if one of `known` clients is there or not and `asked` are drawn.

    In one dimension, C = 1: the client's update is +1 or nothing, all others' are `other`. The sum over those
    drawn is `other` each; δ = max over both directions of ∫ max(0, P − e^ε Q), and over `other`.
    """
    q, worst = asked / known, 0.0
    x, step = np.linspace(-asked - 40 * multiplier, asked + 40 * multiplier, 400_001, retstep=True)

    def density(centre):
        return np.exp(-0.5 * ((x - centre) / multiplier) ** 2) / (multiplier * math.sqrt(2 * math.pi))

    for other in (-1, 0, 1):
        rest = (1 - q) * density(asked * other)
        there, gone = (rest + q * density((asked - 1) * other + own) for own in (1, 0))
        for p, q_ in ((there, gone), (gone, there)):
            worst = max(worst, float(np.maximum(0, p - math.exp(epsilon) * q_).sum() * step))
    return worst


@pytest.mark.whole_runs  # ten seconds of accounting
@settings(deadline=None, max_examples=40)
@given(st.floats(0.4, 6), st.integers(1, 5), st.integers(1, 60))
def test_drawn_clients_spend_no_less_than_told(multiplier, asked, more):
    """Neighbours that are worked out exactly: their δ at the ε that is told is within 1e-5."""
    told = account(multiplier, [(asked, asked + more)]).spent(1)
    assert told <= account(multiplier).spent(1)
    if told < 30:
        assert exact_delta(told, multiplier, asked, asked + more) <= DELTA * (1 + 1e-6) + 1e-13


def test_drawing_few_of_many_helps_and_the_worst_leaf_counts():
    few, many, plain = (
        account(1.0, drawn).spent(100) for drawn in ([(10, 1000)], [(10, 1000), (10, 500)], ALL)
    )
    assert few == pytest.approx(11.2127, abs=1e-3)
    assert few < many < plain
    assert account(1.0, [(10, 1000), (9, 9)]).spent(100) == plain
    assert account(1.0, [(10, 1000)], kind="local").spent(100) == account(1.0, kind="local").spent(100)


# --- nothing to add up ------------------------------------------------------------------------------------


def test_nothing_is_told_where_nothing_is_known(monkeypatch):
    assert account(1.0, kind="off").spent(3) is None
    assert account(0.0).spent(3) is None
    assert account(0.0).library is None
    assert noise_multiplier(PrivacyConfig(kind="off")) == 0.0
    opened = account(1.0)
    assert opened.library == "dp-accounting 0.6.0" or opened.library.startswith("dp-accounting ")
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    assert opened.spent(3) is None
    assert opened.library is None
