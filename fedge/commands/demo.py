"""``fedge demo``: planted groups are found and help people outside training; on synthetic data.

Two runs with one seed, one model for all in the first and one per cluster in the second, and their results.
"""

import argparse
import os
import sys
import time
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedge.config.registers.option import ConfigError
from fedge.launch.projects.project import read_config
from fedge.process.endings import exits
from fedge.records.folder import REPORT, refuse_taken_name

if TYPE_CHECKING:
    from fedge.records.reading.reader import RunData

CONFIG = "fedge:demo"
_INTRODUCTION = """\
Thirty-six people wear a phone. Six leaf servers know six of them each, and train on four.
In half of the leaves, drawn by the seed, every sensor is turned round; the cloud is not told.
The data are generated: this shows how Fedge works, not how well it does on people."""


def add_demo(commands: Any) -> None:
    """Add the subcommand ``demo``."""
    demo = commands.add_parser(
        "demo",
        help="demonstrate planted and found groups, and the gain for unseen people: a minute or two",
        also=("tutorial", "example", "quickstart"),
    )
    demo.add_argument("--seed", type=int, help="root of every random stream (default: SEED, or 42)")
    demo.add_argument("--runs-dir", default="runs", help="folder of all run folders (default: runs)")
    demo.add_argument("--rounds", type=int, help="global rounds (default: 10)")
    demo.add_argument(
        "--no-open", action="store_true", help="print the report's path without opening a browser"
    )
    demo.set_defaults(command=_demo, needs_room=True)


def _demo(options: argparse.Namespace) -> int:
    """Carry out ``fedge demo``; returns the exit code of the first uncompleted run, else 0."""
    config = read_config(CONFIG, "the demonstration") | {"runs-dir": options.runs_dir}
    if options.seed is not None:
        _refuse_other_seed(options.seed)
        config["seed"] = options.seed
    if options.rounds is not None:
        config["num-server-rounds"] = options.rounds
    stem = f"demo-{time.strftime('%Y%m%d-%H%M%S')}"
    names = {"one model for all": f"{stem}-one-model", "a model per group": f"{stem}-groups"}
    for name in names.values():
        refuse_taken_name(options.runs_dir, name)
    print(f"{_INTRODUCTION}\n")
    runs: list[RunData] = []
    for title, name in names.items():
        print(f"{len(runs) + 1} of 2: {title}", flush=True)
        runs.append(_simulate((config if runs else _without_clusters(config)) | {"run-name": name}))
        if runs[-1].status != "completed":
            return runs[-1].exit_code
        print()
    for line in result_lines(*runs):
        print(line)
    _open(runs[1].folder / REPORT, options.no_open)
    return exits.COMPLETED


def _without_clusters(config: dict[str, Any]) -> dict[str, Any]:
    """The same configuration with one model for all, and no report, as the second run's is shown."""
    options = {key: value for key, value in config.items() if not key.startswith("cluster.")}
    return options | {"cluster.enabled": False, "report": False}


def _refuse_other_seed(seed: int) -> None:
    """Raise ConfigError if the environment has another seed, which would silently take precedence."""
    environment_seed = os.environ.get("SEED")
    if environment_seed not in (None, "", str(seed)):
        raise ConfigError(
            f"--seed must agree with SEED={environment_seed} of the environment, but is {seed}; unset SEED"
        )


def _simulate(config: dict[str, Any]) -> "RunData":
    """Results of one run on threads of this process, with its lines on the terminal."""
    from fedge.launch.simulate import simulate  # loads torch, deferred past cheap checks

    return simulate(config)


def result_lines(single: "RunData", groups: "RunData") -> list[str]:
    """Lines on the two runs: groups planted and found, accuracies of known and unseen people.

    Args:
        single: the run with one model for all.
        groups: the run with clusters.
    """
    planted, found = _group_leaves(groups.truth), _group_leaves(groups.rounds["cluster_labels"][-1].split())
    changes = [words for step in groups.clusters["changes"].to_list() for words in step]
    warning = "" if found == planted else "   not the same: try more --rounds, or another --seed"
    return [
        "What was planted, and what the cloud found without being told:",
        f"  planted  {planted}",
        f"  found    {found}{warning}",
        *(f"           {words}" for words in changes),
        "",
        "Test accuracy in the last round, in percent:",
        f"  {'':22}{'one model for all':>18}{'a model per group':>19}",
        *(_format_row(words, single, groups, column) for words, column in _SCORE_ROWS),
        f"Of the people never seen, {_count_improved(single, groups)}.",
    ]


_SCORE_ROWS = (("people in training", "test_accuracy_mean"), ("people never seen", "unseen_accuracy_mean"))


def _format_row(label: str, single: "RunData", groups: "RunData", column: str) -> str:
    """One line of the comparison: a column's mean in the last round of both runs."""
    return f"  {label:22}{100 * single.rounds[column][-1]:18.1f}{100 * groups.rounds[column][-1]:19.1f}"


def _count_improved(single: "RunData", groups: "RunData") -> str:
    """Number of unseen clients served better by their group's model than by the single one, in words."""
    last = [run.unseen_clients.filter(run.unseen_clients["global_round"] == run.rounds["global_round"][-1])
            .sort("client")["test_accuracy"] for run in (single, groups)]  # fmt: skip
    return f"{int((last[1] > last[0]).sum())} of {len(last[0])} do better with their group's model"


def _group_leaves(labels: Any) -> str:
    """Leaves grouped by label in braces, ordered by their first leaf: ``{0 1 2} {3 4 5}``."""
    groups: dict[Any, list[int]] = {}
    for leaf, label in enumerate(labels):
        groups.setdefault(label, []).append(leaf)
    return " ".join(f"{{{' '.join(map(str, leaves))}}}" for leaves in groups.values())


def _open(report: Path, no_open: bool) -> None:
    """Print the report's path, and open it in a browser if there is a screen and an interactive terminal."""
    print(f"\nreport: {report}")
    screen = sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if not no_open and screen and sys.stdout.isatty():
        webbrowser.open(report.resolve().as_uri())
