"""Frames as people have them: what comes out is computed by hand, what is wrong is said with what to do."""

import warnings
from datetime import datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import polars as pl
import pytest

import fedge
from hhar.errors import HharError
from hhar.windows.window_file import fingerprint_windows, load_windows

pd = pytest.importorskip("pandas", reason="pip install 'fedge[pandas]'")


def columns(bouts=((("a", "walk", 4),)), rate_hz=50, start_s=0.0, gap_s=0.0):
    """Columns of bouts (user, label, seconds) in a row; x is the time, y its double."""
    parts, at = [], {}
    for user, label, seconds in bouts:
        times = at.get(user, start_s) + np.arange(round(seconds * rate_hz)) / rate_hz
        at[user] = times[-1] + 1 / rate_hz + gap_s
        parts.append((np.full(len(times), user), np.full(len(times), label), times))
    user, label, t = (np.concatenate(column) for column in zip(*parts, strict=True))
    return {"user": user, "label": label, "t": t, "x": t.astype(np.float32), "y": (2 * t).astype(np.float32)}


TWO = (("a", "walk", 4), ("a", "sit", 4), ("b", "walk", 4))
AS = {"user": "user", "label": "label", "channels": ["x", "y"], "rate_hz": 50, "window_s": 1.0}
LIBRARIES = {"pandas": pd.DataFrame, "polars": pl.DataFrame}


@pytest.fixture(params=LIBRARIES)
def frame(request):
    return LIBRARIES[request.param]


@pytest.mark.parametrize("time", [None, "t"])
def test_windows_by_hand(frame, time):
    """200 rows at 50 Hz: (200 - 50) // 25 + 1 = 7 windows of a second each; none holds two labels."""
    windows = fedge.from_pandas(frame(columns(TWO)), time=time, **AS)
    assert windows.x.shape == (21, 2, 50)
    assert windows.classes == ("sit", "walk")
    assert windows.channels == ("x", "y")
    assert windows.session.tolist() == ["a/sit/01"] * 7 + ["a/walk/01"] * 7 + ["b/walk/01"] * 7
    assert windows.y.tolist() == [0] * 7 + [1] * 14
    assert windows.device is None
    np.testing.assert_allclose(windows.x[0, 0], 4 + np.arange(50) / 50, atol=1e-6)
    np.testing.assert_allclose(windows.x[8, 1], 2 * (0.5 + np.arange(50) / 50), atol=1e-5)
    assert dict(windows.about) == {"rate_hz": "50", "window_s": "1"}


def test_both_libraries_give_the_same_and_a_file_keeps_it(tmp_path):
    found = [fedge.from_pandas(make(columns(TWO)), time="t", **AS) for make in LIBRARIES.values()]
    assert fingerprint_windows(found[0]) == fingerprint_windows(found[1])
    back = load_windows(found[0].save(tmp_path / "own.npz"))
    assert fingerprint_windows(back) == fingerprint_windows(found[0])
    assert back.about == found[0].about


def test_another_rate_and_stride(frame):
    """From 50 to 20 Hz: 3.98 s are 80 samples; windows of 40, every 20: 3."""
    given = AS | {"rate_hz": 20, "window_s": 2.0, "stride_s": 1.0}
    windows = fedge.from_pandas(frame(columns(TWO)), time="t", **given)
    assert windows.x.shape == (9, 2, 40)
    np.testing.assert_allclose(windows.x[1, 0], 4 + 1 + np.arange(40) / 20, atol=1e-5)


def test_rates_may_differ_between_users():
    slow, fast = (
        columns((("a", "walk", 4), ("a", "sit", 4)), 25),
        columns((("b", "walk", 4), ("b", "sit", 4)), 100),
    )
    both = {key: np.concatenate([slow[key], fast[key]]) for key in slow}
    windows = fedge.from_pandas(pd.DataFrame(both), time="t", **AS)
    walks = windows.x[windows.y == 1]
    np.testing.assert_allclose(walks[windows.user[windows.y == 1] == "a"][0], walks[-7], atol=1e-5)


