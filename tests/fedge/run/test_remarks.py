import dataclasses
import json

import numpy as np
import pytest

from fedge.cloud.step import CloudStep
from fedge.rounds.measurements.results import InnerStep
from fedge.run.remarks import _FORMS, Remarks, changes_of


def seen(*results):
    remarks = Remarks()
    for result in results:
        remarks.observe(result)
    return remarks


def with_cloud(result, labels, off_diagonal):
    """Put in a cloud step with these labels and this similarity of the two leaves; None compares nothing."""
    similarity = None if off_diagonal is None else np.array([[1, off_diagonal], [off_diagonal, 1]])
    step = CloudStep("weights", np.array(labels), similarity, 0.7, True, [None, None])
    return dataclasses.replace(result, cloud=step)


def test_a_run_in_which_everything_acted_needs_no_remark(make_result):
    joined, split = (with_cloud(make_result(), labels, 0.5) for labels in ([0, 0], [0, 1]))
    assert seen(joined, split).lines() == []
    assert not seen(joined).any_failed


def test_clusters_that_never_split(make_result):
    results = [with_cloud(make_result(), [0, 0], s) for s in (0.75, 0.99996)]
    assert seen(*results).lines() == [
        "clustering never split: all leaves were one cluster in every cloud step; "
        "similarities between leaves were 0.7500 to 1.0000"
    ]


def test_clusters_that_never_joined(make_result):
    results = [with_cloud(make_result(), [0, 1], s) for s in (0.1, 0.6)]
    assert seen(*results).lines() == [
        "clustering never joined: every leaf stayed alone in every cloud step; "
        "similarities between leaves were 0.1000 to 0.6000"
    ]


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([0, 0], "never split: all the cloud's children were one cluster in every cloud step; similarities "
                 "between the cloud's children were"),
        ([0, 1], "never joined: every child stayed alone in every cloud step;"),
    ],
)  # fmt: skip
def test_in_a_tree_the_cloud_groups_its_children(make_result, labels, words):
    """Its leaves are below them: they were called one cluster beside a table with two."""
    result = with_cloud(make_result(), labels, 0.5)
    tree = dataclasses.replace(result, leaves=[*result.leaves, *result.leaves])
    assert words in seen(tree).lines()[0]
    remarks = Remarks()
    remarks.restore(json.loads(json.dumps(seen(tree).facts())))
    assert words in remarks.lines()[0]


def test_changes_above_the_leaves_are_of_children(make_result):
    """Numbers are those below a server, not of leaves."""
    event = {"kind": "split", "before": [[0, 1]], "after": [[0], [1]]}
    result = with_cloud(make_result(), [0, 1], 0.5)
    result = dataclasses.replace(result, cloud=dataclasses.replace(result.cloud, facts={"events": [event]}))
    tree = dataclasses.replace(
        result, leaves=[*result.leaves, *result.leaves], inner_steps=[InnerStep((1,), 2, result.cloud)]
    )
    number = result.global_round
    assert changes_of(result) == [f"round {number}: leaves {{0 1}} split into {{0}} and {{1}}"]
    assert changes_of(tree) == [
        f"round {number}, cloud: children {{0 1}} split into {{0}} and {{1}}",
        f"round {number}, server /1: children {{0 1}} split into {{0}} and {{1}}",
    ]


def test_nothing_is_said_of_clusters_that_were_not_looked_for(make_result):
    assert seen(make_result(cloud=False)).lines() == []
    assert seen(with_cloud(make_result(), [0, 0], None)).lines() == []
    assert seen().lines() == []


def test_one_leaf_is_not_a_clustering(make_result):
    result = make_result()
    step = CloudStep("weights", np.array([0]), np.ones((1, 1)), 0.7, True, [None])
    assert seen(dataclasses.replace(result, leaves=result.leaves[:1], cloud=step)).lines() == [
        "the gate never rejected: its one offer was accepted"
    ]


def test_a_gate_that_never_or_always_rejects(make_result):
    """Two rounds of two offers each: all four taken, or all four turned down; one of each says nothing."""
    for decision, line in (
        ("accepted", "the gate never rejected: all 4 offers were accepted"),
        ("rejected", "the gate always rejected: all 4 offers were rejected"),
    ):
        results = [make_result(decisions=(decision, decision), cloud=False) for _ in range(2)]
        assert seen(*results).lines() == [line]
    taken, kept = (make_result(decisions=(d, d), cloud=False) for d in ("accepted", "rejected"))
    assert seen(taken, kept).lines() == []
    assert seen(make_result(decisions=("off", "off"), cloud=False)).lines() == []


def test_failures_come_first_by_client_with_their_first_reason(make_result):
    first = make_result(global_round=1, failures={2: "late"}, cloud=False)
    second = make_result(global_round=2, failures={2: "gone", 0: "broken"}, decisions=("off", "off"))
    remarks = seen(first, second)
    assert remarks.any_failed
    assert remarks.lines()[:2] == [
        "client 0 failed, first in round 2: broken",
        "client 2 failed, first in round 1: late",
    ]
    assert len(remarks.lines()) == 3


def test_remarks_go_on_where_they_were(make_result):
    """Through JSON, after each of three rounds: the same lines as without a break, and nothing else kept."""
    results = [
        with_cloud(make_result(1, ("accepted", "rejected"), {2: "late"}), [0, 0], 0.75),
        with_cloud(make_result(2, ("rejected", "rejected"), {0: "broken", 2: "gone"}), [0, 0], 0.5),
        make_result(3, ("off", "off"), cloud=False),
    ]
    whole = seen(*results)
    whole.note("it grows")
    for stop in range(4):
        before, after = seen(*results[:stop]), Remarks()
        after.restore(json.loads(json.dumps(before.facts())))
        assert vars(after) == vars(before)
        for result in results[stop:]:
            after.observe(result)
        after.note("it grows")
        assert vars(after) == vars(whole)
        assert after.lines() == whole.lines()
        assert after.lines()[-1] == "it grows"


