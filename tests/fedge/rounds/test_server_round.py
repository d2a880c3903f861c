"""A cloud step as leaves see it: three leaves, the published rule, nobody is asked."""

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvg

from fedge.cloud.aggregator import CloudAggregator
from fedge.cloud.settings import CloudSetting
from fedge.config.flat import from_run_config
from fedge.exchange.clients import Clients
from fedge.exchange.round_context import RoundContext
from fedge.leaf.leaf import Leaf
from fedge.rounds.port import PortContext
from fedge.rounds.routed_leaves import EnginePort
from fedge.rounds.server_round import ServerRounds, ServerSeat
from fedge.rounds.task import RunTask
from fedge.rounds.transport import RoundServices, Transport
from fedge.states.state_files import SharedStates
from fedge.timing.laps import LapClock


def state(*values):
    return {"head": np.array([values], np.float32)}


def server_over(leaves, config, folder):
    """The cloud's rounds over leaves, and the transport with their record."""
    facilities = RoundServices(
        Clients(None, {}),
        lambda global_round, leaf_round: RoundContext(7, global_round, leaf_round, "", "", 0, 5.0),
        LapClock(),
        SharedStates(folder, enabled=False),
    )
    transport = Transport(facilities, {}, retries=0)
    transport.begin_round(1)
    task = RunTask(config, 7, {}, 2)
    port = EnginePort(PortContext(task, leaves, transport))
    cloud = CloudAggregator(config.cluster, CloudSetting(("head",)))
    return ServerRounds(ServerSeat((), leaves, cloud, task), transport, port), transport, cloud


@pytest.fixture
def met(tmp_path):
    """Leaves 0 and 2 point one way and 1 another; leaf 2 has an unseen client. Weights 10, 99 and 30."""
    config = from_run_config({"cluster.tau": 0.7})
    unseen = [(), (), (3,)]
    models, windows = [state(1, 0), state(0, -1), state(0.8, 0.6)], [10, 99, 30]
    leaves = [Leaf(i, {i: windows[i]}, models[i], ["head"], FedAvg(), 0, unseen[i]) for i in range(3)]
    rounds, transport, _ = server_over(leaves, config, tmp_path)
    rounds.begin_if_due(1)
    rounds.hold_if_due(1)
    return leaves, transport.book, rounds.record.step


def test_leaves_of_a_cluster_are_offered_its_mean(met):
    """(10 · (1, 0) + 30 · (0.8, 0.6)) / 40 = (0.85, 0.45); leaf 1 is alone and offered nothing."""
    leaves, book, step = met
    assert step.labels.tolist() == [0, 1, 0]
    offers_to = book.root.offers_to
    assert [list(offers_to(leaf)) for leaf in leaves] == [["offered"], [], ["offered"]]
    first, last = (offers_to(leaves[i])["offered"].model for i in (0, 2))
    np.testing.assert_allclose(first["head"], [[0.85, 0.45]], rtol=1e-6)
    assert first is last


def test_leaves_keep_their_models_until_their_gates_decide(met):
    leaves, _, _ = met
    assert leaves[0].model["head"].tolist() == [[1, 0]]


def test_a_cluster_s_model_stays_where_unseen_clients_may_be_served_it(met):
    leaves, book, step = met
    assert [leaf.models.cluster is not None for leaf in leaves] == [False, False, True]
    assert leaves[2].models.cluster is step.offers[2]
    assert book.cloud_uplink_bytes == 3 * 8
    assert book.cloud_downlink_bytes == 2 * 8


def test_updates_of_round_1_are_kept_for_a_first_step_that_comes_later(tmp_path):
    """With `cluster.start-round` 3: nothing trains from one model again, so they are all there is."""
    config = from_run_config({"cluster.method": "tested-family", "cluster.start-round": 3})
    leaves = [Leaf(i, {i: 10}, state(1, 0), ["head"], FedAvg(), 0) for i in range(2)]
    rounds, transport, cloud = server_over(leaves, config, tmp_path)
    rounds.begin_if_due(1)
    (receiver,) = transport.book.requests.receivers
    for leaf in leaves:
        receiver.note(leaf.index, leaf.index, state(1 + leaf.index, 1), 10)
    rounds.hold_if_due(1)
    assert rounds.record.step is None
    for leaf_round in (2, 3):
        transport.begin_round(leaf_round)
        rounds.begin_if_due(leaf_round)
        assert not transport.book.requests.receivers
    assert cloud.memory.likeness.clients.tolist() == [0, 1]
    np.testing.assert_allclose(cloud.memory.likeness.cosines[0], [[1, 0.5**0.5], [0.5**0.5, 1]])
