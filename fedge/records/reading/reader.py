"""A run folder as data: tables as Polars frames, the manifest as a mapping, models as arrays.

Reads only the files of `fedge.records.recorder`, at any moment: for a running, failed or killed run, the rows
so far. Omissions (an incomplete last line, a missing file) are listed in `RunData.problems`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from safetensors import SafetensorError
from safetensors.numpy import load_file

from fedge.clustering.memberships.membership import event_description
from fedge.config.registers.option import shown
from fedge.config.registers.parts import TASKS
from fedge.config.registers.traits import LABELS
from fedge.process.escape import cell_text, read_json
from fedge.process.forks import refuse_fork
from fedge.records.folder import time_written
from fedge.records.manifest import MANIFEST, RunFolderError, read_manifest
from fedge.records.message_log import message_files
from fedge.records.outputs import has_checksum, kept_models, models_file
from fedge.records.reading.shown import run_html
from fedge.records.tables.catalog import PARTITION, TABLES
from fedge.records.tables.columns import FLOAT, INT, TEXT, Table
from fedge.records.tables.device_tables import DEVICE_TOTALS, JOBS, STALENESS, VERSIONS, growing_tables
from fedge.records.tables.model_tables import CLIENT_MODELS, COMMON_TEST, MEMBERSHIPS
from fedge.records.tables.round_tables import CLIENTS, GLOBAL, LEAF, round_tables
from fedge.records.tables.rows import csv_rows
from fedge.records.tables.server_table import SERVERS
from fedge.records.tables.timing_tables import MEMORY, MESSAGES, TIMING, WORKERS
from fedge.states.averaging import State
from fedge.tasks.configured import least_loss_of, scores_of
from fedge.tasks.task import Score
from hhar.quantity import quantity

if TYPE_CHECKING:
    from fedge.inference.models import Models, Prediction

_INT, _FLOAT, _TEXT = pl.Int64, pl.Float64, pl.String
_DTYPES: dict[str, Any] = {INT: _INT, FLOAT: _FLOAT, TEXT: _TEXT}

_TOO_LARGE = 2**63
_ROUND = "global_round"
_CLUSTERS: dict[str, Any] = {
    "round": _INT,
    "signal": _TEXT,
    "tau": _FLOAT,
    "labels": pl.List(_INT),
    "similarity": pl.List(pl.List(_FLOAT)),
    "common_start": pl.Boolean,
    "compared": pl.Boolean,
    "changes": pl.List(_TEXT),
    "lowest_p": _FLOAT,
    "level": _FLOAT,
    "server": _TEXT,
    "server_round": _INT,
}


@dataclass(frozen=True, repr=False)
class RunData:
    """Results of a run so far.

    Tables have a row per global round, or per leaf, client, process or cloud step in it; a cell is null if
    nothing was measured. Scores are in their unit (accuracy: a share, 0..1), of the served model on test
    windows, unless the name says "val", "shared" or "tuned": "shared" is the model before a round's
    fine-tuning, "tuned" after it, whichever is served.

    Attributes:
        folder: its folder.
        manifest: manifest.json, from `fedge.records.manifest.read_manifest`.
        rounds: metrics/global_rounds.csv.
        leaves: metrics/leaf_rounds.csv.
        servers: metrics/servers.csv; empty in folders of earlier versions, and on the virtual clock without
            regions.
        clients: metrics/clients.csv; unseen clients are among them, see `known_clients` and `unseen_clients`.
        clusters: clusters.jsonl; `labels` and `similarity` are lists; its round is named "global_round";
            `compared` is false without a due comparison, `changes` describes the events in words, `lowest_p`
            is the smallest p of the step's tests for groups, `level` the level of the first. Only the cloud's
            steps; `inner_clusters` has the steps of servers below, with `server` a path and `server_round`
            counting its own rounds.
        partition: partition.csv, windows per client, split, user, device and class; unseen clients and
            groups.
        timing: timing.csv: seconds per phase, workers' seconds per timeline, percentiles over messages.
        workers: timing/workers.csv: a worker's seconds of the wait per timeline.
        messages: when every message was sent, handled and received, in the first, slowest and newest round.
        memory: memory.csv.
        memberships: metrics/memberships.csv; empty if leaves are offered no mixtures.
        client_models: metrics/client_models.csv; empty if clients have no models of their algorithm.
        common_test: metrics/common_test.csv; empty without `evaluate.common`.
        versions: devices/versions.csv, an evaluation per row; this and the next are empty for a run off the
            virtual clock.
        jobs: devices/jobs.csv, for a few devices.
        devices: devices/devices.csv, once the run has ended.
        staleness: devices/staleness.csv, once the run has ended.
        confusion: client → (classes, classes) in the newest round; rows are true, columns predicted classes.
        problems: omissions, one line each.
        last_written: when a table last grew, in UTC.
    """

    folder: Path
    manifest: Mapping[str, Any]
    rounds: pl.DataFrame
    leaves: pl.DataFrame
    servers: pl.DataFrame
    clients: pl.DataFrame
    clusters: pl.DataFrame
    inner_clusters: pl.DataFrame
    partition: pl.DataFrame
    timing: pl.DataFrame
    workers: pl.DataFrame
    messages: pl.DataFrame
    memory: pl.DataFrame
    client_models: pl.DataFrame
    memberships: pl.DataFrame
    common_test: pl.DataFrame
    versions: pl.DataFrame
    jobs: pl.DataFrame
    devices: pl.DataFrame
    staleness: pl.DataFrame
    confusion: Mapping[int, np.ndarray]
    problems: Sequence[str]
    last_written: datetime

    @property
    def name(self) -> str:
        """Name of the run, which is its folder's name."""
        return self.folder.name

    @property
    def status(self) -> str:
        """Status: "running", "completed", "partial" (some client failed in some round) or "failed"."""
        return str(self.manifest["status"])

    @property
    def exit_code(self) -> int:
        """Exit code of `fedge run`: 0 completed, 3 partial, …; 1 during the run (`process.endings.exits`)."""
        return int(self.manifest["exit_code"])

    @property
    def reason(self) -> str:
        """Reason of a failure, in one line; empty otherwise."""
        return str(self.manifest.get("reason", ""))

    def __repr__(self) -> str:
        """One line for a notebook, because the frames are too large."""
        planned = self.config.get("num-server-rounds", "?")
        text = f"RunData {self.folder}: {self.status}, {len(self.rounds)} of {quantity(planned, 'round')}"
        if self.rounds.is_empty():
            return text
        first = self.scores[0]
        mean, worst = (self.rounds[f"test_{first.name}_{statistic}"][-1] for statistic in ("mean", "worst"))
        return text if mean is None else f"{text}, test {first.label} {mean:.3f}, worst client {worst:.3f}"

    def _repr_html_(self) -> str:
        """HTML for Jupyter: the run's status, and a row per leaf."""
        return run_html(self)

    @property
    def config(self) -> Mapping[str, Any]:
        """Every option of the run, flat: ``{"train.lr": 0.05, …}``."""
        config: Mapping[str, Any] = self.manifest.get("config", {})
        return config

    @property
    def scores(self) -> tuple[Score, ...]:
        """Scores of the run's task, by which columns are named; models are compared by the first."""
        return scores_of(self.manifest.get("task"))[0]

    @property
    def score(self) -> Score:
        """The first score, by which the run's models are compared; accuracy for classification."""
        return self.scores[0]

    @property
    def least_loss(self) -> float:
        """Smallest possible loss of the run's task."""
        return least_loss_of(self.manifest.get("task"))

    @property
    def has_classes(self) -> bool:
        """Whether the run's task learns one class per example."""
        task = self.manifest.get("task") or {}
        return "name" not in task or TASKS.has(str(task["name"]), LABELS)

    @property
    def known_clients(self) -> pl.DataFrame:
        """Rows of `clients` for training clients."""
        return self.clients.filter(pl.col("unseen_client").fill_null(0) == 0)

    @property
    def unseen_clients(self) -> pl.DataFrame:
        """Rows of `clients` for unseen clients."""
        return self.clients.filter(pl.col("unseen_client") == 1)

    @property
    def truth(self) -> list[int] | None:
        """Planted group of each leaf in global round 1; None without a scenario."""
        return self.eras[0][1] if self.eras else None

    @property
    def eras(self) -> list[tuple[int, list[int]]]:
        """(first global round, planted group of each leaf from then on); empty without a scenario."""
        scenario = self.manifest.get("scenario")
        if not scenario:
            return []
        later = [(int(first), list(groups)) for first, groups in scenario.get("later", [])]
        return [(1, list(scenario["groups"])), *later]

    def predict(
        self,
        x: Any,
        leaf: int | None = None,
        client: int | None = None,
        unseen: bool = False,
        trust_code: bool = False,
        kept: str | int = "",
    ) -> "Prediction":
        """Classify raw windows with the run's models: labels, probabilities, class names (docs/use.md).

        Args:
            x: raw windows (N, C, T) or images (N, C, H, W), as recorded; they are scaled here.
            leaf: leaf whose model for known clients is used; with `unseen`, its model for unseen clients.
            client: client of the run whose served model is used.
            unseen: whether to use the model for people outside training, which is the default.
            trust_code: trust the custom code of a network, now and later (docs/use.md).
            kept: a round, or "best", for models kept by `checkpoint.models`; "" for the final ones.

        Raises:
            ConfigError: the models are missing, or do not fit the windows.
        """
        models = self.opened_models(trust_code, kept)
        return models.predict(np.asarray(x), models.choose(leaf, client, unseen))

    def opened_models(self, trust_code: bool = False, kept: str | int = "") -> "Models":
        """The run's models and their card.

        Args:
            trust_code: as in `predict`.
            kept: as in `predict`.

        Raises:
            ConfigError: the models are missing or damaged, or have no card.
        """
        from fedge.inference.models import Models  # loads torch, which most readers do not need

        return Models(self._models_file(kept), self.folder, trust_code)

    def models(self, kept: str | int = "") -> list[State]:
        """Each leaf's served model for known clients, name → array; loaded again by every call.

        Args:
            kept: as in `predict`.

        Raises:
            RunFolderError: the models are missing (final ones are written at the end) or damaged.
        """
        path = self._models_file(kept)
        try:
            entries = load_file(path)
        except (SafetensorError, OSError) as error:
            raise RunFolderError(f"{path} is damaged ({error}); repeat the run") from error
        leaves: dict[int, dict[str, np.ndarray]] = {}
        for key, array in entries.items():
            leaf, name = key.split("/", 1)
            if leaf.startswith("leaf-"):
                leaves.setdefault(int(leaf.removeprefix("leaf-")), {})[name] = array
        return [leaves[leaf] for leaf in sorted(leaves)]

    def _models_file(self, kept: str | int) -> Path:
        """File of models; RunFolderError if missing, or changed since the run wrote it."""
        name = models_file(str(kept))
        path, names = self.folder / name, kept_models(self.folder)
        if kept and str(kept) not in names:
            raise RunFolderError(
                f"models must be of a round that checkpoint.models kept ({', '.join(names) or 'none'}), but "
                f"{shown(kept)} is not; omit it for the final ones"
            )
        if not path.is_file():
            raise RunFolderError(
                f"{path} is missing: models are written at the end; this run is {self.status}"
            )
        sha256 = self.manifest.get("outputs", {}).get(name)
        if sha256 and not has_checksum(path, sha256):
            raise RunFolderError(
                f"{path} is damaged: it is not as the run wrote it; fedge resume writes it again"
            )
        return path


