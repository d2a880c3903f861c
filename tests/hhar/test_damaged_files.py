"""Files that are damaged or made to harm: each is read, or refused in one line; nothing else happens."""

import io
import resource
import struct
import subprocess
import sys
import tracemalloc
import zipfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from limited import limited

from hhar import WindowFileError, Windows, load_windows, npz, save_windows
from hhar.cli import main
from hhar.errors import HharError
from hhar.raw.parse import read_raw, recordings_of
from hhar.raw.unpack import unpack

ROOT = Path(__file__).parents[2]
COMPRESSIONS = {
    "stored": zipfile.ZIP_STORED,
    "deflate": zipfile.ZIP_DEFLATED,
    "bzip2": zipfile.ZIP_BZIP2,
    "lzma": zipfile.ZIP_LZMA,
}


@cache  # an archive holds the time at which it was made
def whole(compress=False):
    """The bytes of a good window file of six windows."""
    stream = io.BytesIO()
    (np.savez_compressed if compress else np.savez)(stream, **arrays())
    return stream.getvalue()


def arrays(**changes):
    """The arrays of six windows of two channels, with changes."""
    found = {
        "x": np.linspace(-1, 1, 36, dtype=np.float32).reshape(6, 2, 3),
        "y": np.arange(6, dtype=np.int64) % 2,
        "user": np.array(list("aabbcc")),
        "device": np.array(["nexus4_1"] * 6),
        "session": np.array([f"s{k}" for k in range(6)]),
        "classes": np.array(["sit", "walk"]),
        "channels": np.array(["acc_x", "acc_y"]),
    }
    return found | changes


def damaged(draw, data):
    """Bytes with a few flipped, cut out, doubled or put in."""
    changed = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(changed) - 1)))
        how = draw(st.sampled_from(["flip", "set", "truncate", "cut", "insert"]))
        if how == "flip" and changed:
            changed[at] ^= 1 << draw(st.integers(0, 7))
        elif how == "set" and changed:
            changed[at] = draw(st.integers(0, 255))
        elif how == "truncate":
            del changed[at:]
        elif how == "cut":
            del changed[at : at + draw(st.integers(1, 40))]
        elif how == "insert":
            changed[at:at] = draw(st.binary(max_size=20))
    return bytes(changed)


def one_line(error, path):
    """Check a refusal: one line that begins with the file and ends with a next step."""
    message = str(error)
    assert message.startswith(str(path)), message
    assert len(message.splitlines()) == 1
    assert ";" in message


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


# --- window files -------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=150)
@given(data=st.data(), compress=st.booleans())
def test_a_damaged_window_file_is_read_or_refused(folder, data, compress):
    path = folder / "w.npz"
    path.write_bytes(damaged(data.draw, whole(compress)))
    try:
        windows = load_windows(path)
    except WindowFileError as error:
        one_line(error, path)
        return
    assert np.isfinite(windows.x).all()
    assert len(windows.x) == len(windows.y) == len(windows.user)


@settings(max_examples=300)
@given(st.binary(max_size=300))
def test_any_bytes_are_no_window_file(folder, content):
    path = folder / "any.npz"
    path.write_bytes(content)
    with pytest.raises(WindowFileError) as caught:
        load_windows(path)
    one_line(caught.value, path)


def with_member(path, name, content, compression=zipfile.ZIP_STORED):
    """Write a good window file but for the bytes of one array."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        for key, array in arrays().items():
            stream = io.BytesIO()
            np.save(stream, array)
            archive.writestr(f"{key}.npy", content if key == name else stream.getvalue())
    return path


def header(descr, shape, content=b""):
    """An array's bytes: a header, and what follows it."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": descr, "fortran_order": False, "shape": shape})
    return stream.getvalue() + content


def raw_header(text, version=1):
    """A header of any text."""
    size = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + size + text


