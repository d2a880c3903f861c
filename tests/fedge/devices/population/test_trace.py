"""Devices from a CSV file, and one line for what is wrong with it."""

import numpy as np
import pytest

from fedge.config.registers.option import ConfigError
from fedge.devices.population.trace import read_trace, trace

OWNER = np.zeros(5, np.int64)


def written(tmp_path, text):
    path = tmp_path / "devices.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_rows_are_devices_and_used_again_in_turn(tmp_path):
    path = written(tmp_path, "seconds_per_window,up_bytes_s\n0.5,100\n0.25,200\n")
    fleet = trace(OWNER, np.random.default_rng(0), str(path), shuffle=False)
    assert fleet.per_window_s.tolist() == [0.5, 0.25, 0.5, 0.25, 0.5]
    assert fleet.up.tolist() == [100, 200, 100, 200, 100]
    assert fleet.down.tolist() == [np.inf] * 5
    assert fleet.per_job_s.tolist() == fleet.down_s.tolist() == fleet.up_s.tolist() == [0] * 5


def test_a_shuffle_follows_from_its_stream(tmp_path):
    path = written(tmp_path, "seconds_per_job\n" + "\n".join(map(str, range(1, 9))))
    one, two = (trace(OWNER, np.random.default_rng(4), str(path)) for _ in range(2))
    assert one.per_job_s.tolist() == two.per_job_s.tolist() != [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("seconds_per_windw\n1\n", "did you mean seconds_per_window"),
        ("down_s\n1\n", "must have a column seconds_per_window or seconds_per_job"),
        ("seconds_per_job\n", "a row per device"),
        ("seconds_per_job\n1\n-1\n", "line 3, seconds_per_job is '-1'"),
        ("seconds_per_job,up_bytes_s\n1,0\n", "line 2, up_bytes_s is '0'"),
        ("seconds_per_job\nsoon\n", "is 'soon'"),
        ("seconds_per_job,down_s\n1\n", "line 2, down_s is empty"),
        ("seconds_per_job\n1\n\n\nx\n", "line 5, seconds_per_job is 'x'"),
        ("seconds_per_job\n0,1\n", "line 2 has more; fix it, and write numbers with points"),
        ("seconds_per_job;down_s\n1;2\n", "must have commas between its columns"),
        ("seconds_per_job,seconds_per_job\n1,2\n", "'seconds_per_job' 2 times"),
        ("seconds_per_job\n1e12\n", "numbers of 0 to 1e.09 there, but .*line 2"),
        ("seconds_per_job\ninf\n", "is 'inf'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path, text, words):
    with pytest.raises(ConfigError, match=words):
        read_trace(str(written(tmp_path, text)))


def test_files_of_spreadsheets_can_be_read(tmp_path):
    text = "\ufeffseconds_per_job, down_s\r\n1, 2\r\n\r\n3, 4\r\n"
    assert [row[1::3] for row in read_trace(str(written(tmp_path, text)))] == [[1, 2], [3, 4]]


def test_no_file(tmp_path):
    with pytest.raises(ConfigError, match="must name a CSV or Parquet file with a row per device, but is ''"):
        trace(OWNER, np.random.default_rng(0))
    with pytest.raises(ConfigError, match="No such file"):
        read_trace(str(tmp_path / "none.csv"))
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="readable CSV"):
        read_trace(str(tmp_path / "bytes.csv"))
