"""A run in Jupyter: a small table as HTML, without scripts or its own styles."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from fedge.records.folder import REPORT
from fedge.tasks.task import Score
from hhar.quantity import quantity


class ShownRun(Protocol):
    """Displayed parts of `fedge.records.reading.reader.RunData`."""

    @property
    def folder(self) -> Path:
        """Path of the run folder."""

    @property
    def rounds(self) -> pl.DataFrame:
        """A row per global round."""

    @property
    def leaves(self) -> pl.DataFrame:
        """A row per leaf and global round."""

    @property
    def name(self) -> str:
        """Name of the run folder."""

    @property
    def status(self) -> str:
        """Status in its manifest."""

    @property
    def reason(self) -> str:
        """Reason for a failure; empty without one."""

    @property
    def config(self) -> Mapping[str, Any]:
        """Options of the run."""

    @property
    def scores(self) -> Sequence[Score]:
        """Scores of its task, the main one first."""


def _columns(run: ShownRun) -> dict[str, str]:
    """Heading → column of leaf_rounds.csv."""
    first, *others = run.scores
    return {
        "leaf": "leaf",
        "cluster": "cluster",
        "clients": "num_clients",
        f"test {first.label}": f"test_{first.name}",
        **{score.label: score.name for score in others},
        "unseen clients": "unseen_clients",
        f"their {first.label}": f"unseen_{first.name}",
        "gate": "gate",
    }


def run_html(run: ShownRun) -> str:
    """A run in a few lines: name, status, scores, a row per leaf of its newest round, and its report."""
    lines = [f"<p><b>{escape(run.name)}</b>: {escape(run.status)}{_reason_text(run)}{_scores_text(run)}</p>"]
    if not run.leaves.is_empty():
        newest = run.leaves["global_round"].max()
        rows = run.leaves.filter(run.leaves["global_round"] == newest).to_dicts()
        lines.append(html_table(_drop_empty_columns(rows, _columns(run))))
    report = run.folder / REPORT
    if report.is_file():
        lines.append(f"<p>{escape(str(report))}</p>")
    return "<div>" + "".join(lines) + "</div>"


def html_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Table of rows, heading → value; numbers have four decimals, None is an empty cell."""
    head = "".join(f"<th>{escape(name)}</th>" for name in rows[0])
    body = "".join(f"<tr>{''.join(f'<td>{_format_cell(v)}</td>' for v in row.values())}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _drop_empty_columns(
    rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Rows by heading, without empty columns."""
    unseen = any(row.get("unseen_clients") for row in rows)
    present = [
        (head, name)
        for head, name in columns.items()
        if any(row.get(name) is not None for row in rows) and (unseen or not name.startswith("unseen"))
    ]
    return [{head: row[name] for head, name in present} for row in rows]


def _reason_text(run: ShownRun) -> str:
    """Reason of a failure; empty without one."""
    return f" ({escape(run.reason)})" if run.reason else ""


def _scores_text(run: ShownRun) -> str:
    """Rounds done, and scores."""
    text = f", {len(run.rounds)} of {escape(quantity(run.config.get('num-server-rounds', '?'), 'round'))}"
    if run.rounds.is_empty():
        return text
    first = run.scores[0]
    names = (f"test_{first.name}_mean", f"test_{first.name}_worst", f"unseen_{first.name}_mean")
    mean, worst, unseen = (run.rounds[name][-1] for name in names)
    text += "" if mean is None else f", test {first.label} {mean:.4f}, worst client {worst:.4f}"
    return text if unseen is None else f"{text}, unseen clients {unseen:.4f}"


def _format_cell(value: Any) -> str:
    """A value as text."""
    if isinstance(value, float):
        return f"{value:.4f}"
    return "" if value is None else escape(str(value))
