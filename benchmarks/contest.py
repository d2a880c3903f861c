"""Results of contests of global rounds against a plain pool: seconds, ratios, GFLOP/s, one picture."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.common import Figure, draw_figures, figure


def words_of(epochs: str) -> str:
    """A number of local epochs in words."""
    return f"{epochs} epoch{'s' if epochs != '1' else ''}"


def seconds_and_ratios(epochs: str, result: Mapping[str, Any], aims: Mapping[str, float]) -> list[Figure]:
    """Seconds per round and ratios to the pool.

    Args:
        epochs: local epochs.
        result: has `seconds` and `ratio_to_pool`: name → one number per turn.
        aims: name → largest acceptable ratio.
    """
    entries = []
    for name, seconds in result["seconds"].items():
        entries.append(figure(f"{words_of(epochs)}, {name}", "s per round", seconds))
    for name, ratios in result["ratio_to_pool"].items():
        entries.append(figure(f"{words_of(epochs)}, {name} / pool", "x", ratios, aims.get(name)))
    return entries


def gflop_per_s(results: Mapping[str, Any], flop_per_window: float) -> list[tuple[str, str, float]]:
    """Local epochs, name and GFLOP/s of one worker, for all contestants.

    Args:
        results: `windows_per_client`, `workers`, and `epochs`: number → its result.
        flop_per_window: floating-point operations of a training step, per window.
    """
    flop = sum(results["windows_per_client"]) * flop_per_window
    return [
        (epochs, name, flop * int(epochs) / float(np.median(seconds)) / _workers(results, name) / 1e9)
        for epochs, result in results["epochs"].items()
        for name, seconds in result["seconds"].items()
    ]


def _workers(results: Mapping[str, Any], name: str) -> int:
    return 1 if name == "loop" else int(results["workers"])


def draw_ratios(axes: Any, entries: list[Figure]) -> None:
    """Draw the ratios to the pool."""
    ratios = [entry for entry in entries if entry.what.endswith("/ pool")]
    draw_figures(axes, ratios, "seconds per round / those of the plain pool")
    axes.axvline(1.0, color="0.7", linewidth=1, zorder=0)
