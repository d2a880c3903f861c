"""FLUX at the leaves: descriptions, knee and clusters by hand, then a run whose sensors are turned."""

import json

import numpy as np
import pytest

from fedge import simulate
from fedge.clustering.likeness.evidence import Answers, Evidence
from fedge.clustering.methods import flux
from fedge.clustering.registry import method_named
from fedge.config.sections.cluster import ClusterConfig
from fedge.exchange.evaluate import DESCRIBED
from fedge.exchange.schema import ReplyRejected, check_moments
from fedge.records.reading.reader import load_run

NAN = float("nan")


def answers(descriptions, windows=None, leaf_of=None):
    rows = np.array(descriptions, dtype=float)
    windows = np.ones(len(rows)) if windows is None else np.array(windows)
    leaf_of = np.arange(len(rows)) if leaf_of is None else np.array(leaf_of)
    return Answers({}, windows, leaf_of, moments={DESCRIBED: rows})


def test_a_leafs_description_is_the_mean_of_its_clients():
    """(1 · 10 + 3 · 30) / 40 = 2.5; nobody of leaf 1 has answered."""
    found = flux.leaf_descriptions(answers([[1.0], [3.0], [NAN]], [10, 30, 5], [0, 0, 1]), 2)
    np.testing.assert_array_equal(found, [[2.5], [NAN]])


def line(*places):
    """The distances of points on a line."""
    return np.abs(np.subtract.outer(np.array(places, float), np.array(places, float)))


def test_the_knee_is_farthest_below_the_chord():
    """Points 0, 1, 3, 5, 20: nearest others at 1, 1, 2, 2, 15. Sorted, from 0 to 1 in both directions:
    (0, 0), (¼, 0), (½, 1/14), (¾, 1/14), (1, 1): the fourth is .68 below the chord, so ε = 2."""
    assert flux.knee(line(0, 1, 3, 5, 20)) == 2
    assert flux.dbscan_labels(line(0, 1, 3, 5, 20), 2).tolist() == [0, 0, 0, 0, 1]
    assert flux.knee(line(0, 4)) == 4
    assert flux.knee(line(0, 2, 4, 6)) == 2


def grouping(descriptions, **arguments):
    models = [{"w": np.zeros(1)}] * len(descriptions)
    seen = Evidence(models, None, [1] * len(models), ("w",), answers=answers(descriptions))
    config = ClusterConfig(method="flux", method_args=json.dumps(arguments))
    return method_named(config).group(seen, config, None)


def test_groups_by_hand():
    """One number tells 0, 0.1, 0.3 from 5, 5.1, 5.3 and the other nothing: nearest others at 0.1, 0.1 and 0.2
    of each, so the knee is at 0.1, and the third of each hangs on at twice that."""
    rows = [[value, 7.0] for value in (0, 0.1, 0.3, 5, 5.1, 5.3)]
    assert grouping(rows).labels.tolist() == [0, 0, 1, 2, 2, 3]
    assert grouping(rows, scale=2.1).labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert "silent" not in grouping(rows).facts
    assert (
        grouping([*rows[:5], [NAN, NAN]]).facts["skipped"] == "no client of leaf 5 has described its windows"
    )


def test_a_description_is_there_where_it_was_asked_for():
    check_moments(None, "own model", False, 2)
    check_moments(np.zeros(12), "described model", True, 2)
    for moments, asked in (
        (None, True),
        (np.zeros(12), False),
        (np.zeros(11), True),
        (np.full(12, NAN), True),
    ):
        with pytest.raises(ReplyRejected):
            check_moments(moments, "a model", asked, 2)


@pytest.mark.slow
def test_in_a_run_clients_are_asked_once(tmp_path):
    """Six leaves of two, half of them with turned sensors; clients describe in round 2 alone."""
    run = simulate(
        {
            "report": False, "data.path": "synthetic", "data.synthetic-users": 12, "train.model": "mlp-tiny",
            "train.local-epochs": 1, "num-server-rounds": 3, "seed": 5, "hierarchy.num-servers": 6,
            "cluster.method": "flux", "cluster.method-args.split-round": 2, "gate.enabled": False,
            "scaffold.enabled": False, "scenario": "rotate", "runs-dir": str(tmp_path),
        },
        num_supernodes=12,
    )  # fmt: skip
    steps = [json.loads(line) for line in (run.folder / "clusters.jsonl").read_text().splitlines()]
    assert ["exchange_bytes" in step for step in steps] == [False, True, False]
    assert steps[0]["labels"] == [0] * 6
    assert steps[1]["labels"] == steps[2]["labels"]
    groups = load_run(run.folder).manifest["scenario"]["groups"]
    apart = [(a, b) for a in range(6) for b in range(a) if groups[a] != groups[b]]
    assert all(steps[1]["labels"][a] != steps[1]["labels"][b] for a, b in apart)
