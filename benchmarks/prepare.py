"""`hhar prepare` on a synthetic raw set of HHAR's full size: 34 million rows, 3.3 GB of CSV.

    python -m benchmarks.prepare --full         5 % of each recording without --full, to try the benchmark

The raw files are made by `hhar synthesize --raw`, so they are in the page cache when `prepare` reads them.
The default (phones) and every row (`--devices all`) are measured, each twice with --full.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, Benchmark, Figure, draw_figures, figure, main
from benchmarks.engines import TreeMemory, environment

CASES = {
    "phones (default)": ["--devices", "phones"],
    "all devices": ["--devices", "all"],
}
TIME_AIM_S, MEMORY_AIM_MIB = 180.0, 3 * 1024.0


def measure(full: bool) -> dict[str, Any]:
    """Make the raw files, and prepare them."""
    with tempfile.TemporaryDirectory() as name:
        raw = Path(name) / "raw"
        synthesize_s, _ = hhar(["synthesize", "--raw", str(raw), "--fraction", "1" if full else "0.05"])
        files = list(raw.iterdir())
        results: dict[str, Any] = {
            "csv_bytes": sum(file.stat().st_size for file in files),
            "rows": sum(rows_of(file) for file in files),
            "synthesize_s": synthesize_s,
            "cases": {},
        }
        for case, options in CASES.items():
            words = ["prepare", str(raw), "--out", str(Path(name) / "windows.npz"), *options]
            runs = [hhar(words) for _ in range(2 if full else 1)]
            results["cases"][case] = {
                "seconds": [seconds for seconds, _ in runs],
                "peak_rss_mib": [peak["tree"]["rss"] for _, peak in runs],
                "windows_bytes": (Path(name) / "windows.npz").stat().st_size,
            }
    return results


def hhar(words: Sequence[str]) -> tuple[float, dict[str, dict[str, float]]]:
    """Run the command `hhar`; returns seconds and peak memory."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "hhar", *words]
    process = subprocess.Popen(command, cwd=ROOT, env=environment(), stderr=subprocess.DEVNULL)
    with TreeMemory(process.pid) as memory:
        code = process.wait()
    assert code == 0, f"hhar {words[0]} ended with {code}"
    return time.perf_counter() - start, memory.peak_mib


def rows_of(file: Path) -> int:
    """Number of lines of a file without its header."""
    with file.open("rb") as stream:
        return sum(block.count(b"\n") for block in iter(lambda: stream.read(1 << 24), b"")) - 1


def figures(results: dict[str, Any]) -> list[Figure]:
    """Seconds and memory of each case."""
    rows = f"{results['rows'] / 1e6:.1f} M rows on disk"
    entries = []
    for case, result in results["cases"].items():
        entries.append(figure(f"{case}, {rows}", "s", result["seconds"], TIME_AIM_S))
        entries.append(figure(f"{case}: peak RSS", "MiB", result["peak_rss_mib"], MEMORY_AIM_MIB))
    return entries


def distance(results: dict[str, Any], peak: Mapping[str, float]) -> str:
    """Bytes of CSV per second against a copy in memory."""
    seconds = min(results["cases"]["all devices"]["seconds"])
    speed = results["csv_bytes"] / seconds / 1e9
    share = speed / peak["copy_gb_per_s"]
    return f"all devices: {speed * 1e3:.0f} MB of CSV per second, {share:.1%} of one thread's memory copy"


def draw(results: dict[str, Any], axes: Any) -> None:
    """Seconds."""
    draw_figures(axes, [entry for entry in figures(results) if entry.unit == "s"], "seconds")


BENCHMARK = Benchmark(
    "prepare", "`hhar prepare` on raw files of HHAR's full size.", measure, figures, distance, draw
)

if __name__ == "__main__":
    main(BENCHMARK)
