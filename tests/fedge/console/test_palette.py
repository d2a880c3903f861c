"""Colours: the same for a leaf everywhere, each a variable with a light and a dark value."""

import re

from fedge.console.palette import FAINT, INK, PAPER, SERIES, colour, css_name, css_variables, dashes


def test_colours_repeat_and_lines_then_differ():
    count = len(SERIES)
    assert [colour(index) for index in range(count)] == [light for _, light, _ in SERIES]
    assert colour(count) == colour(0)
    assert dashes(count) != dashes(0)
    assert all(dashes(i) != dashes(i + 1) for i in range(4 * count))  # colours alone are told apart by few
    assert len({(colour(i), dashes(i)) for i in range(4 * count)}) == 4 * count


def test_every_colour_is_a_variable_with_two_values():
    light, dark = css_variables(dark=False), css_variables(dark=True)
    assert light.keys() == dark.keys()
    for hex_colour in (INK, FAINT, PAPER, *(on_light for _, on_light, _ in SERIES)):
        name = css_name(hex_colour)
        assert name is not None
        assert light[name] == hex_colour != dark[name]
    assert all(re.fullmatch("#[0-9a-f]{6}", value) for value in (light | dark).values())
    assert css_name("#123456") is None


def test_no_colour_stands_twice():
    assert (
        len({on_light for _, on_light, _ in SERIES})
        == len({on_dark for _, _, on_dark in SERIES})
        == len(SERIES)
    )
