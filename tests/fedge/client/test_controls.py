"""Control variates of clients between leaf rounds, in the server's process and in files."""

import os
from dataclasses import replace

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from hypothesis import given
from hypothesis import strategies as st

from fedge.client.controls import all_controls, load_control, put_controls, save_control
from fedge.exchange.round_context import RoundContext

CLIENT = 4


def control(value):
    return {"w": np.array([value, -value], np.float64)}


def value_of(state):
    return float(state["w"][0])


def new_context():
    return Context(run_id=0, node_id=0, node_config={}, state=RecordDict(), run_config={})


class Kept:
    """One client, whose rounds are given by their number."""

    def __init__(self, folder, in_server):
        self.folder = folder
        self.flower = new_context()
        self.round = RoundContext(0, 1, 1, str(folder), "log", os.getpid() if in_server else 0, 5.0)
        self.here = {CLIENT: self.flower} if in_server else {}

    def save(self, leaf_round, accepted, value):
        save_control(
            self.flower, replace(self.round, leaf_round=leaf_round), CLIENT, accepted, control(value)
        )

    def load(self, accepted):
        return load_control(self.flower, self.round, CLIENT, accepted)

    def versions(self):
        """Return the leaf rounds of which there is a version."""
        files = [int(path.stem) for path in self.folder.glob(f"control-{CLIENT}/*")]
        return sorted(files + [int(str(key).rpartition("-")[2]) for key in self.flower.state])


@pytest.fixture(params=[True, False], ids=["server's process", "files"])
def kept(request, tmp_path):
    return Kept(tmp_path, request.param)


def test_what_counted_last_is_valid_by_hand(kept):
    """Round 1 counts, round 2 does not, round 3 goes on from round 1, and then counts."""
    assert kept.load(0) is None
    kept.save(1, 0, 0.5)
    assert kept.load(1)["w"].tolist() == [0.5, -0.5]
    kept.save(2, 1, 7.0)
    assert value_of(kept.load(1)) == 0.5
    kept.save(3, 1, 0.75)
    assert kept.versions() == [1, 3]
    assert value_of(kept.load(1)) == 0.5
    assert value_of(kept.load(3)) == 0.75


def test_a_control_keeps_every_bit(kept):
    value = np.nextafter(0.1, 1)
    kept.save(1, 0, value)
    assert kept.load(1)["w"].dtype == np.float64
    assert value_of(kept.load(1)) == value


def test_a_second_attempt_at_a_round_replaces_the_first(kept):
    kept.save(1, 0, 0.5)
    kept.save(1, 0, 0.25)
    assert value_of(kept.load(1)) == 0.25
    assert kept.versions() == [1]


def test_a_control_that_is_gone_is_an_error(kept):
    kept.save(1, 0, 0.5)
    with pytest.raises(FileNotFoundError, match=r"^the control variate of leaf round 2 is gone$"):
        kept.load(2)


@given(counts=st.lists(st.booleans(), min_size=1, max_size=12), in_server=st.booleans())
def test_whatever_counts_the_valid_version_is_there_and_no_third(tmp_path_factory, counts, in_server):
    """A version per round: the one that counted last is found bit by bit, beside it at most the newest."""
    kept, accepted = Kept(tmp_path_factory.mktemp("run"), in_server), 0
    for leaf_round, counted in enumerate(counts, start=1):
        kept.save(leaf_round, accepted, leaf_round / 8)
        assert kept.versions() == sorted({accepted, leaf_round} - {0})
        accepted = leaf_round if counted else accepted
        found = kept.load(accepted)
        assert (None if found is None else value_of(found)) == (accepted / 8 or None)


def test_the_server_reads_the_valid_control_of_every_client_that_has_one(kept):
    """Client 4 has two versions, client 5 never counted."""
    kept.save(1, 0, 0.5)
    kept.save(2, 1, 7.0)
    found = all_controls(
        kept.folder, {CLIENT: 1, 5: 0}, kept.here | ({5: new_context()} if kept.here else {})
    )
    assert {client: value_of(state) for client, state in found.items()} == {CLIENT: 0.5}


def test_controls_put_back_are_found_whatever_the_engine(kept):
    """More clients than files that are open at a time; read twice, in other orders."""
    accepted = {client: client + 1 for client in range(20)}
    put_controls(kept.folder, {client: control(client) for client in accepted}, accepted)
    found = all_controls(kept.folder, accepted, {})
    for order in (range(20), reversed(range(20))):
        for client in order:
            assert dict(found[client]).keys() == {"w"}
            assert len(found[client]) == 1
            assert value_of(found[client]) == client
    assert value_of(kept.load(CLIENT + 1)) == CLIENT
