import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedge.config.registers.option import ConfigError
from fedge.seeding import Purpose, numpy_stream, resolve_seed, torch_stream

PLACES = st.lists(st.integers(0, 2**32 - 1), max_size=3).map(tuple)
STREAMS = st.tuples(st.integers(0, 2**70), st.sampled_from(Purpose), PLACES)


def first_numpy(seed, purpose, where):
    return numpy_stream(seed, purpose, *where).integers(2**63, size=2).tolist()


def first_torch(seed, purpose, where):
    return torch.randint(2**63 - 1, (2,), generator=torch_stream(seed, purpose, *where)).tolist()


def test_by_hand():
    """A stream is PCG64 of SeedSequence(seed, spawn_key=(purpose, round, client)); purposes keep their
    numbers.
    """
    expected = np.random.Generator(np.random.PCG64(np.random.SeedSequence(42, spawn_key=(3, 7, 1)))).random(4)
    assert numpy_stream(42, Purpose.SAMPLING, 7, 1).random(4).tolist() == expected.tolist()
    assert [(p.name, p.value) for p in Purpose] == [
        ("MODEL", 0),
        ("PARTITION", 1),
        ("SPLIT", 2),
        ("SAMPLING", 3),
        ("BATCHES", 4),
        ("NOISE", 5),
        ("SCENARIO", 6),
        ("GROUPS", 7),
        ("CLUSTERING", 8),
        ("PERSONAL", 9),
        ("DROPOUT", 10),
        ("DEAL", 11),
        ("DEVICES", 12),
        ("DEVICE_JOBS", 13),
        ("DEVICE_PICKS", 14),
        ("AVAILABILITY", 15),
        ("DISTILLATION", 16),
        ("ALGORITHM", 17),
        ("DURATION", 18),
        ("MOBILITY", 19),
        ("ASSOCIATION", 20),
        ("CLIENT_UPLINK", 21),
        ("SERVER_UPLINK", 22),
        ("LEAF_PART", 23),
    ]


@given(STREAMS)
def test_the_same_place_gives_the_same_numbers(place):
    assert first_numpy(*place) == first_numpy(*place)
    assert first_torch(*place) == first_torch(*place)


@given(STREAMS, STREAMS)
def test_different_places_give_different_numbers(one, other):
    assert (first_numpy(*one) == first_numpy(*other)) == (one == other)
    assert (first_torch(*one) == first_torch(*other)) == (one == other)


def test_zeros_and_large_seeds_are_places_of_their_own():
    """In one list with the seed, (42, MODEL) and (42, MODEL, 0, 0) would be one stream, and so would 42 +
    3·2³².
    """
    places = [(42, 0, ()), (42, 0, (0,)), (42, 0, (0, 0)), (42 + (3 << 32), 0, ()), (42, 3, (0,))]
    assert len({tuple(first_numpy(seed, Purpose(p), where)) for seed, p, where in places}) == len(places)


def test_global_state_is_neither_read_nor_changed():
    before = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())  # noqa: NPY002
    numpy_stream(1, Purpose.SPLIT).random()
    torch.rand(3, generator=torch_stream(1, Purpose.MODEL))
    after = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())  # noqa: NPY002
    assert before == after


def test_seed_of_the_environment_wins():
    assert resolve_seed(42, {}) == (42, "config")
    assert resolve_seed(42, {"SEED": ""}) == (42, "config")
    assert resolve_seed(42, {"SEED": " 43 "}) == (43, "environment")
    assert resolve_seed(42, {"SEED": "0"}) == (0, "environment")


def test_the_process_environment_is_the_default(monkeypatch):
    monkeypatch.setenv("SEED", "17")
    assert resolve_seed(42) == (17, "environment")
    monkeypatch.delenv("SEED")
    assert resolve_seed(42) == (42, "config")


@pytest.mark.parametrize("text", ["-1", "1.5", "abc", "4 2", "0x10"])
def test_a_seed_that_is_no_number_is_refused(text):
    with pytest.raises(
        ConfigError, match=r"^SEED must be a whole number of at least 0, but is .*; try SEED=42"
    ):
        resolve_seed(42, {"SEED": text})
