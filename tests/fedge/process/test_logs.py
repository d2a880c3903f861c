import logging
import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from queue import Queue
from types import SimpleNamespace

import pytest
from flwr.app import Message, RecordDict

from fedge.process import logs
from fedge.process.logs import (
    deduplicate_flower_log,
    first_engine_error,
    log_to,
    log_worker_to,
    refuse_failed_log,
    stop_logging_to,
)

ROOT = Path(__file__).parents[3]


@pytest.fixture
def log(tmp_path):
    """Log to a file for the length of a test."""
    handler = log_to(tmp_path / "run.log")
    yield tmp_path / "run.log"
    if handler in logging.getLogger().handlers:
        stop_logging_to(handler)


def test_loggers_and_warnings_go_to_the_file(log):
    logging.getLogger("fedge.somewhere").info("an info")
    logging.getLogger("flwr").info("chatter of Flower")
    logging.getLogger("flwr").warning("a warning of Flower")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(False)
        logging.captureWarnings(True)
        warnings.warn("a Python warning", stacklevel=1)
    text = log.read_text()
    assert f" {os.getpid()} INFO fedge.somewhere: an info" in text
    assert "WARNING flwr: a warning of Flower" in text
    assert "a Python warning" in text
    assert "chatter" not in text


def test_everything_is_as_before_afterwards(tmp_path, monkeypatch):
    root, flower = logging.getLogger(), logging.getLogger("flwr")
    own = logging.NullHandler()
    flower.addHandler(own)
    monkeypatch.setattr(root, "level", logging.ERROR)

    def state():
        return (
            root.level,
            root.handlers[:],
            flower.level,
            flower.handlers[:],
            flower.propagate,
            warnings.showwarning,
        )

    before = state()
    handler = log_to(tmp_path / "run.log")
    assert own not in flower.handlers
    assert state() != before
    stop_logging_to(handler)
    assert state() == before
    flower.removeHandler(own)
    size = (tmp_path / "run.log").stat().st_size
    logging.getLogger("fedge").error("too late")
    assert (tmp_path / "run.log").stat().st_size == size


def test_a_worker_logs_once_and_leaves_an_earlier_run(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "_worker_log", None)
    filters = warnings.filters[:]
    one, two = tmp_path / "one.log", tmp_path / "two.log"
    try:
        for path in (one, one, two):
            log_worker_to(str(path))
            logging.getLogger("fedge").warning("to %s", path.stem)
    finally:
        stop_logging_to(logs._worker_log[1])
        warnings.filters[:] = filters
    assert [line.split("fedge: ")[1] for line in one.read_text().splitlines()] == ["to one", "to one"]
    assert [line.split("fedge: ")[1] for line in two.read_text().splitlines()] == ["to two"]


def test_a_worker_elsewhere_does_not_log(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "_worker_log", None)
    before = logging.getLogger().handlers[:]
    log_worker_to(str(tmp_path / "not here" / "run.log"))
    assert logging.getLogger().handlers == before


def test_output_of_all_kinds_is_diverted_and_the_terminal_stays(tmp_path):
    """In a process of its own: prints, native writes and a child's output go to the file."""
    code = """
import os, subprocess, sys
from pathlib import Path
from fedge.process.logs import divert_descriptors
terminal = divert_descriptors(Path(sys.argv[1]))
print("printed", flush=True)
print("complained", file=sys.stderr, flush=True)
os.write(1, b"native\\n")
subprocess.run([sys.executable, "-c", "print('a child')"])
print("progress ✓", file=terminal)
"""
    log = tmp_path / "run.log"
    log.write_text("before\n")
    done = subprocess.run(
        [sys.executable, "-c", code, str(log)], cwd=ROOT, capture_output=True, check=True, timeout=60
    )
    assert done.stdout.decode() == "progress ✓\n"
    assert done.stderr == b""
    assert log.read_text().splitlines() == ["before", "printed", "complained", "native", "a child"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device /dev/full")
def test_a_log_on_a_full_disk_ends_the_run_and_prints_no_tracebacks(capfd):
    handler = log_to(Path("/dev/full"))
    try:
        refuse_failed_log()
        for _ in range(3):
            logging.getLogger("fedge.somewhere").info("lost")
        with pytest.raises(OSError, match="No space left") as caught:
            refuse_failed_log()
    finally:
        stop_logging_to(handler)
    assert caught.value.filename == "/dev/full"
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "text",
    [
        "An exception occured!! Unknown keyword: bogus",
        "Traceback (most recent call last):\n  File 'a.py', line 1\nRuntimeError: Unknown keyword: bogus\n",
    ],
)
def test_the_first_error_of_the_engine_is_kept_in_one_line(tmp_path, text):
    """Flower logs a sentence and then a traceback; which comes first here depends on when it failed."""
    handler = log_to(tmp_path / "run.log")
    try:
        logging.getLogger("flwr").error(text)
        logging.getLogger("flwr").error("a consequence")
        assert first_engine_error() == "Unknown keyword: bogus"
    finally:
        stop_logging_to(handler)


