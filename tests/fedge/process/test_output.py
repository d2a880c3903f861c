"""Output and log of clients are bounded, client by client, and the log says whose was left out."""

import io
import logging
import subprocess
import sys
import threading
import tracemalloc
import warnings
from contextlib import contextmanager, redirect_stderr, redirect_stdout

import pytest

from fedge.process import output
from fedge.process.logs import log_to, stop_logging_to
from fedge.process.output import A_CALL, AN_HOUR, limit_client_output, writable_bytes


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(output, "_shares", {})


@contextmanager
def captured():
    """Let standard output and error be texts."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        yield out, err


@pytest.fixture
def log(tmp_path):
    handler = log_to(tmp_path / "run.log")
    yield tmp_path / "run.log"
    stop_logging_to(handler)


def test_of_a_call_64_kib_are_let_through(log):
    with captured() as (out, err):
        with limit_client_output(3):
            print("a" * (A_CALL - 11))
            print("0123456789")
            sys.stderr.write("more")
            sys.stdout.writelines(["x"] * 5)
            assert writable_bytes(1) == 0
        assert sys.stdout is out
        assert sys.stderr is err
    wanted = "a" * (A_CALL - 11) + "\n" + "0123456789"
    is_so = out.getvalue() == wanted
    assert is_so  # no diff of 64 KiB
    assert err.getvalue() == ""
    (line,) = log.read_text().splitlines()
    assert line.endswith(
        "fedge.process.output: client 3: 11 characters of its output were left out; 65,536 per call and "
        "1,048,576 per hour are kept"
    )


def test_whose_it_was_is_said_once_and_again_when_it_has_doubled(log):
    with captured() as (out, _):
        for _ in range(100):
            with limit_client_output(3):
                sys.stdout.write("x" * (A_CALL + 10**6))
    said = [line.split(": client 3: ")[1].split(" ")[0] for line in log.read_text().splitlines()]
    assert said[:2] == ["1,000,000", "2,000,000"]
    assert len(said) == 7  # after calls 1, 2, 4, … 64
    assert len(out.getvalue()) == AN_HOUR


def test_each_log_says_it(tmp_path):
    for name in ("one.log", "other.log"):
        handler = log_to(tmp_path / name)
        with captured(), limit_client_output(3):
            sys.stdout.write("x" * 10**6)
        stop_logging_to(handler)
        assert (tmp_path / name).read_text().count("client 3: 934,464 characters") == 1


def test_a_log_that_begins_within_a_call_says_it_of_that_call(tmp_path):
    """As in a worker of Ray's, which learns from a message where the log is."""
    with captured():
        for at in range(3):
            with limit_client_output(3):
                sys.stdout.write("x" * 10**6)
                handler = log_to(tmp_path / f"{at}.log")
            stop_logging_to(handler)
    said = [(tmp_path / f"{at}.log").read_text().count("934,464 characters") for at in range(3)]
    assert said == [1, 1, 1]


def test_the_share_of_a_client_is_its_own():
    with captured() as (out, _):
        for client in (1, 2):
            with limit_client_output(client):
                sys.stdout.write("x" * 10**6)
    assert len(out.getvalue()) == 2 * A_CALL


def test_an_hour_later_there_is_room_again(monkeypatch):
    """16 calls use the hour up; at 59:59 there is none left, at 60:01 there is."""
    now = [0.0]
    monkeypatch.setattr(output.time, "monotonic", lambda: now[0])
    with captured() as (out, _):
        for at in [0.0] * 16 + [3599.0, 3601.0]:
            now[0] = at
            with limit_client_output(1):
                sys.stdout.write("x" * A_CALL)
    assert len(out.getvalue()) == AN_HOUR + A_CALL


def test_what_is_logged_counts_and_other_threads_do_not(log):
    """The server writes what it likes while clients are at work."""
    with captured() as (out, _):
        others = threading.Thread(target=lambda: [print("s" * 1000) for _ in range(1000)])
        with limit_client_output(5), warnings.catch_warnings():
            warnings.simplefilter("always")
            logging.captureWarnings(False)
            logging.captureWarnings(True)
            for _ in range(500):
                logging.getLogger("sensor").warning("w" * 1000)
                warnings.warn("v" * 1000, stacklevel=1)
            others.start()
            others.join()
    assert len(out.getvalue()) == 1001 * 1000
    assert A_CALL < log.stat().st_size < A_CALL + 1000
    assert log.read_text().splitlines()[-1].split(": ")[1] == "client 5"


def test_what_is_left_out_is_in_no_memory():
    text = "x" * 10**6
    with captured():
        tracemalloc.start()
        with limit_client_output(1):
            for _ in range(40):
                sys.stdout.write(text)
                sys.stderr.write(text)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert most < 2**20


def test_bytes_are_bounded_too():
    below = io.BytesIO()
    stream = io.TextIOWrapper(below, write_through=True)
    with redirect_stdout(stream), limit_client_output(1):
        sys.stdout.buffer.write(b"x" * 10**6)
    assert len(below.getvalue()) == A_CALL


ALONE = """
import sys, threading
sys.argv[0] = "/somewhere/flwr-clientapp"
from fedge.process.output import limit_client_output
with limit_client_output(7):
    print("\\x1b[2J\\u202eä\\tb")
    sys.stdout.buffer.write(b"\\x1b[2J\\n")
    thread = threading.Thread(target=lambda: print("x" * 10**6))
    thread.start()
    thread.join()
print("\\x1b[0m")
"""


def test_in_a_process_of_its_own_all_counts_and_nothing_is_raw():
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=True)
    first, second, *rest = done.stdout.split("\n")
    assert sorted((first, second)) == sorted(("\\x1b[2J\\u202eä\tb", "\\x1b[2J"))
    is_raw = rest[-2].endswith("x\x1b[0m")
    assert is_raw  # what is printed when nobody is at work
    assert len(done.stdout) <= A_CALL + 100
    assert "client 7: " in done.stderr


def test_a_guard_within_a_guard_counts_once():
    with captured() as (out, _):
        with limit_client_output(1):
            with limit_client_output(1):
                sys.stdout.write("x" * 10**6)
            sys.stdout.write("y")
        assert len(out.getvalue()) == A_CALL
        sys.stdout.write("z")
    assert out.getvalue().endswith("xz")


def test_an_exception_goes_through_and_leaves_streams_as_they_were():
    with captured() as (out, _):
        with pytest.raises(KeyError), limit_client_output(1):
            raise KeyError("k")
        assert sys.stdout is out
    assert writable_bytes(10**9) == 10**9
