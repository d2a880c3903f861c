"""Reading raw CSV: the two real excerpts, the forms copies come in, and what is refused."""

from collections import Counter

import numpy as np
import pytest

from hhar.errors import HharError
from hhar.raw.parse import read_raw, recordings_of
from hhar.raw.prepare import find_raw_files, prepare
from hhar.windows.cut import WindowSpec

HEADER = "Index,Arrival_Time,Creation_Time,x,y,z,User,Model,Device,gt"


def row(index=0, label="stand", user="a", device="nexus4_1", creation=None, x="-5.958191"):
    creation = 1424696631913248572 + index * 5_000_000 if creation is None else creation
    return f"{index},{1424696633908 + index},{creation},{x},0.6880646,8.135345,{user},nexus4,{device},{label}"


def write(path, lines, end="\n"):
    path.write_text(end.join(lines) + end)
    return path


def rows_of(path, **options):
    pieces = read_raw(path, **options)
    return {key: recordings_of(*key, "acc", parts) for key, parts in pieces.items()}


def test_null_and_changes_end_a_run(tmp_path):
    labels = ["stand", "stand", "null", "stand", "sit", "sit"]
    path = write(tmp_path / "f.csv", [HEADER, *(row(k, label) for k, label in enumerate(labels))])
    (found,) = rows_of(path).values()
    assert [(made.activity, len(made.values)) for made in found] == [("stand", 2), ("stand", 1), ("sit", 2)]
    assert found[0].creation_ns[0] == 1424696631913248572  # all 19 digits
    assert found[0].values[0, 0] == np.float32(-5.958191)


