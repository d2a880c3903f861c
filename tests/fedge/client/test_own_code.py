"""Code of the user's own at a client's first call."""

import hashlib
import io
import sys

import pytest
from own_code import forgotten
from small_runs import small_config

import fedge.client_app as client_app
from fedge import simulate
from fedge.client.own_code import refuse_missing_code
from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError
from fedge.engine.inprocess import InProcessGrid
from fedge.exchange.engine import RunError
from fedge.exchange.finding import find_clients
from fedge.exchange.hello import Question, hello_message, question_of
from fedge.run.preparation.parts import code_of_parts


def test_parts_of_fedge_and_code_that_is_there_are_well(tmp_path, monkeypatch):
    refuse_missing_code({"train.model": "cnn", "uplink.clients": "none"})
    (tmp_path / "nets_of_ours.py").write_text("class Net: ...\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    refuse_missing_code({"train.model": "nets_of_ours:Net"})


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
        refuse_missing_code(options, client=3)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("option", ["train.model", "train.metrics[0]", "uplink.clients"])
def test_other_code_than_the_servers_is_refused(tmp_path, monkeypatch, option):
    """A file of another version would train another model, without a word."""
    (tmp_path / "same_name.py").write_text("class Part: ...\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    options, here = {option.removesuffix("[0]"): "same_name:Part"}, hashlib.sha256(b"class Part: ...\n")
    with forgotten(tmp_path):
        refuse_missing_code(options, parts={option: here.hexdigest()})
        with pytest.raises(ConfigError, match=r"where partition 3 is.* same code on every machine") as caught:
            refuse_missing_code(options, client=3, parts={option: "f" * 64})
    assert "copy the server's file to" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_folders_of_the_server_are_for_workers_of_ray_alone(tmp_path, monkeypatch):
    """A SuperNode imports nothing from where a server says."""
    (tmp_path / "nets_of_theirs.py").write_text("class Net: ...\n")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    monkeypatch.setattr("fedge.config.registers.register._looked_in", [])
    options = {"train.model": "nets_of_theirs:Net"}
    with pytest.raises(ConfigError, match="No module named 'nets_of_theirs'"):
        refuse_missing_code(options, [str(tmp_path)])
    monkeypatch.setitem(sys.modules, "ray", sys)
    refuse_missing_code(options, [str(tmp_path)])


def test_a_run_whose_clients_lack_the_code_ends_before_it_begins(tmp_path):
    """Clients of threads whose options name code that is nowhere: the first call fails, in one line."""
    options = {**small_config(tmp_path), "train.model": "nowhere_at_all:Net"}
    failed = pytest.raises(RunError, match=r"a client failed at its first call: .*nowhere_at_all")
    with InProcessGrid(client_app.app, 3, options, 1) as grid, failed as caught:
        find_clients(grid, 20.0, Question("", 3, code=(str(tmp_path),)))
    assert "\n" not in str(caught.value)


def test_a_hello_names_the_folders():
    assert question_of(hello_message(7, Question(code=("/a", "/b")))).code == ["/a", "/b"]
    assert question_of(hello_message(7)).code == []


def test_a_hello_names_the_servers_code():
    parts = {"train.model": "0" * 64, "train.metrics[0]": "1" * 64}
    assert question_of(hello_message(7, Question(parts=parts))).parts == parts
    assert question_of(hello_message(7)).parts == {}


def test_clients_of_a_run_hear_of_its_code(tmp_path, monkeypatch):
    heard = []
    monkeypatch.setattr(client_app, "refuse_missing_code", lambda *asked: heard.append(asked[3]))
    (tmp_path / "heard_of.py").write_text("def constant(global_round):\n    return 1.0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with forgotten(tmp_path):
        config = small_config(tmp_path, train__schedule="heard_of:constant", num_server_rounds=1)
        assert simulate(config, terminal=io.StringIO()).status == "completed"
        wanted = code_of_parts(from_run_config(config))
    assert list(wanted) == ["train.schedule"]
    assert heard == [wanted] * 9
