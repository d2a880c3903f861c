"""Rules for the times of any run, on any engine, whatever it did."""

import csv
from itertools import pairwise

from fedge.timing.laps import PHASES
from fedge.timing.timeline import LEGS, TIMELINE_PARTS


def read(path):
    """A CSV table as dictionaries of numbers; empty cells are None."""
    with path.open(newline="") as file:
        return [{k: float(v) if v else None for k, v in row.items()} for row in csv.DictReader(file)]


def assert_times_add_up(folder, messages_per_round):
    """Phases sum to the round to 1 ms, timelines to workers × wait to 0.5 %; no part is negative.

    Legs are percentiles in order, and every message is in one worker's row.
    """
    timing, workers = read(folder / "timing.csv"), read(folder / "timing" / "workers.csv")
    seconds = [row["seconds"] for row in rounds_of(folder)]
    assert [row["total"] for row in timing] == seconds
    for row in timing:
        phases = [row[phase] for phase in PHASES]
        assert min(phases) >= 0
        assert abs(sum(phases) - row["total"]) < 1e-3
        mine = [worker for worker in workers if worker["global_round"] == row["global_round"]]
        assert len(mine) == row["workers"] > 0
        assert sum(worker["messages"] for worker in mine) == messages_per_round
        for worker in mine:
            parts = [worker[timeline] for timeline in TIMELINE_PARTS]
            assert min(parts) >= 0
            assert abs(sum(parts) - row["wait"]) <= 0.005 * row["wait"]
            assert 0 <= worker["idle_at_end"] <= worker["idle"] + 1e-6
        for timeline in TIMELINE_PARTS:
            assert abs(sum(worker[timeline] for worker in mine) - row[f"timeline_{timeline}"]) < 1e-6
        for leg in LEGS:
            found = [row[f"{leg}_{p}"] for p in ("p50", "p90", "p99", "max")]
            assert found[0] >= 0
            assert found == sorted(found)
    assert_messages_fit(folder, {row["global_round"]: row["total"] for row in timing}, messages_per_round)


def rounds_of(folder):
    """(round, seconds) of the metrics."""
    with (folder / "metrics" / "global_rounds.csv").open(newline="") as file:
        return [{"seconds": float(row["seconds"])} for row in csv.DictReader(file)]


def assert_messages_fit(folder, totals, messages_per_round):
    """The first, the slowest and the newest round are kept; stamps are in order and within the round."""
    kept = {}
    for path in sorted((folder / "timing").glob("messages-*.csv")):
        rows = read(path)
        (number,) = {row["global_round"] for row in rows}
        assert path.name == f"messages-{int(number):06d}.csv"
        kept[number] = rows
    assert set(kept) == {min(totals), max(totals, key=totals.get), max(totals)}
    for number, rows in kept.items():
        assert len(rows) == messages_per_round
        for row in rows:
            ended = row["began"] + sum(row[timeline] for timeline in TIMELINE_PARTS[1:])
            stamps = [0, row["pushed"], row["began"], ended, row["received"], totals[number]]
            assert all(late - early >= -1e-5 for early, late in pairwise(stamps))
