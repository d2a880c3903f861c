"""Failures: what they are counted by, what a person reads, and that nothing of a client's text does harm."""

from types import SimpleNamespace

import pytest
from flwr.app import Error, Message, RecordDict
from hypothesis import given
from hypothesis import strategies as st

from fedge.client.guarded_app import guarded_reply
from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import MODELS
from fedge.edge.order_checks import failed_order
from fedge.exchange.failure import (
    EXCEPTION,
    Failure,
    dead_worker_failure,
    exception_failure,
    next_step,
    nonfinite_loss_note,
    reason_of,
    rejection_failure,
    reported_node_failure,
    timeout_failure,
    words_of,
)


@pytest.mark.parametrize(
    ("failure", "kind", "words"),
    [
        (timeout_failure(5), "no reply", "no reply within 5 s, which is guard.client-timeout"),
        (
            dead_worker_failure(),
            "worker died",
            "worker died: its process was killed, ran out of memory or crashed",
        ),
        (exception_failure("RuntimeError: sensor unplugged"), "exception", "RuntimeError: sensor unplugged"),
        (exception_failure("KeyError: 'a' (my.py, line 3)"), "exception", "KeyError: 'a' (my.py, line 3)"),
        (exception_failure(None), "exception", "unknown reason"),
        (
            rejection_failure("not finite", "entry 'w'"),
            "rejected: not finite",
            "rejected: not finite (entry 'w')",
        ),
        (rejection_failure("no change"), "rejected: no change", "rejected: no change"),
        (nonfinite_loss_note("own model"), "loss not finite", "loss not finite (own model)"),
    ],
)
def test_kind_and_words(failure, kind, words):
    assert failure.kind == kind
    assert str(failure) == words


@pytest.mark.parametrize(
    "text",
    ["no reply within 5 s", "worker died: its process was killed", "rejected: not finite (entry 'w')"],
)
def test_what_a_client_says_is_never_taken_for_another_kind(text):
    assert exception_failure(text).kind == "exception"


@pytest.mark.parametrize(
    ("failure", "is_node", "step"),
    [
        (dead_worker_failure(), False, "; free some memory, or let fewer clients run at a time"),
        (exception_failure("KeyError: 'a'"), False, "; fix the cause, and start again"),
        (exception_failure("KeyError: 'a'"), True, "; see the output of its node"),
        (reported_node_failure("its ClientApp crashed"), True, "; see the output of its node"),
        (exception_failure("ConfigError: x must be y; set x=y"), False, ""),
    ],
)
def test_whatever_fails_at_the_first_call_has_one_next_step(failure, is_node, step):
    found = next_step(failure, is_node)
    assert found.startswith(step)
    assert f"{failure}{found}".count("; ") == 1  # one line, one step


@given(st.text(), st.text())
def test_a_failure_is_one_printable_line_whatever_a_client_says(kind, detail):
    for failure in (Failure(kind, detail), exception_failure(detail), rejection_failure(kind, detail)):
        assert str(failure).isprintable()
        assert len(failure.detail) <= 300


def test_a_traceback_comes_down_to_its_last_error():
    text = "<class 'x'>:<'ray::f()\n  File a.py, line 1\nValueError: no windows\n'>"
    assert str(exception_failure(text)) == "ValueError: no windows"


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        (None, "unknown reason"),
        (True, "its error has True in place of words"),
        ({"a": "\x1b[2J"}, r"its error has {'a': '\x1b[2J'} in place of words"),
        (b"\xff", "its error has b'\\xff' in place of words"),
        ("x" * 10**7 + "\nValueError: gone", "ValueError: gone"),
    ],
)
def test_an_error_reply_says_words_of_bounded_length_whatever_is_in_it(reason, said):
    error = Error(2)
    error.__dict__["_reason"] = reason
    asked = Message(RecordDict(), 1, "train")
    asked.metadata.__dict__["_message_id"] = "1"
    assert exception_failure(reason_of(Message(error, reply_to=asked))).detail == said


@pytest.mark.parametrize("message", ["", "no windows", "two\\n lines", "Error\\n" * 1000, "x" * 10_000])
def test_an_error_of_a_users_own_code_keeps_its_place_however_long_it_is(message):
    """By the file's name: the folders of a client's machine stay there."""
    known = {}
    exec(compile(f"def part():\n    raise ValueError('{message}')\n", "/home/me/my_part.py", "exec"), known)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - any message
        known["part"]()
    failure = exception_failure(words_of(caught.value))
    assert failure.kind == EXCEPTION
    assert failure.detail.startswith("ValueError:")
    assert failure.detail.endswith("(my_part.py, line 2)")
    assert "/home" not in failure.detail


def own_code_in_a_part():
    """The refusal of a part whose code has failed, as it is told on this machine: with the folder."""
    known = {}
    exec(compile("def part():\n    {}['k']\n", "/home/me/my_part.py", "exec"), known)
    with pytest.raises(ConfigError) as caught, MODELS.explaining_errors("my_part:Net"):
        known["part"]()
    return caught.value


def test_no_way_to_another_machine_tells_a_folder_of_this_one():
    """Of a client to its server, of a leaf server to its cloud, in whatever the error is packed."""
    error = own_code_in_a_part()
    assert "(/home/me/my_part.py, line 2)" in str(error)

    def app(message, context):
        raise error

    with pytest.raises(ConfigError) as answer:
        guarded_reply(app, SimpleNamespace(), SimpleNamespace(run_id=4, node_config={"partition-id": 0}))
    told = [words_of(error), failed_order("train", error).facts["words"], str(answer.value)]
    wrapped = ConfigError(f"where partition 1 is: {error}")
    wrapped.__cause__ = error
    told += [words_of(wrapped), failed_order("train", wrapped).facts["words"]]
    for words in told:
        assert "train.model my_part:Net failed: KeyError: 'k' (my_part.py, line 2); fix it" in words
        assert words.count("my_part.py") == 1
        assert "/home" not in words
