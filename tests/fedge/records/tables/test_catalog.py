"""The catalog of columns: what is written, what is read and what docs/tables.md says are one thing."""

from pathlib import Path

import pytest
from run_folders import round_result, write_run

from fedge.cli import main
from fedge.records.tables.catalog import TABLES, page
from fedge.records.tables.device_tables import DEVICE_TABLES
from fedge.records.tables.model_tables import CLIENT_MODELS, COMMON_TEST, MEMBERSHIPS
from fedge.timing.laps import PHASES

ROOT = Path(__file__).resolve().parents[4]
UNITS = {
    "virtual s", "versions", "jobs", "events",
    "", "share", "s", "bytes", "MiB", "nat", "windows", "clients", "leaves", "leaf rounds", "messages",
    "workers", "files", "threads", "J",
}  # fmt: skip

WRITTEN = [
    t for t in TABLES if t not in (*DEVICE_TABLES, CLIENT_MODELS, COMMON_TEST, MEMBERSHIPS)
]  # by every run in rounds


def test_the_page_is_what_the_command_prints(capsys):
    assert main(["tables"]) == 0
    printed = capsys.readouterr().out
    assert printed == page() == (ROOT / "docs" / "tables.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("table", WRITTEN, ids=lambda table: table.path)
def test_a_run_folder_has_just_these_columns(tmp_path, table):
    folder = write_run(tmp_path / "run", [round_result(1, [5, 6, 7, 8])])
    (path,) = folder.glob(table.path)
    assert path.read_text(encoding="utf-8").splitlines()[0] == ",".join(table.names)


def test_columns_are_named_once_and_described():
    for table in TABLES:
        assert len(set(table.names)) == len(table.columns), table.path
        for column in table.columns:
            assert column.unit in UNITS, column
            assert column.meaning, column
    timing = next(table for table in TABLES if table.path == "timing.csv")
    assert set(PHASES) < set(timing.names)
