"""Code that a file names: found without being carried out, and imported after a yes alone."""

import json
import os
import sys

import pytest

from fedge.config.registers.option import ConfigError
from fedge.config.registers.register import Entry, Register
from fedge.config.registers.trust import (
    find_code,
    has_run,
    is_recorded,
    load_trusted,
    own_folders,
    record_parts,
    trust_file,
    trusted_code,
)  # fmt: skip

NAME = "trusted_part:made"


@pytest.fixture
def parts():
    return Register(
        "train.model", "fedge.no-such-group", Entry("own", "Fedge's", "fedge.config.registers.parts:MODELS")
    )


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with a part that tells when it is imported."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "trusted_part.py").write_text(
        f"open({str(tmp_path / 'canary')!r}, 'w').close()\ndef made(): return 3\n"
    )
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr("fedge.config.registers.register._looked_in", [])
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(folder)
    yield folder
    for module in [name for name in sys.modules if name.startswith("trusted_")]:
        del sys.modules[module]


def test_nothing_is_imported_before_a_yes_which_is_remembered(parts, project, tmp_path):
    with pytest.raises(
        ConfigError, match=r"is code of .*trusted_part\.py \(sha256 [0-9a-f]{16}….*add --trust-code"
    ):
        load_trusted(parts, NAME, never_in=None)
    assert not (tmp_path / "canary").exists()
    code, has_run = load_trusted(parts, NAME, never_in=None, trust=True)
    assert (code(), has_run) == (3, False)
    assert load_trusted(parts, NAME, never_in=None)[0] is code
    assert trust_file().is_relative_to(tmp_path / "config")
    assert trust_file().stat().st_mode & 0o77 == 0


def test_what_a_yes_is_given_to_is_shown_once(parts, project, caplog):
    """By file and hash, also where the yes is said at once."""
    found = find_code(parts, NAME)
    for _ in range(2):
        load_trusted(parts, NAME, never_in=None, trust=True)
    assert [record.getMessage() for record in caplog.records] == [
        f"train.model {NAME} is code of {found.file} (sha256 {found.sha256[:16]}…), trusted from now on"
    ]


def test_a_yes_is_of_these_bytes_under_this_name(parts, project):
    trusted_code(parts, NAME, never_in=None, trust=True)
    with pytest.raises(ConfigError, match="add --trust-code"):
        trusted_code(parts, "trusted_part:other", never_in=None)
    (project / "trusted_part.py").write_text("def made(): return 4\n")
    with pytest.raises(ConfigError, match="add --trust-code"):
        trusted_code(parts, NAME, never_in=None)


def test_a_run_that_carries_code_out_is_a_yes(parts, project, monkeypatch):
    found = find_code(parts, NAME)
    assert not is_recorded(found)
    record_parts({"train.model": (parts, NAME)})
    assert is_recorded(found)
    assert has_run(found)
    trusted_code(parts, NAME, never_in=None, trust=True)
    assert has_run(found)  # saying yes once more takes nothing back
    assert own_folders([project, project.parent]) == [str(project)]


@pytest.mark.parametrize(
    "name", ["subprocess:Popen", "os:system", "builtins:exec", "sys:exit", "os.path:join", "_ctypes:x"]
)
def test_python_s_own_code_is_never_taken(parts, project, name):
    with pytest.raises(ConfigError, match="is Python's own"):
        trusted_code(parts, name, never_in=None, trust=True)


def test_code_in_the_folder_that_names_it_is_never_taken(parts, project, tmp_path):
    with pytest.raises(ConfigError, match="lies in the folder that names it"):
        load_trusted(parts, NAME, never_in=project, trust=True)
    beside = tmp_path / "linked"
    beside.symlink_to(project)  # links are followed
    with pytest.raises(ConfigError, match="lies in the folder that names it"):
        load_trusted(parts, NAME, never_in=beside, trust=True)
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize(
    "name", ["no_such_module:x", "trusted_part.inner:x", "trusted_space:x", "trusted_space.a:x"]
)
def test_what_has_no_file_is_not_found(parts, project, name):
    (project / "trusted_space").mkdir()
    with pytest.raises(ConfigError, match="cannot be imported: there is no module"):
        trusted_code(parts, name, never_in=None, trust=True)


def test_a_part_of_a_package_is_found_without_importing_the_package(parts, project, tmp_path):
    package = project / "trusted_package" / "inner"
    package.mkdir(parents=True)
    for file in (package.parent / "__init__.py", package / "__init__.py"):
        file.write_text(f"open({str(tmp_path / 'canary')!r}, 'w').close()\n")
    (package / "net.py").write_text("made = int\n")
    assert find_code(parts, "trusted_package.inner.net:made").file == package / "net.py"
    assert find_code(parts, "trusted_package:made").file == package.parent / "__init__.py"
    assert not (tmp_path / "canary").exists()
    assert load_trusted(parts, "trusted_package.inner.net:made", never_in=None, trust=True)[0] is int


def test_a_module_that_is_loaded_already_is_shown_by_the_file_that_it_is_of(
    parts, project, tmp_path, monkeypatch
):
    load_trusted(parts, NAME, never_in=None, trust=True)
    other = tmp_path / "other"
    other.mkdir()
    (other / "trusted_part.py").write_text("def made(): return 5\n")
    monkeypatch.chdir(other)
    assert find_code(parts, NAME).file == project / "trusted_part.py"


def test_an_object_of_this_process_needs_no_yes(parts, project):
    name = parts.given(lambda: 7)
    assert load_trusted(parts, name, never_in=None)[0]() == 7


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"code": 3, "folders": []}', '{"code": {"a": []}, "folders": 1}', "[" * 90_000],
)
def test_a_damaged_memory_is_an_empty_one(parts, project, content):
    trust_file().parent.mkdir(parents=True)
    trust_file().write_text(content)
    trust_file().chmod(0o600)
    found = find_code(parts, NAME)
    assert not is_recorded(found)
    assert trusted_code(parts, NAME, never_in=None, trust=True) == found
    assert is_recorded(found)


def test_a_memory_that_others_can_write_does_not_count(parts, project):
    trusted_code(parts, NAME, never_in=None, trust=True)
    trust_file().chmod(0o622)
    assert not is_recorded(find_code(parts, NAME))
    trust_file().unlink()
    os.mkfifo(trust_file())  # nobody waits for a pipe
    assert not is_recorded(find_code(parts, NAME))


def test_where_nothing_can_be_written_the_yes_counts_once(parts, project, monkeypatch, tmp_path):
    (tmp_path / "config").write_text("a file")
    trusted_code(parts, NAME, never_in=None, trust=True)
    with pytest.raises(ConfigError, match="add --trust-code"):
        trusted_code(parts, NAME, never_in=None)


def test_what_is_kept_says_what_it_is(parts, project):
    record_parts({"train.model": (parts, NAME)})
    kept = json.loads(trust_file().read_text())
    assert list(kept["code"].values()) == [{NAME: "run"}]
    assert kept["folders"] == [str(project)]
