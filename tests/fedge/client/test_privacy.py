"""Models as clients may send them."""

import math

import numpy as np
import pytest
from scipy.stats import chi2

from fedge.client.privacy import local_noise_std, private_state
from fedge.config.sections.privacy import PrivacyConfig
from fedge.privacy.mechanism import gaussian_log_delta

FALSE_ALARM = 1e-9  # two-sided; the seed is fixed
START = {"w": np.zeros(4, np.float32), "b": np.zeros((1, 1), np.float32)}
END = {"w": np.array([3, 0, 0, 0], np.float32), "b": np.full((1, 1), 4, np.float32)}  # norm 5


def private(kind, **changes):
    return PrivacyConfig(kind=kind, **changes)


def test_client_clipping_by_hand():
    """Norm 5 to 1: all values divided by 5. What is within the norm stays. The leaf's norm wins."""
    for kind in ("client-fixed", "client-adaptive"):
        sent, clipped = private_state(private(kind), 1.0, START, END, (1, 2, 3))
        np.testing.assert_allclose(sent["w"], [0.6, 0, 0, 0], rtol=1e-6)
        np.testing.assert_allclose(sent["b"], [[0.8]], rtol=1e-6)
        assert sent["w"].dtype == np.float32
        assert clipped is (True if kind == "client-adaptive" else None)
        sent, clipped = private_state(private(kind), 10.0, START, END, (1, 2, 3))
        np.testing.assert_allclose(sent["w"], END["w"], rtol=1e-6)
        assert clipped is (False if kind == "client-adaptive" else None)


def test_nothing_is_touched_where_the_client_is_not_asked():
    for kind in ("off", "server-fixed", "server-adaptive"):
        sent, clipped = private_state(private(kind), None, START, END, (1, 2, 3))
        assert sent is END
        assert clipped is None


def test_an_update_of_zero_is_one_like_others():
    for kind in ("client-fixed", "client-adaptive"):
        sent, clipped = private_state(private(kind), 1.0, START, dict(START), (1, 2, 3))
        assert all((sent[name] == START[name]).all() for name in START)
        assert not clipped


@pytest.mark.parametrize(("epsilon", "expected"), [(1.0, 3.7306), (0.5, 7.0318), (5.0, 0.8919)])
def test_local_noise_is_what_is_claimed(epsilon, expected):
    """Clipped to norm C, noise of std 2C · z(ε, δ): z as Balle and Wang 2018 have it."""
    size, clip_norm = 200_000, 0.3
    start = {"w": np.zeros(size, np.float64)}
    end = {"w": np.full(size, 5.0)}
    config = private("local", epsilon=epsilon, delta=1e-5, clip_norm=clip_norm)
    std = local_noise_std(config)
    assert std == pytest.approx(2 * clip_norm * expected, rel=1e-4)
    assert gaussian_log_delta(epsilon, std / (2 * clip_norm)) <= math.log(1e-5)
    sent, clipped = private_state(config, None, start, end, (42, 1, 0))
    noise = sent["w"] - clip_norm / math.sqrt(size)
    low, high = chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], size)
    assert low <= np.sum((noise / std) ** 2) <= high
    assert abs(noise.mean()) <= 6.2 * std / math.sqrt(size)
    assert clipped is None


def test_the_leaf_does_not_choose_the_norm_of_local_noise():
    """A leaf that asks for another norm would get an update that the noise does not cover."""
    config = private("local", epsilon=1.0, clip_norm=1e-9)
    loud, quiet = (
        private_state(config, norm, START, END, (1, 2, 3))[0]["w"] for norm in (1e9, None)
    )  # fmt: skip
    assert (loud == quiet).all()


def test_noise_follows_from_seed_round_and_client_and_leaves_no_trace():
    """Contract C2: NumPy's global state is as it was, whatever it was, and does not matter."""
    draws = {}
    for where in ((42, 1, 0), (42, 1, 1), (42, 2, 0), (43, 1, 0)):
        for global_seed in (0, 1):
            np.random.seed(global_seed)  # noqa: NPY002
            before = np.random.get_state()[1].tobytes()  # noqa: NPY002
            sent, _ = private_state(private("local"), None, START, END, where)
            assert np.random.get_state()[1].tobytes() == before  # noqa: NPY002
            draws.setdefault(where, set()).add(sent["w"].tobytes())
    assert all(len(found) == 1 for found in draws.values())
    assert len({next(iter(found)) for found in draws.values()}) == 4
