"""Rows of CSV and Parquet files are the same to a run."""

import numpy as np
import polars as pl
import pytest

from fedge.config.registers.option import ConfigError
from fedge.devices.population import attendance, trace
from hhar import parquet as of_parquet

SPEEDS = pl.DataFrame(
    {"device": ["a", "b"], "seconds_per_window": [0.1, 0.25], "up_bytes_s": [100, 1234567890]}
)
TIMES = pl.DataFrame({"device": ["a", "b", "a"], "from_s": [0, 1, 3], "until_s": [1.5, 2.0, 4.25]})


def both(tmp_path, frame):
    frame.write_csv(tmp_path / "x.csv")
    frame.write_parquet(tmp_path / "x.parquet")
    return str(tmp_path / "x.csv"), str(tmp_path / "x.parquet")


def test_speeds(tmp_path):
    csv, parquet = both(tmp_path, SPEEDS)
    assert trace.read_trace(csv) == trace.read_trace(parquet)
    assert trace.read_trace(csv)[1][:4:3] == [0.25, 1234567890.0]


def test_times(tmp_path):
    found = [attendance.read_attendance(path) for path in both(tmp_path, TIMES)]
    as_lists = [[[each.tolist() for each in of] for of, _ in one] for one in found]
    assert (
        as_lists[0] == as_lists[1] == [[[0, 3_000_000], [1_500_000, 4_250_000]], [[1_000_000], [2_000_000]]]
    )


def test_more_rows_than_a_slice(tmp_path, monkeypatch):
    monkeypatch.setattr(of_parquet, "_SLICE", 3)
    numbers = np.arange(1.0, 11.0)
    _, parquet = both(tmp_path, pl.DataFrame({"seconds_per_job": numbers}))
    assert [row[1] for row in trace.read_trace(parquet)] == numbers.tolist()


def test_a_cell_that_is_none_is_named_by_its_row(tmp_path):
    _, parquet = both(tmp_path, pl.DataFrame({"seconds_per_job": [1.0, None]}))
    with pytest.raises(ConfigError, match=r"x\.parquet, row 2, seconds_per_job is empty"):
        trace.read_trace(parquet)


@pytest.mark.parametrize("text", [b"PAR1 and no more", b"seconds_per_job\n\xff\n"])
def test_a_file_that_is_neither_is_one_line(tmp_path, text):
    (tmp_path / "x").write_bytes(text)
    with pytest.raises(ConfigError, match=r"a readable CSV or Parquet file, but [^\n]*; check the path$"):
        trace.read_trace(str(tmp_path / "x"))
