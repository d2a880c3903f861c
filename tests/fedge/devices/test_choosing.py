"""Each idle device that is there is as likely; who is asked in vain says when to try again."""

from collections import Counter

from fedge.devices.availability import always
from fedge.devices.choosing import Choosing


def test_every_idle_device_is_as_likely():
    choosing = Choosing(1, [range(4)], always(4, 1))
    counts = Counter()
    for _ in range(4000):
        device, _ = choosing.pick(0, 0)
        counts[device] += 1
        assert device not in choosing.idle[0]
        choosing.idle[0].put(device)
    assert all(900 < counts[device] < 1100 for device in range(4))


def test_servers_have_devices_and_draws_of_their_own():
    choosing = Choosing(1, [range(4), range(4, 8)], always(8, 1))
    assert choosing.pick(0, 0)[0] < 4 <= choosing.pick(1, 0)[0]
    assert [draws.count for draws in choosing.draws] == [1, 1]


def test_who_is_away_is_not_picked():
    """Devices 0 and 1 are away until 70 and 50, device 2 is there until 90."""
    until = {0: (False, 70), 1: (False, 50), 2: (True, 90)}
    choosing = Choosing(1, [range(3)], lambda device, now_us: until[device])
    assert choosing.pick(0, 10) == (2, 90)
    assert choosing.pick(0, 10) == (None, 50)
    assert sorted(choosing.idle[0]) == [0, 1]


def test_nobody_is_idle():
    assert Choosing(1, [()], always(0, 1)).pick(0, 10) == (None, 0)
