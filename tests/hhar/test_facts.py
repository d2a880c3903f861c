"""Facts of HHAR agree with each other."""

from itertools import pairwise

import pytest

from hhar.facts import ACTIVITIES, USERS, bouts_of, device_names, first_arrival_ms, user_name


def test_devices():
    """Stisen et al. 2015: eight phones and four watches."""
    assert len(device_names("phones")) == 8
    assert len(device_names("watches")) == 4
    assert device_names("all") == (*device_names("phones"), *device_names("watches"))
    with pytest.raises(KeyError):
        device_names("tablets")


def test_users_have_names_for_ever():
    assert [user_name(index) for index in range(9)] == list(USERS) == list("abcdefghi")
    assert (user_name(25), user_name(26)) == ("z", "u026")


@pytest.mark.parametrize("user", range(9))
def test_bouts_are_in_time_order_and_cover_all_activities(user):
    bouts = bouts_of(user)
    starts = [bout.start_s for bout in bouts]
    assert starts == sorted(starts)
    assert {bout.activity for bout in bouts} >= set(ACTIVITIES)
    for one, following in pairwise(bouts):  # seconds have one digit after the point
        assert one.start_s + one.duration_s <= following.start_s + 0.15


def test_later_users_repeat_the_protocol_a_week_later():
    assert bouts_of(9) == bouts_of(0)
    assert first_arrival_ms(9) - first_arrival_ms(0) == 7 * 86_400_000
