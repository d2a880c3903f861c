"""Common parts of all benchmarks: taking turns, spread, the machine and its peak, JSON, table, plot.

A benchmark is one module with a `Benchmark` and `main(BENCHMARK)`. `python -m benchmarks.NAME` measures and
writes `docs/benchmarks/NAME.json`. A plot beside it and a line in docs/benchmarks.md are made from the JSON
files alone: `--redraw` makes them again without measuring.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import platform
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

from fedge.native.library import UnavailableError, open_library, peak_gflops

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
MEASURED = ROOT / "docs" / "benchmarks"  # a JSON file and a plot per benchmark
QUICK = ("step", "round", "exchange", "large_model", "memory")
LONG = ("prepare", "seed_workload")
APART = ("peers",)  # needs its own environment
WORKERS = 2  # clients in training at a time, on every engine and in the plain pool
MATMUL = 1024  # side of the square matrices of the reference product
COPY_BYTES = 256 * 2**20  # size of the block of the reference copy
_PACKAGES = ("fedge", "torch", "numpy", "flwr", "ray", "polars")
_LIST_MARKS = ("<!-- written by the benchmarks -->", "<!-- end of what the benchmarks write -->")


# --- a benchmark ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Figure:
    """One number with its spread and its limit.

    Attributes:
        what: description for the table.
        unit: "s", "ms", "x", "%", "MiB", …
        median, low, high: median and quartiles of `count` measurements.
        aim: largest acceptable value; None without an aim.
    """

    what: str
    unit: str
    median: float
    low: float
    high: float
    count: int
    aim: float | None = None

    def words(self) -> str:
        """The figure in the table."""
        spread = f" ({self.low:.3g} to {self.high:.3g})" if self.count > 1 else ""
        target = (
            ""
            if self.aim is None
            else f", aim ≤ {self.aim:g}: {'met' if self.median <= self.aim else 'missed'}"
        )
        return f"{self.what}: **{self.median:.3g} {self.unit}**{spread}{target}"


def figure(what: str, unit: str, values: Sequence[float] | float, aim: float | None = None) -> Figure:
    """The figure for one or more measurements."""
    sample = np.atleast_1d(np.asarray(values, dtype=np.float64))
    low, median, high = (float(value) for value in np.percentile(sample, [25, 50, 75]))
    return Figure(what, unit, median, low, high, len(sample), aim)


@dataclass(frozen=True)
class Benchmark:
    """A benchmark and its presentation.

    Attributes:
        name: name of the module, the files and the row.
        about: description in one line.
        measure: (full) → results, plain JSON.
        figures: results → the figures of the row.
        distance: (results, peak) → text on the distance to the machine's own peak.
        draw: (results, matplotlib axes) → the plot.
    """

    name: str
    about: str
    measure: Callable[[bool], dict[str, Any]]
    figures: Callable[[dict[str, Any]], list[Figure]]
    distance: Callable[[dict[str, Any], Mapping[str, float]], str]
    draw: Callable[[dict[str, Any], Any], None]


def main(benchmark: Benchmark) -> dict[str, Any]:
    """Command line of one benchmark; returns the written record."""
    parser = argparse.ArgumentParser(description=benchmark.about)
    parser.add_argument("--full", action="store_true", help="the long version")
    parser.add_argument("--redraw", action="store_true", help="only make plot and line again from the JSON")
    options = parser.parse_args()
    path = MEASURED / f"{benchmark.name}.json"
    if options.redraw:
        record = json.loads(path.read_text(encoding="utf-8"))
    else:
        record = _measure(benchmark, options.full)
    record["figures"] = [asdict(entry) for entry in benchmark.figures(record["results"])]
    record["distance"] = benchmark.distance(record["results"], record["peak"])
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    for entry in record["figures"]:
        print(Figure(**entry).words().replace("**", ""))
    print(record["distance"].replace("<br>", "\n"))
    _plot(benchmark, record)
    write_rows()
    return record


def _measure(benchmark: Benchmark, full: bool) -> dict[str, Any]:
    """Measure, with the machine's peak before and after in the same process."""
    torch.set_num_threads(1)
    start, load = time.monotonic(), os.getloadavg()[0]
    busy = [busy_cores()]
    matmul, copy = matmul_gflop_per_s(), copy_gb_per_s()
    results = benchmark.measure(full)
    matmul, copy = [*matmul, *matmul_gflop_per_s()], [*copy, *copy_gb_per_s()]
    busy.append(busy_cores())
    return {
        "benchmark": benchmark.name,
        "about": benchmark.about,
        "command": f"python -m benchmarks.{benchmark.name}" + (" --full" if full else ""),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "took_s": round(time.monotonic() - start, 1),
        "machine": machine(),
        "load_average_before": load,
        "busy_cores_before_and_after": busy,
        "versions": versions(),
        "peak": {
            "matmul_gflop_per_s": float(np.median(matmul)),
            "copy_gb_per_s": float(np.median(copy)),
            "registers_gflop_per_s": registers_gflop_per_s(),
        },
        "results": results,
    }