def test_what_is_kept_does_not_grow_with_the_rounds(make_result):
    sizes = [
        len(json.dumps(seen(*[with_cloud(make_result(), [0, 1], 0.5)] * rounds).facts())) for rounds in (2, 9)
    ]
    assert sizes[0] == sizes[1]


def with_facts(result, **facts):
    """Put in a cloud step of four leaves with these facts."""
    similarity = None if "skipped" in facts else np.eye(4)
    step = CloudStep("affinity", np.zeros(4, int), similarity, 0.7, True, [], "agglomerative", facts)
    return dataclasses.replace(result, cloud=step, leaves=result.leaves * 2)


SPLIT = {"kind": "split", "before": [[0, 1, 2, 3]], "after": [[0, 1], [2, 3]]}
MERGE = {"kind": "merge", "before": [[0, 1], [2, 3]], "after": [[0, 1, 2, 3]]}


def test_changes_of_clusters_are_told(make_result):
    """Of ten changes the first five and the last."""
    few = seen(with_facts(make_result(3), events=[SPLIT]), with_facts(make_result(5)))
    assert few.lines()[0] == "round 3: leaves {0 1 2 3} split into {0 1} and {2 3}"
    many = seen(*(with_facts(make_result(r), events=[SPLIT, MERGE]) for r in range(1, 6)))
    lines = many.lines()[:7]
    assert lines[4:] == [
        "round 3: leaves {0 1 2 3} split into {0 1} and {2 3}",
        "4 further changes of clusters, see clusters.jsonl",
        "round 5: leaves {0 1} and {2 3} merged into {0 1 2 3}",
    ]


def test_trials_that_failed_are_told(make_result):
    trials = [
        with_facts(make_result(r), trial={"gain": g, "useful": g > 0.05})
        for r, g in enumerate((0.01, 0.2, -0.3))
    ]
    assert (
        "trials in which new groups did not prove useful: 2, with a gain in log loss of at most 0.010"
    ) in seen(*trials).lines()


def test_steps_that_could_not_compare_are_counted(make_result):
    lines = seen(
        *[with_facts(make_result(), skipped="no client of leaf 1 has evaluated the models")] * 3
    ).lines()
    assert lines[0] == (
        "clusters stayed as they were in 3 cloud steps: no client of leaf 1 has evaluated the models"
    )


def test_a_rule_that_failed_is_told_after_a_resume_too(make_result):
    results = [with_facts(make_result(r), **({"rule_failed": [[0, 1]]} if r > 2 else {})) for r in (1, 3, 4)]
    after = Remarks()
    after.restore(json.loads(json.dumps(seen(*results[:2]).facts())))
    assert after.lines()[0].startswith("cloud.rule failed in 1 global round, first in round 3: leaves kept")
    after.observe(results[2])
    assert after.lines()[0].startswith("cloud.rule failed in 2 global rounds, first in round 3: leaves kept")


def test_the_lowest_p_is_told_where_nothing_was_parted(make_result):
    tests = [[{"p": 0.2}, {"p": 0.04}], [{"p": 0.3}], []]
    restored = Remarks()
    restored.restore(
        json.loads(json.dumps(seen(*(with_facts(make_result(), tests=t) for t in tests)).facts()))
    )
    assert "clustering never split" in restored.lines()[0]
    assert restored.lines()[0].endswith("the lowest p of a split was 0.040")


def test_a_split_is_said_with_the_p_of_its_own_cut(make_result):
    """Of two cuts the second parted leaves 0 and 1: its p, 3 of 300 cases."""

    def cut(first, second, p):
        return {"leaves": [*first, *second], "parts": [first, second], "p": p, "level": 0.02, "deals": 300}

    tests = [cut([0, 1], [2, 3], 0.003), cut([0], [1], 0.01), cut([2], [3], 0.5)]
    events = [
        {"kind": "split", "before": [[0, 1]], "after": [[0], [1]]},
        {"kind": "split", "before": [[2, 3]], "after": [[2], [3]]},
        {"kind": "merge", "before": [[0], [1]], "after": [[0, 1]]},
    ]
    own, not_by_test, merge = changes_of(with_facts(make_result(), events=events, tests=tests))
    assert own.endswith("(p = 0.01; dealing clients to leaves by chance does as well in 3 of 300 cases)")
    assert not_by_test.endswith("{2} and {3}")
    assert merge.endswith("{0 1}")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("_accepted", "3"), ("_accepted", True), ("_num_leaves", 2.0), ("_failed", [["1", "gone"]]),
        ("_failed", [[1, 5]]), ("_failed", [[1]]), ("_failed", 3), ("_notes", "note"), ("_notes", [None]),
        ("_changes", [["x"]]), ("_similarities", ["0.5"]), ("_lowest_p", {}), ("on_privacy", None),
        ("observe", "x"), ("__class__", "x"), ("more", 1),
    ],
)  # fmt: skip
def test_what_a_run_never_kept_is_not_taken_back(make_result, name, value):
    """A forged checkpoint with fitting sums: every kept value has its kind, and no other name is set."""
    kept = seen(make_result()).facts()
    assert kept.keys() == _FORMS.keys()
    with pytest.raises((ValueError, TypeError)):
        Remarks().restore({**kept, name: value})
    restored = Remarks()
    restored.restore(json.loads(json.dumps(kept)))
    assert restored.facts() == kept
