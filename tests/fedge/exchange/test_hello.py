"""A client's first answer arrives as it was sent."""

from dataclasses import replace

import pytest
from flwr.app import Message, RecordDict

from fedge.config.registers.option import ConfigError
from fedge.data.own_windows import WindowsReport
from fedge.data.scaling import ChannelSums
from fedge.exchange.hello import (
    Hello,
    Question,
    end_capture_message,
    end_capture_reply,
    expect_windows,
    hello_message,
    hello_reply,
    question_of,
    read_end_capture,
    read_hello,
    refuse_other_windows,
)


def numbered(message):
    """A message with an id, as an engine gives it one."""
    message.metadata.__dict__["_message_id"] = "1"
    return message


def test_a_hello_comes_back_as_it_was_said():
    asked = numbered(hello_message(7, Question("/somewhere/challenge-1", 2**40)))
    assert asked.metadata.dst_node_id == 7
    assert question_of(asked).challenge == "/somewhere/challenge-1"
    assert question_of(asked).seed == 2**40
    said = Hello(partition_id=3, num_partitions=9, seen="5e" * 32)
    assert read_hello(hello_reply(said, asked)) == said
    sums = ChannelSums(24, (0.1,), (1e-300,))
    counts = {"train": (1, 2), "val": (1, 0), "test": (0, 1)}
    told = WindowsReport(
        "ä.npz", "f" * 64, False, "blocks", (1, 8), "float32", ("p", "q"), ("x",), {}, counts, sums
    )
    said = replace(said, report=told)
    assert read_hello(hello_reply(said, asked)) == said
    assert "device" not in hello_reply(said, asked).content["config"]
    for device in ("NVIDIA H100 80GB HBM3", ""):
        said = replace(said, device=device)
        assert read_hello(hello_reply(said, asked)) == said


def test_what_is_no_account_of_windows_is_no_answer():
    asked = numbered(hello_message(7))
    reply = hello_reply(Hello(3, 9), asked)
    reply.content["config"]["told"] = "{}"
    with pytest.raises(ValueError, match="KeyError"):
        read_hello(reply)


def test_a_device_is_a_short_printable_name_whatever_a_client_says():
    asked = numbered(hello_message(7))
    said = read_hello(hello_reply(Hello(3, 9, device="\x1b]0;x\x07" + "g" * 10**6), asked))
    assert said.device.startswith("\\x1b]0;x\\x07ggg")
    assert len(said.device) < 200


@pytest.mark.parametrize("kernels", [None, (), ("amx", "avx512", "avx2", "plain")])
def test_kernels_arrive_as_they_were_said(kernels):
    asked = numbered(hello_message(7))
    reply = hello_reply(Hello(3, 9, kernels=kernels), asked)
    assert ("kernels" in reply.content["config"]) == (kernels is not None)
    assert read_hello(reply).kernels == kernels


def test_kernels_are_short_printable_words_whatever_a_client_says():
    asked = numbered(hello_message(7))
    said = read_hello(hello_reply(Hello(3, 9, kernels=("\x1b]0;x\x07", "k" * 10**6)), asked)).kernels
    assert said[0] == "\\x1b]0;x\\x07"
    assert len(said) == 2
    assert len(said[1]) < 200


def test_the_end_of_a_capture_names_the_process():
    asked = numbered(end_capture_message(2))
    assert asked.content == RecordDict()
    assert read_end_capture(end_capture_reply(4711, asked)) == 4711


def test_a_client_whose_windows_are_others_than_it_told_refuses_the_question():
    """A node that was started again under its key has its old id, and is not asked again who it is."""
    question = hello_message(7, Question("", seed=5))
    refuse_other_windows(question, 1, "any: nobody has told")
    expect_windows(question, "a1")
    refuse_other_windows(question, 1, "a1")
    assert question_of(question).seed == 5, "the rest stays"
    with pytest.raises(
        ConfigError, match=r"^the windows of partition 1 must be those of the start of the run"
    ):
        refuse_other_windows(question, 1, "b2")


def test_what_one_client_told_is_not_expected_of_another():
    """Questions to the clients of a leaf may share their content."""
    first = hello_message(7)
    second = Message(first.content, 8, "train")
    expect_windows(first, "a1")
    expect_windows(second, "b2")
    refuse_other_windows(first, 0, "a1")
    refuse_other_windows(second, 1, "b2")
