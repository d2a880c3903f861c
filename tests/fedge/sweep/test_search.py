"""[search] of a sweep file: what it means, what is refused in one line, and the runs of drawn trials."""

import json
import re
import sys
from pathlib import Path

import pytest

from fedge.config.registers.option import ConfigError
from fedge.sweep.search import DrawnTrial, Range, has_search, read_search, sweep_of, with_floors

HEAD = '[sweep]\nseeds = [1, 2]\nsupernodes = 4\n[base]\ndata.path = "synthetic"\n'
SEARCH = "[search]\ntrials = 3\n"
SPACE = "[search.space]\ntrain.lr = { low = 0.01, high = 0.1, log = true }\n"


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Function that reads a search from a file of the given text."""
    monkeypatch.chdir(tmp_path)

    def read(text):
        Path("s.toml").write_text(text)
        return read_search(Path("s.toml"))

    return read


@pytest.fixture
def optuna():
    """Optuna, an extra."""
    return pytest.importorskip("optuna")


def test_only_a_table_search_makes_a_search(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(HEAD + SEARCH + SPACE)
    assert has_search(path)
    path.write_text(HEAD + "[[search]]\nname = 'a'\n")
    assert not has_search(path)


def test_a_search_by_hand(read, optuna):
    more = "train.local-epochs = { low = 1, high = 3 }\ncluster.enabled = [true, false]\n"
    search = read(HEAD + SEARCH + SPACE + more)
    assert (search.sampler, search.trials, search.batch, search.prune_after) == ("tpe", 3, 1, 0)
    assert search.space == {
        "train.lr": Range(0.01, 0.1, True),
        "train.local-epochs": Range(1, 3),
        "cluster.enabled": Range(choices=(True, False)),
    }
    assert search.folder == Path("runs/s")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SEARCH, r"\[search\]: space must be a table of ranges, .*, but is missing"),
        ("[search]\n" + SPACE, r"trials must be a whole number from 1 to 1000, but is missing"),
        (
            '[search]\ntrials = 3\nsampler = "tpo"\n' + SPACE,
            r"sampler must be .*, but is 'tpo'; did you mean tpe",
        ),
        ("[search]\ntrials = 3\nbach = 2\n" + SPACE, r"bach is not known here; did you mean batch"),
        (
            "[search]\ntrials = 3\nbatch = 0\n" + SPACE,
            r"batch must be a whole number from 1 to 1000, but is 0",
        ),
        (
            SEARCH + SPACE.replace("train.lr", "train.rl"),
            r"train\.rl is not a configuration key; did you mean",
        ),
        (SEARCH + SPACE.replace("train.lr", "seed"), r"seed is set by the sweep"),
        (
            SEARCH + SPACE.replace("0.1,", "0.001,"),
            r"train\.lr: low and high must be .* but are 0\.01 and 0\.001",
        ),
        (SEARCH + SPACE.replace("0.1,", "1,"), r"two with a decimal point, .* but are 0\.01 and 1"),
        (SEARCH + SPACE.replace("0.01,", "0.0,"), r"log must be true or false, and true needs low above 0"),
        (SEARCH + SPACE.replace("high = 0.1, ", ""), r"low and high must be .* but are 0\.01 and None"),
        (SEARCH + "[search.space]\ntrain.lr = [0.1]\n", r"train\.lr must be a range, .* but is \[0\.1\]"),
        (
            SEARCH + SPACE + "[grid]\ntrain.momentum = [0.1]\n",
            r"must be the only axis of a sweep, but the file also has \[grid\]",
        ),
        (
            SEARCH + SPACE + 'cluster.method = ["components", "kmeans", "agglomerative"]\n',
            r"cluster\.method kmeans needs cluster\.count to be a number",
        ),
        (SEARCH + SPACE.replace("0.1,", "1e9,"), r"train\.lr must be at most .*, but is 1000000000\.0"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_a_line(read, text, words):
    with pytest.raises(ConfigError, match=words) as raised:
        read(HEAD + text)
    assert "\n" not in str(raised.value)


def test_a_search_without_optuna_is_refused_with_the_next_step(read, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)  # as where it is not installed
    with pytest.raises(ConfigError, match=re.escape("pip install 'fedge[search]'")):
        read(HEAD + SEARCH + SPACE)


def test_every_drawn_trial_has_a_run_per_seed(read, optuna):
    search = read(HEAD + 'callbacks = "time-budget"\ncallbacks-args.time-budget.most = 9\n' + SEARCH + SPACE)
    sweep = sweep_of(
        search, [DrawnTrial({"train.lr": 0.02}, {}), DrawnTrial({"train.lr": 0.05}, {2: {"1": 0.5}})]
    )
    assert [run.name for run in sweep.runs] == ["t000-seed1", "t000-seed2", "t001-seed1", "t001-seed2"]
    assert [run.config.train.lr for run in sweep.runs] == [0.02, 0.02, 0.05, 0.05]
    assert [run.config.callbacks for run in sweep.runs] == ["time-budget"] * 3 + ["time-budget,floor"]
    assert json.loads(sweep.runs[3].config.callbacks_args) == {
        "time-budget": {"most": 9},
        "floor": {"floors": {"1": 0.5}},
    }


def test_the_example_of_the_page_can_be_read(read, optuna):
    page = (Path(__file__).parents[3] / "docs" / "sweeps.md").read_text(encoding="utf-8")
    (example,) = (text for text in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if "[search]" in text)
    search = read(example)
    assert (search.sampler, search.trials, search.batch, search.prune_after) == ("tpe", 30, 5, 5)
    assert len(search.space) == 3


def test_without_floors_options_are_as_they_were():
    assert with_floors({"train.lr": 0.1}, {}) == {"train.lr": 0.1}
