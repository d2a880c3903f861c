"""Sentences of a report that hold for the usual run, of runs for which they would be false."""

import warnings

import numpy as np
import pytest

from fedge import load_run, simulate
from fedge.config.registers.groupings import GROUPINGS
from fedge.config.registers.traits import BY_SIGNAL
from fedge.report.html.svg import figure_style
from fedge.report.run_page import lead, tiles, write_report_of
from fedge.report.sections.clients import clients_section
from fedge.report.sections.clustering import _criteria_note, clustering_section
from fedge.report.sections.data import windows_section
from fedge.report.sections.privacy import privacy_sections
from fedge.report.sections.setup import reproduce_section
from hhar import Windows

pytestmark = pytest.mark.whole_runs

SMALL = {"num-server-rounds": 1, "train.model": "linear", "train.local-epochs": 1, "report": False}
PATIENTS = {"data.path": "diabetes", "train.task": "regression", "clients": 10, "hierarchy.num-servers": 2}


def run_of(folder, options, **parts):
    return load_run(simulate({**SMALL, "runs-dir": str(folder), **options}, **parts).folder)


def said(make, run):
    """All sentences of a section."""
    with figure_style():
        return " ".join(make(run).text)


@pytest.fixture(scope="module")
def patients(tmp_path_factory):
    return run_of(tmp_path_factory.mktemp("patients"), PATIENTS)


def test_windows_without_classes_are_split_by_time_alone(patients, tmp_path):
    assert "contiguous blocks of time. " in said(windows_section, patients) + " "
    digits = run_of(tmp_path, {"data.path": "digits", "clients": 4, "hierarchy.num-servers": 2})
    assert "contiguous blocks of time per class." in said(windows_section, digits)


def test_data_without_a_file_are_not_called_a_window_file(patients):
    assert patients.manifest["data"]["fingerprint"] in said(reproduce_section, patients)
    assert "window file" not in said(reproduce_section, patients)


@pytest.mark.parametrize(
    ("tree", "clients", "between"),
    [
        ("", 4, ", "),
        ("2x2x1", 4, " under 2 regions, "),
        ("2x1x2x1", 4, " under 2 servers of region-2 under 2 servers of region-1, "),
    ],
)
def test_lead_has_the_servers_of_every_tier(tmp_path, tree, clients, between):
    run = run_of(tmp_path, {"data.path": "synthetic", "clients": clients, "hierarchy.tree": tree})
    leaves = len(run.manifest["clients_per_leaf"])
    assert f"4 clients under {leaves} leaves{between}1 of 1 global round" in lead(run)[0]


def test_lead_of_a_record_of_no_tree_is_that_of_two_tiers(patients):
    patients.manifest["config"]["hierarchy.tree"] = "(1,"
    assert "10 clients under 2 leaves, " in lead(patients)[0]
    patients.manifest["config"]["hierarchy.tree"] = ""


@pytest.mark.parametrize("method", GROUPINGS.names)
def test_methods_without_similarities_are_named_not_excused(method):
    """Groups are compared as the signal says, or the method is named."""
    assert bool(_criteria_note(method)) != GROUPINGS.has(method, BY_SIGNAL)


def test_mixtures_are_not_said_to_lack_a_comparison(tmp_path):
    options = {"data.path": "synthetic", "cluster.method": "soft-family", "gate.enabled": False}
    text = said(clustering_section, run_of(tmp_path, options))
    assert "could not be compared" not in text
    assert "alike are joined" not in text
    assert "Groups are those of soft-family." in text


def test_a_single_leaf_is_compared_with_nothing(tmp_path):
    run = run_of(tmp_path, {"data.path": "synthetic", "clients": 2, "hierarchy.num-servers": 1})
    assert said(clustering_section, run) == "There is a single leaf, and nothing to compare it with."


@pytest.mark.parametrize("kind", ["local", "server-fixed"])
def test_privacy_is_named_once(tmp_path, kind):
    run = run_of(tmp_path, {
        "data.path": "synthetic", "privacy.kind": kind, "scaffold.enabled": False, "gate.enabled": False,
        "cluster.enabled": False,
    })  # fmt: skip
    (section,) = privacy_sections(run)
    assert f"{kind}: {kind}:" not in section.text[0]
    gaps = run.manifest["privacy"]["not_covered"]
    decided, others = gaps[:-1], gaps[-1].removeprefix("all else that clients tell: ").split(", ")
    assert not [
        words for words in others if any(gap == words or gap.startswith(f"{words} ") for gap in decided)
    ]


USERS = ('Ann, "the first"', "Zoë, 李雷", "=1+1", "<b>x</b>")


def people(classes=("walk, fast", "走")):
    """Four users with odd names, whose windows nobody can tell apart."""
    y = np.tile(np.repeat([0, 1], 10), len(USERS))
    user = np.repeat(np.array(USERS), 20)
    x = np.zeros((len(y), 3, 16), np.float32)
    return Windows(x, y.astype(np.int64), user, None, None, classes, ("a", "b", "c"))


def test_users_with_commas_are_named_and_equal_clients_are_no_extremes(tmp_path):
    run = run_of(tmp_path, {"clients": 4, "hierarchy.num-servers": 2}, data=people())
    names = dict(run.partition.select("client", "user").unique().iter_rows())
    worst = next(tile for tile in tiles(run) if tile.label == "Worst client")
    assert worst.detail == f"client 0, leaf 0, user {names[0]}"
    assert said(clients_section, run) == "After round 1, all 4 clients have 0.5000."
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of missing glyphs
        assert "走" in write_report_of(run, tmp_path / "odd.html").read_text(encoding="utf-8")


def test_one_client_is_neither_worst_nor_best(tmp_path):
    run = run_of(tmp_path, {"data.path": "synthetic", "clients": 1, "hierarchy.num-servers": 1})
    assert said(clients_section, run).startswith("After round 1, the only client is client 0 (leaf 0) with ")
