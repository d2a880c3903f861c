"""Output of a node's ClientApps is passed on as far as there is room, whoever writes it."""

import os
import select
import time

import pytest

from fedge.launch.nodes import node_output
from fedge.launch.nodes.node_output import A_CLIENT_APP, AN_HOUR, NodeOutput, SuperNodeOutput


def say(output, work):
    """Let a child say something; pass on what comes until it has ended."""
    pid = output.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    deadline = time.monotonic() + 60
    while output.descriptors and time.monotonic() < deadline:
        output.forward_output(select.select(output.descriptors, [], [], 0.2)[0])
    os.waitpid(pid, 0)
    assert output.descriptors == []


def test_both_streams_arrive_where_they_were_meant_for(capfd):
    def work():
        os.write(1, "out ä\n".encode())
        os.write(2, b"err \x1b[2J\x07\n")

    say(NodeOutput(), work)
    assert capfd.readouterr() == ("out ä\n", "err ?[2J?\n")


def test_native_output_of_40_mb_is_bounded_and_said(capfd):
    def work():
        for _ in range(640):
            os.write(1, b"x" * 65536)
        os.write(2, b"its last words")

    say(NodeOutput(), work)
    out, err = capfd.readouterr()
    assert len(out) == A_CLIENT_APP
    assert "its last words" in err
    assert f"fedge: {640 * 65536 - A_CLIENT_APP:,} bytes of this node's output were left out" in err


def test_all_of_an_hour_have_a_share_and_it_is_said_whenever_it_has_doubled(capfd, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(node_output.time, "monotonic", lambda: now[0])
    output = NodeOutput()

    def talk(times):
        for _ in range(times):
            reading, writing = os.pipe()
            output._pipes[reading] = node_output._Pipe(1, 0)
            os.write(writing, b"x" * 60_000)
            os.close(writing)
            while reading in output.descriptors:
                output.forward_output([reading])

    talk(100)
    out, err = capfd.readouterr()
    assert len(out) == AN_HOUR
    assert 1 <= err.count("were left out") <= 8
    now[0] = 3601.0
    talk(1)
    assert len(capfd.readouterr().out) == 60_000


def test_no_descriptor_is_left():
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("the system does not list descriptors")
    output, before = NodeOutput(), len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        say(output, lambda: None)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_lost_contact_is_one_line_and_the_next_one_is_told_anew():
    """Flower tells of every attempt, for ever; all other words are passed on to the byte."""
    tried = b"WARNING : Connection attempt failed, retrying in %d.00 seconds\n"
    lost, found = [tried % number for number in range(5)], b"INFO : Connection successful after 9 seconds\n"
    output, printed = SuperNodeOutput(), b""
    together = [lost[2] + b"between\n" + lost[3], found + lost[4]]
    for said in (b"\xffbegun\n", *lost[:2], *together, lost[0], b"end"):
        printed += output.printable_part(said)
    assert printed == b"\xffbegun\n" + lost[0] + b"between\n" + found + lost[4] + b"end"
