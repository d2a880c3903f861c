"""Taps over lines and steps, from PyTorch's arguments."""

import pytest
import torch

from fedge.native.taps import Taps, pair_of, taps_of
from fedge.native.trace import UnknownError


def test_one_number_is_both():
    assert pair_of(3, "size") == pair_of((3,), "size") == (3, 3)
    assert pair_of([1, 2], "size") == (1, 2)
    with pytest.raises(UnknownError, match="stride half"):
        pair_of("half", "stride")


def test_padding_in_words():
    given = {"stride": 1, "padding": "same", "dilation": 1}
    assert taps_of(given, (3, 5)) == Taps((3, 5), (1, 1), (1, 2))
    assert taps_of({**given, "padding": "valid"}, (2, 2)) == Taps((2, 2), (1, 1), (0, 0))
    with pytest.raises(UnknownError, match="padding same"):  # of an even size it is not alike on both sides
        taps_of(given, (2, 2))


def test_a_pools_stride_is_its_size_by_default():
    assert taps_of({"stride": None, "padding": 0}, (2, 3)).stride == (2, 3)


def test_lines_are_needed_where_there_are_some_or_taps_reach_over_them():
    point = Taps((1, 1), (1, 1), (0, 0))
    assert not point.need_lines(torch.zeros(1, 1, 1, 9))
    assert point.need_lines(torch.zeros(1, 1, 2, 9))
    assert Taps((1, 3), (2, 1), (0, 1)).need_lines(torch.zeros(1, 1, 1, 9))


@pytest.mark.parametrize(("wrong", "why"), [({"dilation": 2}, "dilation"), ({"padding": 3}, "padding")])
def test_what_is_not_known(wrong, why):
    with pytest.raises(UnknownError, match=why):
        taps_of({"stride": 1, "padding": 0, "dilation": 1, **wrong}, (3, 3))
