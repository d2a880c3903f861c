"""Weights & Biases: offline, in ``wandb/`` of the run folder, unless WANDB_MODE says otherwise.

``wandb sync runs/NAME/wandb/offline-run-*`` uploads the offline records. W&B's other variables
(WANDB_PROJECT, WANDB_ENTITY, WANDB_DIR, …) are respected.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any, cast

os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # W&B's own errors would be sent to its makers

import wandb

from fedge.trackers.tracker import TrackedRun


class _WeightsAndBiases:
    """A `Tracker`."""

    def __init__(self, run: TrackedRun) -> None:
        wandb.setup(wandb.Settings(silent=True))  # otherwise it would ask for a missing key on the terminal
        # nothing on the terminal, no source code: only the run's numbers
        settings = wandb.Settings(silent=True, console="off", disable_git=True, disable_code=True)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "fedge"),
            name=run.name,
            id=run.id,
            resume="allow",
            mode=cast(Any, os.environ.get("WANDB_MODE") or "offline"),
            dir=os.environ.get("WANDB_DIR", run.folder),
            # at once: an update right after the start may be lost when the run ends soon
            config=dict(run.params),
            allow_val_change=True,
            settings=settings,
        )

    def log(self, rounds: Sequence[tuple[int, Mapping[str, float]]]) -> None:
        """Pass the numbers to W&B's own process."""
        for global_round, numbers in rounds:
            self._run.log({"global_round": global_round, **numbers}, step=global_round)

    def finish(self, status: str, exit_code: int) -> None:
        """Wait until W&B has written or uploaded everything."""
        self._run.summary["status"] = status
        self._run.finish(exit_code=0 if status != "failed" else exit_code)


def open_run(run: TrackedRun) -> _WeightsAndBiases:
    """Start or resume a run at W&B."""
    return _WeightsAndBiases(run)
