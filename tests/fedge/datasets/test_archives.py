"""Archives: unpacked with bounds, whatever they claim."""

import gzip
import io
import shutil
import stat
import tarfile
import zipfile

import pytest
from odd_archives import odd_archive

from fedge.datasets import archives as archives_module
from fedge.datasets.archives import as_folder, is_archive, unpack
from hhar.errors import HharError
from hhar.raw import unpack as unpack_module


def tar(path, members, mode="w:gz", **attributes):
    with tarfile.open(path, mode) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            for key, value in attributes.items():
                setattr(info, key, value)
            archive.addfile(info, io.BytesIO(content))
    return path


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_a_tar_is_unpacked(tmp_path, mode):
    members = {"a/b.txt": b"1", "a/ü 雪.txt": b"2", "__MACOSX/a/b.txt": b"junk", "a/._b.txt": b"junk"}
    written = unpack(tar(tmp_path / "x.tar", members, mode), tmp_path / "out")
    assert sorted(str(path.relative_to(tmp_path / "out")) for path in written) == ["a/b.txt", "a/ü 雪.txt"]
    assert (tmp_path / "out" / "a" / "ü 雪.txt").read_bytes() == b"2"
    assert not list((tmp_path / "out").rglob(".*"))


@pytest.mark.parametrize("name", ["../out.txt", "/etc/passwd", "a/../../b", "c:\\x", "a\\b"])
def test_no_member_leaves_the_folder(tmp_path, name):
    with pytest.raises(HharError, match="must stay inside the folder"):
        unpack(tar(tmp_path / "x.tar.gz", {"good": b"1", name: b"2"}), tmp_path / "in" / "out")
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr(name, "2")
    with pytest.raises(HharError, match="must stay inside the folder"):
        unpack(tmp_path / "x.zip", tmp_path / "in" / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "x.tar.gz", "x.zip"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_plain_files_only(tmp_path, kind):
    path = tar(tmp_path / "x.tar", {"a": b""}, type=kind, linkname="/etc/passwd")
    with pytest.raises(HharError, match="must be plain files"):
        unpack(path, tmp_path / "out")


def test_bombs_stop_early(tmp_path):
    """A gigabyte of zeros in a megabyte; and a name of 64 MiB, which would be read into memory whole."""
    info = tarfile.TarInfo("zeros")
    info.size = 1 << 30
    with gzip.open(tmp_path / "x.tar.gz", "wb", compresslevel=1) as stream:
        stream.write(info.tobuf() + bytes(1 << 20))
    with pytest.raises(HharError, match="must unpack to at most 64 MiB more, 'zeros' alone says 1024 MiB"):
        unpack(tmp_path / "x.tar.gz", tmp_path / "out")
    name = tarfile.TarInfo("././@LongLink")
    name.type, name.size = tarfile.GNUTYPE_LONGNAME, 64 << 20
    (tmp_path / "y.tar").write_bytes(name.tobuf() + bytes(1 << 20))
    with pytest.raises(HharError, match="must be a whole tar archive"):
        unpack(tmp_path / "y.tar", tmp_path / "out")
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file()]