def _resolve_folder(path: Any) -> Path:
    """A path with links resolved, because the target of "latest" has the run's name.

    A name that is not a folder here is looked up in runs/, as in commands.

    Raises:
        RunFolderError: it is not a path.
    """
    try:
        folder = Path(path)
        if path == folder.name and not folder.is_dir() and Path("runs", path).is_dir():
            folder = Path("runs", path)
        return folder.resolve()
    except (TypeError, ValueError, OSError, RuntimeError) as error:  # NUL, surrogates, links in a circle
        raise RunFolderError(
            f"a run must be the path of its folder, but is {shown(path)} ({error}); give one, e.g. runs/NAME"
        ) from error


def load_run(path: str | Path) -> RunData:
    """Read a run folder, ``runs/NAME`` or a NAME in runs/, in any state of the run.

    Raises:
        RunFolderError: no run, an unreadable manifest, or an entry other than a file.
        ConfigError: this process is a fork of one that has carried out or read a run.

    >>> import fedge, io, tempfile
    >>> with tempfile.TemporaryDirectory() as runs:
    ...     config = {"num-server-rounds": 1, "train.local-epochs": 1, "report": False, "runs-dir": runs}
    ...     _ = fedge.simulate(config, model="linear", data="digits", clients=6, terminal=io.StringIO())
    ...     run = load_run(f"{runs}/latest")
    ...     weight = run.models()[0]["head.weight"]
    >>> run.status, run.manifest["seed"], weight.shape
    ('completed', 42, (10, 64))
    """
    refuse_fork("load_run")
    folder = _resolve_folder(path)
    manifest = read_manifest(folder)
    problems: list[str] = []
    scores, loss_unit = scores_of(manifest.get("task"))
    task_tables = round_tables(scores, loss_unit)
    by_path = {
        t.path: t
        for t in (task_tables.rounds, task_tables.leaves, task_tables.clients, growing_tables(scores[0])[0])
    }
    tables = {
        t.path: _read_table(folder / t.path, by_path.get(t.path, t), problems)
        for t in TABLES
        if t is not MESSAGES
    }
    is_tree = (tables[SERVERS.path]["tier"] > 1).any()
    clusters = _read_clusters(folder / "clusters.jsonl", problems, is_tree)
    at_cloud = pl.col("server") == "/"
    return RunData(
        folder=folder,
        manifest=manifest,
        rounds=tables[GLOBAL.path],
        leaves=tables[LEAF.path],
        servers=tables[SERVERS.path],
        clients=tables[CLIENTS.path],
        clusters=clusters.filter(at_cloud).drop("server", "server_round"),
        inner_clusters=clusters.filter(~at_cloud),
        partition=tables[PARTITION.path],
        timing=tables[TIMING.path],
        workers=tables[WORKERS.path],
        messages=_read_messages(folder, problems),
        memory=tables[MEMORY.path],
        client_models=tables[CLIENT_MODELS.path],
        memberships=tables[MEMBERSHIPS.path],
        common_test=tables[COMMON_TEST.path],
        versions=tables[VERSIONS.path],
        jobs=tables[JOBS.path],
        devices=tables[DEVICE_TOTALS.path],
        staleness=tables[STALENESS.path],
        confusion=_read_confusion(folder / "metrics" / "confusion.json", problems),
        problems=problems,
        last_written=_last_written(folder),
    )


