"""Odd tables, CSV and Parquet, are read as what they are or are one line; nothing hangs or ends the process.

Judged by rules written here once more: what comes of a table has the shape, range and order that
docs/devices.md and docs/hierarchy.md say. They are read in a process, whose end and errors are looked at.
"""

import csv
import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import odd_tables
import polars as pl
import pytest
from daily import daily

from fedge.config.registers.option import ConfigError
from fedge.data import association
from fedge.data.association import DealtClients
from fedge.devices.population.attendance import read_attendance
from fedge.devices.population.trace import read_trace
from hhar import parquet as of_parquet

SAMPLE, MANY = {"csv": 400, "parquet": 8}, {"csv": 20_000, "parquet": 500}
LONGEST_S = 20.0  # of one table
CLIENTS = DealtClients(np.arange(3), np.ones((3, 2), np.int64), np.full(3, 2))


def check_trace(path):
    for row in read_trace(path):
        assert len(row) == 6
        assert all(0 <= row[at] <= 1e9 for at in (0, 1, 4, 5))
        assert all(row[at] > 0 for at in (2, 3))


def check_attendance(path):
    for (begins, ends), period in read_attendance(path):
        assert begins.dtype == ends.dtype == np.int64
        assert len(begins) == len(ends) > 0
        assert (begins < ends).all()
        assert (begins[1:] > ends[:-1]).all()
        assert begins[0] >= 0
        assert ends[-1] <= 10**15
        assert period is None or 10**3 <= period <= 10**15


def check_delays(path):
    found = association.delays_of(path, CLIENTS, 3)
    assert found.shape == (3, 3)
    assert (found >= 0).all()


def check_moves(path):
    from fedge.rounds import mobility  # takes seconds

    for number, there in mobility._read_moves(path, (0, time.monotonic_ns())).items():
        assert 0 <= number < 10**9
        assert all(0 <= client < 10**9 and 0 <= leaf < 10**9 for client, leaf in there.items())


CHECKS = {"trace": check_trace, "attendance": check_attendance, "delays": check_delays, "moves": check_moves}


def is_refused(kind, path):
    """Whether a table is refused: in one line with its option, the file and what to do; else it is right."""
    began = time.monotonic()
    try:
        CHECKS[kind](os.fspath(path))
    except ConfigError as error:
        said = str(error)
        assert said.isprintable(), said
        assert len(said) < 1000, said
        assert ";" in said, said
        assert path.parent.name in said, said
        assert said.startswith(("devices.", "hierarchy.")), said
        return True
    finally:
        assert time.monotonic() - began < LONGEST_S
    refuse_ambiguous(path)
    return False


def refuse_ambiguous(path):
    """Fail for a CSV file with a name twice, or a row with more cells than names, which nothing may read."""
    content = path.read_bytes()
    if content[:4] != b"PAR1":
        names, *rows = [
            row
            for row in csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), skipinitialspace=True)
            if row
        ]
        names = [name.strip() for name in names]
        assert len(set(names)) == len(names), names
        assert all(len(row) <= len(names) for row in rows)


def try_all(folder, form, seeds, kinds=tuple(CHECKS)):
    """Print how many of the odd tables are refused, and how many read; ends the process if one hangs."""
    import faulthandler

    found = [0, 0]
    for seed in seeds:
        kind, made = odd_tables.odd_table(seed, form)
        if kind not in kinds:
            continue
        path = Path(folder) / f"odd-{seed}"
        path.write_bytes(made)
        faulthandler.dump_traceback_later(2 * LONGEST_S, exit=True)
        try:
            found[is_refused(kind, path)] += 1
        except BaseException:
            print(f"seed {seed}, {form}, {kind}", file=sys.stderr)
            raise
        path.unlink()
    faulthandler.cancel_dump_traceback_later()
    print(json.dumps(found[::-1]))


def in_a_process(folder, form, seeds, kinds=tuple(CHECKS), before=""):
    """A process that has read odd tables, after the code `before`."""
    code = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        "from tests.fedge.data.test_odd_tables import try_all\n"
        f"{before}\n"
        f"try_all({os.fspath(folder)!r}, {form!r}, range({seeds.start}, {seeds.stop}), {kinds!r})\n"
    )
    root = Path(__file__).parents[3]
    return subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)


def refused_and_read(done):
    """(refused, read) of such a process, which said nothing else."""
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr == ""
    refused, read = json.loads(done.stdout)
    assert 0.2 < refused / (refused + read) < 1
    return refused, read


@pytest.mark.parametrize("form", SAMPLE)
def test_odd_tables_are_read_right_or_are_one_line(tmp_path, form):
    kinds = ("trace", "attendance", "delays")
    refused, read = refused_and_read(in_a_process(tmp_path, form, range(SAMPLE[form]), kinds))
    print(f"odd tables, {form}: {refused} refused, {read} read")


