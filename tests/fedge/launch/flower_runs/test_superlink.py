"""Start of a SuperLink of a run's own; tests/runs/engines/test_flower_versions.py has runs behind it."""

import os
import sys
from pathlib import Path

import pytest

from fedge.config.registers.option import ConfigError
from fedge.engine.federation import from_backend
from fedge.launch.flower_runs import superlink
from fedge.launch.flower_runs.simulation import own_environment, start_command
from fedge.launch.projects.project import Project, read_toml
from fedge.link.reach import free_port

ROOT = Path(__file__).parents[4]
FEDERATION = from_backend(
    9,
    {
        "client-resources": {"num-cpus": 1, "num-gpus": 0.25},
        "init-args": {"num-gpus": 2, "log-to-driver": False, "object-store-memory": 1e8},
    },
)


def test_the_app_has_options_and_components_but_no_federations(tmp_path):
    project = Project(ROOT)
    config = {"train.lr": 0.1, "run-name": 'a "name"', "train.model-args": "", "report": False, "seed": 3}
    path = tmp_path / "pyproject.toml"
    path.write_text(superlink._app_toml(project, config), encoding="utf-8")
    tool = read_toml(path, "the app")["tool"]
    assert set(tool) == {"flwr"}
    assert set(tool["flwr"]) == {"app"}
    assert Project(tmp_path).run_config([]) == config
    assert tool["flwr"]["app"]["components"]["serverapp"] == "fedge.server_app:app"


def test_flower_and_ray_are_told_of_the_federation(tmp_path, monkeypatch):
    """Flower takes four of Ray's arguments; its simulation process gets all, and Ray with it."""
    path = tmp_path / "config.toml"
    path.write_text(superlink._flower_config(1234, FEDERATION), encoding="utf-8")
    links = read_toml(path, "Flower's configuration")["superlink"]
    table = links[links["default"]]
    assert table["address"] == "127.0.0.1:1234"
    backend = table["options"]["backend"]
    assert table["options"]["num-supernodes"] == 9
    assert backend["client-resources"] == {"num-cpus": 1, "num-gpus": 0.25}
    assert backend["init-args"] == {"num-gpus": 2, "log-to-driver": False}
    told = superlink._environment(tmp_path, Project(ROOT), FEDERATION, tmp_path / "terminal")
    monkeypatch.setenv("FEDGE_FEDERATION", told["FEDGE_FEDERATION"])
    from fedge.engine.federation import federation_of_this_process

    found = federation_of_this_process(["/bin/flwr-simulation", "--insecure"])
    assert found == FEDERATION
    assert found.init_args["object-store-memory"] == 1e8
    assert federation_of_this_process(["default_worker.py"]).num_supernodes == 0


def test_no_environment_per_run_and_no_proxy(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "intranet")
    told = superlink._environment(tmp_path, Project(ROOT), FEDERATION, tmp_path / "terminal")
    assert told["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"
    assert told["FLWR_HOME"] == str(tmp_path)
    assert told["NO_PROXY"] == "127.0.0.1,intranet"
    assert told["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)


def test_a_superlink_that_ends_is_said_in_its_words(tmp_path):
    log = tmp_path / "log"
    with log.open("ab") as output:
        code = "print('\\x1b[91mERROR\\x1b[0m:  port in   use')"
        process = start_command([sys.executable, "-c", code], own_environment(), output)
        process.wait()
        with pytest.raises(ConfigError, match=r"did not start: ERROR: port in use; use fedge run"):
            superlink._await_health(process, free_port(), log)


def test_a_command_that_is_not_there_is_named():
    with pytest.raises(ConfigError, match=r"needs the command flower-nothing, but: No such file"):
        start_command(["flower-nothing"], own_environment())
