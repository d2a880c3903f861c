"""Draws of a search by Optuna, and floors under which a trial is poor."""

from pathlib import Path

import numpy as np
import pytest

from fedge.sweep.draws import draw, floors
from fedge.sweep.plan import AxisEntry
from fedge.sweep.search import Range, Search, Trial

SPACE = {
    "train.lr": Range(0.001, 1.0, True),
    "train.local-epochs": Range(1, 3),
    "cluster.enabled": Range(choices=(1, True, "x")),
}


def search(sampler="random", seed=0, batch=4, prune_after=0, space=SPACE):
    head = {"seeds": [1], "name": "s", "runs-dir": "runs"}
    return Search(Path("s.toml"), head, AxisEntry(""), sampler, 50, batch, seed, prune_after, space)


def complete(value, options, course=None):
    return Trial(options, "complete", value, {1: course or {1: value}})


@pytest.fixture(autouse=True)
def _optuna(request):
    """Optuna, an extra, for tests of draws."""
    if "floor" not in request.node.name:
        pytest.importorskip("optuna")


def test_draws_stay_in_their_ranges_and_reach_all_of_them():
    drawn = draw(search(batch=60), [], True, 60)
    assert all(0.001 <= point["train.lr"] <= 1.0 for point in drawn)
    assert {point["train.local-epochs"] for point in drawn} == {1, 2, 3}
    assert {repr(point["cluster.enabled"]) for point in drawn} == {"1", "True", "'x'"}
    below = np.mean([point["train.lr"] < 0.0316 for point in drawn])  # half of a logarithmic scale
    assert 0.3 < below < 0.7


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_the_same_knowledge_gives_the_same_draws(sampler):
    known = [complete(n / 9, point) for n, point in enumerate(draw(search(), [], True, 12))]
    assert draw(search(sampler), known, True, 4) == draw(search(sampler), known, True, 4)
    assert draw(search(sampler), known, True, 4)[:2] == draw(search(sampler), known, True, 2)
    assert draw(search(sampler), known, True, 4) != draw(search(sampler, seed=1), known, True, 4)
    assert draw(search(sampler), known, True, 4) != draw(search(sampler), known[:-4], True, 4)


@pytest.mark.parametrize("maximize", [True, False])
def test_a_bayesian_search_goes_where_scores_are_better(maximize):
    """Best at a step size of 0.1; a score that is better when smaller is the same, turned."""
    one = {"train.lr": SPACE["train.lr"]}
    sign = 1 if maximize else -1

    def distance(point):
        return abs(np.log10(point["train.lr"]) + 1)

    known = [complete(-sign * distance(p), p) for p in draw(search(space=one), [], True, 40)]
    far = np.mean([distance(point) for point in draw(search("random", space=one), known, maximize, 12)])
    near = np.mean([distance(point) for point in draw(search("tpe", space=one), known, maximize, 12)])
    assert near < far / 2


def test_trials_that_failed_or_ended_early_are_known_too():
    points = draw(search(), [], True, 3)
    known = [
        complete(0.5, points[0]),
        Trial(points[1], "failed", None, {}),
        Trial(points[2], "pruned", 0.1, {1: {1: 0.1}}),
    ]
    assert len(draw(search("tpe"), known, True, 2)) == 2


def test_floors_are_medians_of_complete_trials_round_by_round():
    known = [
        complete(0.6, {}, {1: 0.2, 2: 0.6}),
        complete(0.5, {}, {1: 0.4, 2: 0.5}),
        Trial({}, "pruned", 0.9, {1: {1: 0.9}}),
        complete(0.9, {}, {1: 0.3}),
    ]
    assert floors(search(prune_after=2), known, 1) == {"1": 0.3, "2": 0.55}
    assert floors(search(prune_after=3), known, 1) == {"1": 0.3}
    assert floors(search(prune_after=4), known, 1) == {}
    assert floors(search(prune_after=0), known, 1) == {}
    assert floors(search(prune_after=1), known, 7) == {}
