"""The live view on a real pseudoterminal: what is on the screen, at what cost, and when things go wrong."""

import io
import threading
import time

import pytest
from screen import Screen, Terminal

from fedge.console import live
from fedge.console.lines import Console, final_table, round_line
from fedge.console.live import LiveConsole
from fedge.console.terminal import can_draw, open_console
from fedge.exchange.clients import ExchangeProgress

TERM = {"TERM": "xterm-256color"}


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture(autouse=True)
def _a_terminal_with_colours(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "CI", "COLUMNS", "LINES", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", TERM["TERM"])


def carry_out(console, make_result, rounds, clock=None, failed=False):
    """Let a console see a run of some rounds, with a note in each third."""
    console.say("Fedge: a run")
    console.phase("waiting for clients")
    console.tick()
    console.phase("preparing data")
    console.begin([(0, 1), (2,)], 1, 0)
    for number in range(1, rounds + 1):
        for kind in ("train", "evaluate"):
            everyone = frozenset({0, 1, 2})
            for back in (frozenset(), frozenset({0}), everyone):
                if clock:
                    clock.now += 1.0
                console.follow(
                    lambda kind=kind, back=back: ExchangeProgress(
                        kind, frozenset({0, 1, 2}), back, frozenset()
                    )
                )
        if number % 3 == 0:
            console.say(f"note: {number} is a multiple of \x1b[2Jthree")
        console.round(make_result(global_round=number), 2.0)
    console.close(failed)
    for line in final_table(make_result()):
        console.say(line)


def expected_lines(make_result, rounds):
    """Final lines on the screen: those of a plain console without the time left."""
    lines = ["Fedge: a run"]
    for number in range(1, rounds + 1):
        lines += [f"note: {number} is a multiple of \\x1b[2Jthree"] if number % 3 == 0 else []
        lines.append(round_line(make_result(global_round=number), rounds, 2.0, None))
    return [*lines, *final_table(make_result()), ""]


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (200, 50), (100, 10)])
@pytest.mark.parametrize("rounds", [1, 4, 40])
def test_in_the_end_the_screen_holds_the_plain_lines_and_nothing_else(make_result, size, rounds):
    clock = Clock()
    with Terminal(*size) as terminal:
        reader = Reader(terminal)
        carry_out(LiveConsole(terminal.stream, rounds, clock), make_result, rounds, clock)
        lines = reader.stop()
    assert lines == expected_lines(make_result, rounds)
    assert terminal.screen.sent.count("waiting for 0 1 2") >= 2 * rounds  # there have been frames
    assert all(code.endswith("m") for code in terminal.screen.codes)  # no hidden cursor, no other screen


class Reader:
    """Reads a terminal all the while, as a terminal does: what it has not read fills a small buffer."""

    def __init__(self, terminal):
        self._terminal = terminal
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self):
        while not self._over.is_set():
            self._terminal.look(0.01)

    def stop(self):
        """The lines on the screen."""
        self._over.set()
        self._thread.join()
        return self._terminal.look(0.05)


def test_while_it_runs_the_frame_stands_below_the_lines(make_result):
    clock = Clock()
    with Terminal() as terminal:
        console = LiveConsole(terminal.stream, 10, clock)
        console.phase("preparing data")
        assert terminal.look(0.2)[-1] == "preparing data"
        console.begin([(0, 1), (2,)], 2, 4)
        everyone, nobody = frozenset({0, 1, 2}), frozenset()
        for standing in (
            lambda: ExchangeProgress("train", everyone, everyone, nobody),
            lambda: ExchangeProgress("train", everyone, frozenset({1}), nobody),
        ):
            clock.now += 1
            console.follow(standing)
            console.follow(standing)
        assert terminal.look(0.2)[-1] == "training, leaf round 2 of 2: 1 of 3 clients back, waiting for 0 2"
        clock.now += 10
        console.round(make_result(global_round=5), 12.0)
        lines = terminal.look(0.2)
        clock.now += 5
        console.tick()
        later = terminal.look(0.2)
    assert lines[0] == "round  5/10  accuracy 0.750 worst 0.500  clusters 2  gate 1 taken 1 kept  12.0 s"
    assert lines[1:3] == ["", lines[2]]
    assert lines[2].startswith("round 5/10  ━")
    assert lines[2].endswith("0:12  left 1:00")
    assert later[2].endswith("0:17  left 0:55")
    assert lines[5].startswith("   0  ■ 0         0.750")


