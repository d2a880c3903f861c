"""MLflow: a database in ``mlflow/`` of the run folder, unless MLFLOW_TRACKING_URI names a server or another.

``mlflow ui --backend-store-uri sqlite:///runs/NAME/mlflow/mlflow.db`` shows it. MLFLOW_EXPERIMENT_NAME is
respected; the default is "fedge". A database is used because MLflow 3 no longer develops its store of plain
files.
"""

import logging
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # both are read when MLflow is loaded
os.environ.setdefault("MLFLOW_CONFIGURE_LOGGING", "false")  # its log goes to run.log, not to the terminal

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag

from fedge.trackers.tracker import TrackedRun

logging.getLogger("alembic").setLevel(logging.WARNING)  # it reports each table created

FOLDER = "mlflow"
_ID_TAG = "fedge.run"
_MOST_PARAMS, _MOST_METRICS = 100, 1000  # limits of MLflow per call
_STATUS = {"completed": "FINISHED", "partial": "FINISHED", "failed": "FAILED"}


class _MLflow:
    """A `Tracker`."""

    def __init__(self, run: TrackedRun) -> None:
        uri = os.environ.get("MLFLOW_TRACKING_URI")
        local = None if uri else _ensure_folder(run.folder / FOLDER)
        self._client = MlflowClient(tracking_uri=uri or f"sqlite:///{local}/mlflow.db")
        experiment = _experiment(self._client, os.environ.get("MLFLOW_EXPERIMENT_NAME", "fedge"), local)
        existing = (
            self._client.search_runs([experiment], f"tags.`{_ID_TAG}` = '{run.id}'") if run.resumed else []
        )
        if existing:
            self._id = existing[0].info.run_id
            self._client.update_run(self._id, status="RUNNING")
            return
        created = self._client.create_run(experiment, run_name=run.name, tags={_ID_TAG: run.id})
        self._id = created.info.run_id
        params = [Param(name, str(value)) for name, value in run.params.items()]
        for batch in _batches(params, _MOST_PARAMS):
            self._client.log_batch(self._id, params=batch)

    def log(self, rounds: Sequence[tuple[int, Mapping[str, float]]]) -> None:
        """Write or send the numbers."""
        now_ms = int(time.time() * 1000)
        metrics = [
            Metric(name, value, now_ms, global_round)
            for global_round, numbers in rounds
            for name, value in numbers.items()
        ]
        for batch in _batches(metrics, _MOST_METRICS):
            self._client.log_batch(self._id, metrics=batch)

    def finish(self, status: str, exit_code: int) -> None:
        """End the run at MLflow; an interrupted one counts as killed."""
        self._client.log_batch(self._id, tags=[RunTag("status", status), RunTag("exit_code", str(exit_code))])
        self._client.set_terminated(self._id, "KILLED" if exit_code > 128 else _STATUS[status])


def _ensure_folder(folder: Path) -> Path:
    """Create a folder if missing."""
    folder.mkdir(exist_ok=True)
    return folder


def _experiment(client: MlflowClient, name: str, local: Path | None) -> str:
    """Id of an experiment; in a local database, its files are stored beside the database."""
    found = client.get_experiment_by_name(name)
    if found:
        return str(found.experiment_id)
    return str(client.create_experiment(name, (local / "artifacts").as_uri() if local else None))


def _batches(entries: Sequence[Any], most: int) -> list[Sequence[Any]]:
    """Cut entries into batches of at most `most`."""
    return [entries[i : i + most] for i in range(0, len(entries), most)]


def open_run(run: TrackedRun) -> _MLflow:
    """Start or resume a run at MLflow."""
    return _MLflow(run)