def _last_written(folder: Path) -> datetime:
    """Time of the newest write to a growing file."""
    files = [folder / MANIFEST, folder / "run.log", *(folder / table.path for table in TABLES)]
    return max(time_written(file, timezone.utc) for file in files if file.is_file())


def _schema(table: Table, always: bool) -> dict[str, Any]:
    """Column → type of a table: all columns, or only those of every version (`always`)."""
    return {c.name: _DTYPES[c.kind] for c in table.columns if c.always or not always}


def _read_table(path: Path, table: Table, problems: list[str]) -> pl.DataFrame:
    """A CSV table; incomplete rows are left out and listed in `problems`.

    Columns unknown to this version are accepted; columns missing in older versions are not required.
    """
    known, required = _schema(table, always=False), _schema(table, always=True)
    if not path.exists() and not table.always:
        return pl.DataFrame(schema=required)
    lines = _complete_lines(path, problems)
    header, *rows = csv_rows(lines) if lines else [[]]
    missing = [column for column in required if column not in header]
    if header and missing:
        problems.append(
            f"{path.name} has no column {', '.join(missing)}: written by another version of Fedge"
        )
    dtypes = {
        c: known.get(c) or _guess_type([row[index : index + 1] for row in rows])
        for index, c in enumerate(header)
    }
    converters = [_converter(dtype) for dtype in dtypes.values()]
    parsed = [_parse_row(row, converters) for row in rows]
    if _ROUND in known:  # rows are found by it
        round_index = header.index(_ROUND) if _ROUND in header else None
        parsed = [
            row if row and round_index is not None and row[round_index] is not None else None
            for row in parsed
        ]
    _report_damaged(
        path.name, [number for number, row in enumerate(parsed, start=2) if row is None], problems
    )
    filled = [row + [None] * len(missing) for row in parsed if row is not None]
    return pl.DataFrame(
        filled, schema=dtypes | {column: required[column] for column in missing}, orient="row"
    )


