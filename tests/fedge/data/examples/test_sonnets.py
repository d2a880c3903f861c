"""Sonnets as characters, of which the next is learnt."""

import numpy as np
import pytest

from fedge.config.registers.option import ConfigError
from fedge.data.examples.sonnets import ALPHABET, sonnets, texts
from hhar.windows.window_file import check_windows


def test_y_is_the_character_after_each():
    """A piece of four characters by hand: it begins as the second sonnet does, "When forty"."""
    windows = sonnets(length=4, step=5)
    check_windows(windows, "sonnets")
    read = ["".join(ALPHABET[code] for code in codes) for codes in (*windows.x[:2], *windows.y[:2])]
    assert read == ["when", "fort", "hen ", "orty"]
    np.testing.assert_array_equal(windows.x[:, 1:], windows.y[:, :-1])


def test_every_sonnet_has_fourteen_lines_of_the_alphabet():
    assert {len(text.splitlines()) for text in texts().values()} == {14}
    assert set("".join(texts().values()).lower()) <= set(ALPHABET)
    assert 0 not in sonnets().x


def test_no_piece_of_test_is_in_training():
    """The data's own split: by lines, so that pieces cannot overlap; every user has all three parts."""
    windows = sonnets(length=32, step=1)
    pieces = {
        part: {piece.tobytes() for piece in windows.x[windows.part == part]} for part in ("train", "test")
    }
    assert not pieces["train"] & pieces["test"]
    for user in np.unique(windows.user):
        assert set(windows.part[windows.user == user]) == {"train", "val", "test"}


@pytest.mark.parametrize("sizes", [{"length": 3}, {"length": 65}, {"step": 0}])
def test_pieces_that_do_not_fit_are_refused(sizes):
    with pytest.raises(ConfigError, match="length must be 4 to 64 and step 1 to 64"):
        sonnets(**sizes)
