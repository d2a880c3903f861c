"""The register of parts: what it knows without loading code, and what it says where there is nothing."""

import sys

import pytest

from fedge.config.option import ConfigError
from fedge.config.register import Entry, Register

SHAPES = Register(
    "draw.shape",
    Entry("none", "no shape"),
    Entry("path", "a path", "pathlib:PurePosixPath", frozenset({"is flat"})),
    Entry("colour", "a colour", "colorsys:rgb_to_hsv"),
)


def test_names_come_in_the_order_of_the_entries():
    assert SHAPES.names == ("none", "path", "colour")
    assert [entry.doc for entry in SHAPES] == ["no shape", "a path", "a colour"]


def test_traits_are_known_without_loading():
    assert SHAPES.having("is flat") == ("path",)
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
    with pytest.raises(ConfigError, match=r"^draw\.shape must be one of none, path, colour, but is 'color'"):
        SHAPES.load("color")


def test_two_parts_of_one_name_cannot_be():
    with pytest.raises(AssertionError, match="one name"):
        Register("draw.shape", Entry("a", ""), Entry("a", ""))
