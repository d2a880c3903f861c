"""Notes on how far clients are: what is progress, and what is a leaf server that begins again and again."""

from fedge.edge.progress import MergedNotes, Progress
from fedge.link.frames import Packet


def a_note(back, leaf_round=None, failed=()):
    more = {} if leaf_round is None else {"leaf_round": leaf_round}
    return Packet("note", {"kind": "train", "asked": [1, 2], "back": back, "failed": list(failed), **more})


def test_progress_is_further_clients():
    progress = Progress({0: [1, 2]}, {})
    noted = progress.receiver(0)
    assert [noted(a_note(back)) for back in ([], [1], [1], [1, 2])] == [False, True, False, True]
    assert progress.standing().back == {1, 2}


def test_one_that_begins_anew_may_do_so_a_few_times():
    noted = Progress({0: [1, 2]}, {}).receiver(0)
    found = [noted(a_note(back)) for _ in range(7) for back in ([1, 2], [])]
    assert found == [True] * 11 + [False] * 3


def test_of_a_bundle_each_leaf_server_may_begin_anew_a_few_times():
    noted = Progress({0: [1, 2]}, {}, {0: 2}).receiver(0)
    found = [noted(a_note(back)) for _ in range(12) for back in ([1, 2], [])]
    assert found == [True] * 21 + [False] * 3


def test_notes_of_leaf_servers_are_one_note_on_all_their_clients():
    told = []
    notes = MergedNotes(told.append)
    notes.receiver(0)({"kind": "train", "asked": [1, 2], "back": [2], "failed": []})
    notes.receiver(1)({"kind": "train", "asked": [3], "back": [], "failed": [3]})
    assert told == [
        {"kind": "train", "asked": [1, 2], "back": [2], "failed": []},
        {"kind": "train", "asked": [1, 2, 3], "back": [2], "failed": [3]},
    ]
    notes.begin(4)
    notes.receiver(1)({"kind": "train", "asked": [3], "back": [3], "failed": []})
    assert told[2:] == [{"kind": "train", "asked": [3], "back": [3], "failed": [], "leaf_round": 4}]


def test_a_region_gets_on_from_leaf_round_to_leaf_round():
    noted = Progress({0: [1, 2]}, {0: (5, 6)}).receiver(0)
    told = [([1], 5), ([1, 2], 5), ([], 6), ([], 6), ([2], 6)]
    assert [noted(a_note(*each)) for each in told] == [True, True, True, False, True]


def test_a_region_that_begins_anew_is_counted_as_such():
    """Leaf rounds up and down are no way to be waited for without end."""
    noted = Progress({0: [1, 2]}, {0: (5, 6)}).receiver(0)
    found = [noted(a_note([1], leaf_round)) for _ in range(10) for leaf_round in (5, 6)]
    assert found[:12] == [True] * 12
    assert not any(found[12:])
