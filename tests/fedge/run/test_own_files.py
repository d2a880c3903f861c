"""Window file of a leaf server: the one that its own user names, whatever the cloud does."""

import pytest
from small_runs import small_config

from fedge.config.flat import from_run_config, to_run_config
from fedge.config.registers.option import ConfigError
from fedge.data.prepared import load_source
from fedge.run.own_files import with_own_files
from fedge.run.site import open_site


@pytest.mark.parametrize("path", ["auto", "synthetic", "digits", "mine:windows"])
def test_what_is_no_file_is_the_clouds_to_name(path):
    """Code needs a yes of its own (`fedge.config.registers.trust`)."""
    config = from_run_config({"data.path": path})
    assert with_own_files(config, "") is with_own_files(config, "own.npz") is config


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "~/secret.npz", "../x.npz", "x.npz", "motionsense", "auto.npz", "\x1b[2J"]
)
def test_a_file_is_read_only_where_this_side_names_one(path):
    config = from_run_config({"data.path": path})
    with pytest.raises(
        ConfigError, match="reads only files that its own user names; start it with"
    ) as refused:
        with_own_files(config, "")
    assert str(refused.value).isprintable()
    assert with_own_files(config, "own.npz").data.path == "own.npz"


def test_a_file_among_several_is_one():
    config = from_run_config(
        {"scenario": "datasets", "data.path": "synthetic,/etc/passwd", "scenario-groups": 2}
    )
    with pytest.raises(ConfigError, match="reads only files that its own user names"):
        with_own_files(config, "")
    assert with_own_files(config, "synthetic,own.npz").data.path == "synthetic,own.npz"


@pytest.fixture
def opened(monkeypatch):
    """Names of window files that are opened."""
    names = []
    monkeypatch.setattr("fedge.data.prepared.load_windows", lambda path: names.append(path))
    return names


def test_the_clouds_path_is_never_opened(tmp_path, opened):
    """Neither to find out whether it is there, nor what it holds; one line says so."""
    facts = {
        "run": "a run", "leaf": 1, "clients": 9, "seed": 3, "fingerprint": "0",
        "config": to_run_config(from_run_config({"data.path": "/etc/passwd"})),
    }  # fmt: skip
    with pytest.raises(ConfigError, match=r"is '/etc/passwd', but a leaf server reads only"):
        open_site(tmp_path, 1, None, facts)
    assert opened == []


def test_the_own_file_may_have_any_name_and_must_be_what_the_cloud_has(tmp_path):
    """As on machines where the same file lies elsewhere; another one is told by its fingerprint."""
    config = from_run_config(small_config(tmp_path))
    named = to_run_config(from_run_config({**small_config(tmp_path), "data.path": "/mnt/cloud/only.npz"}))
    facts = {
        "run": "a run", "leaf": 1, "clients": 9, "seed": 3, "config": named,
        "fingerprint": load_source(config, 9)[1].fingerprint,
    }  # fmt: skip

    class Entered(Exception):
        pass

    def engine(*_):
        raise Entered

    with pytest.raises(Entered):
        open_site(tmp_path / "leaf-1", 1, engine, facts, data=config.data.path)
    with pytest.raises(ConfigError, match=r"here .*small\.npz.* have another fingerprint"):
        open_site(tmp_path / "leaf-1", 1, engine, {**facts, "fingerprint": "1"}, data=config.data.path)
