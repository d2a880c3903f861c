"""The register of parts: what it knows without loading code, and what it says where there is nothing."""

import sys
from collections import OrderedDict

import pytest
from own_code import forgotten

from fedge.config.registers.option import ConfigError
from fedge.config.registers.register import Entry, Register, search_folders

SHAPES = Register(
    "draw.shape",
    "tests.shapes",
    Entry("none", "no shape"),
    Entry("path", "a path", "pathlib:PurePosixPath", frozenset({"is flat"})),
    Entry("colour", "a colour", "colorsys:rgb_to_hsv"),
)


def test_names_come_in_the_order_of_the_entries():
    assert SHAPES.names == ("none", "path", "colour")
    assert [entry.doc for entry in SHAPES] == ["no shape", "a path", "a colour"]


def test_traits_are_known_without_loading():
    assert SHAPES.names_with("is flat") == ("path",)
    assert SHAPES.has("path", "is flat")
    assert not SHAPES.has("colour", "is flat")
    assert not SHAPES.has("elsewhere", "is flat")


def test_code_is_loaded_when_it_is_used(monkeypatch):
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    assert SHAPES.entry("colour").doc == "a colour"
    assert "colorsys" not in sys.modules
    assert SHAPES.load("colour")(0, 0, 0) == (0, 0, 0)
    assert "colorsys" in sys.modules


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(
        ConfigError, match=r'^draw\.shape must be one of none, path, colour, or "module:Name", but is .color'
    ):
        SHAPES.load("color")


def test_two_parts_of_one_name_cannot_be():
    with pytest.raises(AssertionError, match="one name"):
        Register("draw.shape", "tests.shapes", Entry("a", ""), Entry("a", ""))


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Work in a folder with a module `squares_of_mine`, as a user does."""
    code = "class Square:\n    def __init__(self, size, *, colour='red'):\n        self.size = size\n"
    (tmp_path / "squares_of_mine.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr("fedge.config.registers.register._looked_in", [])
    yield tmp_path
    for name in [name for name in sys.modules if name.endswith("_of_mine")]:
        del sys.modules[name]


def test_code_of_the_working_directory_is_found_and_its_folder_told(here):
    assert SHAPES.is_own("squares_of_mine:Square")
    assert not SHAPES.is_own("colour")
    assert SHAPES.load("squares_of_mine:Square")(3).size == 3
    assert search_folders() == [str(here.resolve())]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "nowhere_of_mine:Square",
            "imported: ModuleNotFoundError: No module named 'nowhere_of_mine'",
        ),
        ("squares_of_mine.py:Square", r'name the module, not its file: "squares_of_mine:Square"$'),
        ("squares_of_mine:Sqare", "squares_of_mine has no Sqare; did you mean Square"),
        ("broken_of_mine:Square", r"cannot be imported: ZeroDivisionError: .*broken_of_mine.py, line 2\)"),
        ("__main__:Square", "an object of another process"),
    ],
)
def test_code_that_cannot_be_had_is_refused_in_one_line(here, name, message):
    (here / "broken_of_mine.py").write_text("x = 1\nx / 0\n")
    with pytest.raises(ConfigError, match=message) as caught:
        SHAPES.load(name)
    assert str(caught.value).startswith(f"draw.shape {name}" if "__main__" not in name else "draw.shape must")


def test_packages_bring_names_by_entry_points(here):
    """An installed package, as far as Python can see: its metadata lie beside its code."""
    metadata = here / "mine-1.2.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.2\n")
    (metadata / "entry_points.txt").write_text("[tests.shapes]\nsquare = squares_of_mine:Square\n")
    sys.path.insert(0, str(here))
    assert SHAPES.entry("square").origin == "mine"
    assert SHAPES.load("square")(3).size == 3
    assert search_folders() == []
    with pytest.raises(ConfigError, match=r"one of .*, square, or .*; did you mean square\?"):
        SHAPES.entry("squares")


def test_an_object_can_be_given():
    name = SHAPES.given(OrderedDict)
    assert name == "collections:OrderedDict"
    assert SHAPES.load(name) is OrderedDict
    given = SHAPES.given(lambda: 3)
    assert SHAPES.load(given)() == 3
    SHAPES.forget(given)
    with pytest.raises(ConfigError, match="an object of another process"):
        SHAPES.load(given)
    assert SHAPES.given("colour") == "colour"
    with pytest.raises(ConfigError, match="must be a name, a class or a function, but is 3"):
        SHAPES.given(3)


def test_arguments_are_checked_against_the_signature(here):
    SHAPES.refuse_wrong_arguments("squares_of_mine:Square", {"colour": "blue"}, "size")
    SHAPES.refuse_wrong_arguments("none", {})
    with pytest.raises(ConfigError, match=r"must take \(size, color\), but: .*'color'; did you mean colour"):
        SHAPES.refuse_wrong_arguments("squares_of_mine:Square", {"color": "blue"}, "size")
    with pytest.raises(ConfigError, match=r"must be given size, without a default; set draw.shape-args.size"):
        SHAPES.refuse_wrong_arguments("squares_of_mine:Square", {})


def test_no_test_leaves_code_of_its_own_to_another(here):
    before = list(sys.path)
    with forgotten(here):
        assert SHAPES.load("squares_of_mine:Square")(3).size == 3
        assert "squares_of_mine" in sys.modules
        assert sys.path != before
    assert sys.path == before
    assert "squares_of_mine" not in sys.modules
    assert str(here.resolve()) not in search_folders()
