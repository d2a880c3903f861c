"""Resampling and windows, on straight lines whose interpolation is known."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hhar.errors import HharError
from hhar.windows.cut import WindowBuilder, WindowSpec, build_windows, recording_windows, resample
from hhar.windows.recordings import Recording
from hhar.windows.sessions import Segment, segments

ACC = WindowSpec("acc", rate_hz=50, window_s=1.0, stride_s=0.5)


def test_lines_stay_lines(make_recording):
    """4 s at 100 Hz → 201 grid points at 50 Hz → (201 - 50) // 25 + 1 = 7 windows; x is the time itself."""
    windows = build_windows([[make_recording(), make_recording(activity="sit", start_s=60)]], ACC)
    assert windows.x.shape == (14, 3, 50)
    walk = windows.x[windows.y == 5]
    assert windows.session.tolist() == ["a/sit/01"] * 7 + ["a/walk/01"] * 7
    np.testing.assert_allclose(walk[0, 0], np.arange(50) / 50, atol=1e-6)
    np.testing.assert_allclose(walk[2, 1], 2 * (1.0 + np.arange(50) / 50), atol=1e-5)


def test_rows_in_any_order_give_the_same_windows(make_recording):
    recording = make_recording()
    order = np.random.default_rng(0).permutation(len(recording.values))
    shuffled = dataclasses.replace(
        recording, creation_ns=recording.creation_ns[order], values=recording.values[order]
    )
    expected = recording_windows(segments(recording), [], ACC)
    assert np.array_equal(recording_windows(segments(shuffled), [], ACC), expected)


def test_nothing_crosses_a_gap(make_recording):
    """2 s, a gap of 1.5 s, 2 s: 3 + 3 windows of 1 s; with a gap of 0.9 s it is one piece of 4.9 s: 8."""
    recording = make_recording(seconds=6)
    time_s = recording.creation_ns / 1e9
    for gap_s, expected in ((1.5, 6), (0.9, 8)):
        keep = (time_s <= 2) | ((time_s >= 2 + gap_s) & (time_s <= 4 + gap_s))
        holed = Recording("a", "d", "acc", "walk", recording.arrival_ms[keep], recording.creation_ns[keep],
                          recording.values[keep])  # fmt: skip
        assert len(recording_windows(segments(holed), [], ACC)) == expected


def test_two_sensors_share_one_grid(make_recording):
    """Accelerometer 0–4 s at 100 Hz, gyroscope 0.5–3.5 s at 73 Hz: windows cover the 3 s they share."""
    spec = WindowSpec("acc+gyro", 50, 1.0, 1.0)
    gyro = make_recording(sensor="gyro", rate_hz=73, seconds=3, start_s=0.5)
    pair = [make_recording(), gyro]
    windows = build_windows([[*pair, *(dataclasses.replace(part, activity="sit") for part in pair)]], spec)
    assert windows.x.shape == (6, 6, 50)
    np.testing.assert_allclose(windows.x[0, 0], 0.5 + np.arange(50) / 50, atol=1e-6)
    np.testing.assert_allclose(windows.x[:, :3], windows.x[:, 3:], atol=1e-5)


def test_gyroscope_of_another_bout_does_not_join(make_recording):
    """Same activity and creation time, arrival an hour later: a clock set back, not the same bout."""
    gyro = make_recording(sensor="gyro")
    later = dataclasses.replace(gyro, arrival_ms=gyro.arrival_ms + 3_600_000)
    with pytest.raises(HharError, match="none does"):
        build_windows([[make_recording(), later]], WindowSpec())


def test_a_single_sample_gives_no_window(make_recording):
    lone = make_recording(seconds=0, activity="sit")
    pair = [make_recording(), make_recording(activity="bike", start_s=60)]
    assert len(lone.values) == 1
    assert len(build_windows([[lone, *pair]], ACC)) == 14


def test_recordings_of_other_data_sets(make_recording):
    """Any number of axes, classes, sessions that have names, no device, in the order in which they came."""
    spec = WindowSpec("own", 50, 1.0, 0.5, ("a", "b", "c", "d"))
    recordings = [
        dataclasses.replace(
            make_recording(user=user, activity=activity, device="", sensor="own"),
            values=np.tile(np.arange(401, dtype=np.float32)[:, None], 4), session=f"trial {activity}",
        )
        for user, activity in (("z", "hop"), ("a", "nap"))
    ]  # fmt: skip
    builder = WindowBuilder(spec, ("nap", "hop"), sort=False)
    for recording in recordings:
        assert builder.add([recording]) == 7
    windows = builder.finish()
    assert windows.x.shape == (14, 4, 50)
    assert windows.channels == ("a", "b", "c", "d")
    assert windows.user.tolist() == ["z"] * 7 + ["a"] * 7
    assert windows.y.tolist() == [1] * 7 + [0] * 7
    assert windows.session.tolist() == ["trial hop"] * 7 + ["trial nap"] * 7
    assert windows.device is None
    np.testing.assert_array_equal(windows.x[1, 3], 50 + 2 * np.arange(50))


def test_order_is_user_session_device_time(make_recording):
    recordings = [
        make_recording(user=user, device=device, activity=activity)
        for user in "ba"
        for device in ("s3_2", "nexus4_1")
        for activity in ("walk", "bike")
    ]
    windows = build_windows([[recording] for recording in recordings], ACC)
    keys = list(zip(windows.user.tolist(), windows.session.tolist(), windows.device.tolist(), strict=True))
    assert keys == sorted(keys)
    starts = windows.x[:, 0, 0].reshape(8, 7)
    assert (np.diff(starts, axis=1) > 0).all()


@settings(max_examples=40, deadline=None)
@given(
    rate_hz=st.sampled_from([20.0, 50.0, 64.0, 100.0]),
    times=st.lists(st.integers(1, 900), min_size=2, max_size=40),
    scale=st.floats(0.1, 10),
)
def test_resampling_is_bounded_and_linear(rate_hz, times, scale):
    """Values stay between the smallest and largest sample, and scaling the samples scales the grid."""
    time_ns = np.cumsum(np.array(times, dtype=np.int64)) * 1_000_000
    values = np.random.default_rng(len(times)).normal(size=(len(times), 3)).astype(np.float32)
    span = (int(time_ns[0]), int(time_ns[-1]))
    grid = resample([Segment(time_ns, values)], span, rate_hz)
    assert grid.shape[1] == int((span[1] - span[0]) * rate_hz / 1e9 + 1e-6) + 1
    assert grid.min() >= values.min() - 1e-6
    assert grid.max() <= values.max() + 1e-6
    scaled = resample([Segment(time_ns, values * np.float32(scale))], span, rate_hz)
    np.testing.assert_allclose(scaled, grid * np.float32(scale), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sensors": "mag"}, "sensors: must be acc or acc"),
        ({"rate_hz": 0}, "rate_hz: must be a positive number"),
        ({"window_s": float("nan")}, "window_s: must be a positive number"),
        ({"stride_s": 0.001}, "stride_s: must span 1 to 100000 samples"),
        ({"rate_hz": "50"}, "rate_hz: must be a positive number, but is 50"),
        ({"rate_hz": 1e6}, "rate_hz: must be from"),
        ({"window_s": 1e308}, "window_s: must span 1 to 100000 samples"),
    ],
)
def test_spec_refuses(changes, message):
    with pytest.raises(HharError, match=message):
        WindowSpec(**changes)
