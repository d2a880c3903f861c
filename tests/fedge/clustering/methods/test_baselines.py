"""Published ways to group leaves, each against a case worked out by hand."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge import simulate
from fedge.clustering.likeness.evidence import Evidence
from fedge.clustering.likeness.similarity import cosine_similarity
from fedge.clustering.methods import baselines
from fedge.clustering.registry import method_named
from fedge.config.flat import from_run_config
from fedge.config.registers.groupings import GROUPINGS
from fedge.config.registers.option import ConfigError
from fedge.config.registers.traits import TRUTH
from fedge.config.sections.cluster import ClusterConfig
from fedge.launch.projects.project import parse_override
from fedge.records.reading.reader import load_run
from fedge.report.sections.clustering import clustering_section


def evidence(updates, weights=None, global_round=1, truth=None, seed=0):
    """Evidence of leaves whose two trainable entries changed by these numbers."""
    updates = np.array(updates, dtype=np.float64)
    starts = [{"a": np.full(1, i), "b": np.ones((1, updates.shape[1] - 1))} for i in range(len(updates))]
    models = [
        {"a": start["a"] + update[:1], "b": start["b"] + update[1:], "running_mean": np.full(3, 99.0)}
        for start, update in zip(starts, updates, strict=True)
    ]
    return Evidence(
        models=models, starts=starts, weights=list(weights or [1] * len(updates)), parameter_names=("a", "b"),
        truth=None if truth is None else np.array(truth), global_round=global_round, seed=seed,
    )  # fmt: skip


def labels_of(method, seen, before=None, **config):
    before = None if before is None else np.array(before)
    if method == "kmeans":
        config = {"count": "2", **config}
    asked = configured(method, **config)
    return method_named(asked).group(seen, asked, before).labels.tolist()


def configured(method, **config):
    """The section with the method's own arguments in their table."""
    declared = GROUPINGS.entry(method).arguments
    given = {word: config.pop(word) for word in list(config) if word in declared}
    return ClusterConfig(method=method, method_args=json.dumps(given), **config)


def test_inner_products_by_hand():
    """Updates (1, 2), (3, −1), (0, 4): 1·3 − 2·1 = 1, 2·4 = 8, −1·4 = −4; buffers count for nothing."""
    gram = baselines.inner_products(evidence([[1, 2], [3, -1], [0, 4]]))
    assert gram.tolist() == [[5, 1, 8], [1, 10, -4], [8, -4, 16]]


