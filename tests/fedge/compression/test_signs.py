"""Signs and their mean size, by hand."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedge.compression.signs import Sign

RNG = np.random.default_rng(0)


def test_every_entry_has_the_mean_size():
    """(1 + 3 + 0 + 2) / 4; 0 counts as positive."""
    assert Sign().sent(np.array([1.0, -3.0, 0.0, 2.0]), RNG).tolist() == [1.5, -1.5, 1.5, 1.5]
    assert Sign().sent(np.zeros(2), RNG).tolist() == [0.0, 0.0]


def test_a_bit_an_entry_and_the_size():
    assert Sign().bits(1000) == 1032


@given(arrays(np.float64, st.integers(1, 40), elements=st.floats(-100, 100)))
def test_it_contracts(update):
    """Karimireddy et al. 2019, lemma 8: |v − C(v)|² = (1 − |v|₁² / (n |v|₂²)) |v|₂², float32's size apart."""
    off = float(np.square(update - Sign().sent(update, RNG)).sum())
    square, size = float(np.square(update).sum()), float(np.abs(update).sum())
    assert abs(off - (square - size**2 / len(update))) <= 1e-6 * (square + 1e-9)
