"""Plan of a sweep in its folder: the same after a round trip, refused where it is damaged."""

import errno
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedge.config.registers.option import ConfigError
from fedge.sweep.plan import read_sweep
from fedge.sweep.searching import DRAWS, read_draws
from fedge.sweep.study import PLAN, keep_study, kept_study, study_of

FILE = """
[sweep]
seeds = [2, 1]
supernodes = 4
runs-dir = "RUNS"

[base]
data.path = "synthetic"

[[variants]]
name = "zero"
cluster.enabled = false

[[variants]]
name = "all"

[grid]
train.lr = [0.1, 0.01]
"""


@pytest.fixture
def kept(tmp_path):
    """A plan as it was read, kept in its folder."""
    path = tmp_path / "s.toml"
    path.write_text(FILE.replace("RUNS", str(tmp_path)))
    study = study_of(read_sweep(path))
    study.folder.mkdir()
    keep_study(study)
    return study


def test_a_kept_plan_is_the_one_that_was_read(kept):
    assert kept_study(kept.folder) == kept
    assert list(kept.axes) == ["variants", "grid"]
    assert kept.axes["variants"] == ["zero", "all"]
    assert kept.seeds == [2, 1]
    assert len(kept.runs) == 8
    assert kept.runs[0].seed == 2
    assert kept.runs[0].point["variants"] == "zero"
    assert all(run.folder == kept.folder / run.name for run in kept.runs)


def test_many_tasks_that_begin_at_the_same_time_keep_the_plan(kept):
    """Those of an array of jobs: each writes the file, and each reads a whole one."""
    study, folder = kept, kept.folder

    def begin(_):
        keep_study(study)
        return kept_study(folder) == study

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(begin, range(200)))
    assert not list(folder.glob(".*"))


def test_a_folder_that_was_moved_has_its_runs_where_it_is(kept, tmp_path):
    moved = kept.folder.rename(tmp_path / "elsewhere")
    assert {run.folder.parent for run in kept_study(moved).runs} == {moved}


def test_a_folder_without_a_plan_has_none(tmp_path):
    assert kept_study(tmp_path) is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda plan: "{",
        lambda plan: "[]",
        lambda plan: json.dumps({**plan, "axes": 3}),
        lambda plan: json.dumps({key: value for key, value in plan.items() if key != "runs"}),
        lambda plan: json.dumps(
            {**plan, "runs": [{"run": "../x", "point": plan["runs"][0]["point"], "seed": 1}]}
        ),
        lambda plan: json.dumps({**plan, "runs": [{"run": "x", "point": {}, "seed": 1}]}),
    ],
)
def test_a_damaged_plan_is_refused_in_a_line(kept, damage):
    path = kept.folder / PLAN
    path.write_text(damage(json.loads(path.read_text())))
    with pytest.raises(ConfigError, match=r"plan\.json must be written by fedge sweep.*repeat the sweep"):
        kept_study(kept.folder)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.EMFILE])
@pytest.mark.parametrize("read", [kept_study, lambda folder: read_draws(SimpleNamespace(folder=folder))])
def test_a_file_that_cannot_be_read_need_not_be_removed(tmp_path, monkeypatch, read, number):
    """It may be whole; only one with other contents is a sweep's no more."""
    for name in (PLAN, DRAWS):
        (tmp_path / name).write_text("{}")

    def refuse(path, **_):
        raise OSError(number, os.strerror(number), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", refuse)
        with pytest.raises(ConfigError, match=rf"must be readable, but: {os.strerror(number)}; change"):
            read(tmp_path)
    with pytest.raises(ConfigError, match="must be written by fedge sweep"):
        read(tmp_path)
