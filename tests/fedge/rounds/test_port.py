"""Global rounds on leaf servers that are a few lines of this test: nothing else is asked of clients."""

import numpy as np
import pytest
from evaluations import classified
from flwr.serverapp.strategy import FedAvg

from fedge.cloud.aggregator import CloudAggregator
from fedge.cloud.settings import CloudSetting
from fedge.config.flat import from_run_config
from fedge.exchange.clients import Clients
from fedge.exchange.engine import RunError
from fedge.exchange.failure import Failure
from fedge.exchange.round_context import LEAF, RoundContext
from fedge.leaf.leaf import Leaf
from fedge.rounds.strategy import HierarchicalStrategy
from fedge.rounds.task import RunTask
from fedge.rounds.transport import RoundServices
from fedge.states.state_files import SharedStates
from fedge.timing.laps import LapClock


def state(*values):
    return {"head": np.array([values], np.float32)}


class WrittenDown:
    """Two leaves of one client; leaf i goes to (1 + i, 1) in every leaf round; all windows are right."""

    def __init__(self, around):
        self.leaves = around.leaves
        self.book_of = around.transport
        self.asked = []

    def train(self, training, leaf_round):
        self.asked.append((training.line, leaf_round))
        for leaf in training.leaves:
            leaf.models.trained(training.line, state(1 + leaf.index, 1))
        return len(training.leaves)

    def evaluate(self, asked, phase=""):
        self.asked.append(sorted(asked.models[0]))
        right = classified(np.array([[10, 0], [0, 0]]), 0.5)
        beside = classified(right.confusion, 0.5, (0, 0))
        return {
            leaf.index: {
                (role, split): beside if role != "own" and split == "val" else right
                for role in asked.models[leaf.index]
                for split in asked.splits
            }
            for leaf in self.leaves
        }


class Nobody(WrittenDown):
    """No reply counts."""

    def train(self, training, leaf_round):
        self.book_of.note_failure(0, Failure("exception", "all is lost"))
        return 0


@pytest.fixture
def strategy(tmp_path):
    """A function of a port that gives the strategy and the results of its rounds, to come."""

    def make(kind, **options):
        config = from_run_config({"hierarchy.num-servers": 2, **options})
        leaves = [Leaf(i, {i: 10}, state(0, 0), ["head"], FedAvg(), 0) for i in range(2)]
        facilities = RoundServices(
            Clients(None, {}),
            lambda global_round, leaf_round: RoundContext(7, global_round, leaf_round, "", "", 0, 5.0),
            LapClock(),
            SharedStates(tmp_path, enabled=False),
        )
        made, results = [], []

        def port(around):
            made.append(kind(around))
            return made[0]

        cloud = CloudAggregator(config.cluster, CloudSetting(("head",)))
        task = RunTask(config, 7, {0: {"val": 10, "test": 10}, 1: {"val": 10, "test": 10}}, 2)
        rounds = HierarchicalStrategy(
            task, leaves, cloud, facilities, lambda result, _: results.append(result), port
        )
        return rounds, made[0], results

    return make


def test_rounds_ask_leaf_servers_to_train_and_to_evaluate_and_nothing_else(strategy):
    """Last layers (1, 1) and (2, 1) have cosine 3/√10 = 0.95: one cluster, whose mean (1.5, 1) both take."""
    rounds, port, results = strategy(WrittenDown, **{"hierarchy.leaf-rounds": 2})
    rounds.start(state(0, 0), 2, 5.0)
    assert port.asked == [(LEAF, 1), (LEAF, 2), ["offered", "own"], (LEAF, 3), (LEAF, 4), ["offered", "own"]]
    assert [result.labels for result in results] == [[0, 0], [0, 0]]
    assert [leaf.model["head"].tolist() for leaf in rounds.leaves] == [[[1.5, 1]], [[1.5, 1]]]
    assert results[-1].releases == 4


def test_a_run_without_any_reply_ends(strategy):
    rounds, _, _ = strategy(Nobody)
    with pytest.raises(RunError, match="no client could train in global round 1; client 0: all is lost"):
        rounds.start(state(0, 0), 1, 5.0)
