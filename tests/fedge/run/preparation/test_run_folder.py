import json
from pathlib import Path

import pytest
from small_runs import small_config

from fedge import simulate
from fedge.config.registers.option import ConfigError
from fedge.engine.federation import Federation
from fedge.launch.preflight import check
from fedge.run.preparation.prepare import prepare_config
from fedge.run.preparation.run_folder import first_manifest, open_folder


def test_a_new_run_has_a_folder_a_lock_and_a_manifest(tmp_path):
    prepared = prepare_config(small_config(tmp_path, run_name="first"))
    opened = open_folder(prepared)
    assert (opened.folder, opened.resumption, opened.offsets) == (tmp_path / "runs" / "first", None, None)
    manifest = first_manifest(prepared, opened, "inprocess", {"num-supernodes": 9})
    assert (manifest["status"], manifest["seed"], manifest["engine"]) == ("running", 3, "inprocess")
    assert manifest["config"]["train.model"] == "linear"
    with pytest.raises(ConfigError, match="run-name must be new"):
        open_folder(prepared)
    opened.lock.close()


@pytest.fixture
def ended(tmp_path):
    """The options of a run of two rounds that is there, to go on with for a third."""
    config = small_config(tmp_path, run_name="run")
    folder = simulate(config, terminal=(tmp_path / "terminal.txt").open("w")).folder
    return {**config, "resume": str(folder), "num-server-rounds": 3}


def test_a_resumption_that_was_found_is_taken(ended):
    prepared = check(ended, Federation(9))
    found = prepared.resumption._values[0]
    opened = open_folder(prepared)
    assert opened.resumption is found
    assert opened.offsets == found.checkpoint.facts["offsets"]
    assert opened.take_resumption() is found
    assert opened.resumption is None
    with pytest.raises(ConfigError, match="is still in progress; wait for it, or stop it"):
        open_folder(check(ended, Federation(9)))
    opened.lock.close()


def test_a_run_that_has_gone_on_since_it_was_found_is_looked_up_again(ended):
    """Between the check and the lock another process may have resumed it, and ended."""
    prepared = check(ended, Federation(9))
    found = prepared.resumption._values[0]
    path = Path(ended["resume"]) / "manifest.json"
    manifest = json.loads(path.read_text())
    entry = {"when": "then", "after_round": 2, "engine": "inprocess"}
    path.write_text(json.dumps({**manifest, "resumed": [entry]}))
    opened = open_folder(prepared)
    assert opened.resumption is not found
    assert len(first_manifest(prepared, opened, "inprocess", {})["resumed"]) == 2
    opened.lock.close()
