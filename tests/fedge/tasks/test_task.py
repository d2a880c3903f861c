"""A score's direction, what a task must say, and sums that are added up."""

import numpy as np
import pytest

from fedge.metrics.scores import score_spread
from fedge.report.comparison.metrics import comparison_metrics
from fedge.tasks.task import Score, Task, total_sums


def test_merit_turns_a_score_so_that_more_is_better():
    rising, falling = (Score("s", lambda sums: 0.0, up) for up in (True, False))
    assert (rising.merit(2.0), falling.merit(2.0)) == (2.0, -2.0)
    named = Score("f", lambda sums: 0.0, True, words="F")
    assert (Score("macro_f1", lambda sums: 0.0, True).label, named.label) == ("macro f1", "F")


@pytest.mark.parametrize("rises", [True, False])
def test_the_percentile_of_a_score_is_named_as_it_is_taken(rises):
    """Of an error the 90th: everywhere that words and numbers stand together."""
    score = Score("s", lambda sums: 0.0, rises)
    values = np.arange(1.0, 22.0)
    percent = int(score.tail_label.split("th ")[0])
    assert score_spread(list(values), rises).p10 == np.percentile(values, percent)
    named = [name for name in comparison_metrics([score]) if "percentile" in name]
    assert len(named) == 2
    assert all(score.tail_label in name for name in named)


def test_sums_keep_their_shapes_and_add_up_in_order():
    found = total_sums([{"a": np.array([1.0, 2.0])}, {"a": np.array([0.5, 0.5])}])
    assert found["a"].tolist() == [1.5, 2.5]


def test_a_task_without_parts_says_which():
    for call in (lambda t: t.losses(None, None), lambda t: t.form(2), lambda t: t.sums(None, None)):
        with pytest.raises(NotImplementedError, match="Task must have"):
            call(Task())


def test_sums_that_are_no_numbers_are_impossible():
    assert Task().impossible({"a": np.array([np.nan])}, 1)[0] == "sum out of range"
    assert Task().impossible({"a": np.array([1.0])}, 1) is None
