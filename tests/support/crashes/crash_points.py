"""Faults to try: all that can differ, or a sample spread over all kinds of them."""

import random
import re
from collections import defaultdict
from zlib import crc32

# Where a fault differs from a kill, or from a fault before the next operation. What is interrupted is begun
# again by Python in these; room is taken by these; half of anything else is all of it or nothing.
TELLING = {
    "kill": None,
    "term": None,
    "eio": None,
    "read-only": None,
    "torn": {"write"},
    "full": {"open", "write", "mkdir", "symlink"},
    "eintr": {"open", "write", "fsync", "cut"},
}
NOTHING = ("nothing", "")


def described(log):
    """The number of each operation that changes what is on disk → (operation, kind of file)."""
    paths, found = {}, {}
    for operation in log:
        if operation.name == "open":
            paths[operation.descriptor] = operation.data.decode()
        if operation.name == "close" or (operation.name == "open" and not operation.b):
            continue
        path = paths[operation.descriptor] if operation.name in ("write", "fsync", "cut") else ""
        path = path or operation.data.decode().split("\n")[-1]
        found[operation.number] = (operation.name, kind_of_file(path))
    tried_in_vain = dict.fromkeys(range(1, max(found) + 1), NOTHING)
    return dict(sorted({**tried_in_vain, **found}.items()))


def kind_of_file(path):
    """A path, from the run's folder on, without numbers and chance."""
    return re.sub(r"\d+", "#", path.removeprefix("/runs/run/").removeprefix("/"))


def faults(operations):
    """(stratum, (kind of fault, number of the operation)) of all faults that can differ."""
    return [
        ((kind, *operation), (kind, number))
        for kind, names in TELLING.items()
        for number, operation in operations.items()
        if names is None or operation[0] in names
    ]


def stratified(points, count, share, rng, day=0):
    """`count` of (stratum, point), as many strata as can be.

    Args:
        points: (stratum, point) of all.
        count: how many.
        share: where those begin who share the strata among them: 0 up to 1.
        rng: draws one point of a stratum.
        day: each begins where the one before ended, so that all strata come in turn.
    """
    held = defaultdict(list)
    for stratum, point in points:
        held[stratum].append((stratum, point))
    names = sorted(held, key=lambda stratum: (crc32(repr(stratum).encode()), stratum))
    begin = (int(len(names) * share) + day * count) % max(1, len(names))
    chosen, left = [], {name: rng.sample(held[name], len(held[name])) for name in names}
    while len(chosen) < min(count, len(points)):
        for name in names[begin:] + names[:begin]:
            if left[name] and len(chosen) < count:
                chosen.append(left[name].pop())
    return chosen


def generator(name, day=0):
    """The stream of a configuration's sample."""
    return random.Random(f"{name} {day}" if day else name)


def kept(log):
    """[(number of an operation, global round)]: after it that round's checkpoint must be found.

    Whatever happens then: it has its name, and its folder was told to keep that, or the next round's rows are
    written, before which it should have been told.
    """
    found, named, paths = [], None, {}
    for operation in log:
        text = operation.data.decode() if operation.name in ("open", "rename") else ""
        if operation.name == "open":
            paths[operation.descriptor] = text
        to = re.search(r"checkpoints/round-(\d+)$", text) if operation.name == "rename" else None
        if to:
            named = int(to[1])
        path = paths.get(operation.descriptor, "")
        is_told = operation.name == "fsync" and path.endswith("/checkpoints")
        if named is not None and (is_told or (operation.name == "write" and "/metrics/" in path)):
            found.append((operation.number, named))
            named = None
    return found
