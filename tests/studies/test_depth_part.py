"""The part of docs/results.md on depth: readings by hand, a small real sweep."""

import csv
from types import SimpleNamespace

import polars as pl
import pytest
from small_data import nine_users

from fedge.cli import main as fedge
from fedge.sweep.plan import read_sweep
from studies import depth_part
from studies.depth_part import (
    MARKS,
    at_moment,
    at_target,
    first_end,
    joules_of_a_client,
    main,
    megabytes,
    megabytes_at_the_root,
    with_other_clients,
)
from studies.measures import read_study

ROUNDS = pl.DataFrame(
    {
        "global_round": [1, 2, 3],
        "test_accuracy_mean": [0.4, 0.8, 0.7],
        "virtual_s": [2.0, 4.0, 6.0],
        "joules": [6.0, 12.0, 18.0],
        "uplink_bytes": [1_000_000] * 3,
        "downlink_bytes": [2_000_000] * 3,
        "cloud_uplink_bytes": [400_000] * 3,
        "cloud_downlink_bytes": [600_000] * 3,
    }
)
# two regions under the cloud with 10 and 20 kB up, 30 and 40 down in every round; below them a leaf
SERVERS = pl.DataFrame(
    {
        "global_round": [n for n in (1, 2, 3) for _ in range(4)],
        "tier": [0, 1, 1, 2] * 3,
        "uplink_bytes": [None, 10_000, 20_000, 999] * 3,
        "downlink_bytes": [None, 30_000, 40_000, 999] * 3,
    }
)


def a_run(sizes=(3, 3), rounds=ROUNDS):
    manifest = {"clients_per_leaf": list(sizes), "seed": 5}
    return SimpleNamespace(rounds=rounds, servers=SERVERS, manifest=manifest, name="a-run")


def test_costs_are_those_until_the_first_round_at_the_target():
    """.75 is reached in round 2, where 12 J are spent by 6 clients, and 2 × 4 MB have moved."""
    run = a_run()
    assert at_target("virtual_s", 0.75)(run) == 4.0
    assert joules_of_a_client(0.75)(run) == 2.0
    assert megabytes(0.75)(run) == 8.0
    assert megabytes_at_the_root(0.75)(run) == pytest.approx(0.2)
    assert megabytes_at_the_root(0.3)(run) == pytest.approx(0.1)


def test_clients_of_a_single_server_are_those_of_the_root():
    assert megabytes_at_the_root(0.75)(a_run(sizes=[6])) == 8.0


@pytest.mark.parametrize("read", [joules_of_a_client, megabytes, megabytes_at_the_root])
def test_a_run_that_never_gets_there_has_no_costs(read):
    assert read(0.81)(a_run()) is None
    assert at_target("joules", 0.81)(a_run()) is None


@pytest.mark.parametrize(("until", "accuracy"), [(4.0, 0.8), (5.9, 0.8), (6.0, 0.7), (1.9, None)])
def test_the_accuracy_at_a_moment_is_of_the_last_evaluation_before(until, accuracy):
    assert at_moment({5: until})(a_run()) == accuracy


def test_the_moment_is_when_the_first_tree_has_ended():
    groups = [SimpleNamespace(finished=each) for each in (
        {1: a_run(), 2: a_run()}, {1: a_run(rounds=ROUNDS.head(2)), 2: a_run()},
    )]  # fmt: skip
    assert first_end(groups) == {1: 4.0, 2: 6.0}


def test_other_clients_are_noticed_and_leaves_do_not_count():
    """Rows in another order and under another leaf are the same clients; other windows are not."""
    rows = {
        "client": [0, 1], "split": ["train"] * 2, "user": ["a", "b"], "device": [""] * 2,
        "class": ["sit"] * 2, "windows": [3, 4], "unseen_client": [0, 0],
    }  # fmt: skip

    def of(leaves, windows=(3, 4), turn=False):
        frame = pl.DataFrame({**rows, "windows": list(windows), "leaf": leaves, "group": [None, None]})
        run = SimpleNamespace(partition=frame.reverse() if turn else frame, name="odd")
        return SimpleNamespace(finished={1: run})

    def study(*groups):
        return SimpleNamespace(comparisons=[SimpleNamespace(groups=groups)])

    assert with_other_clients(study(of([0, 0]), of([0, 1], turn=True))) == ""
    assert with_other_clients(study(of([0, 0]), of([0, 1], windows=(4, 3)))) == "odd"


SMALL = """# Depth.
[sweep]
seeds = [1, 2]
runs-dir = {runs!r}
supernodes = 9

[base]
data.path = {data!r}
train.model = "linear"
train.local-epochs = 1
scaffold.enabled = false
cluster.enabled = false
gate.enabled = false
devices.time-rounds = true
devices.preset = "hierfavg"

[[tree]]
name = "depth-1"
num-server-rounds = 4
hierarchy.num-servers = 1
devices.preset-args.distance = 10.0

[[tree]]
name = "depth-3"
num-server-rounds = 2
hierarchy.tree = "3x1x3"
hierarchy.region-rounds = "2"
asynchrony.cloud-delay-s = 0.0
asynchrony.cloud-megabytes-s = 0.1418
asynchrony.tiers.region.megabytes-s = 0.4484

[[clients]]
name = "users"
"""


def test_the_sweep_file_says_what_the_protocol_says():
    """Equal work for every client: global rounds × leaf rounds × epochs."""
    runs = [run.config for run in read_sweep(depth_part.STUDY).runs]
    assert {run.num_server_rounds * run.hierarchy.leaf_rounds_per_global for run in runs} == {60}
    assert {run.train.local_epochs for run in runs} == {2}
    assert len(runs) == 15


@pytest.mark.extended
@pytest.mark.whole_runs
def test_its_table_is_of_the_runs(tmp_path, capsys):
    (tmp_path / "small.toml").write_text(SMALL.format(runs=str(tmp_path / "runs"), data=str(nine_users())))
    page, figure = tmp_path / "page.md", tmp_path / "depth.svg"
    page.write_text(f"before\n{MARKS[0]}\nold\n{MARKS[1]}\nafter\n")
    given = ["--study", str(tmp_path / "small.toml"), "--pages", str(page), "--figure", str(figure)]
    assert main(given) == 2
    assert "must be there; carry it out with" in capsys.readouterr().err
    assert fedge(["sweep", str(tmp_path / "small.toml")]) == 0
    assert main(given) == 0
    text = page.read_text()
    assert "old" not in text
    assert "](results/depth.svg)" in text
    assert figure.read_text().startswith("<?xml")
    comparison = read_study(tmp_path / "small.toml").comparisons[0]
    assert depth_part.first_end(comparison.groups).keys() == {1, 2}
    ends = [
        list(
            csv.DictReader((tmp_path / f"runs/small/depth-1-users-seed{n}/metrics/global_rounds.csv").open())
        )
        for n in (1, 2)
    ]
    mean = sum(float(rows[-1]["test_accuracy_mean"]) for rows in ends) / 2
    assert f"target {95 * mean:.1f} %:" in text
    line = next(line for line in text.splitlines() if line.startswith("| depth-1 |"))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[9].startswith(f"{100 * mean:.1f} (")
    assert cells[2] == "–"