HARMFUL = {
    "24 TB": (header("<f4", (10**12, 2, 3)), "x must be as large as its header states, 24000000000000 bytes"),
    "beyond 64 bits": (header("<f4", (2**62, 2, 3)), "as large as its header states"),
    "negative": (header("<f4", (-6, 2, 3), bytes(144)), "as large as its header states"),
    "one value short": (header("<f4", (6, 2, 3), bytes(140)), "144 bytes .6, 2, 3., but holds 140"),
    "no bytes per entry": (header("<U0", (10**9,)), "as large as its header states"),
    "text without end": (raw_header(b"(" * 9000), "cannot be read"),
    "deep": (raw_header(b"[" * 4000 + b"]" * 4000), "cannot be read"),
    "long": (raw_header(b" " * 60_000), "cannot be read"),
    "4 GB of header": (b"\x93NUMPY\x02\x00\xff\xff\xff\xff", "cannot be read"),
    "another version": (raw_header(b"{}", version=9), "npy version 1.0 or 2.0, but is 9.0"),
    "code": (raw_header(b"{'descr': __import__('os'), 'shape': ()}"), "cannot be read"),
    "shape of text": (
        raw_header(b"{'descr': '<f4', 'fortran_order': False, 'shape': ('a',)}"),
        "cannot be read",
    ),
    "pickle": (header("|O", (6,), b"\x80\x04cos\nsystem\n"), "holds pickled objects, which are never loaded"),
    "nothing": (b"", "cannot be read"),
    "complex": (header("<c8", (6, 2, 3), bytes(288)), "x must be float32"),
    "record": (header([("a", "<f4")], (6,), bytes(24)), "x must be float32"),
}  # fmt: skip


@pytest.mark.parametrize("name", HARMFUL)
def test_a_harmful_array_is_refused_before_it_takes_memory(tmp_path, name):
    content, telling = HARMFUL[name]
    path = with_member(tmp_path / "w.npz", "x", content)
    tracemalloc.start()
    try:
        with pytest.raises(WindowFileError, match=telling) as caught:
            load_windows(path)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    one_line(caught.value, path)


def test_text_that_is_none_is_refused(tmp_path):
    for name in ("classes", "user", "session"):
        for code in (0x110000, 0xD800):
            text = np.array(arrays()[name], dtype="<U8")
            text.view(np.uint32)[0] = code
            stream = io.BytesIO()
            np.save(stream, text)
            with pytest.raises(WindowFileError, match=f"{name} must be text"):
                load_windows(with_member(tmp_path / "w.npz", name, stream.getvalue()))


def test_a_compression_that_numpy_does_not_write_is_refused(tmp_path):
    """One megabyte of lzma may hold terabytes."""
    for compression in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        path = with_member(tmp_path / "w.npz", "x", b"", compression)
        with pytest.raises(WindowFileError, match="must be stored or deflated"):
            load_windows(path)


def test_arrays_larger_than_memory_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(npz.os, "sysconf", lambda name: 10)  # a machine with ten pages of ten bytes
    with pytest.raises(WindowFileError, match=r"must fit into memory, but unpacks to .* has 0\.0 GB"):
        load_windows(with_member(tmp_path / "w.npz", "none", b""))


def test_lengths_that_differ_make_a_pickle_which_is_refused(tmp_path):
    mixed = np.empty(6, dtype=object)
    mixed[:] = [np.zeros(k) for k in range(6)]
    np.savez(tmp_path / "w.npz", **arrays(x=mixed))
    with pytest.raises(WindowFileError, match="x must be a plain array, but holds pickled objects"):
        load_windows(tmp_path / "w.npz")


@pytest.mark.parametrize("path", ["a\0b", "\ud800", "x" * 5000, ".", "", "a\nb"])
def test_what_can_be_no_window_file(path):
    with pytest.raises(WindowFileError, match="window file must exist") as caught:
        load_windows(path)
    assert len(str(caught.value).splitlines()) == 1


def test_what_is_good_stays_good(tmp_path):
    """The reader takes what numpy writes: in Fortran order, compressed, with more arrays than needed."""
    x = np.asfortranarray(arrays()["x"])
    np.savez_compressed(tmp_path / "w.npz", **arrays(x=x, more=np.zeros(3)))
    assert np.array_equal(load_windows(tmp_path / "w.npz").x, x)
    base = arrays()
    windows = Windows(*(base[k] for k in ("x", "y", "user")), None, None, ("sit", "walk"), ("acc_x", "acc_y"))
    assert load_windows(save_windows(tmp_path / "v.npz", windows)).session is None


# --- archives -----------------------------------------------------------------------------------------


@cache
def zipped(compression):
    """An archive of two files, one of them in a zip of its own."""
    inner, outer = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(inner, "w", compression) as archive:
        archive.writestr("exp/Phones_accelerometer.csv", b"Index,Arrival_Time\n" * 40)
    with zipfile.ZipFile(outer, "w", compression) as archive:
        archive.writestr("exp/exp.zip", inner.getvalue())
        archive.writestr("readme.txt", b"hello")
    return outer.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize("compression", COMPRESSIONS)
