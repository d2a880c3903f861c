"""Bytes between leaves and cloud: two leaves, models of 4 bytes."""

import dataclasses

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvg

from fedge.cloud.offers import Offer
from fedge.cloud.step import CloudStep
from fedge.exchange.round_context import LEAF, TRIAL
from fedge.exchange.train import TrainReply
from fedge.leaf.leaf import Leaf
from fedge.rounds.measurements.book import RoundBook


def state(value):
    return {"w": np.array([value], np.float32)}


@pytest.fixture
def leaves():
    return [Leaf(i, {i: 10}, state(i), ["w"], FedAvg(), 0) for i in range(2)]


def step_of(offers, trials=(None, None)):
    return CloudStep("weights", np.array([0, 0]), None, 0.7, True, list(offers), trials=list(trials))


def test_the_loss_of_a_fork_is_not_the_leaf_s():
    book, reply = RoundBook(1), TrainReply(state(1), 10, 5, 0.5, 2.0, 4)
    book.note_trained(3, reply, LEAF)
    book.note_trained(3, dataclasses.replace(reply, loss=9.0), TRIAL)
    assert book.train_loss == {3: 0.5}
    assert book.train_seconds == {3: 4.0}


def test_models_that_a_leaf_does_not_have_come_down_once(leaves):
    """Leaf 0 is asked about its own model, another and an equal one: 4 bytes. Leaf 1 about two: 8."""
    book, other = RoundBook(1), state(7)
    book.note_questions(
        book.root, [{"a": state(0), "b": other, "c": state(7)}, {"b": other, "d": state(8)}], leaves
    )
    assert book.cloud_downlink_bytes == 12


def test_one_leaf_alone_has_no_cloud_above_it(leaves):
    book = RoundBook(1)
    book.note_questions(book.root, [{"a": state(1)}], leaves[:1])
    book.note_cloud_step(book.root, step_of([None]), [{}], leaves[:1])
    assert (book.cloud_downlink_bytes, book.cloud_uplink_bytes) == (0, 0)


def test_a_cloud_step_moves_a_model_up_and_the_cluster_s_down(leaves):
    book, cluster = RoundBook(1), state(7)
    book.note_cloud_step(
        book.root, step_of([cluster, cluster]), [{"offered": Offer(1.0, cluster)}] * 2, leaves
    )
    assert (book.cloud_uplink_bytes, book.cloud_downlink_bytes) == (8, 8)


def test_a_cluster_s_model_that_came_with_a_question_does_not_come_again(leaves):
    book, cluster = RoundBook(1), state(7)
    book.note_questions(book.root, [{"pool-0": cluster}, {}], leaves)
    book.note_cloud_step(book.root, step_of([cluster, cluster]), [{}, {}], leaves)
    assert book.cloud_downlink_bytes == 4 + 4


def test_a_mixed_offer_needs_the_mean_of_all_leaves_too(leaves):
    book, cluster = RoundBook(1), state(7)
    offers = [{"offered": Offer(0.5, state(3))}, {"offered": Offer(1.0, cluster)}]
    book.note_cloud_step(book.root, step_of([cluster, cluster]), offers, leaves)
    assert book.cloud_downlink_bytes == 4 + 4 + 4


def test_a_trial_goes_down_before_it_and_up_after_it(leaves):
    leaves[1].models.apply_cloud_step(None, state(9))
    book = RoundBook(1)
    book.note_cloud_step(book.root, step_of([None, None], [state(8), None]), [{}, {}], leaves)
    assert (book.cloud_uplink_bytes, book.cloud_downlink_bytes) == (8 + 4, 4)
