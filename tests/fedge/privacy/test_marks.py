"""Marks of what leaves a client."""

import pytest

from fedge.privacy.marks import (
    ACCURACIES,
    CLIPPED,
    LOSSES,
    MODELS,
    PLACES,
    Mark,
    UnmarkedError,
    marked_values,
    quantity_of,
)

LEAVING = {"loss": LOSSES, "sums/*": ACCURACIES, "version": PLACES}


def test_marks_follow_the_kind():
    assert MODELS.mark("local") is Mark.NOISED
    assert LOSSES.mark("local") is Mark.PLAIN
    assert CLIPPED.mark("client-adaptive") is Mark.NOISED
    assert CLIPPED.mark("client-fixed") is Mark.PLAIN
    assert PLACES.mark("local") is Mark.PUBLIC


@pytest.mark.parametrize(
    ("entry", "quantity"),
    [
        ("loss", LOSSES),
        ("leaf-0/val/loss", LOSSES),
        ("own/val/sums/anything", ACCURACIES),
        ("version", PLACES),
    ],
)
def test_an_entry_is_known_by_its_name_or_its_end(entry, quantity):
    assert quantity_of(entry, LEAVING) is quantity


@pytest.mark.parametrize("entry", ["mood", "own/val/mood", "sums", "sums/", "loss/mood"])
def test_what_nobody_marked_is_an_error(entry):
    if entry == "sums/":
        assert quantity_of(entry, LEAVING) is ACCURACIES  # an unnamed sum is a sum
        return
    with pytest.raises(UnmarkedError, match="without a mark"):
        marked_values({"loss": 1.0, entry: 2.0}, LEAVING)


def test_values_go_through_as_they_are():
    values = {"loss": 1.0, "own/val/sums/n": [1, 2]}
    assert marked_values(values, LEAVING) == values