# --- measuring ------------------------------------------------------------------------------------------


class Turn:
    """A contestant's end of the connection to `take_turns`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def wait(self) -> bool:
        """Wait for the next turn; False if there is none."""
        return bool(self._connection.recv())

    def done(self, seconds: float, *numbers: float) -> None:
        """Report how long the turn took, and further numbers."""
        self._connection.send((seconds, *numbers))


def repeat(turn: Turn, action: Callable[[], Any], has_report: bool = False) -> None:
    """Time `action` once per turn, and report the floats it returns if it `has_report`."""
    while turn.wait():
        start = time.perf_counter()
        returned = action()
        turn.done(time.perf_counter() - start, *(returned if has_report else ()))


Contestant = tuple[Callable[..., None], tuple[Any, ...]]
"""A function of a module and what it is called with after its `Turn`; it runs in a process of its own."""


def take_turns(
    contestants: Mapping[str, Contestant],
    rounds: int,
    warmup: int,
    after_round: Callable[[int], None] = lambda round_: None,
    reports: dict[str, list[tuple[float, ...]]] | None = None,
) -> dict[str, np.ndarray]:
    """Seconds of each contestant in each round, less the warm-up.

    Contestants take turns in alternating order, so a ratio within a round compares adjacent measurements, and
    a machine that slows down for a while affects both. `after_round` is called between rounds (0, 1, …);
    `reports` gets the numbers reported by contestants in each round, warm-up included.
    """
    spawn = multiprocessing.get_context("spawn")
    connections, processes = {}, []
    for name, (function, arguments) in contestants.items():
        connections[name], contestant_end = spawn.Pipe()
        processes.append(spawn.Process(target=_run_contestant, args=(function, contestant_end, arguments)))
        processes[-1].start()
        contestant_end.close()
    times: dict[str, list[float]] = {name: [] for name in contestants}
    try:
        for round_ in range(-warmup, rounds):
            for name in list(contestants)[:: 1 if round_ % 2 else -1]:
                connections[name].send(True)
                seconds, *numbers = connections[name].recv()
                times[name].append(seconds)
                if reports is not None:
                    reports.setdefault(name, []).append(tuple(numbers))
            if round_ >= 0:
                after_round(round_)
    finally:
        for connection in connections.values():
            with contextlib.suppress(OSError):
                connection.send(False)
            connection.close()
        for process in processes:
            process.join()
    return {name: np.array(sample[warmup:]) for name, sample in times.items()}


def _run_contestant(
    function: Callable[..., None], connection: Connection, arguments: tuple[Any, ...]
) -> None:
    torch.set_num_threads(1)
    function(Turn(connection), *arguments)


def ratio(values: np.ndarray, reference: np.ndarray) -> list[float]:
    """Ratios round by round."""
    return (values / reference).tolist()


# --- the machine ----------------------------------------------------------------------------------------


def matmul_gflop_per_s(seconds: float = 0.5) -> list[float]:
    """GFLOP/s of a large single-thread matrix product, measured repeatedly for `seconds`."""
    square = torch.randn(MATMUL, MATMUL)
    return [2.0 * MATMUL**3 / took / 1e9 for took in _time_repeatedly(lambda: square @ square, seconds)]


def registers_gflop_per_s() -> float | None:
    """GFLOP/s of fused multiplications and additions in registers; None without the native step."""
    try:
        return peak_gflops(open_library())
    except UnavailableError:
        return None


def copy_gb_per_s(seconds: float = 0.5) -> list[float]:
    """GB/s at which one thread copies a large block of memory (bytes copied, not read plus written)."""
    source, target = np.ones(COPY_BYTES, np.uint8), np.ones(COPY_BYTES, np.uint8)
    return [COPY_BYTES / took / 1e9 for took in _time_repeatedly(lambda: np.copyto(target, source), seconds)]


def _time_repeatedly(action: Callable[[], Any], seconds: float) -> list[float]:
    action()
    times: list[float] = []
    while sum(times) < seconds:
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return times


def busy_cores(seconds: float = 2.0) -> float:
    """Cores kept busy by all processes together while this one waits, i.e. the load by others."""
    return psutil.cpu_percent(interval=seconds) / 100 * (os.cpu_count() or 1)


def machine() -> dict[str, Any]:
    """Processor, cores and memory."""
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
    }


def processor() -> str:
    """Name of the processor, and the vector instructions used on it by PyTorch."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor()} ({torch.backends.cpu.get_cpu_capability()})"


