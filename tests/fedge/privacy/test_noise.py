"""Noise of the system's generator: normal, never the same twice, and said where it is used."""

import numpy as np
import pytest
from scipy.stats import chi2, kstest

from fedge.client.privacy import private_state
from fedge.config.sections.privacy import PrivacyConfig
from fedge.privacy import noise
from fedge.privacy.noise import SystemNormals, client_normals, normals

FALSE_ALARM = 1e-9  # these draws have no seed


def test_draws_are_normal():
    """Kolmogorov and Smirnov's test, and the sum of squares; either fails once in a thousand million runs."""
    draws = SystemNormals().standard_normal((100, 1000)).ravel()
    assert kstest(draws, "norm").pvalue > FALSE_ALARM
    low, high = chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], draws.size)
    assert low <= float((draws**2).sum()) <= high
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 6.2 / np.sqrt(draws.size)


def test_draws_are_made_of_the_bits_of_the_system(monkeypatch):
    """All bits zero: u = 0, so −2 ln(1 − u) = 0 and the draw is 0; all ones: finite, the largest there is."""
    monkeypatch.setattr(noise.os, "urandom", lambda count: bytes(count))
    assert SystemNormals().standard_normal() == 0.0
    monkeypatch.setattr(noise.os, "urandom", lambda count: b"\xff" * count)
    assert SystemNormals().standard_normal() == pytest.approx(2 * np.sqrt(2 * 53 * np.log(2)))


@pytest.mark.parametrize("shape", [None, 3, (), (0,), (2, 0), (2, 3)])
def test_shapes_are_those_of_numpy(shape):
    expected = np.random.default_rng(0).standard_normal(shape)
    found = SystemNormals().standard_normal(shape)
    assert np.shape(found) == np.shape(expected)
    assert np.asarray(found).dtype == np.float64


def test_the_option_says_where_noise_comes_from():
    config = PrivacyConfig(kind="server-fixed")
    assert (normals(config, 3, 1, 2).standard_normal(5) == normals(config, 3, 1, 2).standard_normal(5)).all()
    system = PrivacyConfig(kind="server-fixed", noise_source="system")
    first, second = (normals(system, 3, 1, 2).standard_normal(5) for _ in range(2))
    assert (first != second).all()


def test_a_client_s_noise_is_of_the_source_that_the_run_names():
    model = {"w": np.zeros(1000)}

    def sent(source):
        config = PrivacyConfig(kind="local", noise_source=source)
        return private_state(config, None, model, {"w": np.zeros(1000)}, (7, 1, 0))[0]["w"]

    assert (sent("seed") == sent("seed")).all()
    assert (sent("system") != sent("seed")).all()
    assert 0.8 < sent("system").std() / sent("seed").std() < 1.25


SECRET = PrivacyConfig(kind="local", noise_source="system")
UPDATE = {"w": np.arange(6.0).reshape(2, 3), "b": np.zeros(2)}
PLACE = (7, 1, 0)  # seed, leaf round, client


def noise_of(key=b"k" * 32, update=UPDATE, place=PLACE, size=5):
    return client_normals(SECRET, key, update, *place).standard_normal(size)


def test_a_client_that_is_asked_again_sends_the_same_noise():
    assert (noise_of() == noise_of()).all()
    source = client_normals(SECRET, b"k" * 32, UPDATE, *PLACE)
    assert (source.standard_normal(5) != source.standard_normal(5)).all()  # of the next array


OTHERS = {
    "key": {"key": b"l" * 32},
    "a longer key": {"key": b"k" * 33},
    "last bit of a number": {"update": {**UPDATE, "b": np.array([0.0, 5e-324])}},
    "shape": {"update": {**UPDATE, "w": UPDATE["w"].reshape(3, 2)}},
    "name": {"update": {"v": UPDATE["w"], "b": UPDATE["b"]}},
    "dtype": {"update": {**UPDATE, "b": UPDATE["b"].astype(np.float32)}},
    "leaf round": {"place": (7, 2, 0)},
    "client": {"place": (7, 1, 1)},
    "seed": {"place": (8, 1, 0)},
    "what trains": {"place": (*PLACE, 9)},
}


@pytest.mark.parametrize("change", OTHERS)
def test_any_other_release_has_noise_of_its_own(change):
    """The difference of two releases has the variance of both: nothing of the noise is taken off."""
    first, second = noise_of(size=20_000), noise_of(**OTHERS[change], size=20_000)
    low, high = chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], 20_000)
    assert low <= float(((first - second) ** 2).sum() / 2) <= high


def test_noise_by_a_key_is_normal_and_has_the_std_that_is_claimed():
    draws = noise_of(size=100_000)
    assert kstest(draws, "norm").pvalue > FALSE_ALARM
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 6.2 / np.sqrt(draws.size)
