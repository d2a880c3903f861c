"""Every window of a batch is one process's, and shares differ by one at most."""

from hypothesis import given
from hypothesis import strategies as st

from fedge.parallel.shares import rows_of_process


@given(batch=st.integers(1, 200), processes=st.integers(1, 12))
def test_shares_cover_a_batch_once(batch, processes):
    shares = [range(batch)[rows_of_process(batch, rank, processes)] for rank in range(processes)]
    assert [row for share in shares for row in share] == list(range(batch))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