def of_a_client(text):
    """A record as Flower's simulation logs a client's failure."""
    place = ("flwr", logging.ERROR, "vce_api.py", 1, text, (), None, "worker")
    return logging.getLogger("flwr").makeRecord(*place)


def test_the_engines_error_is_no_clients_failure_before_it(tmp_path):
    """A client that failed rounds ago is no reason for the engine's end; the newest may be."""
    handler = log_to(tmp_path / "run.log")
    flower = logging.getLogger("flwr")
    try:
        flower.handle(of_a_client("Traceback (most recent call last):\nValueError: sensor lost"))
        flower.handle(of_a_client("Traceback (most recent call last):\nActorDied: the actor died"))
        assert first_engine_error() == "the actor died"
        flower.error("An exception occured!! Cluster lost")
        flower.error("a consequence")
        assert first_engine_error() == "Cluster lost"
    finally:
        stop_logging_to(handler)


def test_an_engine_error_before_the_run_has_its_log_is_known(tmp_path, monkeypatch):
    """Flower's engine runs in another thread, and may fail first."""
    flower = logging.getLogger("flwr")
    monkeypatch.setattr(flower, "handlers", [*flower.handlers])
    monkeypatch.setattr(logs._EarlyErrors, "first", "")
    logs.keep_early_engine_errors()
    flower.warning("not yet")
    assert logs.first_engine_error() == ""
    flower.error("An exception occured!! Unknown keyword")
    flower.error("and more")
    assert logs.first_engine_error() == "Unknown keyword"
    handler = log_to(tmp_path / "run.log")  # and once it has one
    try:
        flower.error("An exception occured!! Simulation Engine crashed.")
        assert logs.first_engine_error() == "Unknown keyword"
    finally:
        stop_logging_to(handler)


def test_what_is_logged_is_printable_and_not_endless(log):
    logger = logging.getLogger("fedge.somewhere")
    logger.warning("sensor \x1b[2J lost\r\u202e \ud800\n\tat once")
    logger.warning("x" * 10**7)
    first, second, third = log.read_text().splitlines()
    assert first.endswith("sensor \\x1b[2J lost\\r\\u202e \\ud800")
    assert second == "        at once"
    assert len(third) < 70_000
    assert " characters left out … xxx" in third


def test_what_flower_says_while_strategies_are_made_is_said_once(tmp_path, caplog):
    """Per leaf, and before the run and in it: the terminal and the log have it once each."""
    from flwr.serverapp.strategy import FedProx

    def made(count):
        for _ in range(count):
            with deduplicate_flower_log():
                FedProx(proximal_mu=0.0)
            logging.getLogger("flwr").warning("of another kind")

    handler = log_to(tmp_path / "run.log")
    made(3)
    stop_logging_to(handler)
    handler = log_to(tmp_path / "next.log")
    made(2)
    stop_logging_to(handler)
    for name, count in (("run.log", 3), ("next.log", 2)):
        text = (tmp_path / name).read_text()
        assert (text.count("equivalent to FedAvg"), text.count("of another kind")) == (1, count)


def test_of_a_client_s_failures_on_ray_the_first_traceback_is_kept(log):
    """Flower's own code tells each of 30 failures in three records, two of them tracebacks."""
    pytest.importorskip("ray")
    from flwr.server.superlink.fleet.vce.backend.raybackend import RayBackend
    from flwr.server.superlink.fleet.vce.vce_api import worker

    whys, stop, replies = [*(["unplugged", "too warm"] * 3), *map(str, range(24))], threading.Event(), Queue()

    def submit(*_):
        if len(whys) == 1:
            stop.set()
        raise RuntimeError(whys.pop(0))

    backend = SimpleNamespace(pool=SimpleNamespace(submit=submit), app_fn=object())
    backend.process_message = lambda *words: RayBackend.process_message(backend, *words)
    node = SimpleNamespace(retrieve_context=lambda run_id: SimpleNamespace(node_config={"partition-id": 0}))
    messages = Queue()
    for _ in whys:
        messages.put(Message(RecordDict(), dst_node_id=7, message_type="train"))
    worker(messages, replies, {7: node}, backend, stop)
    assert replies.qsize() == 30
    text = log.read_text()
    assert [text.count(f"RuntimeError: {why}\n") for why in ("unplugged", "too warm", "0", "23")] == [
        1,
        1,
        1,
        0,
    ]
    assert text.count("Traceback") == 20
    assert "by SimpleNamespace" not in text
    logging.getLogger("flwr").error("another error")
    assert "another error" in log.read_text()
