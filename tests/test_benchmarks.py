"""A benchmark whose data are missing ends with one line, as `fedge` does."""

import json
import re
from functools import partial
from importlib import import_module
from itertools import product
from pathlib import Path

import pytest

from benchmarks import exchange, large_model
from benchmarks import round as rounds
from benchmarks.commands import exit_with
from benchmarks.grouping import sensors
from studies.protocols.prepare import main as prepare


def test_missing_data_are_one_line(tmp_path):
    words = [str(tmp_path / name) for name in ("none.npz", "a.npz", "b.npz")]
    with pytest.raises(SystemExit, match=r"none\.npz: window file must exist; make one with") as ended:
        exit_with(partial(sensors.main, words))
    assert "\n" not in ended.value.code


@pytest.mark.parametrize("code", [None, 0, 3])
def test_else_the_code_is_that_of_the_command(code):
    with pytest.raises(SystemExit) as ended:
        exit_with(lambda: code)
    assert ended.value.code == code


def test_images_that_are_missing_or_damaged_are_one_line(tmp_path, capsys):
    (tmp_path / "text.npz").write_text("text")
    for name in ("none.npz", "text.npz"):
        assert prepare([str(tmp_path / name), str(tmp_path / "out.npz")]) == 1
        said = capsys.readouterr().err
        assert f"{name} must hold x, y, split and classes, but: " in said
        assert said.count("\n") == 1


MEASURED = sorted(path.stem for path in (Path(__file__).parents[1] / "docs" / "benchmarks").glob("*.json"))


@pytest.mark.parametrize("name", MEASURED)
def test_figures_and_aims_are_those_of_the_results_and_of_the_program(name):
    """An aim that is changed in a program alone would be another in what it wrote."""
    module = import_module(f"benchmarks.{name}.__main__" if name == "peers" else f"benchmarks.{name}")
    record = json.loads((Path(__file__).parents[1] / f"docs/benchmarks/{name}.json").read_text())
    made = [(entry.what, entry.aim) for entry in module.BENCHMARK.figures(record["results"])]
    assert made == [(entry["what"], entry["aim"]) for entry in record["figures"]]


@pytest.mark.parametrize(
    ("row", "aims"),
    [
        ("round against a plain pool", [0.3, 0.3, 0.45, 0.75]),
        ("SCAFFOLD against without", [1.1]),
        ("time that is not training", [4, 1.5, 12, 4]),
        ("empty round in process", [0.5, 3]),
        ("the same, 100 MB, one leaf, default options", [5]),
        ("peak memory of the process with such clients", [4]),
    ],
)
def test_aims_of_the_page_are_those_of_the_programs(row, aims):
    page = (Path(__file__).parents[1] / "docs/benchmarks.md").read_text()
    (line,) = [line for line in page.splitlines() if line.startswith(f"| {row}")]
    assert [float(number) for number in re.findall(r"\d+(?:\.\d+)?", line.split("|")[3])] == aims
    of_programs = {
        "round against a plain pool": [rounds.AIMS[key] for key in product(("inprocess", "ray"), (1, 5))],
        "SCAFFOLD against without": [rounds.SCAFFOLD_AIM],
        "time that is not training": [
            rounds.NOT_TRAINING_AIMS[key] for key in product(("inprocess", "ray"), (1, 5))
        ],
        "empty round in process": list(exchange.ROUND_AIM_S.values()),
        "the same, 100 MB, one leaf, default options": [large_model.DEFAULT_RSS_AIM],
        "peak memory of the process with such clients": [large_model.RSS_AIM],
    }
    assert aims == of_programs[row]
