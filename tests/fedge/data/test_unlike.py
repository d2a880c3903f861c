"""Owners whose windows do not fit most others'."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from fedge.data.own import WindowsReport
from fedge.data.scaling import ChannelSums
from fedge.data.unlike import unlike_owners

TOLD = WindowsReport(
    "mine.npz", "f" * 64, False, "blocks", (1, 8), "float32", ("p", "q"), ("x",), {},
    {"train": (1, 1), "val": (1, 0), "test": (0, 1)}, ChannelSums(16, (0.0,), (1.0,)),  # 2 × 8
)  # fmt: skip
OTHERS = [
    replace(TOLD, classes=("q", "p")), replace(TOLD, channels=("y",)), replace(TOLD, input_shape=(1, 9)),
    replace(TOLD, dtype="uint8"), replace(TOLD, split_kind="session"), replace(TOLD, y_shape=(2,)),
    replace(TOLD, y_dtype="float32"), replace(TOLD, counts={**TOLD.counts, "val": (0, 0)}),
]  # fmt: skip


def test_each_property_is_named():
    found = [unlike_owners({0: TOLD, 3: other, 5: TOLD}) for other in OTHERS]
    assert [list(odd) for odd in found] == [[3]] * len(OTHERS)
    words = ["classes", "channels", "input shape", "dtype", "split kind", "y shape", "y dtype"]
    for odd, name in zip(found, words, strict=False):
        assert f"partition 3 has other {name} than most clients: " in odd[3]
    assert found[-1] == {3: "partition 3 has no val windows"}


def test_a_run_that_goes_on_takes_the_windows_of_its_start():
    known = {0: TOLD, 1: replace(TOLD, fingerprint="0" * 64)}
    assert unlike_owners({0: TOLD, 1: TOLD, 2: TOLD}, known) == {
        1: "partition 1 has other windows than at the start of the run"
    }


def test_either_most_clients_own_windows_or_none_does():
    assert unlike_owners({0: TOLD, 1: None, 2: TOLD}) == {
        1: "partition 1 names no windows of its own, unlike most clients"
    }
    assert unlike_owners({0: None, 1: None, 2: TOLD}) == {
        2: "partition 2 names windows of its own, unlike most clients"
    }
    assert unlike_owners({0: None, 2: TOLD}) == unlike_owners({0: None}) == unlike_owners({}) == {}


@given(st.lists(st.sampled_from([TOLD, None, *OTHERS[:-1]]), max_size=9))
def test_only_less_than_half_are_ever_unlike(told):
    """Of two kinds of equal number neither is the usual one."""
    odd = unlike_owners(dict(enumerate(told)))
    assert 2 * len(odd) < max(1, len(told))
    usual = [one for client, one in enumerate(told) if client not in odd]
    assert not odd or all(one == usual[0] for one in usual)
