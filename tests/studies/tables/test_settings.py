"""Settings of tables: every cut has its reason, and every run passes the checks before a run."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fedge
from fedge.sweep.plan import read_sweep
from fedge.sweep.run_states import standings
from hhar.windows.window_file import Windows, save_windows
from studies.tables.data import FILES
from studies.tables.page import HERE, folders
from studies.tables.reported import read_reported
from studies.tables.settings import CUT, PUBLISHED, STUDY, cuts_table, differing, files, further_words

ROOT = Path(__file__).parents[3]
SWEEPS = sorted(
    path for name in folders(HERE) for kind in (PUBLISHED, CUT, STUDY) for path in files(HERE / name, kind)
)
ALSO_EXTENDED = ("as-published", "cut-cifar10", "cut-mnist")  # many runs each, as long as all others together
TWO = """
[sweep]
name = "{name}"
seeds = {seeds}
[base]
clients = {clients}
train.lr = {lr}
[[kinds]]
name = "a"
num-server-rounds = {a}
[[kinds]]
name = "b"
num-server-rounds = {b}
"""


def test_what_differs_by_hand(tmp_path):
    """Options that differ in any run, with all their values; seeds by their number."""
    for name, numbers in (("as-published", ([1, 2], 4, 0.1, 9, 8)), ("cut", ([1], 4, 0.2, 3, 3))):
        seeds, clients, lr, a, b = numbers
        text = TWO.format(name=name, seeds=seeds, clients=clients, lr=lr, a=a, b=b)
        (tmp_path / f"{name}.toml").write_text(text)
    published, cut = (read_sweep(tmp_path / f"{name}.toml") for name in ("as-published", "cut"))
    assert differing(published, cut) == {
        "num-server-rounds": ([9, 8], [3]),
        "train.lr": ([0.1], [0.2]),
    }
    (tmp_path / "reported.toml").write_text(
        'title = "t"\nsource = "s"\nmeasures = []\n[cuts]\n"train.lr" = "haste"\nseeds = "time"\n'
    )
    table = cuts_table(published, [cut], read_reported(tmp_path))
    assert "| `train.lr` | 0.1 | 0.2 | haste |" in table
    assert "| `num-server-rounds` | 9, 8 | 3 |  |" in table
    assert "| seeds | 2 | 1 | time |" in table
    assert files(tmp_path, "cut") == [tmp_path / "cut.toml"]

    (tmp_path / "cut-more.toml").write_text(TWO.format(name="more", seeds=[1], clients=4, lr=0.1, a=3, b=3))
    both = [cut, read_sweep(tmp_path / "cut-more.toml")]
    table = cuts_table(published, both, read_reported(tmp_path))
    assert "| `train.lr` | 0.1 | cut: 0.2 | haste |" in table
    assert "| `num-server-rounds` | 9, 8 | 3 |  |" in table
    assert "| seeds | 2 | 1 | time |" in table


@pytest.mark.parametrize("name", [name for name in folders(HERE) if files(HERE / name, CUT)])
def test_every_cut_has_a_reason_and_every_reason_a_cut(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    published = read_sweep(files(HERE / name, PUBLISHED)[0])
    cut: set[str] = set()
    for path in files(HERE / name, CUT):
        sweep = read_sweep(path)
        cut |= set(differing(published, sweep))
        cut |= {"seeds"} if len(sweep.seeds) != len(published.seeds) else set()
    assert set(read_reported(HERE / name).cuts) == cut


def test_plain_settings_come_first_and_further_words_are_told_apart(tmp_path):
    names = ("as-published-no-dropout", "as-published", "cut-hhar", "reported")
    for name in names:
        (tmp_path / f"{name}.toml").touch()
    found = files(tmp_path, PUBLISHED)
    assert [further_words(path) for path in found] == ["", "no-dropout"]
    assert [further_words(path) for path in files(tmp_path, CUT)] == ["hhar"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(
            path, marks=pytest.mark.extended if path.stem in ALSO_EXTENDED else [],
            id=f"{path.parent.name}-{path.stem}",
        )
        for path in SWEEPS
    ],
)  # fmt: skip
def test_every_run_passes_the_checks_before_a_run(path, monkeypatch, tmp_path):
    """On made images of the right shape, users and parts: one seed of each row of the table."""
    monkeypatch.chdir(tmp_path)
    sweep = read_sweep(path)
    rows = [run for run in sweep.runs if run.seed == sweep.seeds[0]]
    for run in rows:
        made(Path(run.config.data.path))
    found = standings(replace(sweep, runs=rows))
    assert [one.action for one in found] == ["new"] * len(rows)


def made(path):
    """Write windows like those that `studies.tables.data` makes, but few; of many users small ones."""
    recipe = FILES[path.stem]
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    count, classes = max(40_000, 200 * recipe.users), 6 if recipe.source == "hhar" else 10
    users = [f"user-{n % max(1, recipe.users):04d}" for n in range(count)]
    shape = {"mnist": (8, 8) if recipe.users > 100 else (16, 16), "cifar10": (3, 16, 16), "hhar": (3, 32)}[
        recipe.source
    ]
    y = (
        np.arange(count) // (5 * max(10, recipe.users)) % classes
        if recipe.users
        else rng.integers(0, classes, count)
    )
    if recipe.source == "hhar":
        x = rng.normal(size=(count, *shape)).astype(np.float32)
        names = tuple(map(str, range(classes)))
        save_windows(path, Windows(x, y, np.array(users), None, None, names, ("x", "y", "z")))
        return
    x = rng.integers(0, 256, (count, *shape)).astype(np.uint8)
    windows = fedge.from_images(x, y, users=users, classes=[str(n) for n in range(classes)])
    # class by class, and a fifth of a user's images of each for testing
    part = np.where(np.arange(count) // max(1, recipe.users) % 5 == 4, "test", "train")
    replace(windows, part=part).save(path)