@pytest.mark.extended
@pytest.mark.timeout(900)
@pytest.mark.parametrize("form", MANY)
def test_many_odd_tables(tmp_path, form):
    seeds = range(SAMPLE[form], SAMPLE[form] + MANY[form])
    refused, read = refused_and_read(in_a_process(tmp_path, form, seeds))
    print(f"odd tables, {form}: {refused} refused, {read} read")


HOLES = {
    "cells beyond the columns": (
        "csv",
        "from fedge.data import table_files as m\n"
        "m._rows = lambda p, o, n, r: ((w, dict(zip(n, c + [None] * 9))) for w, c in r)",
    ),
    "a column twice": ("csv", "from fedge.data import table_files as m; m.Counter = lambda names: {}"),
    "errors of reading": ("csv", "from fedge.data import table_files as m; m._read = lambda p, o, a: a()"),
    "seconds of any size": (
        "csv", "from fedge.devices.population import trace as m; m.LONGEST_S = float('inf')",
    ),
    "Parquet in the same process": (
        "parquet",
        "from fedge.data import table_files as m; from hhar import parquet as p\n"
        "m.parquet_lines = lambda path: p._read_lines(10**6, 65536, str(path))",
    ),
}  # fmt: skip


@pytest.mark.parametrize("hole", daily(HOLES, ["a column twice"]))
def test_a_planted_hole_is_found(tmp_path, hole):
    form, before = HOLES[hole]
    kinds = ("trace", "attendance", "delays")
    done = in_a_process(tmp_path, form, range(3000 if form == "csv" else 1500), kinds, before)
    assert done.returncode or done.stderr


@pytest.mark.parametrize("how", odd_tables.NO_FILES)
@pytest.mark.parametrize("kind", ["trace", "attendance", "delays"])
@pytest.mark.timeout(20)
def test_what_is_no_plain_file_is_one_line_at_once(tmp_path, how, kind):
    odd_tables.put_no_file(tmp_path / "x.parquet", how)
    assert is_refused(kind, tmp_path / "x.parquet")


@pytest.mark.parametrize("name", ["x[1].parquet", "*", "-rf"])
def test_a_name_is_that_of_one_file(tmp_path, name):
    """No pattern, no option of a command."""
    pl.DataFrame({"seconds_per_job": [1.0]}).write_parquet(tmp_path / "p.parquet")
    pl.DataFrame({"seconds_per_job": [2.0]}).write_parquet(tmp_path / "odd")
    (tmp_path / "odd").rename(tmp_path / name)
    assert [row[1] for row in read_trace(str(tmp_path / name))] == [2.0]


def test_a_name_that_is_no_utf_8(tmp_path):
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/x\xff"))
    pl.DataFrame({"seconds_per_job": [2.0]}).write_parquet(tmp_path / "odd")
    (tmp_path / "odd").rename(path)
    assert [row[1] for row in read_trace(str(path))] == [2.0]
    path.write_bytes(b"PAR1")
    assert is_refused("trace", path)


def test_a_file_that_claims_more_rows_than_bytes_is_refused_at_once(tmp_path):
    path = tmp_path / "bomb"
    path.write_bytes(odd_tables.bomb())
    assert path.stat().st_size < 10**6
    began = time.monotonic()
    with pytest.raises(ConfigError, match=r"at most 1,\d+,\d+ rows, for its size, claims 50,000,000"):
        read_trace(str(path))
    assert time.monotonic() - began < LONGEST_S


@pytest.mark.slow
def test_pages_that_unpack_to_more_than_the_bound_are_one_line(tmp_path, monkeypatch):
    """Cells of 100 MB of one letter; the reader has 512 MB for all that it does."""
    path = tmp_path / "bomb"
    pl.DataFrame({"device": ["a" * 10**8] * 3, "seconds_per_job": 1.0}).write_parquet(path, use_pyarrow=False)
    assert path.stat().st_size < 10**6
    monkeypatch.setattr(of_parquet, "MOST_MEMORY_BYTES", 512 << 20)
    assert is_refused("trace", path)


@pytest.mark.extended
@pytest.mark.timeout(900)
def test_a_file_cut_at_every_eighth_byte_is_one_line(tmp_path):
    whole = tmp_path / "whole"
    pl.DataFrame({"seconds_per_job": [1.0, 2.0]}).write_parquet(whole)
    made = whole.read_bytes()
    for at in range(0, len(made), 8):
        (tmp_path / "cut").write_bytes(made[:at])
        assert is_refused("trace", tmp_path / "cut"), at