def versions() -> dict[str, str]:
    """Versions of Python and of the relevant packages, and the commit if there is one."""
    versions_by_name = {"python": platform.python_version()}
    for package in _PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            versions_by_name[package] = version(package)
    with contextlib.suppress(OSError):
        git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
        answer = subprocess.run(git, capture_output=True, text=True, check=False)
        if answer.returncode == 0:
            versions_by_name["commit"] = answer.stdout.strip()
    return versions_by_name


# --- plot and table -------------------------------------------------------------------------------------


def _plot(benchmark: Benchmark, record: dict[str, Any]) -> None:
    """Draw the plot of a record."""
    import matplotlib as mpl  # not in the measured processes

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": benchmark.name, "svg.fonttype": "none", "font.size": 9})
    from matplotlib import pyplot

    chart, axes = pyplot.subplots(figsize=(7, 3.6), layout="constrained")
    benchmark.draw(record["results"], axes)
    axes.spines[["top", "right"]].set_visible(False)
    path = MEASURED / f"{benchmark.name}.svg"
    path.parent.mkdir(exist_ok=True)
    chart.savefig(path, metadata={"Date": None})
    pyplot.close(chart)


def draw_figures(axes: Any, entries: Sequence[Figure], unit: str) -> None:
    """One line per figure: median, quartiles, and the aim as a bar across."""
    for row, entry in enumerate(entries):
        spread = [[entry.median - entry.low], [entry.high - entry.median]]
        axes.errorbar(entry.median, -row, xerr=spread, fmt="o", color="C0", capsize=3)
        if entry.aim is not None:
            axes.plot([entry.aim] * 2, [-row - 0.3, -row + 0.3], color="C3", linewidth=2)
    axes.set_yticks([-row for row in range(len(entries))], [entry.what for entry in entries])
    axes.set_ylim(-len(entries) + 0.4, 0.6)
    axes.set_xlim(left=0)
    axes.set_xlabel(f"{unit}; dot: median, whiskers: quartiles, red: aim (at most)")


def write_rows() -> None:
    """Write the page's list again, from the JSON files."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(_LIST_MARKS[0])
    after = rest.split(_LIST_MARKS[1])[1]
    lines = []
    plots = []
    for name in (*QUICK, *LONG, *APART):
        path = MEASURED / f"{name}.json"
        if path.is_file():
            lines.append(_row(json.loads(path.read_text(encoding="utf-8"))))
            plots.append(f"![{name}](benchmarks/{name}.svg)")
    body = "\n".join([*lines, "", *plots])
    PAGE.write_text(f"{before}{_LIST_MARKS[0]}\n\n{body}\n\n{_LIST_MARKS[1]}{after}", encoding="utf-8")


def _row(record: dict[str, Any]) -> str:
    """One benchmark's line of the list; it mentions the load by other processes if it was high."""
    figures = f"[{len(record['figures'])} figures](benchmarks/{record['benchmark']}.json)"
    busy = record["busy_cores_before_and_after"]
    other_load = f", others' {busy[0]:.1f} and {busy[1]:.1f} cores" if max(busy) > 0.2 else ""
    return (
        f"- `{record['command']}`: {figures}, {record['date'][:10]}, "
        f"{record['machine']['processor']}{other_load}"
    )
