"""``fedge methods``."""

import inspect

import pytest

from fedge.cli import main
from fedge.config.registers.groupings import GROUPINGS
from fedge.config.registers.parts import ALGORITHMS

OWN = """
from fedge.algorithm import Algorithm, Sent
from fedge.clustering import CloudPart


class Mine(Algorithm):
    def __init__(self, pull=2.0):
        self.pull = pull

    def start(self, client):
        return {"seen": 0}

    def train(self, client):
        fit = client.fit()
        client.memory["seen"] += len(client.y)
        return Sent(fit, arrays={"extra": client.received})


class Cloud(CloudPart):
    keeps = "a count"

    def ask(self, cloud):
        return [{"own": model} for model in cloud.models]

    def group(self, cloud):
        return [0] * len(cloud.models)
"""


def told(capsys, *words):
    """Output of the command."""
    assert main(["methods", *words]) == 0
    return capsys.readouterr().out


def test_all_methods_are_listed_under_their_options(capsys):
    out = told(capsys)
    clients, cloud = out.split("what the cloud does (cluster.method)")
    assert all(f"  {name} " in clients for name in ALGORITHMS.names)
    assert all(f"  {name} " in cloud for name in GROUPINGS.names)


@pytest.mark.parametrize("name", [*ALGORITHMS.names, *GROUPINGS.names])
def test_every_method_says_what_its_tiers_keep_and_send(capsys, name):
    out = told(capsys, name)
    assert "keeps" in out
    assert "sends" in out


def test_tiers_of_a_client_method_are_what_its_trial_finds(capsys):
    assert told(capsys, "fedrep").splitlines()[2:] == [
        "  train.algorithm-args: head-epochs=10, base-epochs=1",
        "  client  keeps head (2 of its 9 entries)",
        "          sends 7 of the model's 9 entries",
        "          is tested with the model personal of its own, unseen clients too",
        "  leaf    keeps nothing",
        "          sends the model",
    ]


@pytest.mark.parametrize("name", ALGORITHMS.names)
def test_arguments_of_all_tiers_are_told(capsys, name):
    """Also those that only the leaf's part takes, as esperhfl's `mix`."""
    code, out = ALGORITHMS.load(name), told(capsys, name)
    for part in (code, code.leaf):
        for each in inspect.signature(part).parameters.values() if part is not None else ():
            assert f"{each.name.replace('_', '-')}={each.default!r}" in out


def test_methods_of_a_user_are_told_as_well(capsys, tmp_path, monkeypatch):
    (tmp_path / "mine_methods.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    out = told(capsys, "mine_methods:Mine")
    assert "train.algorithm-args: pull=2.0" in out
    assert "client  keeps seen" in out
    assert "sends the model and extra" in out
    cloud = told(capsys, "mine_methods:Cloud")
    assert "cloud   keeps a count" in cloud
    assert "client  sends the model, losses and scores of models that the method asks about" in cloud


def test_an_unknown_method_is_refused_with_the_names(capsys):
    assert main(["methods", "ditho"]) == 4
    assert "did you mean ditto?" in capsys.readouterr().err


def test_a_method_of_several_tiers_is_told_whole(capsys):
    out = told(capsys, "esperhfl")
    assert 'train.algorithm="esperhfl"' in out
    assert "sends the model and v and m" in out
    assert 'cluster.method="esperhfl"' in out
    assert out.index("cloud") > out.index("leaf    keeps v (a model), m")


def test_a_method_that_fails_in_its_trial_is_told_in_one_line(capsys, tmp_path, monkeypatch):
    (tmp_path / "my_failing.py").write_text(OWN.replace("fit = client.fit()", "fit = client.fit(mu=1)"))
    monkeypatch.chdir(tmp_path)
    assert main(["methods", "my_failing:Mine"]) == 4
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "my_failing:Mine fails in a trial with train.model mlp-tiny" in told
