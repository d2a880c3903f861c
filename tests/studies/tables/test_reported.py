"""Reported numbers of every table can be read; what they name is in its sweeps."""

from pathlib import Path

import pytest

from fedge.sweep.plan import read_sweep
from studies.tables.page import HERE, folders
from studies.tables.reported import FILE, read_reported
from studies.tables.settings import CUT, PUBLISHED, STUDY, files

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", folders(HERE))
def test_numbers_belong_to_rows_of_the_sweeps(name, monkeypatch):
    """A number without a row would never be met, and never be missed."""
    monkeypatch.chdir(ROOT)
    reported = read_reported(HERE / name)
    sweeps = [read_sweep(path) for kind in (PUBLISHED, CUT, STUDY) for path in files(HERE / name, kind)]
    for sweep in sweeps:
        variants = {entry.name for entry in sweep.axes[0].entries}
        where = {entry.name for axis in sweep.axes[1:] for entry in axis.entries}
        for measure in reported.measures:
            assert set(measure.reported) <= where
            assert {variant for row in measure.reported.values() for variant in row} <= variants
        for claim in reported.claims:
            assert {claim.more, claim.less} <= variants
            assert claim.where in {"", *where}
        assert len(sweep.seeds) >= 3
        assert sweep.notes == []


def test_a_key_that_is_unknown_is_named(tmp_path):
    (tmp_path / FILE).write_text('title = "t"\nsource = "s"\nmeasures = []\nsauce = "x"\n')
    with pytest.raises(ValueError, match=r"reported.toml: .*sauce"):
        read_reported(tmp_path)


def test_a_measure_that_is_unknown_is_named(tmp_path):
    (tmp_path / FILE).write_text('title = "t"\nsource = "s"\n[[measures]]\nname = "best"\ntitle = "best"\n')
    with pytest.raises(ValueError, match=r"must be one of .* but is 'best'"):
        read_reported(tmp_path)


def test_seconds_and_joules_of_hierfavg_are_the_same_rounds_but_for_one_row():
    """A step .024 s and .0024 J, an upload .1233 s and .0616 J, the cloud ten uploads away."""
    seconds, joules, _ = read_reported(HERE / "hierfavg").measures
    apart = {}
    for where, row in seconds.reported.items():
        for kappa, (total,) in row.items():
            steps, uploads = map(int, kappa.split("-"))
            by_time = total / (uploads * (steps * 0.024 + 0.1233) + 1.233)
            by_energy = joules.reported[where][kappa][0] / (uploads * (steps * 0.0024 + 0.0616))
            apart[where, kappa] = by_time / by_energy
    worst = max(apart, key=lambda row: abs(apart[row] - 1))
    assert worst == ("edge-iid", "15-4")
    assert apart.pop(worst) == pytest.approx(56.0 / 25.9, rel=0.01)
    assert all(ratio == pytest.approx(1, abs=0.051) for ratio in apart.values())
