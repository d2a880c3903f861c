"""Damage to one file of a run folder: drawn by a random generator, told in words."""

import os
import re
import shutil

TEXT = (".csv", ".json", ".jsonl", ".html", ".log", ".toml")
_NUMBER = re.compile(rb"(?<![\w.])-?\d+\.?\d*(?:e-?\d+)?(?![\w.])")
_INSTEAD = (b"NaN", b"1e999", b"-1", b"word", b"\x1b[2J", b"9" * 400, b"", b"\xff\xfe", b"0x10", b"Infinity")


def files_of(folder):
    """All files of a run folder, relative, in order; its pages and log are written, not read."""
    found = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return [path for path in found if path.suffix not in (".html", ".log", ".lock")]


def damage(folder, other, outside, rng):
    """Damage one file of a run; returns which, and what was done to it.

    Args:
        folder: of the run.
        other: folder of another run of the same options.
        outside: a file that nobody may write to.
        rng: decides.
    """
    files = files_of(folder)
    path = files[int(rng.integers(len(files)))]
    kinds = [*ANY, *(LINES if path.suffix in TEXT else [])]
    kind = kinds[int(rng.integers(len(kinds)))]
    kind(folder / path, (folder, other, outside), rng)
    return path, kind.__name__


def cut(path, _, rng):
    content = path.read_bytes()
    path.write_bytes(content[: int(rng.integers(len(content) + 1))])


def flip(path, _, rng):
    content = bytearray(path.read_bytes() or b"\0")
    for at in rng.integers(0, len(content), int(rng.choice([1, 1, 8]))):
        content[at] ^= 1 << int(rng.integers(8))
    path.write_bytes(content)


def empty(path, *_):
    path.write_bytes(b"")


def removed(path, *_):
    path.unlink()


def grown(path, _, rng):
    path.write_bytes(path.read_bytes() + rng.bytes(int(rng.integers(1, 5000))))


def swapped(path, places, rng):
    """Another file of the folder, of the same kind where there is one."""
    files = [name for name in files_of(places[0]) if places[0] / name != path]
    alike = [name for name in files if name.suffix == path.suffix] or files
    shutil.copyfile(places[0] / alike[int(rng.integers(len(alike)))], path)


def of_another_run(path, places, _):
    there = places[1] / path.relative_to(places[0])
    shutil.copyfile(there, path) if there.is_file() else path.unlink()


def a_directory(path, *_):
    path.unlink()
    path.mkdir()


def a_fifo(path, *_):
    path.unlink()
    os.mkfifo(path)


def a_link_outside(path, places, _):
    path.unlink()
    path.symlink_to(places[2])


def a_link_to_itself(path, *_):
    path.unlink()
    path.symlink_to(path.name)


def a_link_to_nothing(path, *_):
    path.unlink()
    path.symlink_to("nothing-here")


def no_permissions(path, *_):
    path.chmod(0)


ANY = [
    cut, cut, cut, flip, flip, flip, empty, removed, grown, swapped, of_another_run, of_another_run,
    a_directory, a_fifo, a_link_outside, a_link_to_itself, a_link_to_nothing, no_permissions,
]  # fmt: skip


def a_line_doubled(path, _, rng):
    _edit_lines(path, rng, lambda line: [line, line])


def a_line_dropped(path, _, rng):
    _edit_lines(path, rng, lambda line: [])


def a_line_of_bytes(path, _, rng):
    _edit_lines(path, rng, lambda line: [line, rng.bytes(30).replace(b"\n", b" ") + b"\n"])


def _edit_lines(path, rng, change):
    lines = path.read_bytes().splitlines(keepends=True) or [b"\n"]
    at = int(rng.integers(len(lines)))
    path.write_bytes(b"".join([*lines[:at], *change(lines[at]), *lines[at + 1 :]]))


def a_number_replaced(path, _, rng):
    content = path.read_bytes()
    found = list(_NUMBER.finditer(content))
    if not found:
        return path.write_bytes(_INSTEAD[int(rng.integers(len(_INSTEAD)))])
    place = found[int(rng.integers(len(found)))]
    instead = _INSTEAD[int(rng.integers(len(_INSTEAD)))]
    return path.write_bytes(content[: place.start()] + instead + content[place.end() :])


LINES = [
    a_line_doubled,
    a_line_dropped,
    a_line_of_bytes,
    a_number_replaced,
    a_number_replaced,
    a_number_replaced,
]
