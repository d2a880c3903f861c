"""Odd arguments of `from_images` and `from_partitions` are the windows that they mean, or one line."""

import collections
import itertools
import warnings

import numpy as np
import pytest
from odd_pictures import CHANNELS, odd_arguments, odd_partitions, plain_pictures
from refusals import check_refusal

from fedge.datasets import images
from fedge.datasets.images import from_images, from_partitions
from hhar.errors import HharError
from hhar.windows.window_file import check_windows

SAMPLE, MANY = 300, 6000


def made_or_refused(make, *positional, **given):
    """Windows, or None where they are refused in one line with the next step."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            windows = make(*positional, **given)
    except HharError as error:
        check_refusal(error)
        return None
    check_windows(windows, "w")
    return windows


def is_refused(given, is_meant):
    """Whether arguments are refused; else the windows are those that plain Python makes of them."""
    windows = made_or_refused(from_images, **given)
    if windows is None:
        assert not is_meant or len({label for _, label, _ in plain_pictures(given)[0]}) < 2
        return True
    kept, classes = plain_pictures(given)
    assert windows.classes == tuple(classes)
    assert windows.user.tolist() == [user for _, _, user in kept]
    assert windows.y.tolist() == [label for _, label, _ in kept]
    assert windows.channels == CHANNELS[len(kept[0][0])]
    x = np.array([picture for picture, _, _ in kept]).astype(windows.x.dtype)
    np.testing.assert_array_equal(windows.x, x)
    return False


def told_with_seed(check):
    """A check of a seed, whose errors name it."""

    def checked(seed):
        try:
            return check(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise

    return checked


def counts(seeds):
    """(refused, made) of so many odd arguments."""
    rng = np.random.default_rng
    found = collections.Counter(
        map(told_with_seed(lambda seed: is_refused(*odd_arguments(rng([251, seed])))), seeds)
    )
    return found[True], found[False]


def is_refused_partition(seed):
    """Whether partitions are refused; else the windows are theirs."""
    positional, given, meant = odd_partitions(np.random.default_rng([252, seed]))
    windows = made_or_refused(from_partitions, *positional, **given)
    assert windows is not None or meant is None
    if windows is None:
        return True
    parts = positional[0]
    told = [(np.asarray(p), y, f"user-{at}") for at, part in enumerate(parts)
            for p, y in zip(part["image"], part["label"], strict=True)]  # fmt: skip
    assert windows.user.tolist() == [user for _, _, user in told]
    assert windows.y.tolist() == [y for _, y, _ in told]
    np.testing.assert_array_equal(windows.x[:, 0], np.array([picture for picture, _, _ in told]))
    numbers = tuple(map(str, range(max(y for _, y, _ in told) + 1)))
    assert {windows.classes} == {tuple(getattr(part.features["label"], "names", numbers)) for part in parts}
    return False


def counts_of_partitions(seeds):
    """(refused, made) of so many odd partitions."""
    found = collections.Counter(map(told_with_seed(is_refused_partition), seeds))
    return found[True], found[False]


def test_odd_pictures_are_what_they_mean_or_are_one_line():
    refused, made = counts(range(SAMPLE))
    assert min(refused, made) > SAMPLE / 5


def test_odd_partitions_are_what_they_mean_or_are_one_line():
    refused, made = counts_of_partitions(range(SAMPLE))
    assert min(refused, made) > SAMPLE / 10


@pytest.mark.extended
@pytest.mark.timeout(600)
def test_thousands_of_odd_pictures_and_partitions():
    seeds = range(SAMPLE, SAMPLE + MANY)
    print(f"(refused, made): pictures {counts(seeds)}, partitions {counts_of_partitions(seeds)}")


@pytest.mark.extended
@pytest.mark.parametrize("hole", ["_as_array", "_labels", "_class_names", "_users"])
def test_a_planted_hole_is_found(monkeypatch, hole):
    """Arrays, labels, names of classes or of users are no longer looked at."""
    holes = {
        "_as_array": lambda value, name: np.asarray(value),
        "_labels": lambda labels, *_, **__: np.clip(np.asarray(labels).astype(np.int64), -1, 1000),
        "_class_names": lambda classes: tuple(map(str, itertools.islice(classes, 100))),
        "_users": lambda users: np.asarray(users).astype(np.str_),
    }
    monkeypatch.setattr(images, hole, holes[hole])
    with pytest.raises(BaseException) as found:  # noqa: PT011
        counts(range(MANY))
    assert not isinstance(found.value, HharError)
