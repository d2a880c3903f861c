"""Odd arguments of `simulate` and `load_run` are one line before work starts, or the run that is meant."""

import collections
import io
import math
import pathlib

import numpy as np
import pytest
from odd_archives import one_of
from refusals import check_refusal

import fedge
from fedge.config.registers.option import ConfigError
from fedge.records.manifest import RunFolderError

SAMPLE, MANY = 40, 1000
PLAIN = {"num-server-rounds": 1, "train.local-epochs": 1, "report": False, "checkpoint.every": 0}
PARTS = (
    "model",
    "algorithm",
    "rule",
    "cloud_rule",
    "signal",
    "grouping",
    "gate",
    "partition",
    "scenario",
    "data",
)


class Rude:
    """An object that cannot be shown."""

    def __repr__(self):
        raise RuntimeError


class Failing(io.StringIO):
    """A stream that cannot be written to."""

    def write(self, text):
        raise ZeroDivisionError


def nested(depth):
    """A table within a table, and so on."""
    return {} if not depth else {"a": nested(depth - 1)}


VALUES = (
    None, True, -1, 0, 1.5, math.nan, math.inf, 10**400, 2**63, "", "x", "x" * 200_000, "a\0b", "\ud800",
    "\x1b[2J", b"x",
    [], [1], ["a", "a"], {}, {"a": 1}, {1: 2}, {1, 2}, object, print, Rude(), np.zeros(3), np.array(1), 1j,
    "[" * 20_000,
    "{bad", "a:b", "os:getcwd", pathlib.PurePath("x"), range(3), np.datetime64("2020"), nested(200),
    [[[]]], "no.npz", "/", "~",
)  # fmt: skip
KEYS = (
    "train.lr", "train.local-epochs", "train.model-args", "train.model-args.a", "train.model-args.a.b",
    "train", "seed", "callbacks",
    "runs-dir", "run-name", "resume", "hierarchy.num-servers", "data.path-args.x", "cluster.tau", "report",
    "", "x" * 200_000, "\ud800",
    "train.lr ", "train..lr", ".", "train.", 5, None, ("a", "b"), b"x", Rude(), "TRAIN.LR",
    "num_server_rounds",
)  # fmt: skip
HARMLESS = (
    {"config": {"train.lr": np.float64(0.05)}}, {"config": {"seed": np.int64(42)}},
    {"config": {"train": {"lr": np.float64(0.05)}}},
    {"clients": np.int32(6)}, {"clients": None, "num_supernodes": np.uint8(6)}, {"workers": np.int64(2)},
    {"workers": 10**9},
    {"callbacks": None}, {"callbacks": ""}, {"callbacks": iter(())}, {"callbacks": "early-stopping"},
    {"callbacks": {"early-stopping"}},
    {"terminal": Failing()}, {"terminal": io.BytesIO()}, {"tracker": None},
    {"config": {"report": np.bool_(False)}},
)  # fmt: skip


def odd_arguments(rng):
    """(arguments, whether they mean the plain run) of one seed."""
    if rng.random() < 0.1:
        return one_of(rng, HARMLESS), True
    kind = rng.integers(6)
    if kind <= 1:
        return {"config": {one_of(rng, KEYS): one_of(rng, VALUES) for _ in range(rng.integers(1, 3))}}, False
    if kind == 2:
        return {one_of(rng, ("clients", "workers", "num_supernodes")): one_of(rng, VALUES)}, False
    if kind == 3:
        return {one_of(rng, ("callbacks", "tracker", "terminal", "config")): one_of(rng, VALUES)}, False
    if kind == 4:
        return {"callbacks": [one_of(rng, VALUES)]}, False
    return {one_of(rng, PARTS): one_of(rng, VALUES)}, False


def carried_out(runs, given):
    """A short run with some arguments changed."""
    config = given.get("config")
    if config is None or isinstance(config, dict):
        config = {**PLAIN, "runs-dir": str(runs), **(config or {})}
    plain = {"model": "linear", "data": "digits", "clients": 6, "terminal": io.StringIO()}
    return fedge.simulate(config, **(plain | {key: value for key, value in given.items() if key != "config"}))


def is_refused(runs, given, weights):
    """Whether arguments are refused in one line; else a run has ended, with `weights` if there are any."""
    try:
        run = carried_out(runs, given)
    except ConfigError as error:
        run, refusal = None, error
    if run is None:
        check_refusal(refusal, runs)
        assert weights is None, str(refusal)
        return True
    if weights is not None or run.status != "completed":
        assert (run.status == "completed") == (weights is not None), run.manifest
        assert "\n" not in run.manifest.get("reason", "")
    for key, value in (weights or {}).items():
        np.testing.assert_array_equal(run.models()[0][key], value)
    return False


def counts(place, seeds):
    """(refused, carried out) of so many odd arguments; nothing is written elsewhere."""
    weights = carried_out(place / "runs", {}).models()[0]
    found = collections.Counter()
    for seed in seeds:
        given, is_harmless = odd_arguments(np.random.default_rng([249, seed]))
        try:
            found[is_refused(place / "runs", given, weights if is_harmless else None)] += 1
        except BaseException as error:
            error.add_note(f"seed {seed}: {', '.join(given)}")
            raise
    return found[True], found[False]


def test_odd_arguments_are_one_line_or_the_run_that_is_meant(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused, ran = counts(tmp_path, range(SAMPLE))
    assert min(refused, ran) > SAMPLE / 20
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


@pytest.mark.extended
@pytest.mark.timeout(600)
def test_a_thousand_odd_arguments(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused, ran = counts(tmp_path, range(SAMPLE, SAMPLE + MANY))
    assert min(refused, ran) > MANY / 20
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


@pytest.mark.extended
def test_a_planted_hole_is_found(tmp_path, monkeypatch):
    """Numbers of workers and streams are no longer looked at."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fedge.launch.simulate._refuse_odd_settings", lambda *given: None)
    with pytest.raises((AssertionError, AttributeError, TypeError)):
        counts(tmp_path, range(MANY))


@pytest.mark.parametrize(
    "path",
    [
        None, 5, 1.5, True, b"x", "", "\0", "\ud800", "x" * 5000, "x" * 200_000, "/", "/dev/null", "no",
        "circle", ["a"], {"a"},
        object(), Rude(), np.zeros(2), io.StringIO(), "http://example.org/run", pathlib.PurePath("no"),
    ],
    ids=lambda path: type(path).__name__,
)  # fmt: skip
def test_a_path_that_is_no_run_is_one_line(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(RunFolderError) as refused:
        fedge.load_run(path)
    check_refusal(refused.value)
