"""What a client says of itself arrives as it was said."""

from flwr.app import RecordDict

from fedge.exchange.hello import (
    Hello,
    end_capture_message,
    end_capture_reply,
    hello_message,
    hello_reply,
    probe_of,
    read_end_capture,
    read_hello,
)


def numbered(message):
    """Return a message with an id, as an engine gives it one."""
    message.metadata.__dict__["_message_id"] = "1"
    return message


def test_a_hello_comes_back_as_it_was_said():
    asked = numbered(hello_message(7, "/somewhere/owner"))
    assert asked.metadata.dst_node_id == 7
    assert probe_of(asked) == "/somewhere/owner"
    said = Hello(partition_id=3, num_partitions=9, shares=True)
    assert read_hello(hello_reply(said, asked)) == said


def test_the_end_of_a_capture_names_the_process():
    asked = numbered(end_capture_message(2))
    assert asked.content == RecordDict()
    assert read_end_capture(end_capture_reply(4711, asked)) == 4711
