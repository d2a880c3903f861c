"""Sessions and segments: which rows belong together, worked out by hand."""

import dataclasses

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from hhar.windows.sessions import Span, name_sessions, segments, split_at_silence


def test_overlapping_arrivals_are_one_bout():
    """0–10 and 5–20 overlap, 20–30 touches at 20; 31–40 does not. Another activity counts on its own."""
    spans = [
        Span("a", "walk", 31, 40, 0),
        Span("a", "walk", 0, 10, 1),
        Span("a", "walk", 5, 20, 2),
        Span("a", "walk", 20, 30, 3),
        Span("a", "sit", 0, 50, 4),
        Span("b", "walk", 0, 10, 5),
    ]
    assert name_sessions(spans) == {
        0: "a/walk/02",
        1: "a/walk/01",
        2: "a/walk/01",
        3: "a/walk/01",
        4: "a/sit/01",
        5: "b/walk/01",
    }


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 15)), min_size=1, max_size=12), st.randoms())
def test_sessions_do_not_depend_on_order_and_never_split_an_overlap(pairs, random):
    spans = [Span("a", "walk", start, start + length, key) for key, (start, length) in enumerate(pairs)]
    names = name_sessions(spans)
    shuffled = spans[:]
    random.shuffle(shuffled)
    assert name_sessions(shuffled) == names
    for one in spans:
        for other in spans:
            if one.start_ms <= other.end_ms and other.start_ms <= one.end_ms:
                assert names[one.key] == names[other.key]


def test_segments_sort_drop_repeats_and_cut(make_recording):
    """Times 0, 0.2, 0.1, 0.1, 1.2, 2.3 s: sorted, one repeat dropped; 1.1 s is a gap, 1.0 s is not."""
    base = make_recording()
    creation_ns = np.array([0, 200, 100, 100, 1200, 2300], dtype=np.int64) * 1_000_000
    values = np.arange(18, dtype=np.float32).reshape(6, 3)
    recording = dataclasses.replace(
        base, creation_ns=creation_ns, values=values, arrival_ms=np.arange(6, dtype=np.int64)
    )
    first, second = segments(recording)
    assert (first.time_ns // 1_000_000).tolist() == [0, 100, 200, 1200]
    assert first.values[:, 0].tolist() == [0, 6, 3, 12]  # the first of the two rows at 0.1 s stays
    assert (second.time_ns // 1_000_000).tolist() == [2300]


def test_silence_starts_a_new_recording(make_recording):
    early, late = make_recording(seconds=2), make_recording(seconds=2, start_s=40)
    joined = dataclasses.replace(
        early,
        arrival_ms=np.concatenate([early.arrival_ms, late.arrival_ms]),
        creation_ns=np.concatenate([early.creation_ns, late.creation_ns]),
        values=np.concatenate([early.values, late.values]),
    )
    parts = split_at_silence(joined)
    assert [len(part.arrival_ms) for part in parts] == [201, 201]
    assert split_at_silence(joined, silence_s=60) == [joined]


def test_bouts_of_the_real_data_set(excerpt):
    """968 device runs are 130 bouts on 8 phones; one phone's run spans three and ties them together."""
    table = pl.read_csv(excerpt / "recordings.csv")
    runs = table.group_by("raw_run_id", maintain_order=True).agg(
        pl.col("user_id", "activity", "execution_id").first(),
        pl.col("arrival_start_ms").min(),
        pl.col("arrival_end_ms").max(),
    )
    rows = list(runs.iter_rows(named=True))
    spans = [
        Span(row["user_id"], row["activity"], row["arrival_start_ms"], row["arrival_end_ms"], key)
        for key, row in enumerate(rows)
    ]
    names = name_sessions(spans)
    bout_of_session: dict[str, set[str]] = {}
    session_of_bout: dict[str, set[str]] = {}
    for key, row in enumerate(rows):
        bout_of_session.setdefault(names[key], set()).add(row["execution_id"])
        session_of_bout.setdefault(row["execution_id"], set()).add(names[key])
    assert len(rows) == 968
    assert all(len(sessions) == 1 for sessions in session_of_bout.values())  # nothing leaks
    assert sum(len(bouts) > 1 for bouts in bout_of_session.values()) == 1
    assert len(bout_of_session) == 128
