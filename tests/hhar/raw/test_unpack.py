"""Unpacking archives from elsewhere: what UCI's may look like, and what is refused."""

import io
import stat
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hhar.errors import HharError
from hhar.raw import unpack as module
from hhar.raw.unpack import member_path, unpack


def zipped(members: dict[str, bytes], compression=zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


def written(tmp_path, data: bytes):
    (tmp_path / "a.zip").write_bytes(data)
    return tmp_path / "a.zip"


def test_nested_zip_doubled_folder_and_leftovers(tmp_path):
    inner = zipped(
        {
            "Activity recognition exp/Phones_accelerometer.csv": b"rows",
            "__MACOSX/Activity recognition exp/._Phones_accelerometer.csv": b"fork",
            "Activity recognition exp/.DS_Store": b"finder",
        }
    )
    outer = zipped({"Activity recognition exp/Activity recognition exp.zip": inner, "readme.txt": b"hello"})
    found = unpack(written(tmp_path, outer), tmp_path / "out")
    names = sorted(str(path.relative_to((tmp_path / "out").resolve())) for path in found)
    assert names == ["Activity recognition exp/Phones_accelerometer.csv", "readme.txt"]
    everything = {path.name for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert everything == {"Phones_accelerometer.csv", "readme.txt"}


@pytest.mark.parametrize(
    "name", ["../evil", "a/../../evil", "/etc/evil", "C:/evil", "..\\evil", "a\\..\\evil"]
)
def test_paths_that_leave_are_refused(tmp_path, name):
    with pytest.raises(HharError, match="must stay inside"):
        unpack(written(tmp_path, zipped({"good.csv": b"1", name: b"2"})), tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []  # not even the good member


@pytest.mark.slow
@given(st.text(alphabet="ab./\\:", min_size=1, max_size=12))
def test_no_name_leads_out(name):
    try:
        path = member_path(name, "a.zip")
    except HharError:
        return
    assert path is None or (not path.is_absolute() and ".." not in path.parts)


def test_links_and_encryption_are_refused(tmp_path):
    link = zipfile.ZipInfo("link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(HharError, match="is a link"):
        unpack(written(tmp_path, stream.getvalue()), tmp_path / "out")
    data = bytearray(zipped({"f": b"secret"}))
    data[data.rindex(b"PK\x01\x02") + 8] |= 1  # the flag in the directory
    with pytest.raises(HharError, match="encrypted"):
        unpack(written(tmp_path, bytes(data)), tmp_path / "out")


def test_bombs_stop_at_the_limit(tmp_path):
    bomb = zipped({"zeros.csv": bytes(20 << 20)})
    with pytest.raises(HharError, match="archive bomb"):
        unpack(written(tmp_path, bomb), tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
    with pytest.raises(HharError, match="must unpack to at most 1000 more bytes"):
        unpack(written(tmp_path, zipped({"big": bytes(2000)})), tmp_path / "out", max_total_bytes=1000)
    many = zipped({"one": bytes(600), "two": bytes(600)})
    with pytest.raises(HharError, match="archive bomb"):
        unpack(written(tmp_path, many), tmp_path / "out", max_total_bytes=1000)


def test_too_many_members_and_too_deep(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_MEMBERS", 3)
    with pytest.raises(HharError, match="at most 3 members"):
        unpack(written(tmp_path, zipped({str(k): b"" for k in range(4)})), tmp_path / "out")
    monkeypatch.setattr(module, "MAX_MEMBERS", 100)
    data = zipped({"f": b"x"})
    for _ in range(4):
        data = zipped({"inner.zip": data})
    with pytest.raises(HharError, match="nest at most"):
        unpack(written(tmp_path, data), tmp_path / "out")


def test_damaged_archives(tmp_path):
    whole = zipped({"f.csv": b"0123456789" * 1000}, zipfile.ZIP_STORED)
    for data in (b"", b"not a zip", whole[:-30], whole.replace(b"0123456789", b"0123456788", 1)):
        with pytest.raises(HharError, match="must be an intact zip archive"):
            unpack(written(tmp_path, data), tmp_path / "out")
        assert list((tmp_path / "out").iterdir()) == []
    with pytest.raises(HharError, match="archive must exist"):
        unpack(tmp_path / "none.zip", tmp_path / "out")


def test_a_link_already_in_the_folder_is_not_followed(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out" / "exp").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(HharError, match="through a link"):
        unpack(written(tmp_path, zipped({"exp/f": b"x"})), tmp_path / "out")
    assert list((tmp_path / "elsewhere").iterdir()) == []
