import gc

import pytest

from fedge.process.collection import paused


def test_the_search_is_off_inside_and_on_again_however_the_body_ends():
    with paused():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ImportError), paused():
        raise ImportError
    assert gc.isenabled()


def test_who_has_it_off_keeps_it_off():
    gc.disable()
    try:
        with paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