def _read_messages(folder: Path, problems: list[str]) -> pl.DataFrame:
    """Messages of the rounds whose messages were kept, by round."""
    empty = pl.DataFrame(schema=_schema(MESSAGES, always=False))
    tables = [_read_table(path, MESSAGES, problems) for path in message_files(folder)]
    trimmed = [
        table.select([column for column in table.columns if column in empty.columns]) for table in tables
    ]
    return pl.concat([empty, *trimmed], how="diagonal")  # a damaged header adds a column


def _parse_row(cells: Sequence[str], converters: Sequence[Callable[[str], Any]]) -> list[Any] | None:
    """Values of a row; None if incomplete."""
    try:
        return [converter(cell) for converter, cell in zip(converters, cells, strict=True)]
    except ValueError:
        return None


def _guess_type(cells: Sequence[Sequence[str]]) -> Any:
    """Type of a column unknown to this version: numbers if all of its cells are."""
    try:
        for cell in cells:
            float(cell[0] or "nan") if cell else None
    except ValueError:
        return _TEXT
    return _FLOAT


def _converter(dtype: Any) -> Callable[[str], Any]:
    """Converter from a cell to its value; an empty cell becomes None."""
    parsers: dict[Any, Callable[[str], Any]] = {_INT: _parse_integer, _TEXT: cell_text}
    parser = parsers.get(dtype, float)
    return lambda cell: parser(cell) if cell else None