def test_a_run_that_failed_leaves_its_last_state_and_then_lines(make_result):
    with Terminal() as terminal:
        console = LiveConsole(terminal.stream, 5, Clock())
        console.begin([(0, 1), (2,)], 1, 0)
        console.phase("preparing data")
        console.round(make_result(), 1.0)
        console.close(failed=True)
        console.close()
        console.say("fedge: interrupted")
        lines = terminal.look(0.2)
    assert lines[0].startswith("round 1/5  accuracy")
    assert lines[2].startswith("round 1/5  ━")
    assert lines[-3:] == ["preparing data", "fedge: interrupted", ""]


def test_last_words_stand_below_the_frame_and_nothing_is_drawn_after_them(make_result):
    with Terminal() as terminal:
        console = LiveConsole(terminal.stream, 5, Clock())
        console.phase("preparing data")
        console.last_words(["fedge: interrupted", "resume with: fedge resume x"])
        console.tick()
        console.close(failed=True)
        assert terminal.look(0.2)[-4:] == [
            "preparing data",
            "fedge: interrupted",
            "resume with: fedge resume x",
            "",
        ]


def test_a_terminal_that_gets_narrower_keeps_no_remnants(make_result):
    with Terminal(120, 30) as terminal:
        reader = Reader(terminal)
        clock = Clock()
        console = LiveConsole(terminal.stream, 30, clock)
        console.begin([(0, 1), (2,)], 1, 0)
        console.phase("preparing data")
        for number in range(1, 31):
            clock.now += 1
            if number % 10 == 0:
                reader.stop()
                terminal.resize(120 - 2 * number, 30)
                reader = Reader(terminal)
            console.round(make_result(global_round=number), 1.0)
        console.close()
        lines = reader.stop()
    assert len(lines) == 31
    assert [line.split()[1] for line in lines[:-1]] == [f"{n}/30" for n in range(1, 31)]


# --- cost ---------------------------------------------------------------------------------------------


def frames(terminal):
    """Number of frames drawn over others."""
    return terminal.screen.sent.count("\x1b[J")


def test_however_fast_rounds_are_there_are_four_frames_a_second(make_result):
    """1,000 rounds in 10 s: at most 40 frames, and no line is lost."""
    clock = Clock()
    with Terminal() as terminal:
        reader = Reader(terminal)
        console = LiveConsole(terminal.stream, 1000, clock)
        console.begin([(0, 1), (2,)], 1, 0)
        console.phase("preparing data")
        for number in range(1, 1001):
            clock.now += 0.01
            console.round(make_result(global_round=number), 0.01)
        console.close()
        lines = reader.stop()
    assert 30 < frames(terminal) <= 42
    assert len(lines) == 1001
    assert lines[-2].startswith("round 1000/1000")


def test_a_terminal_that_takes_its_time_gets_a_hundredth_of_it(make_result, monkeypatch):
    """Every frame takes a tenth of a second: there is one in ten."""
    clock = Clock()

    def slow(*args):
        clock.now += 0.1
        return original(*args)

    original = live.frame
    monkeypatch.setattr(live, "frame", slow)
    with Terminal() as terminal:
        reader = Reader(terminal)
        console = LiveConsole(terminal.stream, 1000, clock)
        console.begin([(0, 1), (2,)], 1, 0)
        console.phase("preparing data")
        for number in range(1, 1001):
            clock.now += 0.1
            console.round(make_result(global_round=number), 0.1)
        reader.stop()
    assert 9 <= frames(terminal) <= 11


def test_a_tick_costs_next_to_nothing(make_result):
    with Terminal() as terminal:
        console = LiveConsole(terminal.stream, 5)
        console.phase("preparing data")
        began = time.thread_time()
        for _ in range(1000):
            console.tick()
        assert time.thread_time() - began < 0.1  # of the processor's time, whatever else the machine does


# --- terminals that cannot ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variables", "size", "drawn"),
    [
        (TERM, (80, 24), True),
        ({**TERM, "NO_COLOR": "1"}, (80, 24), True),
        (TERM, (0, 0), True),  # a terminal that does not tell its size
        (TERM, (39, 24), False),
        (TERM, (80, 9), False),
        ({"TERM": "dumb"}, (80, 24), False),
        ({"TERM": ""}, (80, 24), False),
        ({}, (80, 24), False),
        ({**TERM, "CI": "true"}, (80, 24), False),
    ],
)
def test_where_a_view_is_drawn(variables, size, drawn):
    with Terminal(*size) as terminal:
        assert can_draw(terminal.stream, variables) == drawn
        assert (type(open_console(terminal.stream, 3, variables)) is LiveConsole) == drawn


