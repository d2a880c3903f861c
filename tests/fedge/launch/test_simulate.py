"""Arguments of `fedge.simulate`; whole runs with objects are in tests/runs/test_examples.py."""

import sys

import numpy as np
import pytest
from flwr.clientapp import ClientApp
from torch import nn

import fedge
from fedge import simulate
from fedge.client_app import app
from fedge.config.option import ConfigError
from fedge.launch.project import CLIENT_APP
from fedge.launch.simulate import client_app_named


def test_what_cannot_be_a_part_is_refused():
    with pytest.raises(ConfigError, match=r"^train\.model must be a name, a class or a function, but is 3"):
        simulate({}, model=3)
    with pytest.raises(
        ConfigError, match=r"^model must be a class or a function .*, but is a network, a Line"
    ):
        simulate({}, model=nn.Linear(2, 2))
    with pytest.raises(
        ConfigError, match=r"^data must be hhar\.Windows, .*, but is a ndarray; fedge\.from_pan"
    ):
        simulate({}, data=np.zeros(3))
    with pytest.raises(fedge.ConfigError, match=r"^clients must be at least 1, but is 0"):
        simulate({}, clients=0)


def test_the_client_app_of_a_project_is_used(tmp_path, monkeypatch):
    assert client_app_named(CLIENT_APP) is app
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "my_client_app.py").write_text(
        "from flwr.clientapp import ClientApp\napp = ClientApp()\nnone = 3\n"
    )
    assert isinstance(client_app_named("my_client_app:app"), ClientApp)
    with pytest.raises(ConfigError, match=r"^clientapp must be a flwr.clientapp.ClientApp, but .*:none is 3"):
        client_app_named("my_client_app:none")
    with pytest.raises(ConfigError, match=r"^clientapp my_client_app:ap cannot .*did you mean app"):
        client_app_named("my_client_app:ap")
