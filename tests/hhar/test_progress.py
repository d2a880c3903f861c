"""Texts of bars; how they look on a terminal is in tests/runs/engines/test_terminal.py."""

import pytest

from hhar.progress import BYTES, _printable, amount, progress_bars


@pytest.mark.parametrize(
    ("done", "total", "unit", "speed", "text"),
    [
        (411_600_000, 822_000_000, BYTES, 12_340_000.0, "412 of 822 MB, 12.3 MB/s"),
        (411_600_000, 822_000_000, BYTES, None, "412 of 822 MB"),
        (411_600_000, None, BYTES, None, "412 MB"),
        (3, 9, "users", 0.5, "3 of 9 users"),
    ],
)
def test_amounts_by_hand(done, total, unit, speed, text):
    assert amount(done, total, unit, speed) == text


def test_a_name_from_an_archive_cannot_steer_the_terminal():
    assert _printable("[/red]\x1b[2J\n" + "x" * 99) == "[/red]?[2J?" + "x" * 29


def test_without_a_terminal_there_is_nothing(capsys):
    with progress_bars() as report:
        report("reading", 1, 2)
    assert capsys.readouterr() == ("", "")
