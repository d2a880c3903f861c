"""Parquet files as pyarrow writes them, and tables of pyarrow: read as what they are, or one line.

of_pyarrow.zip has files of pyarrow 26 with each of its codecs, encodings and kinds of columns, encrypted
ones, and its other formats; cells.json has what pyarrow reads of them, null where they are to be refused:
columns of other than numbers and text, damaged files and those of another format.
"""

import json
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from daily import daily

import fedge
from hhar.errors import HharError
from hhar.parquet import ParquetError, parquet_lines

FILES = zipfile.ZipFile(Path(__file__).with_name("of_pyarrow.zip"))
CELLS = json.loads(FILES.read("cells.json"))
DAILY = ("codec-brotli", "decimal256", "encrypted-False")


@pytest.mark.parametrize("name", daily(CELLS, DAILY))
def test_a_file_of_pyarrow_is_read_as_pyarrow_reads_it_or_is_one_line(tmp_path, name):
    (tmp_path / "x").write_bytes(FILES.read(name))
    if CELLS[name] is None:
        with pytest.raises(ParquetError) as refused:
            list(parquet_lines(tmp_path / "x"))
        assert 0 < len(str(refused.value)) < 300
        assert "\n" not in str(refused.value)
    else:
        assert list(parquet_lines(tmp_path / "x")) == CELLS[name]


GIVEN = {"user": "u", "label": "l", "channels": ["x"], "rate_hz": 8.0, "window_s": 1.0}


def test_what_has_the_form_of_a_table_of_arrow_is_refused():
    table = SimpleNamespace(column_names=["u", "l", "x"], columns=[], shape=(0, 3))
    with pytest.raises(
        HharError, match=r"must be a pandas or Polars DataFrame, is .*; to_pandas\(\) makes it one"
    ):
        fedge.from_pandas(table, **GIVEN)


def test_tables_of_pyarrow_are_refused_and_columns_of_it_are_read():
    arrow = pytest.importorskip("pyarrow", reason="pip install pyarrow")
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"u": "a", "l": ["w", "s"] * 1, "x": 0.0}, index=range(2))
    frame = frame.loc[np.repeat([0, 1], 32)].assign(x=np.arange(64) / 7).reset_index(drop=True)
    for table in (arrow.Table.from_pandas(frame), arrow.RecordBatch.from_pandas(frame)):
        with pytest.raises(HharError, match=r"to_pandas\(\) makes it one"):
            fedge.from_pandas(table, **GIVEN)
    right = fedge.from_pandas(frame, **GIVEN)
    windows = fedge.from_pandas(frame.convert_dtypes(dtype_backend="pyarrow"), **GIVEN)
    np.testing.assert_array_equal(windows.x, right.x)
    assert windows.user.tolist() == right.user.tolist()
    lists = frame.assign(x=pandas.Series([[1.0]] * 64, dtype=pandas.ArrowDtype(arrow.list_(arrow.float64()))))
    with pytest.raises(HharError, match="must hold numbers, holds list"):
        fedge.from_pandas(lists, **GIVEN)
