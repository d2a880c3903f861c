"""Archives and files of arrays that nobody would send in good faith, each by a seed.

Zip and tar, packed in any way, in each other; of names that leave, repeat, clash or are no names; links,
devices, pipes and holes; sizes that are not what a header says; bombs; bytes changed, cut and put before.
"""

import gzip
import io
import stat
import tarfile
import zipfile

import numpy as np

NAMES = (
    "a",
    "a/b",
    "a/b/c.csv",
    "A",
    "ü 雪",
    "../x",
    "../../x",
    "a/../../x",
    "/x",
    "//x",
    "C:\\x",
    "a\\..\\x",
    "..",
    ".",
    "",
    "a/",
    "./a",
    "a//b",
    "-rf",
    "a\nb",
    "\x1b[2J",
    "x" * 300,
    "x/" * 300 + "y",
    "con",
    "~/x",
    "$HOME",
    "`x`",
    "a.zip",
    "inner.tar.gz",
    "__MACOSX/a",
    "._a",
    "../sentinel",
    "link/x",
    "a\u202eb",
    "\x00",
    "a\x00b",
)
TARGETS = ("/etc/passwd", "../sentinel", "..", "/", "a", "link", "../../x", "")
TAR_TYPES = (
    tarfile.REGTYPE,
    tarfile.REGTYPE,
    tarfile.REGTYPE,
    tarfile.AREGTYPE,
    tarfile.DIRTYPE,
    tarfile.SYMTYPE,
    tarfile.LNKTYPE,
    tarfile.CHRTYPE,
    tarfile.BLKTYPE,
    tarfile.FIFOTYPE,
    tarfile.CONTTYPE,
    tarfile.GNUTYPE_SPARSE,
    b"Z",
)
ZIP_MODES = (0, 0, 0, 0o100644, 0o104755, 0o40755, stat.S_IFLNK | 0o777, stat.S_IFCHR, stat.S_IFIFO, 0o177777)
MODES = ("w", "w:gz", "w:bz2", "w:xz")
PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)


def one_of(rng, values):
    """One of several, whatever they are."""
    return values[rng.integers(len(values))]


def content(rng, bomb):
    """The content of a member: little, nothing, or `bomb` zeros."""
    how = rng.integers(8)
    if how == 0:
        return bytes(bomb)
    return b"" if how == 1 else rng.bytes(int(rng.integers(1, 3000)))


def odd_archive(seed, bomb=8 << 20):
    """(ending, bytes) of an archive."""
    rng = np.random.default_rng([241, seed])
    inside = one_of(rng, (odd_tar, odd_zip))
    ending, made = inside(rng, bomb, 0)
    return ending, damaged(rng, made)


def odd_tar(rng, bomb, depth):
    """A tar."""
    stream, mode = io.BytesIO(), one_of(rng, MODES)
    form = one_of(rng, (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT))
    with tarfile.open(fileobj=stream, mode=mode, format=form) as archive:
        for _ in range(rng.integers(1, 6)):
            info = tarfile.TarInfo(one_of(rng, NAMES))
            info.type, info.linkname = one_of(rng, TAR_TYPES), one_of(rng, TARGETS)
            held = inner(rng, bomb, depth, info.name) or content(rng, bomb)
            info.size, info.mode = len(held), int(one_of(rng, (0o644, 0o7777, 0)))
            if info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE):
                held, info.size = b"", 0
            if rng.random() < 0.1:
                info.size = int(one_of(rng, (1, 10**6, 2**33, 2**40)))
            try:
                archive.addfile(info, io.BytesIO(held + bytes(max(info.size - len(held), 0) % 10**7)))
            except (ValueError, OSError, UnicodeError):  # no such name in this form, or less than was said
                continue
    made = stream.getvalue()
    if rng.random() < 0.1:
        made = gzip.compress(made)
    return {"w": ".tar", "w:gz": ".tar.gz"}.get(mode, ".tar"), made


