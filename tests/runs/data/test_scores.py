"""A run whose models are compared by another score than accuracy, less of which is better."""

import pytest

from fedge import load_run
from fedge.cli import main
from fedge.data.examples.diabetes import diabetes
from hhar import save_windows

pytestmark = [pytest.mark.whole_runs, pytest.mark.extended]

TASK = {"data.path": "diabetes", "train.task": "regression", "train.model": "linear"}
SMALL = {**TASK, "hierarchy.num-servers": 2, "num-server-rounds": 2, "train.local-epochs": 1, "clients": 6}
WRITTEN = {
    "num-server-rounds": 3,
    "tracker": "tensorboard",
    "partition.unseen-clients": 1,
    "callbacks": "early-stopping",
    'callbacks-args."early-stopping".patience': 2,
    "gate.rule": "paired",
}
SWEEP = """
[sweep]
seeds = [1, 2]
supernodes = 6
[base]
BASE
[grid]
train.lr = [0.001, 0.05]
"""


@pytest.fixture(name="words")
def fixture_words(tmp_path, monkeypatch, capsys):
    """A function that carries out a command in an empty folder, and gives what it printed."""
    monkeypatch.chdir(tmp_path)

    def carry_out(*words):
        code = main(list(map(str, words)))
        captured = capsys.readouterr()
        assert code == 0, captured.err
        return captured.out + captured.err

    return carry_out


def changes(options):
    """Options as -c takes them."""
    return [word for key, value in options.items() for word in ("-c", f"{key}={_toml(value)}")]


def _toml(value):
    return f'"{value}"' if isinstance(value, str) else str(value).lower()


def of(said, folder):
    """The texts of a folder's files, and of what was printed, in which the word accuracy stands."""
    texts = {
        str(path): path.read_bytes().decode(errors="replace") for path in folder.rglob("*") if path.is_file()
    }
    return [name for name, text in {**texts, **said}.items() if "accurac" in text.lower()]


def test_every_word_is_of_the_score(words, tmp_path):
    """Run, tracker, report, list, comparison, export, predictions: tables, pages, lines."""
    said = {"run": words("run", *changes({**SMALL, **WRITTEN, "run-name": "a"}))}
    said["again"] = words("run", *changes({**SMALL, "run-name": "b", "train.lr": 0.2}))
    said["runs"] = words("runs")
    for form in ("text", "markdown", "latex"):
        said[form] = words("compare", "a", "b", "--csv", "c.csv", "--format", form)
    save_windows(tmp_path / "raw.npz", diabetes())
    said["predict"] = words("predict", "a", "raw.npz")
    said["export"] = words("export", "a", "--torchscript", "model.pt")
    base = "\n".join(f"{key} = {_toml(value)}" for key, value in SMALL.items() if key != "clients")
    (tmp_path / "study.toml").write_text(SWEEP.replace("BASE", base))
    said["sweep"] = words("sweep", "study.toml", "--jobs", "2")
    said["shown"] = repr(load_run("runs/a")) + load_run("runs/a")._repr_html_()
    assert of(said, tmp_path) == []
    assert "RMSE" in said["run"]
    assert "RMSE" in said["runs"]
    assert "mean test RMSE" in said["text"]
    assert "numbers within" in said["export"]
    assert "RMSE 0." in said["sweep"] or "RMSE 1." in said["sweep"]
