"""Weights of stale updates: between 0 and 1, falling, 1 for a fresh one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.config.registers.option import ConfigError
from fedge.devices.servers.staleness import STALENESS, weight


@pytest.mark.parametrize("kind", STALENESS)
@given(tau=st.integers(0, 10_000), a=st.floats(0, 10), b=st.floats(0.5, 100))
def test_a_weight_falls_from_one(kind, tau, a, b):
    assert weight(kind, 0, a, b) == 1.0
    assert 0 <= weight(kind, tau + 1, a, b) <= weight(kind, tau, a, b) <= 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("polynomal", 1), "did you mean polynomial"),
        (("polynomial", 1, -0.5), "numbers of at least 0"),
        (("hinge", 1, "x"), "numbers of at least 0"),
        (("cosine", 1, 0.5, 0.0), "b of cosine above 0"),
    ],
)
def test_what_cannot_be_is_refused(arguments, words):
    with pytest.raises(ConfigError, match=words):
        weight(*arguments)