def test_dates_with_and_without_a_zone(frame):
    plain = fedge.from_pandas(frame(columns(TWO)), time="t", **AS)
    given = columns(TWO)
    given["t"] = np.datetime64("2026-03-29T00:59:58", "ns") + np.rint(given["t"] * 1e9).astype("m8[ns]")
    dated = frame(given)
    assert np.allclose(fedge.from_pandas(dated, time="t", **AS).x, plain.x, atol=1e-5)
    if frame is pd.DataFrame:  # an hour that Berlin's clocks skip
        dated["t"] = dated["t"].dt.tz_localize("UTC").dt.tz_convert("Europe/Berlin")
    else:
        dated = dated.with_columns(
            pl.col("t").dt.replace_time_zone("UTC").dt.convert_time_zone("Europe/Berlin")
        )
    assert np.allclose(fedge.from_pandas(dated, time="t", **AS).x, plain.x, atol=1e-5)


def test_numbers_in_another_unit(frame):
    given = columns(TWO)
    given["t"] = np.rint(given["t"] * 1000).astype(np.int64)
    windows = fedge.from_pandas(frame(given), time="t", time_unit="ms", **AS)
    assert len(windows) == 21
    with pytest.raises(
        HharError, match=r"a row every 20 s \(0\.05 Hz\); give another rate_hz, .*check time_unit"
    ):
        fedge.from_pandas(frame(given), time="t", **AS)
    with pytest.raises(HharError, match="time_unit: must be one of s, ms, us, ns, is 'min'"):
        fedge.from_pandas(frame(given), time="t", time_unit="min", **AS)


def test_nothing_crosses_a_gap(frame):
    """2 s, a pause, 2 s of one label: 3 + 3 windows; a pause of 31 s makes another session."""
    for gap_s, sessions in ((1.5, 1), (31.0, 2)):
        given = columns((("a", "walk", 2), ("a", "walk", 2), ("a", "sit", 2)), gap_s=gap_s)
        windows = fedge.from_pandas(frame(given), time="t", **AS)
        assert (windows.y == 1).sum() == 6
        assert len(set(windows.session[windows.y == 1])) == sessions


def test_sessions_and_devices_of_one_s_own(frame):
    """Two phones recorded at the same time: times repeat, unless the device is named."""
    one = columns((("a", "walk", 4), ("a", "sit", 4)))
    two = {key: np.concatenate([value, value]) for key, value in one.items()}
    two["phone"] = np.repeat(["p", "q"], 400)
    two["trial"] = np.tile(np.repeat([1, 2], 200), 2)
    with pytest.raises(
        HharError, match="runs back in 1 rows, first in row 400 of user a; sort by user and time"
    ):
        fedge.from_pandas(frame(two), time="t", **AS)
    windows = fedge.from_pandas(frame(two), time="t", device="phone", **AS)
    assert windows.device.tolist() == (["p"] * 7 + ["q"] * 7) * 2
    assert set(windows.session) == {"a/walk/01", "a/sit/01"}
    windows = fedge.from_pandas(frame(two), time="t", device="phone", session="trial", **AS)
    assert windows.session.tolist() == ["1"] * 14 + ["2"] * 14


def test_rows_of_users_may_take_turns():
    """Sorted by time over all users, as logs are."""
    given = pd.DataFrame(columns(TWO))
    mixed = given.sort_values("t", kind="stable")
    for time in ("t", None):
        expected, found = (fedge.from_pandas(rows, time=time, **AS) for rows in (given, mixed))
        assert fingerprint_windows(found) == fingerprint_windows(expected)


