"""Detection of steady growth: leaks of memory or file descriptors, found during the run.

Growth is steady if the Theil–Sen slope (Sen 1968: the median slope over all pairs of points, robust to
outliers) exceeds a limit in each half of a window of rounds, and still does so twenty rounds later: a process
fills its caches for some sixty rounds, sometimes as evenly as a leak. A single step, growth levelling off
after the start, and noise around a level are not steady. `slope` and `grows` are pure; `GrowthWatch` keeps a
run's windows.
"""

from collections import deque
from collections.abc import Sequence

import numpy as np

from fedge.process.resources.memory import ProcessMemory

WINDOW = 100  # number of rounds examined
FIRST_ROUNDS = 20  # first rounds of a process, not examined: caches fill
KIB_PER_ROUND = 50.0
SHARE_PER_ROUND = 1e-4  # share of the process's memory, because large processes fluctuate more
FDS_PER_ROUND = 0.5
_ENOUGH = 40  # rounds before the first evaluation
_EVERY = 10  # rounds between evaluations
_TIMES = 3  # evaluations in a row before a report


def slope(rounds: Sequence[int], values: Sequence[float]) -> float:
    """Theil–Sen slope of values over rounds; 0 for fewer than two different rounds."""
    x, y = np.asarray(rounds, np.float64), np.asarray(values, np.float64)
    i, j = np.triu_indices(len(x), k=1)
    run = x[j] - x[i]
    distinct = run != 0
    return float(np.median((y[j] - y[i])[distinct] / run[distinct])) if distinct.any() else 0.0


def grows(rounds: Sequence[int], values: Sequence[float], limit: float) -> bool:
    """Whether values grow by more than `limit` per round in each half of the window."""
    half = len(rounds) // 2
    return slope(rounds[:half], values[:half]) > limit and slope(rounds[half:], values[half:]) > limit


class GrowthWatch:
    """Watch over all processes of a run; reports each process and kind of growth once."""

    def __init__(self) -> None:
        """Watch before the first round."""
        self._rounds: dict[int, deque[tuple[int, float, int | None]]] = {}  # of the current processes
        self._rounds_seen: dict[int, int] = {}
        self._streaks: dict[int, dict[str, int]] = {}  # process → kind → evaluations in a row that found it
        self._reported: set[tuple[int, str]] = set()

    def observe(self, global_round: int, processes: Sequence[ProcessMemory]) -> list[str]:
        """Add one round; returns a line for every process newly found to grow."""
        present = {process.known_as for process in processes}
        self._rounds = {pid: samples for pid, samples in self._rounds.items() if pid in present}
        self._rounds_seen = {pid: self._rounds_seen.get(pid, 0) + 1 for pid in present}
        self._streaks = {pid: counts for pid, counts in self._streaks.items() if pid in present}
        lines: list[str] = []
        for process in processes:
            if self._rounds_seen[process.known_as] <= FIRST_ROUNDS:
                continue
            samples = self._rounds.setdefault(process.known_as, deque(maxlen=WINDOW))
            samples.append((global_round, process.rss_mib, process.fds))
            if len(samples) >= _ENOUGH and self._rounds_seen[process.known_as] % _EVERY == 0:
                lines += self._evaluate(process, list(samples))
        return lines

    def _evaluate(
        self, process: ProcessMemory, samples: Sequence[tuple[int, float, int | None]]
    ) -> list[str]:
        """Lines about one process: growth found `_TIMES` times in a row, for the first time."""
        growing, number = _growing_kinds(samples), process.known_as
        self._streaks[number] = {kind: self._streaks.get(number, {}).get(kind, 0) + 1 for kind in growing}
        location = f" on {process.machine}" if process.machine else ""
        lines = []
        for kind, description in growing.items():
            if self._streaks[number][kind] == _TIMES and (number, kind) not in self._reported:
                self._reported.add((number, kind))
                subject = f"{process.role} process {process.pid}{location} grows steadily"
                lines.append(f"{subject}: {description} now; see memory.csv")
        return lines


def _growing_kinds(samples: Sequence[tuple[int, float, int | None]]) -> dict[str, str]:
    """Growing kinds, "memory" and "files", and by how much, from rounds, MiB of memory and open files."""
    rounds = [round_ for round_, _, _ in samples]
    memory = [mib * 1024 for _, mib, _ in samples]
    fds = [float(count) for _, _, count in samples if count is not None]
    growing = {}
    if grows(rounds, memory, max(KIB_PER_ROUND, SHARE_PER_ROUND * float(np.median(memory)))):
        growing["memory"] = (
            f"{slope(rounds, memory):.0f} KiB of memory per round, {memory[-1] / 1024:.0f} MiB"
        )
    if len(fds) == len(rounds) and grows(rounds, fds, FDS_PER_ROUND):
        growing["files"] = f"{slope(rounds, fds):.1f} open files per round, {fds[-1]:.0f}"
    return growing
