"""Runs whose task is no classification: regression, characters, notes, counts of a user's own."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from user_tasks import COUNTS, FILES, FIRST_SCORES, OPTIONS, WRONG

from fedge import load_run, simulate
from fedge.config.registers.option import ConfigError

pytestmark = pytest.mark.whole_runs

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch):
    """Work in a folder with the users' files."""
    for name, text in {name: text for files in FILES.values() for name, text in files.items()}.items():
        (tmp_path / name).write_text(text)
    shutil.copy(EXAMPLES / "my_characters.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in ("counts", "my_characters"):
        sys.modules.pop(name, None)


def result(run):
    """Parts of a run that must not depend on the engine, nor on a kill."""
    assert run.status == "completed", run.reason
    tables = [table.drop([c for c in table.columns if "seconds" in c]) for table in (run.rounds, run.clients)]
    return (run.folder / "checkpoints" / "final.safetensors").read_bytes(), [t.write_csv() for t in tables]


@pytest.mark.parametrize("name", OPTIONS)
def test_a_run_goes_on_with_the_same_bits(name):
    """Half of it, then the rest: models and tables of an uncut run; columns by the first score."""
    options = {**OPTIONS[name], "report": False, "evaluate.every": 1}
    whole = simulate({**options, "run-name": "whole"})
    first = simulate({**options, "num-server-rounds": 1, "run-name": "cut"})
    again = simulate({**options, "resume": str(first.folder)})
    assert result(again) == result(whole)
    column = whole.rounds[f"test_{FIRST_SCORES[name]}_mean"]
    assert column.is_not_null().all()


@pytest.mark.extended
@pytest.mark.parametrize("name", OPTIONS)
def test_both_engines_have_the_same_bits(name):
    fedge = Path(sys.executable).parent / "fedge"
    said = [word for key, value in OPTIONS[name].items() for word in ("-c", f"{key}={json.dumps(value)}")]
    found = []
    for engine in ("inprocess", "flower"):
        words = ["run", "--engine", engine, *said, "-c", f'run-name="{engine}" report=false']
        ended = subprocess.run([fedge, *words], capture_output=True, text=True, timeout=900, check=False)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        found.append(result(load_run(Path("runs") / engine)))
    assert found[0] == found[1]


@pytest.mark.parametrize("task", WRONG)
def test_a_wrong_task_is_refused_in_one_line(task):
    with pytest.raises(ConfigError, match=WRONG[task]) as refused:
        simulate({**COUNTS, "train.task": task, "report": False})
    assert "\n" not in str(refused.value)
    assert not list(Path("runs").glob("*/metrics/*.csv"))
