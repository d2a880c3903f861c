import io
import zipfile

import pytest
from archives import sharing
from hypothesis import given
from hypothesis import strategies as st

from hhar.errors import HharError
from hhar.overlap import overlapping
from hhar.raw.unpack import unpack


def zipped(contents, compression=zipfile.ZIP_STORED):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        for number, content in enumerate(contents):
            archive.writestr(f"{number}.csv", content)
    return stream


@given(
    contents=st.lists(st.binary(max_size=300), max_size=8),
    compression=st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA]),
)
def test_archives_as_they_are_written_do_not_overlap(contents, compression):
    with zipfile.ZipFile(zipped(contents, compression)) as archive:
        assert overlapping(archive.infolist()) is None


def test_an_archive_with_shared_bytes_is_not_unpacked(tmp_path):
    path = tmp_path / "a.zip"
    path.write_bytes(sharing(zipped([b"a", b"b" * 999]), "1.csv", "9.csv").getvalue())
    with pytest.raises(HharError, match=r"members must not overlap, but '9\.csv' does, a bomb"):
        unpack(path, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_zips_in_a_zip_share_one_bound(tmp_path):
    """Each may unpack to 100 times its size, and so may all of them together, not 100 times 100 times."""
    inner = zipped([bytes(3 << 20)] * 8, zipfile.ZIP_DEFLATED).getvalue()
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(9):
            archive.writestr(f"{number}/{number}.zip", inner)
    with pytest.raises(HharError, match=r"must unpack to at most|an archive bomb"):
        unpack(path, tmp_path / "out")
    assert sum(p.stat().st_size for p in (tmp_path / "out").rglob("*") if p.is_file()) <= 64 << 20
