"""Peak memory of the default run on both engines, over all its processes.

    python -m benchmarks.memory [--full]        more rounds with --full

Sampled five times a second from outside. RSS counts pages shared by processes (libraries, the mapped windows)
once per process; PSS divides them between their users, so only PSS adds up to the memory in use.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.common import Benchmark, Figure, figure, main
from benchmarks.engines import ENGINES, carry_out

ROLES = ("tree", "server", "worker", "ray", "launcher")  # of processes, as in `engines.TreeMemory`


def measure(full: bool) -> dict[str, Any]:
    """The default run, on the embedded data, on each engine; with --full twice."""
    config = {"num-server-rounds": 20 if full else 5, "data.path": "synthetic"}
    results: dict[str, Any] = {"rounds": config["num-server-rounds"], "peak_mib": {}}
    with tempfile.TemporaryDirectory() as folder:
        for engine in ENGINES:
            runs = [
                carry_out(engine, config, Path(folder) / f"{engine}-{i}", watch_memory=True)
                for i in range(2 if full else 1)
            ]
            results["peak_mib"][engine] = [run.peak_mib for run in runs]
    return results


def figures(results: dict[str, Any]) -> list[Figure]:
    """RSS and PSS per role."""
    return [
        figure(f"{engine}, {role}, {kind.upper()}", "MiB", [run[role][kind] for run in runs])
        for engine, runs in results["peak_mib"].items()
        for role in ROLES
        if all(role in run for run in runs)
        for kind in ("rss", "pss")
    ]


def distance(results: dict[str, Any], _: Mapping[str, float]) -> str:
    """No distance to a peak, because speed is not measured."""
    return f"not a matter of speed; {results['rounds']} global rounds"


def draw(results: dict[str, Any], axes: Any) -> None:
    """PSS by role, stacked; the peaks are from different moments, so the sum is an upper bound."""
    for engine, runs in results["peak_mib"].items():
        offset = 0.0
        for role in ROLES[1:]:
            size = max((run[role]["pss"] for run in runs if role in run), default=0.0)
            axes.barh(engine, size, left=offset, color=f"C{ROLES.index(role) - 1}")
            offset += size
    for role in ROLES[1:]:
        axes.barh(0, 0, color=f"C{ROLES.index(role) - 1}", label=role)
    axes.set_xlabel("peak PSS, MiB")
    axes.legend(frameon=False)


BENCHMARK = Benchmark(
    "memory", "Peak memory of the default run on both engines.", measure, figures, distance, draw
)

if __name__ == "__main__":
    main(BENCHMARK)
