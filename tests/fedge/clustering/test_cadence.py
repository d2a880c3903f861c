"""When leaves are compared: in every cloud step until groups have settled, then in every n-th."""

from fedge.clustering.cadence import Pace


def carry_out(pace: Pace, steps: int, quiet: bool = True) -> list[bool]:
    """Whether each of the next steps compares; each finds nothing new if `quiet`."""
    compared = []
    for _ in range(steps):
        compared.append(pace.is_due)
        if pace.is_due:
            pace.note_comparison(quiet)
        else:
            pace.note_rest()
    return compared


def test_by_hand():
    """Settled after two quiet comparisons, then every third step: 1 1 0 0 1 0 0 1."""
    assert carry_out(Pace(every=3, settled_after=2), 8) == [
        True,
        True,
        False,
        False,
        True,
        False,
        False,
        True,
    ]


def test_a_change_unsettles():
    pace = Pace(every=4, settled_after=1)
    carry_out(pace, 1)
    assert not pace.is_due
    assert carry_out(pace, 4, quiet=False) == [False, False, False, True]  # and finds something
    assert carry_out(pace, 3, quiet=False) == [True, True, True]


def test_every_step_compares_by_default():
    assert all(carry_out(Pace(every=1, settled_after=1), 5))


def test_a_step_that_could_not_compare_stays_due():
    """Nothing is noted of it."""
    pace = Pace(every=2, settled_after=1)
    carry_out(pace, 1)
    pace.note_rest()
    assert pace.is_due
    assert carry_out(pace, 2) == [True, False]


def test_goes_on_from_its_facts():
    pace, again = Pace(every=3, settled_after=2), Pace(every=3, settled_after=2)
    carry_out(pace, 3)
    again.restore(pace.facts())
    assert carry_out(again, 6) == carry_out(pace, 6)
