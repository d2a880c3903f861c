"""How many clients a run has where nobody has said it, and what is said where a client is not one user."""

import io
from dataclasses import replace

import numpy as np
import pytest
from small_runs import small_config

from fedge import simulate
from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError
from fedge.engine.federation import Federation
from fedge.launch.preflight import check
from fedge.run.preparation.population import (
    alike_remarks,
    clients_for,
    refuse_other_number,
    user_count_remark,
)
from hhar.windows.window_file import load_windows

DEFAULT = Federation(9, is_default=True)


@pytest.fixture
def small(tmp_path):
    return small_config(tmp_path)  # nine users


def config_of(**changes):
    return from_run_config({key.replace("__", ".").replace("_", "-"): v for key, v in changes.items()})


@pytest.mark.parametrize(
    ("changes", "there", "clients"),
    [
        ({}, 12, 9),
        ({}, 4, 9),
        ({"partition__kind": "iid"}, 12, 12),
        ({"partition__kind_args__split_users": True}, 12, 12),  # users are to be cut
        ({"partition__kind_args__split_users": True}, 4, 9),
        ({"hierarchy__clients_per_server": "4,3,2"}, 4, 9),
        ({"hierarchy__clients_per_server": "2,1,1"}, 4, 4),  # which are not all users
        ({"hierarchy__clients_per_server": "a,1"}, 4, 4),
    ],
)
def test_one_client_per_user_where_users_are_dealt(small, changes, there, clients):
    windows = load_windows(small["data.path"])
    assert clients_for(config_of(**changes), windows, there) == clients


def test_who_says_a_number_gets_it(small):
    """Nobody: nine users, nine clients. A federation by name, the option, in that order of weight."""
    of = {key: value for key, value in small.items() if key != "clients"}
    twelve = Federation(12, is_default=True)
    assert check(of, twelve).num_clients == 9
    assert check(of, Federation(3)).num_clients == 3
    assert check({**of, "clients": 6}, Federation(3)).num_clients == 6
    assert check({**of, "clients": "auto"}, Federation(3)).num_clients == 3
    with pytest.raises(ConfigError, match=r"^clients must be the number of SuperNodes, 9, but is 6"):
        check({**of, "clients": 6}, Federation(9), is_sized=True)
    assert check(of, DEFAULT, is_sized=True).num_clients == 9


@pytest.mark.slow
def test_the_synthetic_set_follows_the_clients_unless_its_users_are_said():
    synthetic = {"data.path": "synthetic"}
    assert check(synthetic, DEFAULT).num_clients == 9
    assert check({**synthetic, "data.synthetic-users": 12}, DEFAULT).num_clients == 12
    assert check({**synthetic, "clients": 11}, DEFAULT).num_clients == 11


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "many"])
def test_what_is_no_number_of_clients_is_refused(wrong):
    with pytest.raises(ConfigError, match=r'^clients must be (at least 1|a whole number or "auto"), but is '):
        from_run_config({"clients": wrong})


def test_the_number_of_a_deployed_federation_must_be_the_one_said():
    refuse_other_number(config_of(clients=4), 4)
    refuse_other_number(config_of(), 4)
    with pytest.raises(ConfigError, match=r"options\.num-supernodes=5'"):
        refuse_other_number(config_of(clients=5), 4)


def test_what_is_said_of_users_that_are_no_clients(small):
    windows = load_windows(small["data.path"])
    assert user_count_remark(config_of(), windows, 9) is None
    assert user_count_remark(config_of(partition__kind="iid"), windows, 4) is None
    assert user_count_remark(config_of(), windows, 4).startswith(
        "9 users for 4 clients: some clients hold several users; "
    )
    assert user_count_remark(config_of(), windows, 12) == (
        "12 clients for 9 users: users are cut, and several clients share a person"
    )


@pytest.mark.parametrize(
    ("users", "classes", "said"),
    [
        (list("abcdefghi"), ("p", "q"), []),
        (["Ann", "ann", "ann ", "a", "b", "c", "d", "e", "f"], ("p", "q"), ["3 of 9 users have names"]),
        (["Zo\u00eb", "Zoe\u0308", *"abcdefg"], ("p", "q"), ["2 of 9 users have names"]),
        (list("abcdefghi"), ("walk up", "Walk  Up"), ["2 of 2 classes have names"]),
    ],
)
def test_names_that_are_easily_the_same_are_remarked_on(small, users, classes, said):
    """Users without their names, which do not belong into a log."""
    windows = load_windows(small["data.path"])
    theirs = np.array([users["abcdefghi".index(user)] for user in windows.user])
    found = alike_remarks(replace(windows, user=theirs, classes=classes))
    assert [line[: len(words)] for line, words in zip(found, said, strict=True)] == said
    assert not any("Ann" in line or "Zo" in line for line in found)


@pytest.mark.slow
def test_a_run_says_it_at_its_start_in_its_log_and_in_its_report(small):
    terminal = io.StringIO()
    run = simulate({**small, "num-server-rounds": 1, "report": True}, clients=6, terminal=terminal)
    line = "9 users for 6 clients: some clients hold several users; for one each, fedge run --clients 9"
    assert run.manifest["clients_per_leaf"] == [2, 2, 2]
    shown = terminal.getvalue()
    assert shown.index(line) < shown.index("round 1")
    assert line in (run.folder / "run.log").read_text()
    assert any(line in remark for remark in run.manifest["remarks"])
    assert line in (run.folder / "report.html").read_text()
    again = simulate({**small, "num-server-rounds": 2, "resume": str(run.folder)}, terminal=io.StringIO())
    assert again.manifest["clients_per_leaf"] == [2, 2, 2]
    with pytest.raises(ConfigError, match=r"clients per leaf are \[3, 3, 3\], were \[2, 2, 2\]"):
        simulate({**small, "num-server-rounds": 3, "resume": str(run.folder)}, clients=9)
