"""A client in a process that stays: it keeps its network, and a failed call or another run is noted."""

from types import SimpleNamespace

import pytest

from fedge import client_app
from fedge.client import guarded_app, process_team
from fedge.client.guarded_app import ClientError, guarded_reply
from fedge.process import persistent_process


@pytest.fixture(autouse=True)
def life(monkeypatch):
    monkeypatch.setattr(persistent_process, "_life", persistent_process._Life())
    monkeypatch.setattr(persistent_process, "holds_gpu", lambda: True)


@pytest.mark.parametrize("error", [RuntimeError("CUDA error: an illegal memory access"), SystemExit(0)])
def test_a_client_that_fails_does_not_leave_its_process_to_the_next_message(error):
    """An illegal access makes a GPU unusable for its process."""

    def app(message, context):
        raise error

    persistent_process.allow_further_messages()
    context = SimpleNamespace(run_id=4, node_config={"partition-id": 0})
    assert persistent_process.handles_further_messages()
    with pytest.raises((RuntimeError, ClientError)):
        guarded_reply(app, SimpleNamespace(), context)
    assert not persistent_process.handles_further_messages()


def test_the_run_of_a_message_is_known_before_its_work(monkeypatch):
    seen = []
    monkeypatch.setattr(guarded_app, "begin_message_of", seen.append)
    context = SimpleNamespace(run_id=7, node_config={"partition-id": 0})
    with pytest.raises(ClientError, match="the client returned NoneType instead of a reply"):
        guarded_reply(lambda message, context: seen.append("work"), SimpleNamespace(), context)
    assert seen == [7, "work"]


@pytest.mark.parametrize("stays", [True, False])
def test_its_network_is_kept_for_the_next_message_where_the_process_stays(monkeypatch, stays):
    monkeypatch.setattr(client_app, "is_client_app", lambda: True)
    monkeypatch.setattr(client_app, "handles_further_messages", lambda: stays)
    monkeypatch.setattr(client_app, "_workspace", SimpleNamespace(model="network"))
    client_app._release_network()
    assert hasattr(client_app._workspace, "model") is stays


@pytest.mark.parametrize("error", ["ValueError('gone')", "SystemExit(3)", "KeyError('a\\nb')"])
def test_an_error_of_a_users_own_code_says_where(error):
    """Engines of Flower's pass on the message alone."""
    known = {}
    exec(compile(f"def app(message, context):\n    raise {error}\n", "/home/me/my_part.py", "exec"), known)
    context = SimpleNamespace(run_id=7, node_config={"partition-id": 0})
    with pytest.raises(ClientError, match=r"^\w+[:(].* \(my_part\.py, line 2\)$"):
        guarded_reply(known["app"], SimpleNamespace(), context)


def test_settings_of_training_are_made_anew_for_another_run(monkeypatch):
    """With equal options, too: its schedule, loss or augmentation may be other code of the same name."""
    monkeypatch.setattr(client_app, "_workspace", SimpleNamespace())
    made = []
    monkeypatch.setattr(client_app, "local_training", lambda *key: made.append(key) or len(made))
    config, of_round = (
        SimpleNamespace(train="options"),
        SimpleNamespace(round_of_steps=1, local_steps=0, kernel=""),
    )
    for run, expected in ((7, 1), (7, 1), (8, 2), (8, 2), (7, 3)):
        call = SimpleNamespace(config=config, round=of_round, context=SimpleNamespace(run_id=run))
        assert client_app._training_settings(call) == expected


def test_several_processes_begin_anew_with_a_network_written_anew(monkeypatch):
    """They have imported its code, and keep the network that they made of it."""
    code = {"model": "first"}
    monkeypatch.setattr(process_team, "MODELS", SimpleNamespace(load=code.__getitem__))
    monkeypatch.setattr(process_team, "Team", lambda size: SimpleNamespace(size=size))
    monkeypatch.setattr(process_team, "_thread_state", SimpleNamespace())
    config = SimpleNamespace(processes=2, model="model")
    first = process_team._team_of_thread(config)
    assert process_team._team_of_thread(config) is first
    code["model"] = "second"
    second = process_team._team_of_thread(config)
    assert second is not first
    assert process_team._team_of_thread(config) is second
    config.processes = 3
    assert process_team._team_of_thread(config).size == 3
