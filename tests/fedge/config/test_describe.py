"""Options in words: README's table, the lines of `--help`, the schema against every file of options."""

import json
import sys
from functools import cache
from pathlib import Path

import jsonschema
import pytest

from fedge.config.describe import MOST_USED, help_lines, json_schema, lines_on
from fedge.config.flat import options
from fedge.config.registers.option import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[3]
CONFIGS = sorted((ROOT / "configs").rglob("*.toml"))


@pytest.mark.parametrize("width", [30, 40, 78, 200])
def test_every_option_fits_and_is_there_once(width):
    lines = list(help_lines(width, most_used=False))
    for key, (default, _) in options().items():
        assert sum(line.startswith(f"  {key}={json.dumps(default)}") for line in lines) == 1
    longest = max(len(line) for line in lines if line.startswith("  ") and "=" in line.split()[0])
    assert max(map(len, lines)) <= max(width, longest)


def test_the_most_used_are_options_and_few():
    assert set(MOST_USED) <= set(options())
    keys = [line.split("=")[0].strip() for line in help_lines(80, most_used=True) if "=" in line[:30]]
    assert sorted(keys) == sorted(MOST_USED)


def keys_of(lines):
    """The keys that lines explain."""
    return [line.split("=")[0].strip() for line in lines if line.startswith("  ") and line[2] != " "]


def test_an_option_is_explained_with_its_arguments_and_limits():
    assert lines_on("train.lr", 78) == [
        "  train.lr=0.05                  step size in global round 1 (>0, ≤1e+06)"
    ]
    assert keys_of(lines_on("leaf.strategy", 78))[:3] == [
        "leaf.strategy", "leaf.strategy-args", "leaf.strategy-args.beta",
    ]  # fmt: skip


@pytest.mark.parametrize("key", list(options()))
def test_every_option_and_every_section_explain_themselves(key):
    assert keys_of(lines_on(key, 40))[0] == key
    section = key.rpartition(".")[0] or key
    assert key in keys_of(lines_on(section, 40))


def test_options_are_found_by_a_word_of_their_key_then_of_their_meaning():
    assert keys_of(lines_on("noise", 78)) == ["privacy.noise-multiplier", "privacy.noise-source"]
    assert keys_of(lines_on("fedprox", 78)) == ["train.prox-mu"]
    assert "uplink.clients" in keys_of(lines_on("compression", 78))


@pytest.mark.parametrize(
    ("word", "next_step"),
    [("train.lrr", "did you mean train.lr?"), ("zzzzz", "fedge options prints them all")],
)
def test_a_word_of_no_option_is_refused_with_the_next_step(word, next_step):
    with pytest.raises(ConfigError, match=f"must be of an option, but is '{word}'; ") as refused:
        lines_on(word, 78)
    assert str(refused.value).endswith(next_step)


@cache
def schema_of(pyproject):
    """The schema of a file of options, or of pyproject.toml, itself a schema."""
    jsonschema.Draft7Validator.check_schema(schema := json_schema(pyproject))
    return schema


def invalid(options_, pyproject=False):
    """Objections of the schema to options, as the words that hold the place."""
    return [
        ".".join(map(str, e.absolute_path))
        for e in jsonschema.Draft7Validator(schema_of(pyproject)).iter_errors(options_)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_packaged_configurations_are_valid(path):
    assert invalid(tomllib.loads(path.read_text(encoding="utf-8"))) == []


def test_pyproject_is_valid_and_its_defaults_are_the_schemas():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert invalid(project, pyproject=True) == []
    project["tool"]["flwr"]["app"]["config"]["train"]["lr"] = "fast"
    assert invalid(project, pyproject=True) == ["tool.flwr.app.config.train.lr"]


@pytest.mark.parametrize(
    ("table", "place"),
    [
        ({"train": {"modle": "cnn"}}, "train"),
        ({"seeds": 3}, ""),
        ({"train": {"model": "transformer"}}, "train.model"),
        ({"train": {"local-epochs": 0}}, "train.local-epochs"),
        ({"train": {"lr": 0.0}}, "train.lr"),
        ({"data": {"split": "random"}}, "data.split"),
        ({"cluster": {"blend": "often"}}, "cluster.blend"),
        ({"report": 1}, "report"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_refused_when_it_runs_is_marked_in_the_editor(table, place):
    assert invalid(table) == [place]


def test_own_parts_are_valid():
    assert invalid({"train": {"model": "study.model:Net", "model-args": {"width": 8}}}) == []
    assert invalid({"cluster": {"blend": "auto"}, "data": {"path": "mine.npz"}}) == []
