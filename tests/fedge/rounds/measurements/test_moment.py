"""A moment of the virtual clock in words."""

from fedge.rounds.measurements.moment import VersionRow


def row(**changes):
    return VersionRow(**{
        **dict.fromkeys(("updates", "jobs", "up", "down", "cloud_up", "cloud_down", "events"), 0),
        **dict.fromkeys(("utilisation", "wasted", "gini"), 0.0),
        "evaluation": 1, "seen_score": None, "unseen_score": None, "mean_staleness": 3.14,
        "virtual_s": 12.0, "version": 340, "at_work": 10, "places": 10, **changes,
    })  # fmt: skip


def test_a_line_by_hand():
    assert row().words() == "12.0 s virtual, 340 versions, staleness 3.1, 10 of 10 at work"


def test_one_version_is_one_and_no_arrival_has_no_staleness():
    found = row(version=1, mean_staleness=None, at_work=4).words()
    assert found == "12.0 s virtual, 1 version, staleness -, 4 of 10 at work"
