import gc
import subprocess
import sys
import weakref

import pytest

from fedge.process.collection import spared_imports


@pytest.fixture(autouse=True)
def _thaw():
    """Leave the process of the tests as it was."""
    yield
    gc.unfreeze()


def test_the_search_is_off_inside_and_on_again_however_the_body_ends():
    with spared_imports():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ImportError), spared_imports():
        raise ImportError
    assert gc.isenabled()


def test_who_has_it_off_keeps_it_off():
    gc.disable()
    try:
        with spared_imports():
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
    with spared_imports():
        pass
    gone = lost()
    gc.collect()
    assert gone() is None


def test_what_an_earlier_run_has_left_is_found_where_nothing_was_to_be_imported():
    gc.disable()
    try:
        gone = lost()
        with spared_imports():
            pass
    finally:
        gc.enable()
    gc.collect()
    assert gone() is None


def test_what_a_run_imports_is_searched_no_more():
    code = (
        "import gc\nfrom fedge.process.collection import spared_imports\n"
        "with spared_imports():\n    import fedge.launch.simulate\n"
        "print(gc.get_freeze_count() > 10 * len(gc.get_objects()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"
