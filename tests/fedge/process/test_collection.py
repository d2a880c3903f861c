import gc
import io
import subprocess
import sys
import weakref

import pytest
from small_runs import small_config

from fedge import simulate
from fedge.process import collection
from fedge.process.collection import rare_garbage_collection, uncollected_imports


@pytest.fixture(autouse=True)
def _thaw():
    """Leave the process of the tests as it was."""
    yield
    gc.unfreeze()


def test_the_search_is_off_inside_and_on_again_however_the_body_ends():
    with uncollected_imports():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ImportError), uncollected_imports():
        raise ImportError
    assert gc.isenabled()


def test_who_has_it_off_keeps_it_off():
    gc.disable()
    try:
        with uncollected_imports():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


class Node:
    """One that only a search finds, once it is in a circle."""


def lost():
    """A weak reference to an object in a circle that nobody else refers to."""
    node = Node()
    node.itself = node
    return weakref.ref(node)


def test_what_is_made_later_is_searched_as_ever():
    with uncollected_imports():
        pass
    gone = lost()
    gc.collect()
    assert gone() is None


def test_what_an_earlier_run_has_left_is_found_where_nothing_was_to_be_imported():
    gc.disable()
    try:
        gone = lost()
        with uncollected_imports():
            pass
    finally:
        gc.enable()
    gc.collect()
    assert gone() is None


def test_what_a_run_imports_is_searched_no_more():
    code = (
        "import gc\nfrom fedge.process.collection import uncollected_imports\n"
        "with uncollected_imports():\n    import fedge.launch.simulate\n"
        "print(gc.get_freeze_count() > 10 * len(gc.get_objects()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


@pytest.mark.parametrize(("clients", "objects"), [(9, 0), (1000, 25_000), (10_000, 250_000)])
def test_the_more_clients_the_less_often_a_search_however_the_body_ends(clients, objects):
    usual = gc.get_threshold()
    assert 0 < usual[0] <= 2000  # 700 up to Python 3.12
    with rare_garbage_collection(clients):
        assert gc.get_threshold() == (objects or usual[0], *usual[1:])
    assert gc.get_threshold() == usual
    with pytest.raises(ImportError), rare_garbage_collection(clients):
        raise ImportError
    assert gc.get_threshold() == usual


def test_who_searches_never_goes_on_so():
    usual = gc.get_threshold()
    gc.set_threshold(0, *usual[1:])
    try:
        with rare_garbage_collection(10_000):
            assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*usual)


class Watch(io.StringIO):
    """A terminal that notes after how many objects garbage is searched for while lines come."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def write(self, text):
        self.seen.add(gc.get_threshold()[0])
        return super().write(text)


def test_rounds_of_a_run_are_searched_seldom_and_nothing_after_it(tmp_path, monkeypatch):
    monkeypatch.setattr(collection, "_PER_CLIENT", 1000)
    usual, watch = gc.get_threshold(), Watch()
    simulate(small_config(tmp_path, run_name="seldom"), terminal=watch)
    assert watch.seen == {usual[0], 1000 * 9}
    assert gc.get_threshold() == usual