@pytest.mark.parametrize("kind", ["float64", "int32", "int8", "bool", "Int64", "Float64"])
def test_other_numbers_are_cast_and_said(kind):
    given = pd.DataFrame(columns(TWO))
    given["y"] = (given["y"] > 4).astype(kind)
    with pytest.warns(UserWarning, match=f"from_pandas: x from {kind} to float32") as said:
        windows = fedge.from_pandas(given, **AS)
    assert windows.about["cast"] == f"x from {kind} to float32"
    assert windows.x.dtype == np.float32
    assert said[0].filename == __file__


def test_names_of_any_kind():
    """Numbers, categories, whole numbers as floats; labels that are numbers stand in their order."""
    given = pd.DataFrame(columns((("1", "10", 4), ("1", "9", 4), ("2", "9", 4))))
    for kind in ("int64", "float64", "category", "string", "Int32"):
        of_kind = given.assign(user=given["user"].astype(int).astype(kind), label=given["label"].astype(int))
        windows = fedge.from_pandas(of_kind, **AS)
        assert windows.classes == ("9", "10")
        assert set(windows.user) == {"1", "2"}


@pytest.mark.parametrize("as_text", [True, False])
@pytest.mark.parametrize(
    "values", [[-1, 1], [-10, -9, 0, 3, 10], [-2.5, -1e-7, 0.5, 10.25], [2**60, 2**60 + 1, 2**62]]
)
def test_labels_that_are_numbers_stand_in_their_order(frame, values, as_text):
    """Python's own order, whatever the sign and the size; windows come in the order of their classes."""
    labels = [str(value) if as_text else value for value in values]
    windows = fedge.from_pandas(frame(columns([("a", label, 4) for label in reversed(labels)])), **AS)
    assert windows.classes == tuple(map(str, values))
    assert np.bincount(windows.y).tolist() == [7] * len(values)


def test_too_short_runs_and_users_are_said_and_only_their_numbers_travel():
    """Names are for whoever cuts the windows: `about` goes into manifests and shared copies."""
    given = columns((*TWO, ("a", "walk", 0.5), *((f"lost{n}", "sit", 0.02) for n in range(7))))
    line = "8 of 11 runs of one label, 32 rows, are shorter than a window; 7 users have no window at all"
    with pytest.warns(UserWarning, match=f"{line}: lost0, lost1, lost2, lost3, lost4, …"):
        windows = fedge.from_pandas(pd.DataFrame(given), time="t", **AS)
    assert windows.about["left_out"] == line
    assert set(windows.user) == {"a", "b"}
    with pytest.warns(UserWarning, match="1 user has no window at all: c$"):
        fedge.from_pandas(pd.DataFrame(columns((*TWO, ("c", "sit", 0.02)))), time="t", **AS)


def broken(**changes):
    return {**columns(TWO), **changes}


NAN, ROWS = np.where(np.arange(600) % 100 == 7, np.nan, 1.0), np.arange(600)


