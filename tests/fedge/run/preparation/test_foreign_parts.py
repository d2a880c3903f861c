"""Code named by a run folder or a cloud: refused before it is imported, and imported again for each run."""

import hashlib
import json
import shutil
import sys
from contextlib import suppress

import pytest
from own_code import forgotten
from small_runs import small_config

from fedge.cli import main
from fedge.config.flat import from_run_config, to_run_config
from fedge.config.registers.option import ConfigError
from fedge.run.node_site import NodeSites
from fedge.run.site import open_site

PART = """
open({canary!r}, "w").close()
def together(evidence, config, before):
    return [0] * len(evidence.models)
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with a method of its own, and a run of it with one round left."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "foreign_method.py").write_text(PART.format(canary=str(tmp_path / "canary")))
    monkeypatch.setattr("fedge.config.registers.register._looked_in", [])
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(folder)
    config = small_config(folder, cluster__method="foreign_method:together", runs_dir="runs", run_name="r")
    words = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
    assert main(["run", "-c", words]) == 0
    forget(tmp_path)
    yield folder
    sys.modules.pop("foreign_method", None)


def forget(tmp_path):
    sys.modules.pop("foreign_method", None)
    (tmp_path / "canary").unlink(missing_ok=True)


def go_on(*words):
    return main(["resume", "runs/r", "-c", "num-server-rounds=3", *words])


def test_one_s_own_run_goes_on(project, tmp_path):
    assert go_on() == 0
    assert (tmp_path / "canary").exists()


def test_a_run_of_others_needs_a_yes_which_is_remembered(project, tmp_path, capsys):
    shutil.rmtree(tmp_path / "config")  # this user has not carried it out
    assert go_on() == 4
    said = capsys.readouterr().err
    assert "cluster.method foreign_method:together is code of" in said
    assert "add --trust-code" in said
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "canary").exists()
    assert go_on("--trust-code") == 0
    forget(tmp_path)
    assert main(["resume", "runs/r", "-c", "num-server-rounds=4"]) == 0


def test_no_code_of_the_run_folder_is_taken(project, tmp_path, monkeypatch, capsys):
    """Not even where private.json says that it lay there, nor from within the folder."""
    shutil.rmtree(tmp_path / "config")
    run = project / "runs" / "r"
    (project / "foreign_method.py").rename(run / "foreign_method.py")
    private = json.loads((run / "private.json").read_text())
    private["code"] = [str(run)]
    (run / "private.json").write_text(json.dumps(private))
    monkeypatch.setattr("fedge.config.registers.register._looked_in", [])
    assert go_on("--trust-code") == 4
    assert "there is no module foreign_method" in capsys.readouterr().err
    monkeypatch.chdir(run)
    assert main(["resume", ".", "-c", "num-server-rounds=3", "--trust-code"]) == 4
    assert "lies in the folder that names it" in capsys.readouterr().err
    assert not (tmp_path / "canary").exists()


def opened_by_threads(folder, facts):
    open_site(folder, 2, None, facts, trust_code=True)


def opened_by_nodes(folder, facts):
    NodeSites(folder, 2, None, trust_code=True).open(facts)


def described_by_nodes(folder, facts):
    NodeSites(folder, 2, None, trust_code=True).describe_owners({**facts, "run": ""})


@pytest.mark.parametrize("begin", [opened_by_threads, opened_by_nodes, described_by_nodes])
def test_a_leaf_server_that_stays_carries_out_the_code_of_each_run(tmp_path, monkeypatch, begin):
    """Its user has edited the file, or a file imported there, between runs, for a resume, or after a refusal.

    The file has the cloud's sha256; the code in memory would be the old one, and the results others.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    config = from_run_config(small_config(tmp_path, cluster__method="grouping_of_runs:together"))
    main, helper = tmp_path / "grouping_of_runs.py", tmp_path / "helper_of_runs.py"
    main.write_text("from helper_of_runs import ANSWER\ndef together(evidence, config, before): ...\n")

    def answer(run, at_leaf, at_cloud):
        """Answer of the module in memory once the leaf server has begun a run."""
        helper.write_text(f"ANSWER = {at_leaf!r}\n")
        texts = {f.name: f.read_text().replace(at_leaf, at_cloud) for f in (main, helper)}
        sha256 = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
        lines = "\n".join(f"{name} {sha}" for name, sha in sorted(sha256.items()))
        whole = hashlib.sha256(lines.encode()).hexdigest()
        facts = {
            "run": run, "leaf": 2, "clients": 9, "seed": 3, "fingerprint": "0",
            "config": to_run_config(config),
            "parts": {"cluster.method": whole, **{f"cluster.method {n}": sha for n, sha in sha256.items()}},
        }  # fmt: skip
        with suppress(ConfigError, AttributeError):  # of the data, after the code; no engine
            begin(tmp_path / "leaf-2", facts)
        return sys.modules["grouping_of_runs"].ANSWER

    with forgotten(tmp_path):
        assert answer("first", "one", "one") == "one"
        assert answer("second", "two, longer", "two, longer") == "two, longer"
        assert answer("second", "three", "three") == "three"  # resumed
        assert answer("third", "four, longer", "fifth") == "four, longer"  # refused
        assert answer("third", "fifth", "fifth") == "fifth"
