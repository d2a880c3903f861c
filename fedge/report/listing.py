"""List of all runs in a folder: one line per run, newest first."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedge.config.registers.option import ConfigError
from fedge.process.escape import printable
from fedge.records.manifest import MANIFEST, RunFolderError, read_manifest
from fedge.records.tables.rows import records_of
from fedge.tasks.configured import scores_of

_NOTHING = "–"
_SWEEP = "sweep.toml"  # a sweep's copy of its file in its folder


@dataclass(frozen=True)
class ListedRun:
    """One run in the list; all fields are text.

    Attributes:
        rounds: done and planned, e.g. "30/30".
        score_name: name of the score by which models are compared.
        score: mean test score of the served models over clients in the newest round.
        worst: test score of the worst client.
        unseen: mean over unseen clients.
    """

    name: str
    status: str
    score_name: str
    score: str
    worst: str
    unseen: str
    rounds: str
    seed: str
    started: str


def list_runs(runs_dir: Path) -> list[ListedRun]:
    """Every run of a folder, newest first; a folder with an unreadable manifest is listed as unreadable.

    Raises:
        RunFolderError: there is no such folder.
    """
    if not runs_dir.is_dir():
        raise RunFolderError(f"{runs_dir} is not a folder; give the folder of all runs with --runs-dir")
    folders = [f for f in runs_dir.iterdir() if f.is_dir() and not f.is_symlink()]
    listed = [line_of_run(folder) for folder in folders if (folder / MANIFEST).is_file()]
    listed += [_line_of_sweep(folder) for folder in folders if is_sweep(folder)]
    return sorted(listed, key=lambda run: (run.started, run.name), reverse=True)


def is_sweep(folder: Path) -> bool:
    """Whether a folder belongs to a sweep rather than to a run."""
    return not (folder / MANIFEST).is_file() and (folder / _SWEEP).is_file()


def runs_in(folder: Path) -> list[Path]:
    """The runs in a folder: the run itself, or a sweep's runs, by name.

    Raises:
        ConfigError: no run of the sweep has begun.
    """
    if not is_sweep(folder):
        return [folder]
    runs = sorted(_started_runs(folder))
    if not runs:
        raise ConfigError(f"the sweep must have a run that has begun, but {folder} has none; start it again")
    return runs


def _started_runs(folder: Path) -> list[Path]:
    """Folders of a sweep's started runs, without the link to the newest."""
    return [path.parent for path in folder.glob(f"*/{MANIFEST}") if not path.parent.is_symlink()]


def _line_of_sweep(folder: Path) -> ListedRun:
    """Line of a sweep: number of its runs by status, and the newest start."""
    runs = [line_of_run(run) for run in _started_runs(folder)]
    counts = Counter(run.status for run in runs)
    states = ", ".join(f"{number} {status}" for status, number in sorted(counts.items()))
    started = max((run.started for run in runs), default=_NOTHING)
    blanks = dict.fromkeys(("score_name", "score", "worst", "unseen", "rounds", "seed"), _NOTHING)
    return ListedRun(f"{folder.name}/", f"sweep: {states or 'no run'}", started=started, **blanks)


def line_of_run(folder: Path) -> ListedRun:
    """Line of one run."""
    try:
        manifest = read_manifest(folder)
    except RunFolderError:
        return ListedRun(folder.name, "unreadable", *[_NOTHING] * 7)
    final = _last_row(folder / "metrics" / "global_rounds.csv")
    config: dict[str, Any] = manifest.get("config", {})
    first = scores_of(manifest.get("task"))[0][0]
    score = first.name
    return ListedRun(
        name=folder.name,
        status=manifest["status"],
        score_name=first.label,
        score=_score_text(final.get(f"test_{score}_mean")),
        worst=_score_text(final.get(f"test_{score}_worst")),
        unseen=_score_text(final.get(f"unseen_{score}_mean")),
        rounds=f"{final.get('global_round', 0)}/{config.get('num-server-rounds', '?')}",
        seed=str(manifest.get("seed", _NOTHING)),
        started=str(manifest.get("started", _NOTHING)).removesuffix("+00:00").replace("T", " "),
    )


def _last_row(path: Path) -> dict[str, str]:
    """The last complete row of a table; empty without one."""
    if not path.is_file():
        return {}
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]
    return next(records_of([lines[0], lines[-1]]), {}) if len(lines) > 1 else {}


def _score_text(cell: str | None) -> str:
    """A score with four decimals."""
    try:
        return f"{float(cell or ''):.4f}"
    except ValueError:
        return _NOTHING


def lines(runs: Sequence[ListedRun]) -> Iterator[str]:
    """The list as aligned text, with a header; scores are named if they differ."""
    names = {run.score_name for run in runs if run.score_name != _NOTHING}
    score_header = "score" if len(names) > 1 else next(iter(names), "score")
    rows = [("run", "status", score_header, "worst", "unseen", "rounds", "seed", "started (UTC)")]
    for run in runs:
        score = f"{run.score_name} {run.score}" if len(names) > 1 and run.score != _NOTHING else run.score
        rows.append((run.name, run.status, score, run.worst, run.unseen, run.rounds, run.seed, run.started))
    yield from aligned(rows)


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows as lines with aligned columns; control characters in names of files are escaped."""
    shown = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in shown) for column in range(len(shown[0]))]
    for row in shown:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