@pytest.mark.parametrize("block_bytes", [1, 50, 137, 1000])
def test_block_size_does_not_matter(tmp_path, block_bytes):
    lines = [row(k, device=f"nexus4_{k % 2 + 1}", user="ab"[k // 20]) for k in range(40)]
    path = write(tmp_path / "f.csv", [HEADER, *lines])
    one, other = rows_of(path), rows_of(path, block_bytes=block_bytes)
    assert one.keys() == other.keys()
    for key in one:
        assert np.array_equal(one[key][0].creation_ns, other[key][0].creation_ns)


def test_forms_of_copies(tmp_path):
    """Headerless, tab-separated, CRLF, BOM, blank lines, no line end: all the same rows."""
    lines = [row(k) for k in range(6)]
    plain = write(tmp_path / "plain.csv", [HEADER, *lines])
    copies = {
        "headerless": "\n".join(lines) + "\n",
        "tabs": "\n".join([HEADER, *lines]).replace(",", "\t") + "\n",
        "crlf": "\r\n".join([HEADER, *lines]) + "\r\n",
        "bom": "\ufeff" + "\n".join([HEADER, *lines]) + "\n",
        "blank": "\n".join([HEADER, *lines[:3], "", *lines[3:], "", ""]),
        "no end": "\n".join([HEADER, *lines]),
    }
    (expected,) = rows_of(plain)["a", "nexus4_1"]
    for name, text in copies.items():
        path = tmp_path / f"{name}.csv"
        path.write_bytes(text.encode())
        (found,) = rows_of(path)["a", "nexus4_1"]
        assert np.array_equal(found.creation_ns, expected.creation_ns), name
        assert np.array_equal(found.values, expected.values), name


def test_exponent_form(tmp_path):
    path = write(tmp_path / "f.csv", [HEADER, row(creation="1.42469663191325E+018")])
    (found,) = rows_of(path)["a", "nexus4_1"]
    assert found.creation_ns[0] == int(float("1.42469663191325E+018"))


DEFECTS = {
    "fields": ("0,1,2,3", "10 fields, but has 4"),
    "more fields": (row() + ",7", "10 fields, but has 11"),
    "label": (row(label="jump"), "gt must be one of .* is 'jump'"),
    "empty label": (row(label=""), "gt must be one of"),
    "not a number": (row(x="north"), "x must be a finite number, but is 'north'"),
    "infinite": (row(x="inf"), "x must be a finite number"),
    "nan": (row(x="nan"), "x must be a finite number"),
    "empty x": (row(x=""), "x must be a finite number"),
    "user": (row(user=""), "User must not be empty"),
    "creation": (row(creation="yesterday"), "Creation_Time must be a finite number"),
    "arrival": (row().replace("1424696633908", "-4"), "Arrival_Time must be a positive whole number"),
    "cut": (row()[:40], "10 fields"),
}


@pytest.mark.parametrize("name", DEFECTS)
@pytest.mark.parametrize("block_bytes", [100, 1 << 20])
def test_malformed_rows_are_refused_with_line_and_reason(tmp_path, name, block_bytes):
    line, reason = DEFECTS[name]
    path = write(tmp_path / "Phones_accelerometer.csv", [HEADER, row(1), "", row(2), line, row(3)])
    with pytest.raises(HharError, match=f"Phones_accelerometer.csv, line 5: .*{reason}") as caught:
        read_raw(path, block_bytes=block_bytes)
    assert "\n" not in str(caught.value)


def test_other_files_are_refused(tmp_path):
    with pytest.raises(HharError, match="line 1: columns must be Index"):
        read_raw(write(tmp_path / "a.csv", ["Index,x,y", "0,1,2"]))
    with pytest.raises(HharError, match="must hold rows"):
        read_raw(write(tmp_path / "b.csv", [HEADER]))
    (tmp_path / "c.csv").write_bytes(b"\x00\xff" * 500)
    with pytest.raises(HharError, match=r"c.csv, line 1: a row must have 10 fields"):
        read_raw(tmp_path / "c.csv")
    with pytest.raises(HharError, match="raw file must exist"):
        read_raw(tmp_path / "d.csv")


def test_raw_files_are_found_at_any_depth(tmp_path):
    for folder in ("__MACOSX", "exp/exp", "exp"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "Phones_accelerometer.csv").write_text(HEADER)
    found = find_raw_files(tmp_path, ["Phones_accelerometer.csv"])
    assert found["Phones_accelerometer.csv"] == tmp_path / "exp" / "Phones_accelerometer.csv"
    with pytest.raises(HharError, match=r"must hold Watch_gyroscope.csv"):
        find_raw_files(tmp_path, ["Watch_gyroscope.csv"])


def test_first_rows_excerpt(excerpt):
    """Counted by hand: 10,000 rows a file; the gear's 344 null rows stand between standing and sitting."""
    folder = excerpt / "first-10000-rows"
    watch = rows_of(folder / "Watch_accelerometer.csv")["a", "gear_1"]
    assert [(made.activity, len(made.values)) for made in watch] == [("stand", 5061), ("sit", 4595)]
    phone = rows_of(folder / "Phones_accelerometer.csv")["a", "nexus4_1"]
    assert [(made.activity, len(made.values)) for made in phone] == [("stand", 10000)]
    assert int((np.diff(phone[0].creation_ns) < 0).sum()) == 287
    windows = prepare(folder, WindowSpec("acc+gyro"), "all")
    assert set(windows.session.tolist()) == {"a/stand/01", "a/sit/01"}
    standing = windows.session == "a/stand/01"
    assert set(windows.device[standing].tolist()) == {"nexus4_1", "gear_1"}  # one bout on two devices
    length = np.linalg.norm(windows.x[:, :3].mean(axis=2), axis=1)
    assert ((length > 9.3) & (length < 10.6)).all()  # gravity, as these sensors see it


def test_six_activities_excerpt(excerpt):
    """Comma-separated accelerometer with a header, tab-separated gyroscope, times in exponent form."""
    folder = excerpt / "six-activities"
    phone = rows_of(folder / "Phones_accelerometer.csv")["a", "nexus4_1"]
    rows = Counter()
    for made in phone:
        rows[made.activity] += len(made.values)
    assert rows == {
        "stand": 1002,
        "sit": 1001,
        "walk": 1001,
        "stairsup": 1487,
        "stairsdown": 515,
        "bike": 1001,
    }
    windows = prepare(folder, WindowSpec("acc+gyro"), "phones")
    assert set(windows.y.tolist()) == set(range(6))
    assert windows.channels == ("acc_x", "acc_y", "acc_z", "gyro_x", "gyro_y", "gyro_z")
    motion = {
        name: windows.x[windows.y == k].std(axis=2).sum(axis=1).mean()
        for k, name in enumerate(windows.classes)
    }
    assert motion["sit"] < motion["stand"] < motion["bike"] < motion["walk"]
