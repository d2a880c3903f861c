"""Cumulative costs of a run after every global round: virtual seconds, joules, bytes of all tiers."""

import polars as pl

from fedge.records.reading.reader import RunData

BYTES = ("uplink_bytes", "downlink_bytes", "cloud_uplink_bytes", "cloud_downlink_bytes")


def virtual_seconds(run: RunData) -> pl.Series | None:
    """Virtual seconds, (N,), on the virtual clock or of rounds with devices; None without either."""
    return _device_column(run, "virtual_s")


def joules(run: RunData) -> pl.Series | None:
    """Joules of the devices, (N,); None without devices, or if their power is unknown."""
    return _device_column(run, "joules")


def bytes_so_far(rounds: pl.DataFrame) -> pl.Series:
    """Bytes sent so far on all tiers, (N,), from rows of global_rounds.csv."""
    return rounds.select(pl.sum_horizontal(BYTES)).to_series().cum_sum()


def _device_column(run: RunData, column: str) -> pl.Series | None:
    """A column of versions.csv, or of global_rounds.csv; None if missing or with empty cells."""
    rows = run.rounds if run.versions.is_empty() else run.versions.head(len(run.rounds))
    is_known = column in rows.columns and not rows.is_empty() and rows[column].null_count() == 0
    return rows[column] if is_known else None
