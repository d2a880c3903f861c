"""Arguments of `fedge.simulate`; whole runs with objects are in tests/runs/use/test_examples.py."""

import io
import shutil
import sys

import numpy as np
import pytest
from flwr.clientapp import ClientApp
from small_runs import small_config
from torch import nn

import fedge
from fedge import simulate
from fedge.client_app import app
from fedge.config.registers.option import ConfigError
from fedge.launch.projects.project import CLIENT_APP
from fedge.launch.simulate import client_app_named
from fedge.records.manifest import RunFolderError


def test_what_cannot_be_a_part_is_refused():
    with pytest.raises(ConfigError, match=r"^train\.model must be a name, a class or a function, but is 3"):
        simulate({}, model=3)
    with pytest.raises(
        ConfigError, match=r"^model must be a class or a function .*, but is a network of type Line"
    ):
        simulate({}, model=nn.Linear(2, 2))
    with pytest.raises(
        ConfigError, match=r"^data must be hhar\.Windows, .*, but is of type ndarray; use fedge\.from_pan"
    ):
        simulate({}, data=np.zeros(3))
    with pytest.raises(fedge.ConfigError, match=r"^clients must be at least 1, but is 0"):
        simulate({}, clients=0)


class TakesAway:
    """Removes the run folder, as a clean-up of the machine may."""

    def begin_run(self, run):
        self.folder = run.folder

    def end_round(self, round_):
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.mark.whole_runs
def test_a_run_whose_folder_is_removed_says_why_it_failed(tmp_path):
    """The caller has named no folder, so a refusal of the folder alone would be no reason."""
    with pytest.raises(RunFolderError, match=r"^the run has failed, and its folder is lost: \w+") as lost:
        simulate(small_config(tmp_path), callbacks=[TakesAway()], terminal=io.StringIO())
    assert "\n" not in str(lost.value)
    assert "give one" not in str(lost.value)


def test_paths_are_given_as_pathlib_has_them(tmp_path):
    """As data, and as options: the file that is missing is named, rather than a type refused."""
    missing = tmp_path / "none.npz"
    for given in ({"data": missing}, {"config": {"data.path": missing, "runs-dir": tmp_path / "runs"}}):
        with pytest.raises(ConfigError, match=rf"{missing.name}: window file must exist"):
            simulate(**{"config": {}, **given})


class Seen:
    """A tracker that keeps what it is given."""

    def __init__(self):
        self.begun, self.rounds, self.ended = None, [], None

    def begin(self, run):
        self.begun = run

    def log(self, rounds):
        self.rounds += rounds

    def finish(self, status, exit_code):
        self.ended = status, exit_code


@pytest.mark.slow
@pytest.mark.parametrize("is_made", [True, False])
def test_a_tracker_of_ones_own_is_given_every_round(tmp_path, is_made):
    """As an object, or as a function that makes one; its numbers are those of the tables."""
    seen = Seen()

    def opened(run):
        seen.begin(run)
        return seen

    config = {
        "num-server-rounds": 2, "train.local-epochs": 1, "report": False, "runs-dir": str(tmp_path),
    }  # fmt: skip
    tracker = seen if is_made else opened
    run = simulate(
        config, model="linear", data="digits", clients=4, tracker=tracker, workers=1, terminal=io.StringIO()
    )
    assert run.status == "completed"
    assert seen.begun.folder == run.folder
    assert seen.begun.params["train.model"] == "linear"
    assert [number for number, _ in seen.rounds] == [1, 2]
    told = [numbers["global/test_accuracy_mean"] for _, numbers in seen.rounds]
    assert told == run.rounds["test_accuracy_mean"].to_list()
    assert seen.ended == ("completed", 0)
    assert run.config["tracker"].endswith("Seen" if is_made else "opened")


def test_what_cannot_track_is_refused_before_anything_starts(tmp_path):
    with pytest.raises(
        ConfigError, match=r"^tracker must be a name, .* methods log and finish, but is 3; see"
    ):
        simulate({"runs-dir": str(tmp_path)}, tracker=3)
    with pytest.raises(ConfigError, match=r"^tracker .* must take \(run\)"):
        simulate({"runs-dir": str(tmp_path)}, tracker=lambda: Seen())
    assert not list(tmp_path.iterdir())


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
