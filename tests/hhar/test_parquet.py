"""Parquet files as lines of text, read by a process of their own, whose end is one line."""

import os
import signal

import polars as pl
import pytest

from hhar import parquet
from hhar.parquet import ParquetError, parquet_lines


def test_names_then_cells_as_text(tmp_path):
    """Numbers in Python's notation; an empty cell is ""."""
    frame = pl.DataFrame({"a": [1, None], "b": [0.5, 1e30], "c": ["ü", "x\ny"], "d": [True, False]})
    frame.write_parquet(tmp_path / "x")
    assert list(parquet_lines(tmp_path / "x")) == [
        ["a", "b", "c", "d"], ["1", "0.5", "ü", "True"], ["", "1e+30", "x\ny", "False"],
    ]  # fmt: skip


@pytest.mark.parametrize("cells", [[[1]], [{"a": 1}], [b"x"]])
def test_columns_of_numbers_or_text_only(tmp_path, cells):
    pl.DataFrame({"a": cells}).write_parquet(tmp_path / "x")
    with pytest.raises(ParquetError, match="column 'a' must be of numbers or text, is "):
        list(parquet_lines(tmp_path / "x"))


def test_a_long_cell_is_refused(tmp_path):
    pl.DataFrame({"a": ["x" * 131_073]}).write_parquet(tmp_path / "x")
    with pytest.raises(ParquetError, match="at most 131,072 characters, has 131,073"):
        list(parquet_lines(tmp_path / "x"))


def test_a_reader_that_ends_by_a_signal_is_one_line(tmp_path, monkeypatch):
    """As it does where Polars aborts; the rows told before then are not all of them."""
    (tmp_path / "x").write_bytes(b"PAR1")
    code = f"import os; print('[1]', flush=True); os.kill(os.getpid(), {signal.SIGABRT})"
    monkeypatch.setattr(parquet, "_CODE", code)
    lines = parquet_lines(tmp_path / "x")
    assert next(lines) == [1]
    with pytest.raises(ParquetError, match="its reader ended with SIGABRT"):
        next(lines)


def test_a_module_of_the_users_is_not_taken_for_polars(tmp_path, monkeypatch):
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "x")
    (tmp_path / "polars.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    assert list(parquet_lines(tmp_path / "x")) == [["a"], ["1"]]
    assert os.path.exists("polars.py")