@pytest.mark.parametrize("name", ["x.zip", "x.tar.gz", "x.tar"])
@pytest.mark.parametrize("content", [b"", b"not an archive", b"\x1f\x8b cut", b"PK\x03\x04"])
def test_damaged_or_empty(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(HharError, match=r"must be a whole|must be an intact|must hold files") as caught:
        unpack(tmp_path / name, tmp_path / "out")
    assert str(tmp_path / name) in str(caught.value)


def test_an_archive_that_is_cut_short(tmp_path):
    path = tar(tmp_path / "x.tar.gz", {"a": bytes(range(256)) * 4096})
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(HharError, match="must be a whole tar archive"):
        unpack(path, tmp_path / "out")
    assert not (tmp_path / "out" / "a").exists()


def test_an_archive_of_nothing(tmp_path):
    tar(tmp_path / "x.tar", {})
    zipfile.ZipFile(tmp_path / "x.zip", "w").close()
    for name in ("x.tar", "x.zip"):
        with pytest.raises(HharError, match="must hold files, holds none"):
            unpack(tmp_path / name, tmp_path / "out")


def test_a_folder_stays_and_what_is_unpacked_goes(tmp_path):
    (tmp_path / "raw").mkdir()
    with as_folder(tmp_path / "raw", tmp_path / "out.npz") as folder:
        assert folder == tmp_path / "raw"
    path = tar(tmp_path / "x.tgz", {"a": b"1"})
    with as_folder(path, tmp_path / "new" / "out.npz") as folder:
        assert folder.parent == tmp_path / "new"
        assert (folder / "a").read_bytes() == b"1"
    assert list((tmp_path / "new").iterdir()) == []
    for source, message in ((tmp_path / "none", "is not there"), (path.with_name("a.txt"), "is not there")):
        with pytest.raises(HharError, match=message), as_folder(source, source):
            pass
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(HharError, match="is another file"), as_folder(tmp_path / "a.txt", tmp_path / "o"):
        pass
    assert is_archive(path)
    assert not is_archive(tmp_path / "t10k-images-idx3-ubyte.gz")


# --- odd ones, by seeds -------------------------------------------------------------------------------------

MOST = 1 << 20  # bytes that the odd ones may unpack to
SAMPLE, MANY = 80, 4000


@pytest.fixture
def small(monkeypatch):
    """Let archives unpack to little, so that bombs of megabytes are bombs."""
    for module in (archives_module, unpack_module):
        monkeypatch.setattr(module, "MAX_TOTAL_BYTES", MOST)
        monkeypatch.setattr(module, "TOTAL_FROM_BYTES", MOST)
    monkeypatch.setattr(
        unpack_module.unpack, "__kwdefaults__", {"max_total_bytes": MOST, "report": print_nothing}
    )


def print_nothing(*_):
    pass


def seen(folder):
    """Modes and sizes of all files by path, without following a link."""
    found = {path: path.lstat() for path in folder.rglob("*")}
    return {path: (is_.st_mode, is_.st_size * (not stat.S_ISDIR(is_.st_mode))) for path, is_ in found.items()}


def try_one(top, seed):
    """Unpack an odd archive beside files that it must leave alone; returns whether it was refused."""
    place = top / str(seed)
    out = place / "in" / "out"
    out.mkdir(parents=True)
    (place / "in" / "sentinel").write_text("untouched")
    (place / "elsewhere").mkdir()
    (out / "link").symlink_to(place / "elsewhere")
    ending, made = odd_archive(seed)
    archive = place / f"odd{ending}"
    archive.write_bytes(made)
    before, is_refused = seen(place), False
    try:
        written = unpack(archive, out, print_nothing)
        assert all(path.resolve().is_relative_to(out) for path in written)
    except HharError as error:
        is_refused = True
        said = str(error).replace(str(archive), "")
        assert len(said) < 600, seed
        assert said.isprintable(), (seed, said)
    found = {path: kind for path, kind in seen(place).items() if path not in before}
    assert {path: kind for path, kind in seen(place).items() if path in before} == before, seed
    assert all(path.is_relative_to(out) for path in found), seed
    assert all(stat.S_ISREG(mode) or stat.S_ISDIR(mode) for mode, _ in found.values()), seed
    assert all(path.stat().st_nlink == 1 for path in found if path.is_file()), seed
    assert all(not mode & 0o7000 for mode, _ in found.values()), seed
    assert sum(size for mode, size in found.values() if stat.S_ISREG(mode)) <= MOST, seed
    shutil.rmtree(place)
    return is_refused


def test_odd_archives_write_files_alone_within_their_folder_and_bound(tmp_path, small):
    """Or one line says why not."""
    refused = [try_one(tmp_path, seed) for seed in range(SAMPLE)]
    assert 0.3 < sum(refused) / SAMPLE < 1


@pytest.mark.extended
@pytest.mark.timeout(900)
def test_thousands_of_odd_archives(tmp_path, small):
    refused = [try_one(tmp_path, seed) for seed in range(SAMPLE, SAMPLE + MANY)]
    print(f"{MANY} odd archives: {sum(refused)} refused, {MANY - sum(refused)} unpacked within their folder")