@pytest.mark.parametrize(
    ("given", "changes", "message"),
    [
        (broken(x=np.array(["1"] * 600)), {}, r"x: must hold numbers, .*: (pandas.to_numeric|frame.with_c)"),
        (broken(x=np.array(["-1,25"] * 600)), {}, r"x: must hold numbers, .*: read_csv\(…, decimal"),
        (broken(x=np.array(["1.200,5e3"] * 600)), {}, r"x: must hold numbers, .*: read_csv\(…, decimal"),
        (broken(x=NAN), {}, "x: values must not be missing, 6 of 600 are, first in row 7; drop these rows"),
        (broken(x=np.where(NAN == 1, 1, np.inf)), {}, "x: values must be finite as float32, 6 are not"),
        (broken(x=np.full(600, 1e300)), {}, "x: values must be finite as float32, 600 are not"),
        (broken(t=columns(TWO)["t"][::-1].copy()), {"time": "t"}, "time: must rise within a user, runs back"),
        (broken(t=columns(TWO)["t"] // 0.04), {"time": "t"}, "time: must rise within a user, repeats in"),
        (broken(t=np.array(["2026-01-01"] * 600)), {"time": "t"}, "t: must hold dates or .*to_datetime"),
        (broken(t=columns(TWO)["t"] * 1e18), {"time": "t"}, "t: times must be below 9e.09 s"),
        (broken(t=NAN), {"time": "t"}, "t: values must not be missing"),
        (broken(label=np.where(ROWS // 10 % 2, "p", "q")), {}, "the longest of 60 has 10 rows"),
        (broken(label=np.array(["walk"] * 600)), {}, "label: must be of at least two classes, all"),
        (broken(user=np.arange(600)), {}, "the longest of 600 has 1 rows"),
        (broken(), {"user": "usr"}, "must have the column 'usr' once, has it 0 times; did you mean user"),
        (broken(), {"user": "label"}, "columns: must be named for one thing each, 'label' is named twice"),
        (broken(), {"channels": []}, "channels: must name at least one column"),
        (broken(), {"rate_hz": 0}, "rate_hz: must be a positive number"),
        (broken(), {"rate_hz": 500, "time": "t"}, "rate_hz: must be at most twice the rows' rate, is 500"),
        (broken(), {"window_s": 0.001}, "window_s: must span 1 to 100000 samples"),
        ({key: value[:0] for key, value in broken().items()}, {}, "frame: must have rows"),
    ],
    ids=[
        "text", "decimal comma", "decimal comma and points",
        "missing", "infinite", "too large", "unsorted", "duplicate times", "times as text",
        "times in ns", "times missing", "labels change", "one class", "one row a user", "no such column",
        "column twice", "no channels", "rate of 0", "rate too high", "window too short", "no rows",
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_what_to_do(frame, given, changes, message):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(HharError, match=message) as caught:
            fedge.from_pandas(frame(given), **{**AS, **changes})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", [str, Decimal, float])
def test_a_column_that_is_no_number_becomes_one_as_said(frame, kind):
    """The code of the error message is run as it stands, in the library of the frame."""
    given = frame(columns(TWO))
    words = [kind(f"{value:.3f}") for value in given["x"].to_list()]
    if frame is pd.DataFrame:
        other = given.assign(x=pd.Series(words, dtype=object))
    else:
        other = given.with_columns(x=pl.Series(words, dtype=pl.Object if kind is float else None))
    with pytest.raises(HharError, match="x: must hold numbers") as caught:
        fedge.from_pandas(other, **AS)
    code = str(caught.value).split("make them numbers: ")[1].split(", or leave")[0]
    found = eval(code, {"frame": other, "pandas": pd, "polars": pl})
    other = other.assign(x=found) if hasattr(given, "assign") else found
    assert fedge.from_pandas(other, **AS).x.shape == fedge.from_pandas(given, **AS).x.shape


AT = [datetime(2026, 3, 29, 0, 59, 58) + timedelta(seconds=0.02 * at) for at in range(600)]
ZONES = [timezone(timedelta(hours=1 if at < 100 else 2)) for at in range(600)]  # summer time begins
TIMES = {
    "text": [f"2026-01-01 00:{at // 3000:02d}:{at / 50 % 60:09.6f}" for at in range(600)],
    "text without empty fractions": list(map(str, AT)),
    "text of two zones": [
        str(time.replace(tzinfo=timezone.utc).astimezone(zone)) for time, zone in zip(AT, ZONES, strict=True)
    ],
    "numbers": [Decimal(f"{0.02 * at:.2f}") for at in range(600)],
    "dates": AT,
    "dates of two zones": [
        time.replace(tzinfo=timezone.utc).astimezone(zone) for time, zone in zip(AT, ZONES, strict=True)
    ],
    "durations": [time - AT[0] for time in AT],
    "periods": pd.PeriodIndex(AT, freq="ms"),
}


@pytest.mark.parametrize("kind", TIMES)
def test_times_of_other_types_become_times_as_said(frame, kind):
    """Likewise, to the windows of times that are numbers."""
    if frame is pl.DataFrame and kind == "periods":
        pytest.skip("Polars has none")
    asked, other = {**AS, "time": "t"}, frame({**columns(TWO)})
    if frame is pd.DataFrame:
        other["t"] = pd.Series(TIMES[kind], dtype=None if kind == "periods" else object)
    else:
        has_type = isinstance(TIMES[kind][0], (str, Decimal))
        other = other.with_columns(pl.Series("t", TIMES[kind], dtype=None if has_type else pl.Object))
    with pytest.raises(HharError, match="t: must hold dates or numbers") as caught:
        fedge.from_pandas(other, **asked)
    code = str(caught.value).split(": ")[-1].split(", or leave")[0]
    found = eval(code, {"frame": other, "pandas": pd, "polars": pl})
    if isinstance(found, (pl.DataFrame, pd.DataFrame)):
        other = found
    else:
        other = other.assign(t=found) if frame is pd.DataFrame else other.with_columns(t=found)
    windows, by_numbers = (fedge.from_pandas(given, **asked) for given in (other, frame(columns(TWO))))
    assert fingerprint_windows(windows) == fingerprint_windows(by_numbers)


def test_truth_values_are_no_times(frame):
    given = frame({**columns(TWO), "t": np.arange(600) % 2 == 0})
    with pytest.raises(HharError, match="t: must hold dates or numbers"):
        fedge.from_pandas(given, **{**AS, "time": "t"})


def test_bytes_as_names_become_text_as_said():
    given = pd.DataFrame(columns(TWO))
    rude = given.assign(user=given["user"].map(str.encode))
    with pytest.raises(HharError, match=r"^user: .*; make it text, as by map\(bytes.decode\)$"):
        fedge.from_pandas(rude, **AS)
    assert (
        fedge.from_pandas(rude.assign(user=rude["user"].map(bytes.decode)), **AS).user[0] == given["user"][0]
    )


def test_what_is_no_frame():
    for given in (None, [1], {"user": [1]}, np.zeros(3), pl.LazyFrame(columns(TWO))):
        with pytest.raises(HharError, match="frame: must be a pandas or Polars DataFrame"):
            fedge.from_pandas(given, **AS)
    twice = pd.DataFrame(np.zeros((3, 3)), columns=["user", "x", "x"])
    with pytest.raises(HharError, match="must have the column 'x' once, has it 2 times; rename the others"):
        fedge.from_pandas(twice, user="user", label="x", channels=["x"], rate_hz=1, window_s=1)


def test_columns_that_are_an_index_or_have_no_name():
    given = pd.DataFrame(columns(TWO))
    with pytest.raises(HharError, match=r"has it 0 times; it is in the index: frame.reset_index\(\)"):
        fedge.from_pandas(given.set_index("user"), **AS)
    numbered = given.rename(columns={"x": 0})
    with pytest.raises(HharError, match=r"columns: must be named by text, 0 is none; rename it"):
        fedge.from_pandas(numbered, **{**AS, "channels": [0]})
    rude = given.assign(user=given["user"] + "\x1b[2J")
    with pytest.raises(HharError, match="user: must hold printable names"):
        fedge.from_pandas(rude, **AS)


def test_a_run_takes_it(tmp_path, monkeypatch):
    """Three users, one client each, one round, from the frame alone."""
    monkeypatch.chdir(tmp_path)
    bouts = [(user, label, 6) for user in "abc" for label in ("walk", "sit") * 4]
    windows = fedge.from_pandas(pd.DataFrame(columns(bouts, gap_s=40)), time="t", **AS)
    config = {
        "num-server-rounds": 1, "hierarchy.num-servers": 1, "train.model": "mlp-tiny", 
        "train.local-epochs": 1, "report": False,
    }  # fmt: skip
    run = fedge.simulate(config, data=windows, clients=3)
    assert run.status == "completed"
    assert run.manifest["data"]["about"]["rate_hz"] == "50"
