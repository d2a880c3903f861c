"""Arrays come out of shared memory as they went in, also for another process's mapping."""

import os

import numpy as np
import pytest

from fedge.parallel.arrays import Block, nameless_file


@pytest.fixture
def descriptor():
    opened = nameless_file("test")
    yield opened
    os.close(opened)


def test_arrays_of_any_kind_come_back(descriptor):
    given = {
        "matrix": np.arange(6, dtype=np.float32).reshape(2, 3),
        "counter": np.array(7),
        "none": np.empty((0, 4), np.float64),
        "flags": np.array([True, False]),
    }
    layout = Block(descriptor).put(given)
    found = Block(descriptor).views(layout)
    assert {name: (a.dtype, a.shape) for name, a in found.items()} == {
        name: (a.dtype, a.shape) for name, a in given.items()
    }
    assert all(np.array_equal(found[name], given[name]) for name in given)


def test_it_grows_and_others_see_it(descriptor):
    """The second mapping was made when the memory was smaller."""
    writer, reader = Block(descriptor), Block(descriptor)
    small = writer.put({"x": np.ones(3)})
    assert reader.views(small)["x"].tolist() == [1, 1, 1]
    large = writer.put({"x": np.full(100_000, 2.0)})
    assert reader.views(large)["x"][-1] == 2.0


def test_what_a_reader_writes_arrives(descriptor):
    block = Block(descriptor)
    layout = block.put({"x": np.zeros(2)})
    Block(descriptor).views(layout)["x"][:] = 5
    assert block.views(layout)["x"].tolist() == [5, 5]
