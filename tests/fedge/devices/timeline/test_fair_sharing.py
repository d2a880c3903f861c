"""A link that is shared fairly: by hand, by its definition, and against another way to find the shares."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from independent_links import Pipe

from fedge.devices.timeline.fair_sharing import SharedLink, duration_us, fair_rates, rate_of

MEGA, SECOND = 10**6, 10**6


def ends_of(link, begins):
    """When each transfer ends, by key: begins are (microseconds, key, bytes, bytes per second at most)."""
    found, begins = {}, sorted(begins)
    while begins or len(link):
        next_us = link.next_us
        if begins and (next_us is None or begins[0][0] < next_us):
            now_us, key, size, most = begins.pop(0)
            link.join(key, size, most, now_us)
        else:
            found.update(dict.fromkeys(link.ended(next_us), next_us))
    return found


def test_one_takes_the_whole_link():
    assert ends_of(SharedLink(MEGA), [(0, 1, MEGA, 9e9)]) == {1: SECOND}


def test_two_equal_transfers_take_twice_as_long():
    assert ends_of(SharedLink(MEGA), [(0, 1, MEGA, 9e9), (0, 2, MEGA, 9e9)]) == {1: 2 * SECOND, 2: 2 * SECOND}


def test_a_third_that_joins():
    """After 1 s two have half a megabyte left, and a third joins: a third of the link each, so 1.5 s more;
    then the third has half a megabyte left, alone: 0.5 s.
    """
    found = ends_of(SharedLink(MEGA), [(0, 1, MEGA, 9e9), (0, 2, MEGA, 9e9), (SECOND, 3, MEGA, 9e9)])
    assert found == {1: 2_500_000, 2: 2_500_000, 3: 3_000_000}


def test_who_is_slower_than_a_fair_share_leaves_the_rest_to_others():
    """Of 1.0 MB/s a device of 0.2 gets 0.2, the others 0.4 each: 2.5 s; the slow one goes on at 0.2: 5 s."""
    begins = [(0, 1, MEGA, 0.2e6), (0, 2, MEGA, 9e9), (0, 3, MEGA, 0.7e6)]
    assert ends_of(SharedLink(MEGA), begins) == {1: 5 * SECOND, 2: 2_500_000, 3: 2_500_000}


def test_one_that_leaves_frees_its_share():
    """After 1 s half a megabyte is left of one, which then has the link alone: 0.5 s."""
    link = SharedLink(MEGA)
    link.join(1, MEGA, 9e9, 0)
    link.join(2, MEGA, 9e9, 0)
    link.leave(2, SECOND)
    link.leave(7, SECOND)  # nobody's
    assert link.next_us == 1_500_000
    assert link.ended(1_500_000) == [1]
    assert (len(link), link.next_us) == (0, None)


def test_ends_of_one_moment_come_by_their_keys():
    link = SharedLink(MEGA)
    for key in (9, 3, 5):
        link.join(key, MEGA, 9e9, 0)
    assert link.ended(3 * SECOND) == [3, 5, 9]


def test_a_link_of_one_byte_per_second_and_ten_thousand_transfers_ends():
    """Shares below the smallest unit are one unit."""
    rates = fair_rates(np.full(10_000, rate_of(1e9)), rate_of(1.0))
    assert set(rates.tolist()) == {1}
    assert duration_us(1, 1) == 10**9


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=40), st.integers(1, 10**7))
def test_shares_are_max_min_fair(caps, whole):
    """Nobody exceeds cap or link; whoever has less than the cap has as much as anybody; nothing is wasted."""
    rates = fair_rates(np.array(caps), whole)
    assert (rates <= caps).all()
    if whole >= len(caps):
        assert rates.sum() <= whole
        waiting = rates < caps
        if waiting.any():
            assert set(rates[waiting].tolist()) == {rates.max()}
            assert whole - rates.sum() < len(caps)


transfers = st.lists(
    st.tuples(
        st.integers(0, 5 * SECOND), st.integers(1, 10**6), st.sampled_from([3e3, 1e4, 1e5, 4e5, 1e12])
    ),
    min_size=1, max_size=12,
)  # fmt: skip


@settings(max_examples=200)
@given(transfers, st.sampled_from([1e4, 2.5e5, 1e6]), st.data())
def test_it_goes_on_from_what_it_kept_and_agrees_with_another(drawn, bytes_s, data):
    begins = [(now_us, key, size, most) for key, (now_us, size, most) in enumerate(drawn)]
    found = ends_of(SharedLink(bytes_s), begins)
    assert found == other_ends(Pipe(bytes_s / 1e6), begins)
    stop = data.draw(st.integers(0, max(found.values())))
    link, before = SharedLink(bytes_s), {}
    coming = sorted(begins)
    while True:  # up to a moment, then on from JSON's numbers
        next_us = min([each[0] for each in coming[:1]] + [link.next_us] * (link.next_us is not None))
        if next_us >= stop:
            break
        if coming and (link.next_us is None or coming[0][0] < link.next_us):
            now_us, key, size, most = coming.pop(0)
            link.join(key, size, most, now_us)
        else:
            before.update(dict.fromkeys(link.ended(next_us), next_us))
        if not coming and not len(link):
            break
    other = SharedLink(bytes_s)
    other.restore(link.facts())
    assert {**before, **ends_of(other, coming)} == found


def other_ends(pipe, begins):
    found, begins, next_us = {}, sorted(begins), None
    while begins or pipe.sending:
        if begins and (next_us is None or begins[0][0] < next_us):
            now_us, key, size, most = begins.pop(0)
            next_us = pipe.change(now_us, joins=(key, size, most))
        else:
            over = pipe.over(next_us)
            found.update(dict.fromkeys(over, next_us))
            next_us = pipe.change(next_us, leaves=over)
    return found