def odd_zip(rng, bomb, depth):
    """A zip."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for _ in range(rng.integers(1, 6)):
            info = zipfile.ZipInfo("x")
            info.filename = one_of(rng, NAMES)
            info.compress_type = one_of(rng, PACKED)
            info.external_attr = int(one_of(rng, ZIP_MODES)) << 16
            held = inner(rng, bomb, depth, info.filename) or content(rng, bomb)
            if stat.S_ISLNK(info.external_attr >> 16):
                held = one_of(rng, TARGETS).encode()
            archive.writestr(info, held)
        if rng.random() < 0.15:
            for info in archive.filelist:
                info.file_size = int(one_of(rng, (0, 1, 10**6, 2**31)))
        if rng.random() < 0.1 and archive.filelist:  # one more entry for bytes that are there
            archive.filelist.append(archive.filelist[0])
    return ".zip", stream.getvalue()


def inner(rng, bomb, depth, name):
    """An archive in an archive, where a name says that there is one."""
    if depth < 4 and name.endswith((".zip", ".tar.gz")) and rng.random() < 0.9:
        return odd_zip(rng, bomb, depth + 1)[1]
    return b""


def damaged(rng, made):
    """Bytes of an archive as they are, mostly; else changed, cut, or with others around them."""
    how, made = rng.integers(10), bytearray(made)
    if how == 0 and made:
        for _ in range(rng.integers(1, 9)):
            made[rng.integers(len(made))] = rng.integers(256)
    elif how == 1:
        made = made[: rng.integers(len(made) + 1)]
    elif how == 2:
        made = rng.bytes(int(rng.integers(2000))) + bytes(made)
    elif how == 3:
        made = bytes(made) + rng.bytes(int(rng.integers(2000)))
    return bytes(made)


def odd_arrays(seed, bomb=300 << 20):
    """Bytes of a file of arrays `x` and `y`."""
    rng = np.random.default_rng([242, seed])
    stream = io.BytesIO()
    is_bomb = rng.random() < 0.01
    packed = zipfile.ZIP_DEFLATED if is_bomb else one_of(rng, PACKED)
    with zipfile.ZipFile(stream, "w", packed, compresslevel=1) as archive:
        for name in ("x", "y")[: 1 + rng.integers(2)]:
            with archive.open(f"{name}.npy", "w") as member:
                member.write(odd_array(rng))
                for _ in range(bomb // 2**20 if is_bomb else 0):
                    member.write(bytes(2**20))
        if rng.random() < 0.2:
            archive.filelist.append(archive.filelist[0])
        if rng.random() < 0.2:
            archive.filelist[0].file_size = int(one_of(rng, (0, 10**6, 2**40, 2**63)))
    return damaged(rng, stream.getvalue())


def odd_array(rng):
    """Bytes of an array: its header says anything, and after it there is less, or more."""
    if rng.random() < 0.6:
        honest = io.BytesIO()
        np.save(honest, rng.normal(size=rng.integers(0, 5, 2)).astype(one_of(rng, ("<f4", "<i8", "<U3"))))
        return honest.getvalue()
    shape = tuple(
        int(one_of(rng, (0, 1, 3, -1, 10**4, 2**31, 2**63, 10**30))) for _ in range(rng.integers(4))
    )
    descr = one_of(
        rng, ("<f4", "<i8", "|O", "<U3", "<U999999999", "|V0", "|S0", "<f2", "<c16", "|b1", "nonsense")
    )
    header = f"{{'descr': {descr!r}, 'fortran_order': {bool(rng.integers(2))}, 'shape': {shape!r}, }}"
    if rng.random() < 0.2:
        others = ("{}", "__import__('os').getcwd()", "[" * 9000, "{'descr': [('a', '<f4')] * 9}", "1" * 9000)
        header = one_of(rng, others)
    head = header.encode().ljust(int(one_of(rng, (1, 118, 2000))))
    magic = b"\x93NUMPY" + bytes(one_of(rng, ((1, 0), (1, 0), (2, 0), (3, 0), (9, 9))))
    size = len(head).to_bytes(4 if magic[6] > 1 else 2, "little")
    return magic + size + head + rng.bytes(int(one_of(rng, (0, 4, 12, 36, 4000))))
