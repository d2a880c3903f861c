"""Files that come with Fedge beside its code."""

from pathlib import Path

import pytest

from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError
from fedge.launch.projects.packaged import (
    is_packaged,
    packaged_configurations,
    packaged_file,
    packaged_folder,
    packaged_names,
)
from fedge.launch.projects.project import Project, parse_override, read_toml

ROOT = Path(__file__).parents[4]


def test_every_configuration_of_the_checkout_has_a_name():
    files = {path.resolve() for path in (ROOT / "configs").rglob("*.toml")}
    assert {packaged_file(f"fedge:{name}").resolve() for name in packaged_names()} == files
    assert packaged_names()[0] == "demo"
    assert packaged_names()[-1] == "server/qfedavg"


@pytest.mark.parametrize("name", ["hierfl", "baselines/ifca", "private/local"])
def test_a_name_means_its_file(name):
    found = parse_override(f"fedge:{name}")
    assert found == parse_override(str(ROOT / "configs" / f"{name}.toml"))
    assert found == parse_override(f" fedge:{name}.toml ")


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("fedge:hierfel", "did you mean fedge:hierfl?"),
        ("fedge:ifca", "did you mean fedge:baselines/ifca?"),
        ("fedge:baseline/ifca", "did you mean fedge:baselines/ifca?"),
        ("fedge:../pyproject", "fedge configs lists them"),
        ("fedge:", "fedge configs lists them"),
    ],
)
def test_another_name_is_answered_with_the_nearest(text, near):
    with pytest.raises(ConfigError, match="must name a configuration of Fedge") as caught:
        parse_override(text)
    assert near in str(caught.value)
    assert repr(text) in str(caught.value)


def test_only_the_prefix_makes_a_name():
    assert is_packaged("fedge:hierfl")
    assert not is_packaged("configs/hierfl.toml")


def test_the_list_says_what_each_is_in_a_sentence():
    """A sentence that goes over two lines, and one with "et al." in it."""
    said = dict(packaged_configurations())
    assert list(said) == [f"fedge:{name}" for name in packaged_names()]
    assert said["fedge:robust/krum"].startswith("Krum (Blanchard et al. 2017): takes the one model that is")
    assert said["fedge:published"].endswith("a gate at each leaf.")
    assert all(sentence.endswith((".", "?")) for sentence in said.values())


def test_a_folder_without_a_project_has_fedges_own(tmp_path):
    empty, own = Project(tmp_path), Project(ROOT)
    assert (empty.packaged, own.packaged) == (True, False)
    assert empty.folder == packaged_folder()
    assert empty.run_config([]) == own.run_config([])
    assert from_run_config(empty.run_config([])) == from_run_config({})
    assert empty.federation("local-simulation-30") == own.federation("local-simulation-30")


def test_a_project_that_is_there_is_never_passed_over(tmp_path):
    """A link that leads nowhere is a damaged project, not none."""
    (tmp_path / "pyproject.toml").symlink_to(tmp_path / "gone")
    with pytest.raises(ConfigError, match="must be a readable file"):
        Project(tmp_path)


def test_an_installation_without_its_files_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("fedge.launch.projects.packaged._PACKAGE", tmp_path / "fedge")
    with pytest.raises(ConfigError, match=r"must have its default configuration.*reinstall Fedge"):
        Project(tmp_path)


def test_the_wheel_takes_the_same_files():
    built = read_toml(ROOT / "pyproject.toml", "pyproject.toml")["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert built["force-include"] == {
        "pyproject.toml": "fedge/packaged/pyproject.toml",
        "configs": "fedge/packaged/configs",
        "examples": "fedge/packaged/examples",
        "docs": "fedge/packaged/docs",
        "README.md": "fedge/packaged/docs/index.md",
    }