@settings(max_examples=150)
@given(data=st.data())
def test_a_damaged_archive_is_unpacked_or_refused_and_never_leaves_its_folder(
    tmp_path_factory, compression, data
):
    folder = tmp_path_factory.mktemp("archive")
    (folder / "a.zip").write_bytes(damaged(data.draw, zipped(COMPRESSIONS[compression])))
    try:
        unpack(folder / "a.zip", folder / "out")
    except (HharError, OSError) as error:  # a damaged name may be one that the disk refuses
        refusal = error
    else:
        refusal = HharError("none")
    assert len(str(refusal).splitlines()) == 1
    assert isinstance(refusal, HharError) or refusal.errno is not None
    assert sorted(p.name for p in folder.iterdir()) == ["a.zip", "out"]
    assert not [p for p in (folder / "out").rglob("*") if p.name.endswith(".part") or p.is_symlink()]


def bomb(path, compression=zipfile.ZIP_DEFLATED, size=40 << 20):
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("zeros.csv", bytes(size))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("compression", ["deflate", "bzip2", "lzma"])
def test_bombs_of_every_compression_stop_early(tmp_path, compression):
    """40 MB from 40 kB or less: refused at 4 MB, whatever the archive says of its size."""
    path = bomb(tmp_path / "a.zip", COMPRESSIONS[compression])
    with pytest.raises(HharError, match="an archive bomb; do not trust"):
        unpack(path, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_bomb_that_lies_about_its_size_stops_too(tmp_path):
    """The directory says 10 bytes: zipfile reads no more than that, and the checksum does not fit."""
    path = bomb(tmp_path / "a.zip")
    content = bytearray(path.read_bytes())
    for place, marker in ((22, b"PK\x03\x04"), (24, b"PK\x01\x02")):
        at = content.rindex(marker) + place
        content[at : at + 4] = struct.pack("<I", 10)
    path.write_bytes(content)
    with pytest.raises(HharError, match="must be an intact zip archive"):
        unpack(path, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "C:\\evil"])
def test_download_of_an_archive_that_climbs_out_is_one_line(tmp_path, capsys, name):
    """`hhar download` with the archive already there: checked, refused, nothing written but a lock."""
    raw = tmp_path / "raw"
    raw.mkdir()
    archive = raw / "heterogeneity-activity-recognition.zip"
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr(name, b"x")
    assert main(["download", "--to", str(raw)]) == 2
    error = capsys.readouterr().err
    assert "must stay inside the folder" in error
    assert error.count("\n") == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["raw"]
    assert sorted(p.name for p in raw.iterdir()) == [".downloading", archive.name, f"{archive.name}.sha256"]
    archive.write_bytes(b"changed")
    assert main(["download", "--to", str(raw)]) == 2  # the recorded checksum
    assert "sha256 must be" in capsys.readouterr().err


# --- raw CSV ------------------------------------------------------------------------------------------

CSV = (
    "Index,Arrival_Time,Creation_Time,x,y,z,User,Model,Device,gt\n"
    + "".join(
        f"{k},{1424696633908 + k},{1424696631913248572 + k},-5.95,0.688,8.13,a,nexus4,nexus4_1,stand\n"
        for k in range(5)
    )
).encode()


@pytest.mark.whole_runs  # seconds of reading
@settings(max_examples=200)
@given(data=st.data(), block_bytes=st.sampled_from([50, 1 << 20]))
def test_a_damaged_csv_is_read_or_refused(folder, data, block_bytes):
    path = folder / "Phones_accelerometer.csv"
    path.write_bytes(damaged(data.draw, CSV))
    try:
        pieces = read_raw(path, block_bytes=block_bytes)
    except HharError as error:
        one_line(error, path)
        return
    for (user, device), parts in pieces.items():
        for recording in recordings_of(user, device, "acc", parts):
            assert np.isfinite(recording.values).all()


# --- a full disk --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_disk_that_fills_up_leaves_no_half_window_file(tmp_path):
    """A limit on file sizes stands in for it: one line, exit code 2, no file."""
    code = "import sys; from hhar.cli import main; sys.exit(main(sys.argv[1:]))"
    process = subprocess.run(
        limited(
            [sys.executable, "-c", code, "synthesize", str(tmp_path / "w.npz"), "--small"],
            resource.RLIMIT_FSIZE, 100_000,
        ),
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert process.returncode == 2, process.stderr
    assert process.stderr.count("\n") == 1
    assert "cannot be written" in process.stderr
    assert list(tmp_path.iterdir()) == []
