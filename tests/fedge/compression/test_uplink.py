"""Uploads of models by hand, error feedback, and bytes."""

import numpy as np
import pytest

from fedge.compression.compressor import Compressor
from fedge.compression.rounding import Int8
from fedge.compression.signs import Sign
from fedge.compression.sparse import TopK
from fedge.compression.uplink import Uplink
from fedge.seeding import Purpose

NAMES = ("w", "b")


def uplink(compressor, names=NAMES):
    return Uplink(compressor, Purpose.CLIENT_UPLINK, names)


def state(w, b=0.0, **others):
    return {"w": np.array(w, np.float32), "b": np.array([b], np.float32), **others}


def test_two_uploads_with_feedback_by_hand():
    """Of (3, 1) goes 3, of (0, 1) + (0, 1) the second, 2; the receiver has what was given plus that."""
    up, given = uplink(TopK(share=0.5)), state([10.0, 20.0])
    first = up.upload(given, state([13.0, 21.0]), {}, 7, 1)
    assert first.state["w"].tolist() == [13.0, 20.0]
    assert first.memory["w"].tolist() == [0.0, 1.0]
    second = up.upload(given, state([10.0, 21.0]), first.memory, 7, 2)
    assert second.state["w"].tolist() == [10.0, 22.0]
    assert second.memory["w"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("compressor", [TopK(share=0.2), Sign()])
def test_what_arrived_and_what_waits_are_all_updates(compressor):
    """Σ sent + e = Σ updates, to float32's rounding of the memory; what arrived alone is far off."""
    rng, up, memory = np.random.default_rng(1), uplink(compressor), {}
    given = state(rng.standard_normal(50), 0.5)
    arrived, wanted = np.zeros(50), np.zeros(50)
    for number in range(30):
        made = state(given["w"] + rng.standard_normal(50).astype(np.float32), 0.25)
        found = up.upload(given, made, memory, 3, number)
        memory = found.memory
        arrived += found.state["w"].astype(np.float64) - given["w"]
        wanted += made["w"].astype(np.float64) - given["w"]
        given = found.state
    assert np.abs(arrived + memory["w"] - wanted).max() < 1e-4
    assert np.abs(arrived - wanted).max() > 0.1


def test_without_feedback_nothing_waits():
    found = uplink(Int8()).upload(state([0.0, 0.0]), state([1.0, 0.3]), {"w": np.array([5.0, 5.0])}, 3, 1)
    assert found.memory == {}
    assert np.abs(found.state["w"]).max() <= 1.0


def test_a_line_of_comparison_leaves_the_memory_alone():
    """Nothing that waits is sent, and nothing new waits."""
    waits = {"w": np.array([0.0, 100.0], np.float32)}
    found = uplink(TopK(share=0.5)).upload(state([0.0, 0.0]), state([3.0, 1.0]), waits, 3, 1, remembers=False)
    assert found.state["w"].tolist() == [3.0, 0.0]
    assert found.memory == {}


def test_what_does_not_train_travels_as_it_is():
    """Statistics, and counters."""
    beside = {"running_var": np.array([1.5], np.float32), "batches": np.array(7)}
    given = state([0.0], 0.0, running_var=np.array([1.0], np.float32), batches=np.array(3))
    found = uplink(Sign()).upload(given, state([1.0], 0.0, **beside), {}, 3, 1)
    assert found.state["running_var"].tolist() == [1.5]
    assert found.state["batches"] == 7
    assert set(found.memory) == set(NAMES)


def test_types_stay():
    given = {"w": np.zeros((2, 3), np.float32), "h": np.zeros(2, np.float64)}
    made = {"w": np.ones((2, 3), np.float32), "h": np.ones(2)}
    found = uplink(Sign(), ("w", "h")).upload(given, made, {}, 3, 1)
    assert [(a.dtype, a.shape) for a in found.state.values()] == [(a.dtype, a.shape) for a in made.values()]
    assert [a.dtype for a in found.memory.values()] == [a.dtype for a in made.values()]


def test_random_numbers_follow_from_seed_sender_round_and_entry():
    """Not from the order of entries, nor from others."""
    given, made = state([0.0] * 9, 0.0), state(np.linspace(0.1, 1, 9), 0.3)
    up = uplink(Int8(levels=2))

    def sent(*where, seed=3, made=made):
        return up.upload(given, made, {}, seed, *where).state["w"].tolist()

    assert sent(1, 2) == sent(1, 2, made=dict(reversed(made.items())))
    assert len({tuple(each) for each in (sent(1, 2), sent(1, 3), sent(2, 2), sent(1, 2, seed=4))}) == 4


def test_bytes_are_of_whole_arrays_whatever_they_hold():
    """9 entries: 41 bits are 6 bytes; 1 entry: 33 bits are 5; 4 and 8 bytes as they are; nothing of none."""
    model = state([0.0] * 9, 0.0, mean=np.zeros(1, np.float32), n=np.array(1), none=np.zeros(0, np.float32))
    assert uplink(Sign(), (*NAMES, "none")).sent_bytes(model) == 6 + 5 + 4 + 8


def test_a_code_must_be_written():
    with pytest.raises(NotImplementedError):
        Compressor().sent(np.zeros(1), np.random.default_rng(0))
    with pytest.raises(NotImplementedError):
        Compressor().bits(1)
