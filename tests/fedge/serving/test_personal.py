import numpy as np
import pytest
from evaluations import classified
from hypothesis import given
from hypothesis import strategies as st

from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError
from fedge.config.sections.serving import PersonalConfig
from fedge.exchange.evaluate import CLUSTER, OWN, Pooled
from fedge.exchange.round_context import PERSONAL
from fedge.leaf.leaf import Leaf
from fedge.rounds.measurements.book import RoundBook
from fedge.rounds.measurements.round_record import ServerRoundRecord
from fedge.serving.gate import GateResult
from fedge.serving.personal import PersonalResult, compare_personal, is_due


@pytest.mark.parametrize(
    ("leaf_rounds", "every", "due"),
    [(0, 0, []), (0, 2, []), (1, 0, [7]), (3, 3, [3, 6, 7]), (1, 1, [1, 2, 3, 4, 5, 6, 7])],
)
def test_due_rounds_by_hand(leaf_rounds, every, due):
    config = PersonalConfig(leaf_rounds=leaf_rounds, every=every)
    assert [r for r in range(1, 8) if is_due(config, r, 7)] == due


@given(st.integers(1, 9), st.integers(1, 50))
def test_the_last_round_always_has_one(every, rounds):
    assert is_due(PersonalConfig(leaf_rounds=1, every=every), rounds, rounds)


def of(accuracy):
    """Pooled evaluation of a model with an accuracy."""
    return Pooled(accuracy, 1.0, {}, accuracy)


def test_served_if_at_least_as_good():
    assert compare_personal(of(0.5), of(0.5)) == PersonalResult(0.5, 0.5, serves=True)
    assert compare_personal(of(0.5), of(0.75)).serves
    assert not compare_personal(of(0.5), of(0.499)).serves


@pytest.mark.parametrize("layers", ["batch-norm", "both"])
def test_a_model_without_batch_norm_has_none_to_keep(layers):
    settings = {"personal.layers": layers, "train.model": "linear"}
    with pytest.raises(ConfigError, match=rf"^personal\.layers {layers} needs a model with BatchNorm, but "):
        from_run_config(settings)
    assert from_run_config({**settings, "train.model": "cnn"}).personal.kept[-1] == "batch-norm"
    assert from_run_config({**settings, "personal.layers": "head"}).personal.kept == ("head",)
    assert from_run_config({}).personal.kept == ()


def test_noise_covers_one_model_per_leaf_round():
    settings = {"privacy.kind": "local", "scaffold.enabled": False, "train.model": "linear"}
    with pytest.raises(
        ConfigError, match=r"^gate\.rule after-round sends two models .* but privacy\.kind is local;"
    ):
        from_run_config({**settings, "gate.rule": "after-round"})
    from_run_config({**settings, "gate.rule": "after-round", "gate.enabled": False})
    from_run_config({**settings, "gate.rule": "paired"})


# --- accuracy before and after it ---------------------------------------------------------------------


def evaluated(role, val, test):
    """A client's evaluations of one model that has `val` and `test` of 4 windows right."""
    return {
        (role, split): classified(np.array([[right, 4 - right], [0, 0]]), 0.5)
        for split, right in (("val", val), ("test", test))
    }


@pytest.fixture
def book():
    """The books of a round, and their leaf, before fine-tuning.

    Leaf 0 knows clients 0, 1 and 2, who took an offer, and has unseen clients 3 and 4. The offer has 1, 2 and
    3 of 4 test windows right, and 2 of each client's 4 validation windows. Unseen client 3 evaluates the
    cluster's model.
    """
    leaf = Leaf(0, {0: 9, 1: 9, 2: 9}, {"w": np.zeros(1)}, ["w"], None, 0, unseen_clients=(3, 4))
    gate = GateResult("accepted", 0.25, 0.5, True, role="offered", unseen_role=CLUSTER)
    offers = {client: evaluated(OWN, 1, 0) | evaluated("offered", 2, 1 + client) for client in (0, 1, 2)}
    return RoundBook(
        1,
        evaluated=offers | {3: evaluated(CLUSTER, 4, 4)},
        root=ServerRoundRecord(gates=[gate], labels=np.zeros(1, int)),
    ), leaf


def before_after_served(book, leaf):
    """Client → its accuracies before and after fine-tuning, and with the served model."""
    rows = book.result([leaf]).clients
    return {row.client: (row.shared_score, row.tuned_score, row.test_score) for row in rows}


@pytest.mark.parametrize(("val", "serves"), [(4, True), (0, False)])
def test_both_accuracies_are_kept_whichever_is_served(book, val, serves):
    book, leaf = book
    replies = {client: evaluated(PERSONAL, val, 4) for client in (0, 1, 2)}
    assert book.note_personal(leaf, replies) is serves
    assert before_after_served(book, leaf) == {
        0: (0.25, 1.0, 1.0 if serves else 0.25),
        1: (0.5, 1.0, 1.0 if serves else 0.5),
        2: (0.75, 1.0, 1.0 if serves else 0.75),
        3: (None, None, 1.0),
        4: (None, None, None),
    }


def test_a_round_without_fine_tuning_has_neither(book):
    assert {row[:2] for row in before_after_served(*book).values()} == {(None, None)}


def test_a_client_that_did_not_evaluate_both_has_neither(book):
    """Client 0 fails after fine-tuning, client 1 before it; both means are of client 2 alone."""
    book, leaf = book
    del book.evaluated[1]
    book.note_personal(leaf, {1: evaluated(PERSONAL, 4, 4), 2: evaluated(PERSONAL, 4, 4)})
    found = {client: row[:2] for client, row in before_after_served(book, leaf).items()}
    assert found == {0: (None, None), 1: (None, None), 2: (0.75, 1.0), 3: (None, None), 4: (None, None)}
    result = book.result([leaf])
    assert result.over_clients("shared_score").mean == 0.75
    assert result.over_clients("tuned_score").n == 1


def test_unseen_clients_who_are_served_the_same_evaluate_both(book):
    """They count neither for what is served nor in the means over known clients."""
    book, leaf = book
    book.root.gates = [GateResult("accepted", 0.25, 0.5, True, role="offered")]
    book.evaluated[3] = evaluated(OWN, 1, 0) | evaluated("offered", 0, 2)
    book.note_personal(leaf, {client: evaluated(PERSONAL, 3 * (client < 3), 3) for client in range(4)})
    assert book.personal == {0: PersonalResult(0.5, 0.75, serves=True)}
    assert before_after_served(book, leaf)[3] == (0.5, 0.75, 0.75)
    result = book.result([leaf])
    assert result.over_clients("shared_score").mean == 0.5  # (0.25 + 0.5 + 0.75) / 3
    assert result.over_clients("shared_score").n == 3
