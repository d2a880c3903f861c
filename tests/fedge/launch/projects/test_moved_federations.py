"""Changes of `flwr run` of newer versions to a pyproject.toml are undone, byte by byte, and no others."""

import errno

import pytest

from fedge.config.registers.option import ConfigError
from fedge.launch.projects.moved_federations import connections, keeping_federations, restore_commented_lines
from fedge.launch.projects.project import Project

# as flwr.cli.config_migration of 1.41 and 1.42 writes it
NOTICE = """
#######################################################################
# CONFIGURATION MIGRATION NOTICE:
#
# What was previously called "federation config" for SuperLink
# connections in pyproject.toml has been renamed and moved.
#
# These settings are now **SuperLink connection configuration**
# and are defined in the Flower configuration file.
#
# The entries below are commented out intentionally and are kept
# only as a migration reference.
#
# Docs: https://flower.ai/docs/framework/ref-flower-configuration.html
#######################################################################

"""
HEAD = "[project]\nname = 'x'\n# a comment\n\n[tool.flwr.app.config]\nseed = 3\n\n# what follows\n"
FEDERATIONS = """[tool.flwr.federations]
default = "near"  # this one

[tool.flwr.federations.near]
options.num-supernodes = 4
# options.verbose = true

# the next table
"""
TAIL = "[tool.ruff]\nline-length = 100\n# [tool.other]\n"


def commented(text):
    return "".join(f"# {line}" if line.strip() else line for line in text.splitlines(keepends=True))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (HEAD + FEDERATIONS, HEAD + NOTICE + commented(FEDERATIONS)),
        (HEAD + FEDERATIONS + TAIL, HEAD + NOTICE + commented(FEDERATIONS) + TAIL),
        (
            HEAD + FEDERATIONS + TAIL + "[tool.flwr.federations.far]\naddress = 'x:1'",
            HEAD + NOTICE + commented(FEDERATIONS) + TAIL
            + commented("[tool.flwr.federations.far]\naddress = 'x:1'"),
        ),
        (FEDERATIONS, NOTICE + commented(FEDERATIONS)),
    ],
    ids=["last", "in the middle", "in two places", "alone"],
)  # fmt: skip
def test_what_was_commented_out_is_there_again(before, after, tmp_path):
    path = tmp_path / "pyproject.toml"
    path.write_text(after, encoding="utf-8")
    assert restore_commented_lines(path)
    assert path.read_text(encoding="utf-8") == before
    assert not restore_commented_lines(path)


def test_on_a_full_disk_pyproject_stays_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "pyproject.toml"
    text = HEAD + NOTICE + commented(FEDERATIONS)
    path.write_text(text, encoding="utf-8")

    def full(temporary, content):
        temporary.write_bytes(content[:1])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("fedge.process.durable.write_new", full)
    with pytest.raises(OSError, match="No space"):
        restore_commented_lines(path)
    assert path.read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    "text",
    [HEAD + FEDERATIONS, HEAD, NOTICE + HEAD + commented(FEDERATIONS), "# CONFIGURATION MIGRATION NOTICE:\n"],
    ids=["never moved", "none", "edited since", "only the title"],
)
def test_any_other_file_is_left_alone(text, tmp_path):
    path = tmp_path / "pyproject.toml"
    path.write_text(text, encoding="utf-8")
    assert not restore_commented_lines(path)
    assert path.read_text(encoding="utf-8") == text


def test_federations_are_read_from_where_flower_has_moved_them(tmp_path, monkeypatch):
    """Only where pyproject.toml has none."""
    home, app = tmp_path / "home", tmp_path / "app"
    home.mkdir()
    app.mkdir()
    monkeypatch.setenv("FLWR_HOME", str(home))
    config = '[superlink]\ndefault = "moved"\n[superlink.moved]\naddress = ":local:"\n'
    (home / "config.toml").write_text(
        config + "options.num-supernodes = 7\n[superlink.local]\naddress = 'a:1'\n"
    )
    (app / "pyproject.toml").write_text("[tool.flwr.app]\n")
    project = Project(app)
    assert project.federations == ("moved",)
    assert project.federation(None).num_supernodes == 7
    (app / "pyproject.toml").write_text("[tool.flwr.app]\n" + FEDERATIONS)
    assert Project(app).federations == ("near",)
    assert Project(app).federation(None).num_supernodes == 4


def test_fedges_own_table_comes_first(tmp_path):
    """[tool.fedge.federations] is Fedge's alone, on any Flower; `flwr run` says that it does not know it."""
    own = '[tool.fedge.federations]\ndefault = "own"\n'
    own += "[tool.fedge.federations.own]\noptions.num-supernodes = 5\n"
    own += "[tool.fedge.federations.near]\noptions.num-supernodes = 6\n"
    (tmp_path / "pyproject.toml").write_text("[tool.flwr.app]\n" + FEDERATIONS + own)
    project = Project(tmp_path)
    assert project.federation(None).num_supernodes == 5
    assert project.federation("near").num_supernodes == 6
    with pytest.raises(ConfigError, match=r"own is in \[tool\.fedge\.federations\]; use fedge run --engine"):
        project.refuse_unknown_to_flower(None)


def test_connections_by_hand():
    table = {"superlink": {"default": "a", "a": {"address": "x"}, "b": 3}}
    assert connections(table) == ({"a": {"address": "x"}}, "a")
    assert connections({}) == ({}, None)
    assert connections({"superlink": 3}) == ({}, None)


def test_what_flwr_run_comments_out_meanwhile_is_there_again_and_an_edit_stays(tmp_path):
    path = tmp_path / "pyproject.toml"
    path.write_text(HEAD + FEDERATIONS, encoding="utf-8")
    with keeping_federations(path):
        path.write_text(HEAD + NOTICE + commented(FEDERATIONS), encoding="utf-8")
    assert path.read_text(encoding="utf-8") == HEAD + FEDERATIONS
    with keeping_federations(path):
        path.write_text(HEAD, encoding="utf-8")  # by the user
    assert path.read_text(encoding="utf-8") == HEAD
