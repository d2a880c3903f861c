"""Exchanges of large models between 9 clients on 2 workers, without training: 0.1, 10, 100 and 582 MB.

    python -m benchmarks.large_model [--full]       100 and 582 MB only with --full

Clients compute nothing (`benchmarks.echo`); everything else is Fedge's own. They return the received model
("echo"), or their own copy of it ("fresh"), as after training: those rows show the memory of a real run. On
Ray every reply is a copy. A global round is two exchanges: every client gets its leaf's model and returns
one, the leaves average, and every client gets the average to evaluate. Seconds per exchange are half of a
round's, aggregation and records included; the checkpoint, which writes every leaf's model to the disk, is a
separate figure. In rows "as at home" the options are the defaults: SCAFFOLD is on, so the server keeps a
control variate per client, float64 and thus as large as two models, and the cloud groups the leaves and makes
its offers in every round (`cluster.method` components), which clients evaluate, too. In the other rows both
are off. Rows as at home have 100 MB and write no checkpoint: at 582 MB, their control variates and
checkpoints fill most disks.

Memory is given in models: the peak of the server's process beyond its memory after loading its packages. In
process, this includes the clients, two of which train at a time. Files in memory (/dev/shm) are listed
separately; the system can reclaim the memory of files in the run folder.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Benchmark, Figure, figure, main
from benchmarks.engines import carry_out, write_windows

CLIENTS = 9
QUICK_MB, FULL_MB = (0.1, 10.0), (0.1, 10.0, 100.0, 582.0)
HOME_MB = 100.0  # rows as at home up to this size
LEAVES = (1, 3)
EXCHANGE_AIM_S = 2.0, 6.0  # in process, on Ray; at 582 MB
RSS_AIM = 4.0  # peak of the server in models, with one leaf
DEFAULT_RSS_AIM = 5.0  # the same with default options
MODELS_PER_ROUND = 3 * CLIENTS  # down, up, down
NO_CLOUD_STEP = 10**6
APART: dict[str, Any] = {"scaffold.enabled": False, "cluster.start-round": NO_CLOUD_STEP}


@dataclass(frozen=True)
class Kind:
    """Kind of a row.

    Attributes:
        engine: "inprocess" or "ray".
        mode: mode of the clients, as in `benchmarks.echo`.
        home: whether SCAFFOLD and the cloud step are on, as by default.
    """

    engine: str
    mode: str = "echo"
    home: bool = False

    def words(self) -> str:
        """The kind in words."""
        copies = ", a copy per client" if self.mode == "fresh" else ""
        return f"{self.engine}{copies}{', as at home' if self.home else ''}"


KINDS = (
    Kind("inprocess"),
    Kind("inprocess", "fresh"),
    Kind("inprocess", "fresh", home=True),
    Kind("ray"),
    Kind("ray", home=True),
)


def measure(full: bool) -> dict[str, Any]:
    """All sizes with one leaf, the two largest also with three."""
    sizes = FULL_MB if full else QUICK_MB
    plan = [(size, leaves) for size in sizes for leaves in LEAVES if leaves == 1 or size in sizes[-2:]]
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "windows.npz"
        write_windows(data, [2] * CLIENTS, [2] * CLIENTS, channels=1, samples=4, classes=2)
        for size, leaves in plan:
            for kind in KINDS:
                if size > HOME_MB and kind.home:
                    continue
                # final models are large: keep those of one run at a time
                with tempfile.TemporaryDirectory() as run_folder:
                    cases.append(one_case(Path(run_folder), data, size, leaves, kind))
    return {"cases": cases}


def one_case(folder: Path, data: Path, megabytes: float, leaves: int, kind: Kind) -> dict[str, Any]:
    """One run."""
    config = {
        "num-server-rounds": 9 if megabytes <= 10 else 4,
        "data.path": str(data),
        "hierarchy.num-servers": leaves,
        "train.model": "linear",
        **({"checkpoint.every": 0} if kind.home else APART),
        "callbacks": "early-stopping",  # which never ends so few rounds, and keeps their exchanges separate
    }
    code = "from benchmarks.echo import main; main()"
    command = [sys.executable, "-c", code, kind.engine, kind.mode, str(round(megabytes * 1e6))]
    run = carry_out(kind.engine, config, folder, CLIENTS, watch_memory=True, command=command)
    phases = run.phases[1:]
    return {
        **asdict(kind),
        "megabytes": megabytes,
        "leaves": leaves,
        "round_s": [row["total"] - row["checkpoint"] for row in phases],
        "checkpoint_s": [row["checkpoint"] for row in phases],
        "phases_s": {name: float(np.median([row[name] for row in phases])) for name in phases[0]},
        "peak_mib": run.peak_mib,
    }


def kind_of(case: Mapping[str, Any]) -> Kind:
    """Kind of a case."""
    return Kind(case["engine"], case["mode"], case.get("home", False))


def words_of(case: dict[str, Any]) -> str:
    """A case in words."""
    leaves = "1 leaf" if case["leaves"] == 1 else f"{case['leaves']} leaves"
    return f"{kind_of(case).words()}, {case['megabytes']:g} MB, {leaves}"


def peak_in_models(results: dict[str, Any], case: dict[str, Any], role: str) -> float:
    """Peak of "server" or "shm" beyond that of the same engine with a tiny model, in models."""
    small = next(
        other["peak_mib"][role]["high"]
        for other in results["cases"]
        if other["engine"] == case["engine"] and other["megabytes"] == FULL_MB[0]
    )
    return float((case["peak_mib"][role]["high"] - small) * 2**20 / (case["megabytes"] * 1e6))


def figures(results: dict[str, Any]) -> list[Figure]:
    """Seconds per exchange; the server's memory if it is mainly the model's."""
    entries = []
    for case in results["cases"]:
        label, largest = words_of(case), case["megabytes"] == FULL_MB[-1]
        aim = EXCHANGE_AIM_S[case["engine"] == "ray"] if largest else None
        entries.append(figure(f"{label}: exchange", "s", np.array(case["round_s"]) / 2, aim))
        if largest:
            entries.append(figure(f"{label}: checkpoint", "s", np.array(case["checkpoint_s"])))
        if case["megabytes"] >= 100:
            has_defaults = "as at home" in label
            aim = (DEFAULT_RSS_AIM if has_defaults else RSS_AIM) if case["leaves"] == 1 else None
            server, files = (peak_in_models(results, case, role) for role in ("server", "shm"))
            entries.append(figure(f"{label}: server's peak", "models", server, aim))
            entries.append(figure(f"{label}: in files in memory", "models", files))
    return entries


def distance(results: dict[str, Any], peak: Mapping[str, float]) -> str:
    """Model bytes sent and received per second against a copy in memory."""
    lines = []
    for case in results["cases"]:
        speed = MODELS_PER_ROUND * case["megabytes"] / float(np.median(case["round_s"])) / 1e3
        share = speed / peak["copy_gb_per_s"]
        lines.append(f"{words_of(case)}: {speed:.2g} GB/s, {share:.0%} of one thread's memory copy")
    return "<br>".join(lines)


def draw(results: dict[str, Any], axes: Any) -> None:
    """Draw seconds per exchange over size, with one leaf."""
    for kind in KINDS:
        cases = [case for case in results["cases"] if (kind_of(case), case["leaves"]) == (kind, 1)]
        seconds = [float(np.median(case["round_s"])) / 2 for case in cases]
        axes.loglog([case["megabytes"] for case in cases], seconds, "o-", label=kind.words())
    for index, aim in enumerate(EXCHANGE_AIM_S):
        axes.plot(FULL_MB[-1], aim, "v", color="C3", label=None if index else "aims (at most)")
    axes.set_xlabel("model, MB")
    axes.set_ylabel("seconds per exchange, 9 clients")
    axes.legend(frameon=False)


BENCHMARK = Benchmark(
    "large_model",
    "Exchanges of large models without training.",
    measure,
    figures,
    distance,
    draw,
)

if __name__ == "__main__":
    main(BENCHMARK)
