import math

import pytest

from fedge.edge.packets import plain_json

ODD = [None, True, "3", [], {}, math.nan, math.inf, 10**400, -1]


@pytest.mark.parametrize("value", [*ODD, 2.0, 4])
def test_what_is_no_whole_number_in_range_is_refused_in_one_line(value):
    assert plain_json.whole_number(3, 0, 3, "n") == 3
    with pytest.raises(plain_json.FactError, match=r"\An: [ -~…]+, but it can be 0 to 3\Z"):
        plain_json.whole_number(value, 0, 3, "n")


@pytest.mark.parametrize("value", ODD)
def test_what_is_no_finite_number_in_range_is_refused(value):
    assert plain_json.finite_number(2, 0.0, math.inf, "n") == 2.0
    with pytest.raises(plain_json.FactError):
        plain_json.finite_number(value, 0.0, math.inf, "n")


@pytest.mark.parametrize("value", [None, 3, "\x1b[2J", "\u202e", "a\nb", "xxxx", b"x"])
def test_a_text_is_short_and_printable(value):
    assert plain_json.text("grün", 4, "word") == "grün"
    with pytest.raises(plain_json.FactError, match="no printable text of at most 3 characters: "):
        plain_json.text(value, 3, "word")


@pytest.mark.parametrize("value", [None, 3, "ab", [[1]], [[1, 2], [1]], [[1, 2]] * 3, [3], [{1: 2, 3: 4}]])
def test_rows_are_few_and_of_one_width(value):
    assert plain_json.rows([[1, 2]], 2, 2, "rows") == [[1, 2]]
    with pytest.raises(plain_json.FactError):
        plain_json.rows(value, 2, 2, "rows")


@pytest.mark.parametrize("value", [None, [], "x", {1: 2}])
def test_a_table_has_names(value):
    assert plain_json.mapping({"a": 1}, "table") == {"a": 1}
    with pytest.raises(plain_json.FactError, match="is no table"):
        plain_json.mapping(value, "table")
