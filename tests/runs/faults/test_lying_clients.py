"""A client that lies in its first answer, fails with odd words, or talks without end loses only itself.

Lies are drawn by numbered seeds (`lies`); runs on other engines: tests/deployed.
`-m soak` tries 2,000 first answers and 500 error replies and prints what became of them.
"""

import logging
from collections import Counter
from contextlib import suppress
from pathlib import Path

import lying_client
import pytest
from lies_at_once import NODES, greetings, look_at_greetings
from lying_runs import (
    CLIENTS,
    GONE,
    HONEST,
    LEFT_OUT,
    LIAR,
    NOISE,
    WHOLE,
    carry_out_all,
    errors_plan,
    files_plan,
    first_plan,
    look_at_errors,
    look_at_files,
    look_at_first,
    look_at_noise,
    look_at_sums,
    sums_plans,
)
from small_runs import small_config

from fedge.data import own_windows
from fedge.engine import inprocess
from fedge.engine.inprocess import InProcessGrid
from fedge.launch.deal import deal_into
from fedge.run.preparation import data_facts

DAILY, FIRST_SEED = 25, 0


@pytest.fixture(scope="module")
def dealt(tmp_path_factory):
    """Windows of nine owners, and the options of a run on them."""
    folder = tmp_path_factory.mktemp("lies")
    config = small_config(folder / "data")
    deal_into(folder / "dealt", {**config, "clients": CLIENTS})
    return folder / "dealt", {**config, "data.path": "nowhere.npz", "guard.retries": 0, "clients": CLIENTS}


@pytest.fixture
def carry_out(dealt, tmp_path, monkeypatch):
    """Carry out runs by plans in this process; gives the folder of runs."""
    monkeypatch.setenv("FEDGE_LIES", str(tmp_path / "plan.json"))
    monkeypatch.setenv("FEDGE_DEALT", str(dealt[0]))

    def carry_out(plans, within="runs", **changes):
        config = {**dealt[1], "runs-dir": str(tmp_path / within), **changes}
        assert not Path(config["runs-dir"]).exists(), "runs of another study"
        if config["data.path"] != dealt[1]["data.path"]:
            monkeypatch.delenv("FEDGE_DEALT")
        with InProcessGrid(lying_client.app, CLIENTS, config, 2) as grid:
            carry_out_all(lambda: grid, "inprocess", config, plans)
        return Path(config["runs-dir"])

    return carry_out


# --- first answers ---------------------------------------------------------------------------------------


def first_answers(carry_out, dealt, seeds):
    """Let first answers be lies, in runs of a folder of their own; return what became of them."""
    runs = carry_out([GONE, LEFT_OUT, *map(first_plan, seeds)], within=f"first-{seeds[0]}")
    return Counter(look_at_first(runs, dealt[0], seed) for seed in seeds)


def test_whatever_a_first_answer_is_the_others_keep_their_bits(carry_out, dealt):
    first_answers(carry_out, dealt, range(FIRST_SEED, FIRST_SEED + DAILY))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(4))
def test_two_thousand_first_answers(carry_out, dealt, capsys, part):
    logging.disable(logging.INFO)
    seen = Counter()
    for first in range(10_000 * (part + 1), 10_000 * (part + 1) + 500, 100):
        seen += first_answers(carry_out, dealt, range(first, first + 100))
    with capsys.disabled():
        print(f"\n{seen.total()} first answers: {dict(sorted(seen.items()))}")
    assert seen.total() == 500


def test_first_answers_of_many_at_once_are_what_they_are_alone(dealt, tmp_path, monkeypatch):
    """Found in process and looked at as on SuperNodes, where each exchange has nine lies."""
    deal_into(
        tmp_path / "dealt",
        {**small_config(tmp_path / "data", partition__kind_args__split_users=True), "clients": NODES},
    )
    monkeypatch.setenv("FEDGE_LIES", str(tmp_path / "plan.json"))
    monkeypatch.setenv("FEDGE_DEALT", str(tmp_path / "dealt"))
    plans = greetings(range(FIRST_SEED, FIRST_SEED + 90), tmp_path / "here", tmp_path / "dealt", dealt[1])
    seen = look_at_greetings(tmp_path / "here", tmp_path / "here", plans, tmp_path / "dealt")
    assert sum(seen.values()) == 90
    assert {fate for _, fate in seen} == {"in", "out"}


HOLES = {
    "statistics": (data_facts, "outlying_clients", lambda *_: {}),
    "counts": (own_windows, "_parse_count", lambda value: value),
}


