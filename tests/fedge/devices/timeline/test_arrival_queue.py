"""Time for which a server was busy, by hand."""

from collections import deque

from fedge.devices.timeline.arrival_queue import ServerQueue


def test_a_server_is_busy_with_the_first():
    """From 10 to 14 with a, from 14 to 20 with b."""
    line = ServerQueue(deque("b"))
    assert line.occupy("a", 4, 10) == 14
    assert list(line.waiting) == ["a", "b"]
    assert [line.done_us(now_us) for now_us in (10, 13, 14, 99)] == [0, 3, 4, 4]
    line.waiting.popleft()
    line.occupy(line.waiting.popleft(), 6, 14)
    assert [line.done_us(now_us) for now_us in (14, 15, 20)] == [4, 5, 10]