@given(st.integers(1, 6), st.integers(2, 9), st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_cosines_are_those_of_the_update_signal(leaves, size, seed):
    updates = np.random.default_rng(seed).normal(size=(leaves, size))
    gram = baselines.inner_products(evidence(updates))
    np.testing.assert_allclose(baselines.cosines_of(gram), cosine_similarity(list(updates)), atol=1e-9)


def test_an_update_that_is_not_finite_names_the_leaf():
    with pytest.raises(ValueError, match="leaf 1 has non-finite weights"):
        baselines.inner_products(evidence([[1, 2], [np.nan, 0]]))


# --- alone, oracle, random ----------------------------------------------------------------------------


def test_alone():
    assert labels_of("alone", evidence([[1, 0]] * 3)) == [0, 1, 2]


def test_oracle_takes_the_truth_numbered_by_first_appearance():
    assert labels_of("oracle", evidence([[1, 0]] * 4, truth=[2, 0, 2, 1])) == [0, 1, 0, 2]


def test_random_groups_have_the_true_sizes_and_stay():
    """Equal in every round of a run; another seed draws others; over seeds every pair meets."""
    truth = [0, 0, 0, 1, 1, 2]
    drawn = []
    for seed in range(30):
        seen = [evidence([[1, 0]] * 6, truth=truth, seed=seed, global_round=r) for r in (1, 7)]
        first, later = (labels_of("random", one) for one in seen)
        assert first == later
        assert sorted(np.bincount(first)) == [1, 2, 3]
        drawn.append(first)
    assert len({tuple(labels) for labels in drawn}) > 10
    assert all(any(d[i] == d[j] for d in drawn) for i in range(6) for j in range(i))


# --- CFL ----------------------------------------------------------------------------------------------

OPPOSED = [[2, 0.1], [2, -0.1], [-2, 0.1], [-2, -0.1]]  # mean 0; norms 2.0025; cosine .995 within, −1 between


def test_cfl_cuts_a_cluster_that_stands_still_while_its_leaves_pull():
    assert labels_of("cfl", evidence(OPPOSED)) == [0, 0, 1, 1]


def test_cfl_waits_while_the_mean_still_moves():
    """Mean (0.45, 0), norm 0.45 ≥ eps1 = 0.4; below 0.46 it is cut."""
    moving = np.add(OPPOSED, [0.45, 0]).tolist()
    assert labels_of("cfl", evidence(moving)) == [0, 0, 0, 0]
    assert labels_of("cfl", evidence(moving), still_below=0.46) == [0, 0, 1, 1]


def test_cfl_does_not_cut_leaves_that_have_all_arrived():
    """Largest norm 2.0025 / 2 = 1.00125: not above 1.6, above 1."""
    small = (np.array(OPPOSED) / 2).tolist()
    assert labels_of("cfl", evidence(small)) == [0, 0, 0, 0]
    assert labels_of("cfl", evidence(small), pull_above=1.0) == [0, 0, 1, 1]


def test_cfl_weighs_by_windows():
    """Weights 3, 3, 1, 1: mean (3·2·2 − 1·2·2) / 8 = (1, 0), which is no standstill."""
    assert labels_of("cfl", evidence(OPPOSED, weights=[3, 3, 1, 1])) == [0, 0, 0, 0]
    asked = configured("cfl")
    found = method_named(asked).group(evidence(OPPOSED, weights=[3, 3, 1, 1]), asked, None)
    np.testing.assert_allclose(found.facts["norms"], [[1.0, np.hypot(2, 0.1)]])


def test_cfl_cuts_each_cluster_by_itself_and_never_joins():
    """Leaves 0, 1 stand still against each other, 2 and 3 move together: only the first cluster is cut."""
    updates = [[2, 0], [-2, 0], [0, 2], [0, 2]]
    assert labels_of("cfl", evidence(updates), before=[0, 0, 1, 1]) == [0, 1, 2, 2]
    assert labels_of("cfl", evidence([[1, 1]] * 4), before=[0, 1, 2, 2]) == [0, 1, 2, 2]


def test_cfl_finds_the_two_parts_that_are_least_alike():
    """Directions 0°, 50°, 100° and 180°, 230°, 280°: neighbours within a part 50° apart; between the parts
    80° (100° and 180°, 280° and 0°): the largest cosine between the parts is cos 80°. Cutting anywhere else
    would leave neighbours of 50° on two sides."""
    angles = np.radians([0, 180, 50, 230, 100, 280])
    assert labels_of("cfl", evidence(2 * np.stack([np.cos(angles), np.sin(angles)], 1))) == [0, 1, 0, 1, 0, 1]


AUTO = {"still_below": "auto", "pull_above": "auto"}


def cfl_by_rule(rounds, **config):
    """Let CFL see updates round by round; return its last labels."""
    asked, before, kept = configured("cfl", **{**AUTO, **config}), None, {}
    for updates, weights in rounds:
        found = method_named(asked).group(replace(evidence(updates, weights), kept=kept), asked, before)
        before, kept = found.labels, json.loads(json.dumps(found.kept))
    return before.tolist()


def test_cfl_by_the_rule_measures_against_the_largest_mean_update():
    """The mean moves by 3, then by 0: eps1 = 0.3, eps2 = 1.8, and 2.0025 > 1.8 is cut. After a mean of 4 it
    would have to be above 2.4, and the first round alone sets the largest mean, so it never cuts."""
    first = lambda size: ([[size, 0.0]] * 4, None)  # noqa: E731
    assert cfl_by_rule([first(3), (OPPOSED, None)]) == [0, 0, 1, 1]
    assert cfl_by_rule([first(4), (OPPOSED, None)]) == [0, 0, 0, 0]
    assert cfl_by_rule([first(3), (np.add(OPPOSED, [0.31, 0]).tolist(), None)]) == [0, 0, 0, 0]
    assert cfl_by_rule([(np.add(OPPOSED, [0.31, 0]).tolist(), None)]) == [0, 0, 0, 0]


def test_cfl_by_the_rule_cuts_only_what_differs_in_direction():
    """Weights 100 and 1, updates (0.5, 0) and (7, 0) after a mean of 10: norm 57 / 101 = .56 < 1, 7 > 6; but
    the cosine is 1. With a limit of 6 that is no rule, they are cut."""
    rounds = [([[10, 0]] * 2, None), ([[0.5, 0], [7, 0]], [100, 1])]
    assert cfl_by_rule(rounds) == [0, 0]
    assert cfl_by_rule(rounds, pull_above=6.0) == [0, 1]


def test_cfl_by_the_rule_lets_a_part_inherit():
    """Parts of a cluster whose mean has moved by 3: leaves 0 and 1 stand still and pull by 2 > 1.8."""
    rounds = [([[3.0, 0]] * 4, None), (OPPOSED, None), ([[0, 2], [0, -2], [1, 1], [1, 1]], None)]
    assert cfl_by_rule(rounds) == [0, 1, 2, 2]


def test_cfl_with_one_leaf():
    assert labels_of("cfl", evidence([[2, 0]]), still_below=9.0) == [0]


# --- FL+HC and k-means: once --------------------------------------------------------------------------

# Directions 0°, 40°, 90°, 135°, all of length 1. Mean cosine of {0, 1}: cos 40° = .77; {2, 3}: cos 45° = .71;
# between the pairs: (cos 90° + cos 135° + cos 50° + cos 95°) / 4 = (0 − .707 + .643 − .087) / 4 = −.04
FAN = [[np.cos(np.radians(a)), np.sin(np.radians(a))] for a in (0, 40, 90, 135)]


def test_flhc_joins_by_mean_cosine():
    assert labels_of("flhc", evidence(FAN, global_round=5), tau=1.5) == [0, 1, 2, 3]
    assert labels_of("flhc", evidence(FAN, global_round=5), tau=0.72) == [0, 0, 1, 2]
    assert labels_of("flhc", evidence(FAN, global_round=5), tau=0.7) == [0, 0, 1, 1]
    assert labels_of("flhc", evidence(FAN, global_round=5), tau=0.0) == [0, 0, 1, 1]
    assert labels_of("flhc", evidence(FAN, global_round=5), tau=-0.1) == [0, 0, 0, 0]


def test_flhc_ends_before_the_widest_gap():
    """FAN is joined at distances .23 and .29 and, against its will, 1.04: the gap is in the middle of .293
    and 1.038. Directions 0°, 5°, 10°, 15° are joined at distances below .02, far from 1. Two leaves are one
    cluster unless they pull apart."""
    by_gap = {"cut": "gap"}
    assert labels_of("flhc", evidence(FAN, global_round=5), **by_gap) == [0, 0, 1, 1]
    last = 1 - (np.cos(np.radians([90, 135, 50, 95])).sum()) / 4
    cosines = baselines.cosines_of(baselines.inner_products(evidence(FAN)))
    expected = 1 - (1 - np.cos(np.radians(45)) + last) / 2
    np.testing.assert_allclose(baselines.widest_merge_gap(cosines), expected)
    narrow = [[np.cos(np.radians(a)), np.sin(np.radians(a))] for a in (0, 5, 10, 15)]
    assert labels_of("flhc", evidence(narrow, global_round=5), **by_gap) == [0, 0, 0, 0]
    assert labels_of("flhc", evidence([[1, 0], [1, 1]], global_round=5), **by_gap) == [0, 0]
    assert labels_of("flhc", evidence([[1, 0], [-1, 1]], global_round=5), **by_gap) == [0, 1]


BLOBS = [[0, 10], [10, 0], [0, 11], [11, 0], [-9, -9]]


def test_kmeans_groups_by_distance_not_direction():
    """Of (0, 1), (0, 9), (1, 9) two clusters are those near (0, 1) and near (0.5, 9)."""
    assert labels_of("kmeans", evidence([[0, 1], [0, 9], [1, 9]], global_round=5)) == [0, 1, 1]
    assert labels_of("kmeans", evidence(BLOBS, global_round=5), count="3") == [0, 1, 0, 1, 2]


@pytest.mark.parametrize(("count", "clusters"), [("1", 1), ("5", 5), ("9", 5)])
def test_kmeans_makes_as_many_clusters_as_there_are_leaves_at_most(count, clusters):
    labels = labels_of("kmeans", evidence(BLOBS, global_round=5), count=count)
    assert len(set(labels)) == clusters


@pytest.mark.parametrize("method", ["flhc", "kmeans"])
def test_grouped_once(method):
    """All in one before round 5; grouped in round 5; kept afterwards, whatever the updates are."""
    groups = {"flhc": [0, 0, 1, 1], "kmeans": [0, 0, 1, 1]}[method]
    same = [[1.0, 0.1 * i] for i in range(4)]
    assert labels_of(method, evidence(FAN, global_round=4)) == [0, 0, 0, 0]
    assert labels_of(method, evidence(FAN, global_round=5), before=[0, 0, 0, 0]) == groups
    assert labels_of(method, evidence(same, global_round=6), before=groups) == groups
    assert labels_of(method, evidence(FAN, global_round=3), split_round=3) == groups


@pytest.mark.parametrize("method", ["flhc", "kmeans"])
def test_grouped_at_the_first_cloud_step_in_or_after_the_round(method):
    """Cloud steps in rounds 2, 5, 8, … and 7, 8, …; the round is 6."""
    rare = {"split_round": 6, "start_round": 2, "every": 3}
    assert labels_of(method, evidence(FAN, global_round=5), before=[0] * 4, **rare) == [0] * 4
    assert labels_of(method, evidence(FAN, global_round=8), before=[0] * 4, **rare) == [0, 0, 1, 1]
    assert labels_of(method, evidence(FAN, global_round=11), before=[0] * 4, **rare) == [0] * 4
    assert labels_of(method, evidence(FAN, global_round=7), split_round=6) == [0, 0, 1, 1]


@pytest.mark.parametrize("method", ["cfl", "flhc", "kmeans"])
def test_one_leaf_is_one_cluster(method):
    assert labels_of(method, evidence([[1.0, 2.0]], global_round=5)) == [0]


# --- the configurations -------------------------------------------------------------------------------

CONFIGS = Path(__file__).parents[4] / "configs"
ELSEWHERE = ("fedavg.toml", "hierfl.toml", "scaffold.toml")
FILES = [*sorted(f"baselines/{path.name}" for path in (CONFIGS / "baselines").glob("*.toml")), *ELSEWHERE]
TINY = {
    "report": False,
    "data.path": "synthetic",
    "train.model": "mlp-tiny",
    "train.local-epochs": 1,
    "num-server-rounds": 3,
    "seed": 5,
}


@pytest.fixture(scope="module")
def carried_out(tmp_path_factory):
    """Run a configuration on the tiny set, once for all tests: returns its folder and cloud steps."""
    runs = {}

    def carry_out(file, **changes):
        key = (file, *sorted(changes.items()))
        if key not in runs:
            folder = tmp_path_factory.mktemp("run")
            config = {**TINY, **parse_override(str(CONFIGS / file)), **changes, "runs-dir": str(folder)}
            with (folder / "terminal.txt").open("w") as terminal:
                outcome = simulate(config, terminal=terminal)
            assert outcome.status == "completed"
            runs[key] = outcome.folder
        lines = (runs[key] / "clusters.jsonl").read_text().splitlines()
        return runs[key], [json.loads(line) for line in lines]

    return carry_out


def models(folder):
    return (folder / "checkpoints" / "final.safetensors").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_every_baseline_runs_as_its_file_says(file, carried_out):
    """Each names its source, sets what it needs whatever was set before, and has neither gate nor default."""
    text = (CONFIGS / file).read_text()
    config = parse_override(str(CONFIGS / file))
    assert text.startswith("# ")
    assert {"scaffold.enabled", "cluster.enabled", "gate.enabled"} <= config.keys()
    assert config["gate.enabled"] is False
    planted = {"scenario": "flip"} if config.get("cluster.method") in GROUPINGS.names_with(TRUTH) else {}
    _, steps = carried_out(file, **planted)
    assert {step["method"] for step in steps} == {config.get("cluster.method", "off")}


@pytest.mark.parametrize("method", GROUPINGS.names_with(TRUTH))
def test_without_a_scenario_they_are_refused(method):
    with pytest.raises(ConfigError, match="needs true groups"):
        from_run_config(parse_override(str(CONFIGS / "baselines" / f"{method}.toml")))


def test_every_method_has_its_function_and_its_file():
    assert all(callable(GROUPINGS.load(name)) for name in GROUPINGS.names)
    files = [parse_override(str(CONFIGS / file)) for file in FILES]
    named = {file["cluster.method"] for file in files if "cluster.method" in file}
    with_files = {entry.name for entry in GROUPINGS if not entry.code.startswith("fedge.methods.")}
    assert named == with_files - {"components", "agglomerative", "spectral"}


def test_local_only_is_what_no_similarity_joins(carried_out):
    alone, _ = carried_out("baselines/local.toml")
    isolated, _ = carried_out("hierfl.toml", **{"cluster.enabled": True, "cluster.tau": 1.01})
    assert models(alone) == models(isolated)


@pytest.mark.parametrize("name", ["cfl", "flhc", "kmeans"])
def test_before_the_first_cut_a_method_is_hierarchical_averaging(name, carried_out):
    never = {"cfl": {"cluster.method-args.still-below": 0.0}}.get(
        name, {"cluster.method-args.split-round": 4}
    )
    uncut, steps = carried_out(f"baselines/{name}.toml", **never)
    assert {tuple(step["labels"]) for step in steps} == {(0, 0, 0)}
    assert models(uncut) == models(carried_out("hierfl.toml")[0])


@pytest.mark.parametrize("name", ["flhc", "kmeans"])
def test_grouped_once_in_a_run(name, carried_out):
    """In round 2; flhc with tau above 1, kmeans with as many clusters as leaves: everybody alone."""
    config = {"cluster.method-args.split-round": 2, "cluster.tau": 1.01, "cluster.count": "3"}
    config |= {"cluster.method-args.cut": "tau"} if name == "flhc" else {}
    _, steps = carried_out(f"baselines/{name}.toml", **config)
    assert [step["labels"] for step in steps] == [[0, 0, 0], [0, 1, 2], [0, 1, 2]]


def test_cfl_cuts_once_in_a_round(carried_out):
    """Limits that always hold: two clusters after the first round, three after the second."""
    always = {"cluster.method-args.still-below": 1e6, "cluster.method-args.pull-above": 0.0}
    _, steps = carried_out("baselines/cfl.toml", **always)
    assert [max(step["labels"]) for step in steps] == [1, 2, 2]
    assert len(steps[0]["norms"]) == 1


@pytest.mark.parametrize("method", GROUPINGS.names_with(TRUTH))
def test_true_and_random_groups_in_a_run(method, carried_out):
    folder, steps = carried_out(f"baselines/{method}.toml", **{"scenario": "flip"})
    truth = json.loads((folder / "manifest.json").read_text())["scenario"]["groups"]
    labels = [step["labels"] for step in steps]
    assert labels == [labels[0]] * 3
    assert sorted(np.bincount(labels[0])) == sorted(np.bincount(truth))
    if method == "oracle":
        assert all(
            (labels[0][i] == labels[0][j]) == (truth[i] == truth[j]) for i in range(3) for j in range(i)
        )


@pytest.mark.slow
def test_two_levels_change_what_leaves_average_to(carried_out):
    """With one leaf round per global round they already do: the leaves' corrections act from round 2 on."""
    one, two = (
        carried_out("baselines/mtgc.toml", **{"scaffold.levels": n, "hierarchy.leaf-rounds": 2})[0]
        for n in (1, 2)
    )
    assert models(one) != models(two)
    rows = [load_run(folder).rounds for folder in (one, two)]
    first, second = ([row["cloud_downlink_bytes"][at] for row in rows] for at in (0, 1))
    assert first[1] > first[0]  # three corrections more
    assert [rows[0]["uplink_bytes"][0], rows[0]["downlink_bytes"][0]] == [
        rows[1]["uplink_bytes"][0], rows[1]["downlink_bytes"][0],
    ]  # fmt: skip
    assert first == second


@pytest.mark.parametrize("file", [file for file in FILES if file.startswith("baselines/")])
def test_the_report_says_how_leaves_were_grouped(file, carried_out):
    """In the words of the method, and nothing of a threshold that it does not use."""
    config = parse_override(str(CONFIGS / file))
    planted = {"scenario": "flip"} if config.get("cluster.method") in GROUPINGS.names_with(TRUTH) else {}
    folder, _ = carried_out(file, **planted)
    text = " ".join(clustering_section(load_run(folder)).text)
    if config["cluster.enabled"]:
        assert GROUPINGS.told(config["cluster.method"]) in text
    else:
        assert "Clustering is off" in text
    assert "alike are joined" not in text
