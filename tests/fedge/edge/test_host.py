"""Orders to a leaf server whose clients are threads of this process: answers, and what is no order."""

import pytest
from leaf_servers import host_of
from small_runs import small_config

from fedge.config.flat import from_run_config, to_run_config
from fedge.data.prepared import load_source
from fedge.edge import orders
from fedge.link.frames import Packet
from fedge.link.gate import HELLO, OVER


@pytest.fixture
def facts(tmp_path):
    """What the cloud tells leaf server 1 of a run of nine clients at three leaves."""
    config = from_run_config(small_config(tmp_path))
    return {
        "run": "a run", "leaf": 1, "clients": 9, "seed": 3, "config": to_run_config(config),
        "fingerprint": load_source(config, 9)[1].fingerprint,
    }  # fmt: skip


@pytest.fixture
def host(tmp_path):
    made = host_of(tmp_path, 1)
    yield made
    made.close()


def no_note(_):
    pass


def test_a_leaf_server_has_its_own_clients(host, facts):
    assert host.hello().kind == HELLO
    answer = host.answer(Packet(orders.BEGIN, facts), no_note)
    assert (answer.kind, answer.facts["clients"]) == (orders.DONE, [3, 4, 5])
    assert host.answer(Packet(OVER), no_note).kind == orders.DONE


def test_an_order_of_a_run_that_it_knows_nothing_of_is_sent_back(host, facts):
    order = Packet(orders.TRAIN, {"run": "another run", "global_round": 1})
    assert host.answer(order, no_note).kind == orders.UNKNOWN
    host.answer(Packet(orders.BEGIN, facts), no_note)
    assert host.answer(order, no_note).kind == orders.UNKNOWN


@pytest.mark.parametrize(
    ("changes", "telling"),
    [
        ({"leaf": 2}, "this is leaf server 1, but the cloud takes it for 2"),
        ({"fingerprint": "0"}, "data.path must be the data that the cloud has"),
        ({"config": {"train.modle": "cnn"}}, "did you mean train.model?"),
    ],
    ids=str,
)
def test_a_run_that_cannot_be_here_is_told_why(host, facts, changes, telling):
    answer = host.answer(Packet(orders.BEGIN, {**facts, **changes}), no_note)
    assert answer.kind == orders.FAILED
    assert telling in answer.facts["words"]


def test_what_is_no_order_is_told_to_the_cloud(host, facts):
    host.answer(Packet(orders.BEGIN, facts), no_note)
    answer = host.answer(Packet("dance", {"run": "a run", "global_round": 1}), no_note)
    assert (answer.kind, answer.facts["words"]) == (orders.FAILED, "KeyError: 'dance'")
