"""Every table of a run is read by a section of its report."""

import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import fedge.report.sections
from fedge.records.reading.reader import RunData

SECTIONS = "\n".join(file.read_text() for file in Path(fedge.report.sections.__file__).parent.glob("*.py"))
TABLES = [field.name for field in fields(RunData) if field.type in (pl.DataFrame, Mapping[int, np.ndarray])]


def test_there_are_tables():
    assert {"rounds", "client_models", "inner_clusters", "confusion"} <= set(TABLES)


@pytest.mark.parametrize("name", TABLES)
def test_a_report_reads_every_table_of_a_run(name):
    assert re.search(rf"\brun\.{name}\b", SECTIONS), f"no section of a report reads run.{name}"
