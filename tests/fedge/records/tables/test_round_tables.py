"""Columns named by scores: none may repeat another column of its table."""

from types import SimpleNamespace

import pytest

from fedge.config.registers.option import ConfigError
from fedge.records.tables.round_tables import CLIENTS, GLOBAL, LEAF, refuse_repeated_columns
from fedge.tasks import Score
from fedge.tasks.multilabel import Multilabel
from fedge.tasks.regression import Regression
from fedge.tasks.sequence import Sequence

OF_OTHER_SCORES = {"test_accuracy", "macro_f1", "unseen_macro_f1"}


def scored(*names):
    """A task with scores of these names."""
    return SimpleNamespace(scores=[Score(name, len, higher_is_better=True) for name in names], loss_unit="")


@pytest.mark.parametrize("task", [scored("accuracy", "f1"), Regression(), Multilabel(), Sequence()])
def test_scores_of_their_own_are_taken(task):
    refuse_repeated_columns(task)


@pytest.mark.parametrize("name", sorted({*CLIENTS.names, *LEAF.names} - OF_OTHER_SCORES))
def test_no_score_repeats_a_column(name):
    """A further score called `leaf` or `test_loss` wrote a second column of this name beside the table's."""
    score = "accuracy" if "accuracy" in name else "first"
    with pytest.raises(ConfigError, match=rf"\({score}, {name}\) .* has \w+ twice; rename a Score"):
        refuse_repeated_columns(scored(score, name))


@pytest.mark.parametrize("name", ["train_loss", "test_loss", "unseen_loss", "val_loss", "leaf_first"])
def test_no_score_repeats_a_mean_over_clients(name):
    assert name == "leaf_first" or f"{name}_mean" in GLOBAL.names
    with pytest.raises(ConfigError, match=rf"has {name}\w* twice"):
        refuse_repeated_columns(scored("first", name))


@pytest.mark.parametrize("name", ["samples", "loss"])
def test_the_first_score_repeats_no_column(name):
    with pytest.raises(ConfigError, match=rf"has test_{name}\w* twice"):
        refuse_repeated_columns(scored(name))
