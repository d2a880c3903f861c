"""Runs of less than a second: nine users, two classes, a linear model."""

import io
import json
from dataclasses import replace

import numpy as np
from flower_runs import comparable
from made_up import make_windows

from fedge import simulate
from hhar.windows.window_file import save_windows

USERS = "abcdefghi"
PER_USER = 16  # windows


def small_config(folder, **changes):
    """The options of a run of two global rounds on a file of nine users, written into `folder`.

    In `changes`, "__" stands for the dot in a key and "_" for a dash.
    """
    rows = [
        (user, None, f"{label}-{session}", label)
        for user in USERS
        for label in (0, 1)
        for session in range(4)
        for _ in (1, 2)
    ]
    windows = make_windows(rows, classes=2)
    x = np.random.default_rng(0).normal(size=(len(rows), 2, 16)) + windows.y[:, None, None]
    windows = replace(windows, x=x.astype(np.float32), channels=("u", "v"))
    folder.mkdir(parents=True, exist_ok=True)
    given = {key.replace("__", ".").replace("_", "-"): value for key, value in changes.items()}
    return {
        "num-server-rounds": 2,
        "seed": 3,
        "runs-dir": str(folder / "runs"),
        "report": False,
        "data.path": str(save_windows(folder / "small.npz", windows)),
        "train.model": "linear",
        "train.local-epochs": 1,
        **given,
    }


def carry_out(config, name, show=lambda _: None):
    """Run a configuration in this process; return what it computed: models, metrics, clusters, data.

    `show` is given what the terminal showed.
    """
    terminal = io.StringIO()
    run = simulate({**config, "run-name": name}, terminal=terminal)
    assert run.status == "completed", run.reason
    show(terminal.getvalue())
    steps = [json.loads(line) for line in (run.folder / "clusters.jsonl").read_text().splitlines()]
    return comparable(run.folder) | {"clusters": [{**step, "tau": None} for step in steps]}
