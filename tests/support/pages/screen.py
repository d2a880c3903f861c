"""A terminal for tests: a pseudoterminal of a given size, and a screen that understands what Fedge sends."""

import fcntl
import os
import re
import select
import struct
import sys
import termios

_TOKENS = re.compile(
    r"\x1b\[(?P<number>\d*)(?P<what>[AJ])|\x1b\[(?P<other>[?\d;]*[A-Za-z])|(?P<text>[^\x1b])", re.DOTALL
)


class Screen:
    """The lines of a terminal, scrolled-out ones included, as they stand at the moment.

    Knows text, ends of line, "n rows up" and "clear below", which come together; other codes are kept in
    `codes`. Lines wrap at the width, also those that were written when it was larger, as terminals do today.
    """

    def __init__(self, width):
        self.width = width
        self.lines = [""]
        self.sent = ""
        self.codes = set()
        self._up = 0

    def feed(self, text):
        """Count the bytes sent."""
        self.sent += text
        rest = _TOKENS.sub(self._take, text.replace("\r\n", "\n"))
        assert rest == "", f"unknown codes: {rest!r}"

    def _take(self, token):
        if token["what"] == "A":
            self._up += int(token["number"])
        elif token["what"] == "J":
            self._clear_below()
        elif token["other"]:
            self.codes.add(token["other"])
        elif token["text"] == "\n":
            self.lines.append("")
        elif token["text"] and token["text"] != "\r":
            self.lines[-1] += token["text"]
        return ""

    def _clear_below(self):
        rows = [
            (number, start)
            for number, line in enumerate(self.lines)
            for start in range(0, max(len(line), 1), self.width)
        ]
        number, start = rows[max(0, len(rows) - 1 - self._up)]
        self.lines = [*self.lines[:number], self.lines[number][:start]]
        self._up = 0


class Terminal:
    """A pseudoterminal with a screen."""

    def __init__(self, width=80, height=24, encoding="utf-8"):
        self.screen = Screen(width)
        self.master, self.slave = os.openpty()
        self.resize(width, height)
        self.stream = os.fdopen(os.dup(self.slave), "w", encoding=encoding)
        self._rest = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for descriptor in (self.master, self.slave):
            if descriptor is not None:
                os.close(descriptor)

    def resize(self, width, height):
        """Change the size."""
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        self.screen.width = width

    @staticmethod
    def controlling(command):
        """Words of a command whose standard input is its controlling terminal: Ctrl-C there is a SIGINT.

        The command's program is to be a new session's first.
        """
        program = (
            "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
            "os.execvp(sys.argv[1], sys.argv[1:])"
        )
        return [sys.executable, "-I", "-S", "-c", program, *map(str, command)]

    def press(self, keys):
        """Type."""
        os.write(self.master, keys)

    def hang_up(self):
        """Take the terminal away."""
        os.close(self.slave)
        os.close(self.master)
        self.master = self.slave = None

    def look(self, wait_s=0.0):
        """The lines on the screen, having taken in what was sent."""
        while select.select([self.master], [], [], wait_s)[0]:
            try:
                data = os.read(self.master, 65536)
            except OSError:  # nobody has it open any more
                break
            self._rest += data
            wait_s = 0.0
        whole = self._rest.decode("utf-8", "ignore") if self._is_whole() else ""
        if whole:
            self._rest = b""
            self.screen.feed(whole)
        return self.screen.lines

    def _is_whole(self):
        """Tell whether what has come ends neither within a sign nor within a code."""
        try:
            text = self._rest.decode("utf-8")
        except UnicodeDecodeError:
            return False
        return re.search(r"(\x1b(\[[\d;]*)?|\r)\Z", text) is None