def _parse_integer(cell: str) -> int:
    """A whole number of 64 bits."""
    number = int(cell)
    if abs(number) >= _TOO_LARGE:
        raise ValueError("a number exceeds 64 bits")
    return number


def _report_damaged(name: str, lines: Sequence[int], problems: list[str]) -> None:
    """Report the omitted lines of a file."""
    if lines:
        numbers = ", ".join(map(str, lines[:5])) + (f" and {len(lines) - 5} more" if len(lines) > 5 else "")
        problems.append(f"{name}: damaged and left out: line {numbers}")


def _complete_lines(path: Path, problems: list[str]) -> list[str]:
    """Lines with a final line break; the last line may still be being written."""
    try:
        text = path.read_bytes().decode("utf-8", errors="replace")
    except OSError as error:
        problems.append(f"{path.name} cannot be read: {error.strerror or error}")
        return []
    *lines, rest = text.split("\n")
    if rest:
        problems.append(f"{path.name} ends in half a line, which is left out")
    return lines


def _read_clusters(path: Path, problems: list[str], is_tree: bool = False) -> pl.DataFrame:
    """clusters.jsonl; incomplete lines are left out and listed in `problems`.

    A run is known to be deeper than two tiers by `is_tree`, or by groups below the cloud.
    """
    lines = _complete_lines(path, problems)
    members = "children" if is_tree or any('"server"' in line for line in lines) else "leaves"
    entries = [_cluster_entry(line, members) for line in lines]
    _report_damaged(
        path.name, [number for number, entry in enumerate(entries, start=1) if not entry], problems
    )
    frame = pl.DataFrame([entry for entry in entries if entry], schema=_CLUSTERS)
    return frame.rename({"round": "global_round"})


def _cluster_entry(line: str, members: str) -> dict[str, Any] | None:
    """Required fields of a line of clusters.jsonl, or None if incomplete; `members` is grouped."""
    try:
        entry = read_json(line)
        entry["compared"] = entry.get("compared", True)
        entry["changes"] = [event_description(event, members) for event in entry.get("events", ())]
        tests = entry.get("tests", ())
        entry["lowest_p"] = min((float(test["p"]) for test in tests), default=None)
        entry["server"], entry["server_round"] = entry.get("server", "/"), entry.get("server_round")
        entry["level"] = float(tests[0]["level"]) if tests and "level" in tests[0] else None
        fields = {key: entry[key] for key in _CLUSTERS}
        pl.DataFrame([fields], schema=_CLUSTERS)  # singly: an unsuitable entry would discard all others
        return fields
    except (
        ValueError,
        KeyError,
        TypeError,
        IndexError,
        AttributeError,
        OverflowError,
        pl.exceptions.PolarsError,
    ):
        return None


def _read_confusion(path: Path, problems: list[str]) -> dict[int, np.ndarray]:
    """Matrices of metrics/confusion.json; empty before the end of the first round."""
    if not path.is_file():
        return {}
    try:
        clients = read_json(path.read_text(encoding="utf-8"))["clients"]
        return {int(client): np.array(cells, dtype=np.int64) for client, cells in clients.items()}
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        problems.append(f"{path.name} is damaged and left out")
        return {}
