"""Code of the user's own at a client's first call."""

import sys

import pytest
from small_runs import small_config

import fedge.client_app as client_app
from fedge.client.own_code import refuse_code_that_is_not_here
from fedge.config.registers.option import ConfigError
from fedge.engine.inprocess import InProcessGrid
from fedge.exchange.engine import RunError
from fedge.exchange.finding import find_clients
from fedge.exchange.hello import code_of, hello_message
from fedge.exchange.roll import Question


def test_parts_of_fedge_and_code_that_is_there_are_well(tmp_path, monkeypatch):
    refuse_code_that_is_not_here({"train.model": "cnn", "uplink.clients": "none"})
    (tmp_path / "nets_of_ours.py").write_text("class Net: ...\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    refuse_code_that_is_not_here({"train.model": "nets_of_ours:Net"})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"train.model": "nowhere:Net"}, "train.model nowhere:Net cannot be imported: ModuleNotFoundError"),
        ({"train.metrics": "json:nothing"}, "train.metrics json:nothing cannot be imported: json has no"),
        ({"uplink.clients": "nowhere:Code"}, "uplink.clients nowhere:Code cannot be imported"),
    ],
)
def test_what_cannot_be_imported_is_refused_with_whose_machine_it_is(options, words):
    with pytest.raises(ConfigError, match="where partition 3 is") as caught:
        refuse_code_that_is_not_here(options, client=3)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_folders_of_the_server_are_for_workers_of_ray_alone(tmp_path, monkeypatch):
    """A SuperNode imports nothing from where a server says."""
    (tmp_path / "nets_of_theirs.py").write_text("class Net: ...\n")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    monkeypatch.setattr("fedge.config.registers.register._looked_in", [])
    options = {"train.model": "nets_of_theirs:Net"}
    with pytest.raises(ConfigError, match="No module named 'nets_of_theirs'"):
        refuse_code_that_is_not_here(options, [str(tmp_path)])
    monkeypatch.setitem(sys.modules, "ray", sys)
    refuse_code_that_is_not_here(options, [str(tmp_path)])


def test_a_run_whose_clients_lack_the_code_ends_before_it_begins(tmp_path):
    """Clients of threads whose options name code that is nowhere: the first call fails, in one line."""
    options = {**small_config(tmp_path), "train.model": "nowhere_at_all:Net"}
    failed = pytest.raises(RunError, match=r"a client failed at its first call: .*nowhere_at_all")
    with InProcessGrid(client_app.app, 3, options, 1) as grid, failed as caught:
        find_clients(grid, 20.0, Question("", 3, code=(str(tmp_path),)))
    assert "\n" not in str(caught.value)


def test_a_hello_names_the_folders():
    assert code_of(hello_message(7, code=("/a", "/b"))) == ["/a", "/b"]
    assert code_of(hello_message(7)) == []
