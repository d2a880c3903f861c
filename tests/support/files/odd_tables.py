"""Tables that nobody would send in good faith, CSV and Parquet, each by a seed; and things that are no files.

Names missing, moved, twice or odd; cells of other types, NaN, infinite, huge, many, few; nested, dictionary
and empty columns; row groups of nothing; pages of zeros that unpack to far more; bytes changed and cut, above
all in a Parquet file's footer; pipes, folders, sockets, devices and links in place of a file.
"""

import io
import os
import stat

import numpy as np
import polars as pl
from odd_archives import one_of

KINDS = {
    "trace": (
        "device",
        "seconds_per_window",
        "seconds_per_job",
        "down_bytes_s",
        "up_bytes_s",
        "down_s",
        "up_s",
    ),
    "attendance": ("device", "from_s", "until_s", "period_s"),
    "delays": ("client", "leaf", "delay"),
    "moves": ("round", "client", "leaf"),
}
TEXTS = (
    "", " ", "nan", "NaN", "inf", "-inf", "1e308", "1e309", "-1", "0", "1_0", "0x10", "1e-320", "١", "²", "a",
    "1,5", '"', '"\n', "\x00", "\x1b[2J", "a\u202eb", "ü 雪", "9" * 400, "9" * 5000,
    "x" * 140_000, "None", "True",
)  # fmt: skip
NUMBERS = (0.0, -0.0, np.nan, np.inf, -np.inf, 1e308, -1.0, 5e-324, 1e-12, 2.0**53, 1e9, 1e9 + 1)
WHOLE = (0, -1, 1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63))
ODD_COLUMNS = (
    lambda n: pl.Series([[1.0, 2.0]] * n),
    lambda n: pl.Series([{"a": 1, "b": "x"}] * n),
    lambda n: pl.Series(["a"] * n, dtype=pl.Categorical),
    lambda n: pl.Series([b"\xff\x00"] * n),
    lambda n: pl.Series([None] * n),
    lambda n: pl.Series([True] * n),
    lambda n: pl.Series(range(n), dtype=pl.Datetime),
    lambda n: pl.Series([1] * n, dtype=pl.Int8),
    lambda n: pl.Series([1] * n, dtype=pl.UInt64),
    lambda n: pl.Series(["1.5"] * n).cast(pl.Decimal(10, 2)),
    lambda n: pl.Series(np.arange(n), dtype=pl.Float32),
    lambda n: pl.Series([[0, 1]] * n, dtype=pl.Array(pl.Int64, 2)),
)
PACKED = ("uncompressed", "snappy", "zstd", "gzip", "lz4", "brotli")
NO_FILES = (
    "pipe",
    "folder",
    "socket",
    "device",
    "link to a pipe",
    "link to nothing",
    "link to itself",
    "none",
)


def honest(rng, kind, rows):
    """Columns of a right table, name → (rows,)."""
    made = {}
    for name in KINDS[kind]:
        if name == "device":
            made[name] = [f"d{number}" for number in rng.integers(0, 5, rows)]
        elif name in ("client", "leaf", "round"):
            made[name] = rng.integers(0, 3, rows).tolist()
        elif name == "until_s":
            made[name] = [begins + 1.5 for begins in made["from_s"]]
        elif name == "period_s":
            made[name] = [1e6] * rows
        else:
            made[name] = rng.uniform(1, 1000, rows).tolist()
    if kind == "moves":  # a client is at one place in a round
        made = {"round": list(range(1, rows + 1)), "client": [0] * rows, "leaf": made["leaf"]}
    return made


def odd_table(seed, form):
    """(kind, bytes) of a table; `form` is "csv" or "parquet"."""
    rng = np.random.default_rng([243, seed])
    kind = one_of(rng, tuple(KINDS))
    return kind, {"csv": odd_csv, "parquet": odd_parquet}[form](rng, kind)


def odd_names(rng, made):
    """Columns with their names as they are, moved, renamed, lost or odd."""
    names, how = list(made), rng.integers(8)
    if how == 0:
        rng.shuffle(names)
        return {name: made[name] for name in names}
    if how == 1:
        return {name: made[name] for name in names[1:]}
    if how == 2:
        return {**made, str(one_of(rng, TEXTS)): made[names[0]]}
    if how == 3:  # under each name the next one's cells
        return dict(zip(names, [made[name] for name in (*names[1:], names[0])], strict=True))
    return made


