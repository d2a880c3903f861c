"""A live view is drawn on terminals that can show it, and on nothing else; a real pseudo-terminal says so."""

import fcntl
import io
import os
import struct
import termios

import pytest

from fedge.console.lines import Console
from fedge.console.live import LiveConsole
from fedge.console.size import terminal_size
from fedge.console.terminal import can_draw, open_console

XTERM = {"TERM": "xterm-256color"}


@pytest.fixture
def terminal():
    """A terminal of 100 × 30."""
    controller, follower = os.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    with open(follower, "w", encoding="utf-8") as stream:
        yield stream
    os.close(controller)


def resize(stream, columns, lines):
    fcntl.ioctl(stream.fileno(), termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


def test_a_terminal_is_drawn_on(terminal):
    assert terminal_size(terminal) == (100, 30)
    assert can_draw(terminal, XTERM)
    assert isinstance(open_console(terminal, 3, XTERM), LiveConsole)


@pytest.mark.parametrize("environment", [{}, {"TERM": "dumb"}, {**XTERM, "CI": "true"}])
def test_some_terminals_are_not(terminal, environment):
    assert not can_draw(terminal, environment)
    assert type(open_console(terminal, 3, environment)) is Console


def test_a_small_terminal_gets_lines(terminal):
    resize(terminal, 39, 30)
    assert not can_draw(terminal, XTERM)
    resize(terminal, 40, 10)
    assert can_draw(terminal, XTERM)


def test_a_terminal_that_does_not_know_its_size(terminal):
    resize(terminal, 0, 0)
    assert terminal_size(terminal) == (80, 24)


def test_what_is_no_terminal(tmp_path):
    assert not can_draw(io.StringIO(), XTERM)
    with (tmp_path / "file").open("w") as file:
        assert not can_draw(file, XTERM)
    assert not can_draw(file, XTERM)  # closed
