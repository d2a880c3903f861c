"""Results of a sweep: its groups are in the order of its file, whichever runs are missing."""

from itertools import product

import pytest
from run_folders import round_result, write_run

from fedge.sweep.study import StudyPlan, StudyRun
from fedge.sweep.summary import comparisons, load_study


@pytest.mark.parametrize(
    ("missing", "places", "groups"),
    [
        ((), ["x", "y"], ["zero", "one"]),
        (("zero-x-seed1",), ["x", "y"], ["zero", "one"]),
        (("zero-x-seed1", "one-x-seed1"), ["x", "y"], ["zero", "one"]),
        (("zero-x-seed1", "zero-x-seed2"), ["x", "y"], ["one"]),
        (("zero-x-seed1", "zero-x-seed2", "one-x-seed1", "one-x-seed2"), ["y"], ["zero", "one"]),
    ],
)
def test_the_reference_is_the_first_entry_even_if_its_first_run_is_missing(tmp_path, missing, places, groups):
    """The first run of the first seed was the reference, and all differences were from its group."""
    axes = {"variants": ["zero", "one"], "grid": ["x", "y"]}
    runs = [
        StudyRun(
            name := f"{variant}-{grid}-seed{seed}", {"variants": variant, "grid": grid}, seed, tmp_path / name
        )
        for seed in (1, 2)
        for variant, grid in product(*axes.values())
    ]
    for run in runs:
        if run.name not in missing:
            write_run(run.folder, [round_result(1, [8, 7, 9, 6])], seed=run.seed)
    study = StudyPlan("s", "s.toml", tmp_path, axes, [1, 2], runs)
    found = comparisons(study, load_study(study)[0])
    assert [comparison.title for comparison in found] == places
    assert [group.label for group in found[0].groups] == groups
    assert {row.reference for row in found[0].rows} == {groups[0]}
    assert {group.label: len(group.runs) + group.missing for group in found[0].groups} == dict.fromkeys(
        groups, 2
    )
