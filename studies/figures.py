"""The figures of docs/results.md, as SVG files that need no fonts and repeat to the byte."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedge.console.palette import SERIES, colour, dashes
from fedge.report.comparison.groups import Group
from fedge.report.comparison.sweep_page import Comparison
from fedge.report.html.svg import figure_style, integer_ticks, legend_below, new_figure
from studies import measures
from studies.result_tables import NAMES

_CURVES = ("hierfl", "local", "oracle", "random", "fedge")
_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}


def _plain_name(label: str) -> str:
    return NAMES.get(label, label).replace("*", "")


def curves(comparison: Comparison, column: str, y_label: str, path: Path) -> None:
    """Draw the mean over seeds of a column of global_rounds.csv by round, with the range over seeds.

    The last round is left out where known clients are served a fine-tuned model in it.
    """
    groups = measures.by_label(comparison)
    with figure_style():
        figure, axes = new_figure(3.4)
        for number, label in enumerate(name for name in _CURVES if name in groups):
            scores = np.array([run.rounds[column].to_numpy()[:-1] for run in groups[label].runs])
            rounds = np.arange(1, scores.shape[1] + 1)
            axes.fill_between(rounds, scores.min(0), scores.max(0), color=colour(number), alpha=0.12, lw=0)
            axes.plot(
                rounds, scores.mean(0), color=colour(number), ls=dashes(number), label=_plain_name(label)
            )
        axes.set_xlabel("global round")
        axes.set_ylabel(y_label)
        axes.set_ylim(0, 1)
        integer_ticks(axes)
        legend_below(figure, axes, columns=2)
        figure.savefig(path, format="svg", facecolor="white", metadata=_METADATA)


def over_time(comparison: Comparison, column: str, y_label: str, path: Path) -> None:
    """Draw the mean over seeds of a column of global_rounds.csv over virtual seconds, with the range over
    seeds; a point per round, at the mean of its times."""
    with figure_style():
        figure, axes = new_figure(3.4)
        for number, group in enumerate(comparison.groups):
            times, scores = (
                np.array([run.rounds[name].to_numpy() for run in group.runs])
                for name in ("virtual_s", column)
            )
            mean_times = times.mean(0)
            axes.fill_between(
                mean_times, scores.min(0), scores.max(0), color=colour(number), alpha=0.12, lw=0
            )
            axes.plot(mean_times, scores.mean(0), color=colour(number), ls=dashes(number), label=group.label)
        axes.set_xlabel("virtual seconds")
        axes.set_ylabel(y_label)
        axes.set_ylim(0, 1)
        legend_below(figure, axes, columns=3)
        figure.savefig(path, format="svg", facecolor="white", metadata=_METADATA)


def seen_and_unseen(comparison: Comparison, path: Path) -> None:
    """Draw every method at its mean accuracy on seen (across) and unseen users (up), a small dot per seed."""
    with figure_style():
        figure, axes = new_figure(5.4)
        for number, group in enumerate(comparison.groups):
            served, unseen = (_values(group, read) for read in (measures.served, measures.unseen))
            axes.plot(served, unseen, ".", color=colour(number), alpha=0.35, ms=4)
            marker = "osD"[number // len(SERIES) % 3]  # once colours repeat
            label = _plain_name(group.label)
            axes.plot(
                [np.mean(served)], [np.mean(unseen)], marker, color=colour(number), ms=7, label=label, ls=""
            )
        axes.set_xlabel("mean test accuracy of what known clients are served")
        axes.set_ylabel("of what unseen clients are served")
        legend_below(figure, axes, columns=2)
        figure.savefig(path, format="svg", facecolor="white", metadata=_METADATA)


def _values(group: Group, read: measures.Read) -> Sequence[float]:
    return list(measures.values(group, read).values())