@pytest.mark.extended
@pytest.mark.parametrize("name", sorted(HOLES))
def test_a_check_of_first_answers_that_is_missing_is_found(carry_out, dealt, monkeypatch, name):
    monkeypatch.setattr(*HOLES[name])
    for first in range(0, 200, 20):
        with suppress(Exception):
            first_answers(carry_out, dealt, range(first, first + 20))
            continue
        print(f"{name}: found among seeds {first} to {first + 19}")
        return
    pytest.fail(f"{name}: not found")


def test_a_node_that_lies_about_its_windows_is_left_out_by_name(carry_out):
    """A mean of 1e17 in every channel: it works on, and the others are as without it."""
    look_at_sums(carry_out(sums_plans()[:3]), ["sums-mean-1000", "sums-mean-1e+17"])


@pytest.mark.extended
def test_whatever_a_node_says_of_its_windows_the_report_names_it(carry_out):
    """Means of 1e3, 1e17 and 1e300, deviations of 1e30 and beyond all numbers."""
    look_at_sums(carry_out(sums_plans(), report=True), [plan["name"] for plan in sums_plans()[1:]], True)


# --- error replies ---------------------------------------------------------------------------------------


TWO = (LIAR, 4)


def error_replies(carry_out, seeds, rounds, **changes):
    """Let two clients answer whatever they are asked by error replies; return how many there were."""
    plans = [errors_plan(seed, TWO) for seed in seeds]
    runs = carry_out([{**GONE, "liars": TWO}, *plans], **{"num-server-rounds": rounds, **changes})
    return sum(look_at_errors(runs, plan) for plan in plans)


SYNCHRONOUS = [{}, {"guard.retries": 1}, {"scaffold.enabled": False, "leaf.strategy": "fedadam"}]
ASYNCHRONOUS = {
    "data.path": "synthetic",
    "scaffold.enabled": False, "cluster.enabled": False, "gate.enabled": False, "hierarchy.num-servers": 1,
    "asynchrony.rule": "fedbuff", "asynchrony.rule-args": '{"buffer": 2}', "asynchrony.concurrency": 6,
    "asynchrony.evaluate-every-s": 2.0,
}  # fmt: skip


@pytest.mark.parametrize("changes", [*SYNCHRONOUS[:2], ASYNCHRONOUS])
def test_whatever_an_error_reply_says_it_is_a_failure(carry_out, changes):
    assert error_replies(carry_out, [FIRST_SEED], 4, **changes) >= 8


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_five_hundred_error_replies(carry_out, tmp_path, capsys):
    """Half of them in rounds, half on the virtual clock."""
    told = []
    for number, changes in enumerate([*SYNCHRONOUS, ASYNCHRONOUS]):
        seeds = range(100, 110 if number < len(SYNCHRONOUS) else 125)
        apart = {"runs-dir": str(tmp_path / f"runs-{number}")}
        told.append(error_replies(carry_out, seeds, 8, **changes, **apart))
    with capsys.disabled():
        print(f"\nerror replies in rounds and on the virtual clock: {told}")
    assert min(sum(told[:-1]), told[-1]) >= 250


@pytest.mark.extended
def test_a_check_of_error_replies_that_is_missing_is_found(carry_out, monkeypatch):
    """Seconds of a limit are read as any float, as once: a run ends."""
    monkeypatch.setattr(inprocess, "limit_in", float)
    with pytest.raises(AssertionError, match="log"):
        error_replies(carry_out, range(10), 8)


# --- run folders -----------------------------------------------------------------------------------------


def spoilt_folders(carry_out, seeds):
    """Let runs go on from folders of which one file is spoilt; return what became of them."""
    runs = carry_out([WHOLE, *map(files_plan, seeds)], **{"checkpoint.every": 1})
    return Counter(look_at_files(runs, seed) for seed in seeds)


def test_whatever_a_folder_holds_a_run_goes_on_or_says_in_a_line_why_not(carry_out):
    spoilt_folders(carry_out, range(FIRST_SEED, FIRST_SEED + DAILY))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_five_hundred_spoilt_folders(carry_out, capsys):
    seen = spoilt_folders(carry_out, range(1000, 1500))
    with capsys.disabled():
        print(f"\nspoilt folders: {dict(seen)}")


# --- output ----------------------------------------------------------------------------------------------


def test_a_client_that_talks_without_end_fills_nothing(carry_out, capfd):
    """40 MB a call, on standard output, standard error and by logging."""
    runs = carry_out([HONEST, NOISE])
    said = look_at_noise(runs)
    shown = capfd.readouterr()
    assert len(shown.out) + len(shown.err) < 1_200_000
    assert int(said[0].split(f": client {LIAR}: ")[1].split(" ")[0].replace(",", "")) > 20_000_000