def odd_csv(rng, kind):
    """A CSV."""
    made = odd_names(rng, honest(rng, kind, int(rng.integers(0, 6))))
    names = list(made)
    if rng.random() < 0.1:
        names[-1] = names[0]
    lines = [names, *[list(map(str, row)) for row in zip(*made.values(), strict=True)]]
    for _ in range(rng.integers(0, 3)):
        row = lines[rng.integers(len(lines))]
        how = rng.integers(4)
        if how == 0 and row:
            row[rng.integers(len(row))] = one_of(rng, TEXTS)
        elif how == 1:
            row.append(one_of(rng, TEXTS))
        elif how == 2 and row:
            row.pop()
        elif row:
            row[rng.integers(len(row))] = repr(one_of(rng, (*NUMBERS, *WHOLE)))
    comma, end = (
        one_of(rng, (",", ",", ",", ", ", ";", "\t")),
        one_of(rng, ("\n", "\n", "\r\n", "\r", "\n\n")),
    )
    text = end.join(comma.join(row) for row in lines) + one_of(rng, (end, ""))
    form = one_of(rng, ("utf-8", "utf-8", "utf-8", "utf-8-sig", "utf-16", "latin1"))
    return damaged(rng, text.encode(form, "replace"), 0.2)


def odd_parquet(rng, kind):
    """A Parquet file."""
    rows = int(one_of(rng, (0, 1, 3, 50, 300)))
    made = odd_names(rng, honest(rng, kind, rows))
    frame = pl.DataFrame({name: pl.Series(cells) for name, cells in made.items()})
    name = one_of(rng, frame.columns)
    how = rng.integers(8)
    if how == 0 and rows:
        frame = frame.with_columns(one_of(rng, ODD_COLUMNS)(rows).alias(name))
    elif how == 1 and rows:
        cells = [one_of(rng, NUMBERS) for _ in range(rows)]
        frame = frame.with_columns(pl.Series(name, cells, dtype=pl.Float64))
    elif how == 2 and rows:
        frame = frame.with_columns(pl.Series(name, [one_of(rng, WHOLE) for _ in range(rows)], dtype=pl.Int64))
    elif how == 3 and rows:
        frame = frame.with_columns(pl.Series(name, [one_of(rng, TEXTS) for _ in range(rows)]))
    stream = io.BytesIO()
    frame.write_parquet(
        stream, compression=one_of(rng, PACKED), row_group_size=int(one_of(rng, (1, 100, 1000))),
        statistics=bool(rng.integers(2)),
    )  # fmt: skip
    return damaged(rng, stream.getvalue(), 0.7)


def damaged(rng, made, often):
    """Bytes as they are; or, that often, changed in the footer or anywhere, or cut at an eighth byte."""
    if rng.random() > often or not made:
        return made
    changed, how = bytearray(made), rng.integers(5)
    if how == 0:
        return made[: 8 * int(rng.integers(len(made) // 8 + 1))]
    if how == 1:
        return made[int(rng.integers(len(made))) :]
    footer = min(int.from_bytes(made[-8:-4], "little") + 8, len(made)) if made[-4:] == b"PAR1" else len(made)
    first = len(made) - footer if how == 2 else 0
    for _ in range(rng.integers(1, 4)):
        at = int(rng.integers(first, len(made)))
        changed[at] = int(one_of(rng, (rng.integers(256), 0, 255, changed[at] ^ 1 << int(rng.integers(8)))))
    return bytes(changed)


def bomb(rows=50_000_000):
    """A Parquet file of 100 kB with so many rows of one number."""
    stream = io.BytesIO()
    pl.select(pl.repeat(1.0, rows).alias("seconds_per_job")).write_parquet(stream, row_group_size=rows)
    return stream.getvalue()


def put_no_file(path, how):
    """Put something at `path` that is no plain file."""
    if how == "pipe":
        os.mkfifo(path)
    elif how == "folder":
        path.mkdir()
    elif how == "socket":
        os.mknod(path, stat.S_IFSOCK | 0o600)
    elif how == "device":
        path.symlink_to("/dev/zero")
    elif how == "link to a pipe":
        os.mkfifo(path.with_name(f"{path.name}.pipe"))
        path.symlink_to(f"{path.name}.pipe")
    elif how == "link to nothing":
        path.symlink_to("nothing")
    elif how == "link to itself":
        path.symlink_to(path.name)
