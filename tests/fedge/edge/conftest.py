"""Leaf servers of one process, for tests of what the cloud asks of several at once."""

import pytest
from process_of_leaves import process_of_leaves


@pytest.fixture
def hosts(tmp_path):
    """Leaf servers 0 and 1 of one process, and facts of a run."""
    with process_of_leaves(tmp_path) as made:
        yield made
