"""The part of docs/results.md on devices: small real sweeps, numbers against the runs' own tables."""

import csv
import math
from types import SimpleNamespace

import pytest
from small_data import nine_users

from fedge.cli import main as fedge
from studies import devices_part
from studies.devices_part import HEADERS, MARKS, main, on_page, times_as_soon
from studies.measures import read_study

SMALL = """# FedBuff
# against rounds.
[sweep]
seeds = [1, 2]
runs-dir = {runs!r}

[base]
clients = 18
num-server-rounds = 3
data.path = {data!r}
devices.pieces = 2
hierarchy.num-servers = 1
asynchrony.concurrency = 6
asynchrony.evaluate-every-s = 1.0
train.model = "linear"
train.local-epochs = 1
scaffold.enabled = false
cluster.enabled = false
gate.enabled = false

[[rule]]
name = "rounds"
asynchrony.rule = "fedavg"

[[rule]]
name = "buffered"
asynchrony.rule = "fedbuff"
asynchrony.rule-args.buffer = 2
"""


def test_how_much_sooner_is_a_geometric_mean_over_common_seeds():
    found = times_as_soon({1: 10.0, 2: 10.0, 3: 5.0}, {1: 20.0, 2: 80.0})
    assert found.mean == pytest.approx(4.0)
    assert found.low * found.high == pytest.approx(16.0)
    assert found.n == 2
    assert times_as_soon({1: 1.0}, {2: 1.0}) is None


@pytest.mark.parametrize(("seeds", "shown"), [((1,), False), ((1, 2), True)])
def test_a_sweep_of_one_seed_is_not_shown(seeds, shown, monkeypatch, tmp_path):
    """It chooses step sizes."""
    group = SimpleNamespace(runs=seeds)
    study = SimpleNamespace(comparisons=[SimpleNamespace(groups=[group])])
    monkeypatch.setattr(devices_part, "complete", lambda path: study)
    monkeypatch.setattr(devices_part, "section", lambda study, path: "the sweep\n")
    monkeypatch.setattr(devices_part, "all_columns", lambda studies: "")
    (tmp_path / "one.toml").touch()
    (tmp_path / "page.md").write_text("\n".join(MARKS))
    arguments = ["--studies", str(tmp_path), "--pages", str(tmp_path / "page.md")]
    assert main([*arguments, "--full", str(tmp_path / "full.csv")]) == (0 if shown else 2)
    assert ("the sweep" in (tmp_path / "page.md").read_text()) == shown


@pytest.mark.extended
@pytest.mark.whole_runs
def test_its_tables_are_of_the_runs(tmp_path, capsys):
    """Between two marks; a sweep whose runs are missing is named and left out."""
    for name in ("1-small", "2-missing"):
        text = SMALL.format(runs=str(tmp_path / "runs"), data=str(nine_users()))
        (tmp_path / f"{name}.toml").write_text(text)
    assert fedge(["sweep", str(tmp_path / "1-small.toml")]) == 0
    page = tmp_path / "page.md"
    page.write_text(f"before\n{MARKS[0]}\nold\n{MARKS[1]}\nafter\n")
    full = tmp_path / "full.csv"
    assert main(["--studies", str(tmp_path), "--pages", str(page), "--full", str(full)]) == 0
    text = page.read_text()
    assert "2-missing" in capsys.readouterr().err
    assert "Not run here: 2-missing." in text
    assert "old" not in text
    assert "### devices-1-small\n\nFedBuff against rounds.\n\nTarget" in text
    line = next(line for line in text.splitlines() if line.startswith("| buffered"))
    shown = [cell.strip() for cell in line.strip("|").split("|")]
    with full.open(newline="") as table:
        header, *rows = csv.reader(table)
    assert [row[:2] + row[3:4] for row in rows] == [["1-small", "", name] for name in ("rounds", "buffered")]
    cells = rows[1][3:]
    assert on_page(cells) == shown
    assert (shown[1], shown[3]) == (cells[1].removesuffix(" (2 of 2)"), cells[5].split(" (")[0])
    assert on_page([*"ab", *"cdefghijk"])[1] == "b"
    assert on_page(["x", "5.6 (3 of 5)", *"cdefghijk"])[1] == "5.6 (3 of 5)"
    assert header[4:] == list(HEADERS[1:])
    tables = [
        list(csv.DictReader((tmp_path / f"runs/1-small/buffered-seed{n}/devices/versions.csv").open()))
        for n in (1, 2)
    ]
    means = [math.fsum(float(row["seen_accuracy"]) for row in rows) / 3 for rows in tables]
    assert cells[4].startswith(f"{100 * sum(means) / 2:.1f} (")
    assert cells[9] == f"{sum(float(rows[-1]['mean_staleness']) for rows in tables) / 2:.1f}"
    comparison = read_study(tmp_path / "1-small.toml").comparisons[0]
    assert 0 < devices_part.target_of(comparison) < 1
