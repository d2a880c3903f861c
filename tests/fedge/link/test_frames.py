"""Packets in chunks and back; what is no packet is refused before memory is taken."""

import json

import numpy as np
import pytest
from any_states import states
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.link.frames import CHUNK_BYTES, LinkError, Packet, chunks_of, packet_of


def sent(packet):
    """A packet as it arrives, and how many chunks it took."""
    chunks = list(chunks_of(packet))
    assert max(map(len, chunks)) <= CHUNK_BYTES + 1
    incoming = iter(chunks)
    found = packet_of(incoming)
    assert next(incoming, None) is None
    return found, len(chunks)


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(states(), st.dictionaries(st.text(), st.floats() | st.integers() | st.text() | st.none()))
def test_what_arrives_is_what_was_sent(state, facts):
    found, _ = sent(Packet("train", facts, {"model": state}))
    assert found.kind == "train"
    np.testing.assert_equal(dict(found.facts), facts)
    assert list(found.states["model"]) == list(state)
    for name, array in state.items():
        got = found.states["model"][name]
        assert (got.dtype, got.shape, got.tobytes()) == (array.dtype, array.shape, array.tobytes())
        assert not got.flags.writeable


def test_one_state_under_two_names_goes_once_and_stays_one():
    state = {"w": np.zeros(3 * CHUNK_BYTES // 4 + 1, np.float32)}
    found, chunks = sent(Packet("evaluate", {}, {"own": state, "served": state, "other": {"w": np.ones(2)}}))
    assert found.states["own"] is found.states["served"]
    assert found.states["other"]["w"].tolist() == [1, 1]
    assert chunks == 2 + 4 + 1


def test_several_packets_follow_each_other():
    chunks = [*chunks_of(Packet("a", {"n": 1})), *chunks_of(Packet("b", {}, {"m": {"w": np.arange(3)}}))]
    incoming = iter(chunks)
    assert [packet_of(incoming).kind, packet_of(incoming).kind, packet_of(incoming)] == ["a", "b", None]


def test_states_lie_where_they_are_kept_as_soon_as_each_is_there():
    """One under two names is kept once; one that no file can hold is left alone."""
    kept = []

    def keep(state):
        kept.append(sorted(state))
        return {name: array + 1 for name, array in state.items()}

    state, odd = {"w": np.zeros(3)}, {"__metadata__": np.zeros(3)}
    chunks = chunks_of(Packet("train", {}, {"own": state, "served": state, "odd": odd}))
    found = packet_of(chunks, keep=keep)
    assert kept == [["w"]]
    assert found.states["own"] is found.states["served"]
    assert found.states["own"]["w"].tolist() == [1, 1, 1]
    assert found.states["odd"]["__metadata__"].tolist() == [0, 0, 0]


HEAD = {"kind": "k", "facts": {}, "states": {"m": "0"}, "arrays": {"0": {"w": ["<f4", [2]]}}}


@pytest.mark.parametrize(
    "changes",
    [
        {"arrays": {"0": {"w": ["|O8", [2]]}}},
        {"arrays": {"0": {"w": ["<f4", [-2]]}}},
        {"arrays": {"0": {"w": ["<f4", [2**40]]}}},
        {"arrays": {"0": {"w": ["<f4", ["2"]]}}},
        {"arrays": {"0": {"w": ["<f4", [3]]}}},
        {"arrays": {"0": {"w": ["<f4", [1]]}}},
        {"arrays": []},
        {"states": {"m": "7"}},
        {"facts": 3},
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(changes):
    head = json.dumps({**HEAD, **changes}).encode()
    with pytest.raises(LinkError):
        packet_of(iter([b"H" + head, b"H", b"D" + bytes(8)]))


@pytest.mark.parametrize("chunks", [[b"D123"], [b"Hno json", b"H"], [b""], [b"H{}"]], ids=str)
def test_what_is_no_packet_is_refused(chunks):
    with pytest.raises(LinkError):
        packet_of(iter(chunks))


def test_a_packet_that_ends_half_way_is_none():
    chunks = list(chunks_of(Packet("train", {}, {"m": {"w": np.zeros(3)}})))
    for end in range(1, len(chunks)):
        with pytest.raises(LinkError, match="cut off"):
            packet_of(iter(chunks[:end]))
