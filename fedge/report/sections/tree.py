"""Section on servers: the tree, with the score of the clients below each server."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from fedge.console.tiers import servers_of
from fedge.records.reading.reader import RunData
from fedge.report.html.page import PageSection, Panel
from fedge.report.html.tables import NOTHING, bytes_text, table, text_of
from fedge.report.html.tree import MOST_BELOW, Branch, open_tiers
from fedge.report.sections.clustering import groups_text
from hhar.quantity import quantity

_DECISIONS = {"accepted": "took its offer", "rejected": "kept its own model"}
Row = Mapping[str, Any]


def tree_sections(run: RunData) -> list[PageSection]:
    """Tree of servers in the newest round with scores; empty for a single leaf."""
    scored = run.servers.drop_nulls("test_score")
    if scored.is_empty() or run.servers["path"].n_unique() < 3:
        return []
    newest = int(scored["global_round"][-1])
    rows = run.servers.filter(pl.col("global_round") == newest).rows(named=True)
    panel = Panel(
        f"Round {newest}",
        tree=open_tiers(_Drawing(run, rows).branch(rows[0])),
        caption=f"Test {run.score.label} of what is served, pooled over the clients below each server. "
        "↑ and ↓: arrays to the server above and back in this round. metrics/servers.csv has all rounds.",
        is_wide=True,
    )
    return [PageSection("Servers", [_sentence(rows)], [panel, *_group_panels(run)])]


def _group_panels(run: RunData) -> list[Panel]:
    """Groups of children formed by servers below the cloud; empty without any."""
    steps = run.inner_clusters
    if steps.is_empty():
        return []
    names = dict(run.servers.select("path", "name").unique().iter_rows())
    rows = []
    previous: dict[str, list[int]] = {}
    for step in steps.iter_rows(named=True):
        path, labels = step["server"], step["labels"]
        if labels != previous.get(path):
            changes = "; ".join(step["changes"] or ()) or NOTHING
            server = f"{names.get(path, '')} {path[1:]}".strip()
            rows.append((server, step["global_round"], step["server_round"], groups_text(labels), changes))
        previous[path] = labels
    numbers = table(("server", "global round", "its round", "groups of its children", "changes"), rows)
    caption = (
        f"{quantity(len(steps), 'step')} of {quantity(len(previous), 'server')}; a row for each new "
        "grouping. Children are numbered from 0 below each server. clusters.jsonl has all steps, with "
        "similarities."
    )
    return [Panel("Groups below the cloud", numbers, caption=caption, is_open=True, is_wide=True)]


def _sentence(rows: Sequence[Row]) -> str:
    """Number of servers on each tier, in words."""
    names = dict.fromkeys(row["name"] for row in rows[1:])
    counts = [servers_of(sum(row["name"] == name for row in rows), name) for name in names]
    return f"{rows[0]['name'].capitalize()} over {' over '.join(counts)}."


class _Drawing:
    """Rows of one round as a tree."""

    def __init__(self, run: RunData, rows: Sequence[Row]) -> None:
        self._is_share = run.score.unit == "share"
        self._sign = 1 if run.score.higher_is_better else -1
        self._below: dict[str, list[Row]] = {}
        for row in rows[1:]:
            self._below.setdefault(row["path"].rpartition("/")[0] or "/", []).append(row)

    def branch(self, row: Row) -> Branch:
        """A server and those below it; if there are very many, only the worst."""
        below = self._below.get(row["path"], [])
        drawn, left_out = below, ""
        if len(below) > MOST_BELOW:
            worst = sorted(below, key=self._merit)[:MOST_BELOW]
            drawn = [child for child in below if child in worst]
            other_scores = [child["test_score"] for child in below if child not in worst]
            scores = [score for score in other_scores if score is not None]
            range_text = f", {text_of(min(scores))} to {text_of(max(scores))}" if scores else ""
            left_out = f"and {len(other_scores)} others, which are no worse{range_text}"
        score = row["test_score"]
        return Branch(
            row["name"] if row["path"] == "/" else f"{row['name']} {row['path'][1:]}",
            text_of(score),
            score if self._is_share else None,
            self._marks(row),
            row["cluster"] if self._is_grouped(row) else None,
            [self.branch(child) for child in drawn],
            left_out,
        )

    def _merit(self, row: Row) -> float:
        score = row["test_score"]
        return float("-inf") if score is None else self._sign * score

    def _is_grouped(self, row: Row) -> bool:
        """Whether any sibling is in another cluster."""
        siblings = self._below.get(row["path"].rpartition("/")[0] or "/", []) if row["path"] != "/" else []
        return len({sibling["cluster"] for sibling in siblings}) > 1

    def _marks(self, row: Row) -> list[str]:
        """Short words on a server."""
        marks = [f"cluster {row['cluster']}"] if self._is_grouped(row) else []
        marks += [_DECISIONS[row["gate"]]] if row["gate"] in _DECISIONS else []
        marks.append(quantity(row["num_clients"], "client"))
        if row["unseen_score"] is not None:
            marks.append(f"unseen clients {text_of(row['unseen_score'])}")
        sent = (("↑", row["uplink_bytes"]), ("↓", row["downlink_bytes"]))
        arrows = [f"{arrow} {bytes_text(size)}" for arrow, size in sent if size is not None]
        return [*marks, " ".join(arrows)] if arrows else marks