def test_a_pipe_and_a_file_get_plain_lines(tmp_path, make_result):
    with (tmp_path / "out").open("w+") as stream:
        assert not can_draw(stream, TERM)
        console = open_console(stream, 2, TERM)
        assert type(console) is Console
        console.phase("preparing data")
        console.begin([(0, 1), (2,)], 1, 0)
        console.tick()
        console.round(make_result(), 2.0)
        console.close()
        stream.seek(0)
        assert stream.read() == round_line(make_result(), 2, 2.0, 2.0) + "\n"
    assert not can_draw(stream, TERM)  # closed
    assert not can_draw(io.StringIO(), TERM)


def test_without_colour(make_result, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    with Terminal() as terminal:
        reader = Reader(terminal)
        clock = Clock()
        carry_out(LiveConsole(terminal.stream, 2, clock), make_result, 2, clock)
        reader.stop()
    assert "✓" in terminal.screen.sent
    assert "\x1b[1m" in terminal.screen.sent
    assert "\x1b[3" not in terminal.screen.sent


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_unicode(make_result, encoding):
    with Terminal(encoding=encoding) as terminal:
        reader = Reader(terminal)
        clock = Clock()
        console = LiveConsole(terminal.stream, 2, clock)
        carry_out(console, make_result, 2, clock)
        console.say("run folder: Łut")
        lines = reader.stop()
    assert lines[:-2] == expected_lines(make_result, 2)[:-1]
    assert lines[-2].isascii()
    assert terminal.screen.sent.isascii()
    assert " taken" in terminal.screen.sent


def test_a_view_that_cannot_be_drawn_ends_and_the_lines_go_on(make_result, monkeypatch, caplog):
    def broken(*_):
        raise RuntimeError("no such column")

    clock = Clock()
    with Terminal() as terminal:
        console = LiveConsole(terminal.stream, 3, clock)
        console.begin([(0, 1), (2,)], 1, 0)
        console.phase("preparing data")
        console.round(make_result(), 1.0)
        monkeypatch.setattr(live, "frame", broken)
        for number in (2, 3):
            clock.now += 1
            console.round(make_result(global_round=number), 1.0)
        console.close()
        lines = terminal.look(0.2)
    assert [line.split()[1] for line in lines[:-1]] == ["1/3", "2/3", "3/3"]
    assert "the live view ends: RuntimeError: no such column" in caplog.text
    assert len(caplog.records) == 1


def test_a_terminal_that_is_gone_ends_the_view_and_not_the_run(make_result, caplog):
    clock = Clock()
    terminal = Terminal()
    console = LiveConsole(terminal.stream, 3, clock)
    console.phase("preparing data")
    terminal.hang_up()
    for number in (1, 2, 3):
        clock.now += 1
        console.round(make_result(global_round=number), 1.0)
    console.close()
    console.say("run folder: x")
    console.last_words(["fedge: interrupted"])
    assert sum("the terminal is gone" in text for text in caplog.messages) == 1


def test_a_terminal_that_takes_nothing_does_not_hold_up_the_end(make_result, monkeypatch):
    """The thread that draws is stuck in a write (Ctrl-S); the watchdog's thread ends the run all the same."""
    monkeypatch.setattr(live, "_LOCK_S", 0.1)
    with Terminal() as terminal:
        console = LiveConsole(terminal.stream, 3, Clock())
        console.phase("preparing data")
        stuck, let_go = threading.Event(), threading.Event()

        def draw():
            with console._locked():
                stuck.set()
                let_go.wait(30)

        thread = threading.Thread(target=draw)
        thread.start()
        stuck.wait()
        began = time.monotonic()
        console.close(failed=True)
        console.say("fedge: stalled")
        assert time.monotonic() - began < 20  # the other thread lets go after 30
        let_go.set()
        thread.join()
        assert "fedge: stalled" in terminal.look(0.2)


def test_the_screen_of_these_tests_by_hand():
    screen = Screen(10)
    screen.feed("one\r\n0123456789abc\r\nfour")
    assert screen.lines == ["one", "0123456789abc", "four"]
    screen.feed("\r\x1b[1A\x1b[J*")  # up into the second row of the long line
    assert screen.lines == ["one", "0123456789*"]
