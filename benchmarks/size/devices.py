"""Costs of the virtual clock: per event, per job, in waiting, and for 10,000 training devices.

    python -m benchmarks.size.devices events      CPU per event of the loop, without training; aim 100 µs
    python -m benchmarks.size.devices jobs        CPU per job in all threads, clients answer at once; aim 0.4
                                                  ms
    python -m benchmarks.size.devices overlap     wall time over all training divided by two workers; aim 1.05
    python -m benchmarks.size.devices fleet       10,000 devices, 4 leaves, 20,000 jobs; aim 600 s, 1.5 GB
    python -m benchmarks.size.devices staleness   mean staleness against (C - 1)/K, by dropout and length;
                                                  without training

`overlap` and `fleet` train on data/study/motionsense.npz, made by `make results`. CPU times are valid on a
busy machine, wall times only on an idle one.
"""

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from flwr.app import Message
from flwr.clientapp import ClientApp

from benchmarks.commands import exit_with
from fedge import simulate
from fedge.config.flat import from_run_config
from fedge.devices.clients.access import ClientAccess, Waiting
from fedge.devices.clients.evaluation import ClockEvaluation
from fedge.devices.clients.lookahead import LookAhead
from fedge.devices.clients.results import Population
from fedge.devices.population.presets import lognormal
from fedge.devices.procedure import Procedure
from fedge.devices.servers.rules import fedbuff
from fedge.devices.servers.server import DeviceServer
from fedge.devices.servers.vectors import version_of
from fedge.devices.work.jobs import Job
from fedge.devices.world import Listeners, World
from fedge.engine.inprocess import InProcessGrid
from fedge.exchange.clients import Clients
from fedge.exchange.content import ARRAYS, arrays_of
from fedge.exchange.round_context import RoundContext
from fedge.exchange.train import TrainReply, train_reply
from fedge.process.identity import process_name
from fedge.timing.laps import LapClock
from fedge.training.local import TrainResult

OFF = {"scaffold.enabled": False, "cluster.enabled": False, "gate.enabled": False, "report": False}
DATA = "data/study/motionsense.npz"
SIZES = {240: (60, 5), 10_000: (1000, 100)}  # devices → concurrency, buffer
AT_WORK, BUFFER = (15, 60), 5  # in docs/devices.md: at one of four leaves, and at a single one


class AtOnce:
    """Replacement for `LookAhead`: every result is there at once, and equals the start."""

    def begin(self, job: Job) -> None:
        """Do nothing."""

    def __contains__(self, job: object) -> bool:
        return False

    def result(self, job: Job) -> TrainReply:
        """The model that was sent, as the trained result."""
        return TrainReply(job.start.state, 1, 1, 0.0, 0.0, job.start.nbytes)


def procedure_of(
    devices: int,
    ahead: Any,
    evaluating: Any,
    evaluations: int,
    sizes: tuple[int, int] | None = None,
    dropout: float = 0.0,
) -> Procedure:
    """A run of FedBuff on many devices, with a model of 3,286 parameters; sizes are (concurrency, buffer)."""
    concurrency, buffer = sizes or SIZES[devices]
    config = from_run_config({
        **OFF, "hierarchy.num-servers": 1, "asynchrony.rule": "fedbuff", "train.local-epochs": 1,
        "asynchrony.concurrency": concurrency, "asynchrony.evaluate-every-s": 1e6,
        "num-server-rounds": evaluations, "devices.dropout": dropout,
    })  # fmt: skip
    population = Population(
        dict.fromkeys(range(devices), 0), dict.fromkeys(range(devices), 40), frozenset(), 1
    )
    fleet = lognormal(np.arange(devices), np.random.default_rng(1))
    start = version_of({"w": np.zeros(3286, np.float32)})
    hooks = Listeners(lambda *_: False, lambda _: None)
    world = World(
        config,
        1,
        population,
        fleet,
        lambda device, now: (True, 2**62),
        ahead,
        evaluating,
        frozenset(),
        LapClock(),
        hooks,
    )
    return Procedure(world, [DeviceServer(start, fedbuff, {"buffer": buffer}, devices)])


def cpu_of(procedure: Procedure, events: int) -> tuple[float, int, int]:
    """CPU seconds of all threads, events and jobs of a stretch, after a warm-up of the same length."""
    procedure.begin()
    procedure.run_until(1, events=events)
    start, jobs = time.process_time(), procedure.ledger.total("jobs")
    procedure.run_until(1, events=2 * events)
    return time.process_time() - start, events, procedure.ledger.total("jobs") - jobs


def events() -> None:
    """Measure the loop alone."""
    for devices in SIZES:
        seconds, count, _ = cpu_of(procedure_of(devices, AtOnce(), None, 1), 40_000)
        print(f"{devices} devices: {1e6 * seconds / count:.1f} µs of CPU per event")


def staleness() -> None:
    """Print the mean staleness after 10, 100 and 1,000 jobs per unit of concurrency."""
    for concurrency in AT_WORK:
        for dropout in (0.0, 0.05, 0.3):
            procedure = procedure_of(240, AtOnce(), None, 1, (concurrency, BUFFER), dropout)
            procedure.begin()
            expected = (concurrency - 1) / BUFFER / (1 + dropout / (1 - dropout) / 2)
            results = []
            for times in (10, 100, 1000):
                while procedure.ledger.total("jobs") < times * concurrency:
                    procedure.run_until(1, events=procedure.clock.events + concurrency)
                mean = procedure.ledger.mean_staleness or 0.0
                results.append(f"{mean:.2f} ({mean / expected - 1:+.1%})")
            heading = f"C = {concurrency}, K = {BUFFER}, dropout {dropout:g}: C/K {concurrency / BUFFER:g}"
            print(f"{heading}, expected {expected:.2f}; after 10, 100, 1,000 C jobs {', '.join(results)}")


def jobs() -> None:
    """Measure jobs whose clients reply at once."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Any) -> Message:
        state = dict(arrays_of(message, ARRAYS) or {})
        return train_reply(message, TrainResult(state, 1.0, 2), 40, 0.0)

    devices = 10_000
    with InProcessGrid(app, devices, {}, 2) as grid:
        clients = Clients(grid, {device: device + 1 for device in range(devices)})
        clock = LapClock()
        waiting = Waiting(grid, 60.0, clock, lambda: None)
        config = from_run_config({**OFF, "train.local-epochs": 1})

        def contexts(global_round: int, leaf_round: int) -> RoundContext:
            return RoundContext(1, global_round, leaf_round, "", "", process_name(), 60.0)

        windows = dict.fromkeys(range(devices), 40)
        access = ClientAccess(waiting, clients, config, contexts)
        ahead, evaluating = LookAhead(access, windows), ClockEvaluation(access, {}, 2)
        seconds, _, count = cpu_of(procedure_of(devices, ahead, evaluating, 1), 20_000)
    print(f"{devices} devices: {1e3 * seconds / count:.3f} ms of CPU per job, in all threads")


def timed_run(config: dict[str, Any], workers: int) -> tuple[float, float, Any]:
    """Wall seconds, seconds in which clients trained, and the run."""
    from fedge import client_app

    original, train_seconds = client_app.train, []

    def timed(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return original(*args, **kwargs)
        finally:
            train_seconds.append(time.perf_counter() - start)

    client_app.train = timed
    try:
        with tempfile.TemporaryDirectory() as folder:
            run = simulate({**OFF, "data.path": DATA, "runs-dir": folder, **config}, workers=workers)
            wall = sum(run.rounds["seconds"].to_list())
    finally:
        client_app.train = original
    return wall, sum(train_seconds), run


def overlap() -> None:
    """Measure the share of two workers' time spent in training: long jobs, and few evaluations."""
    config = {
        "clients": 48, "devices.pieces": 2, "asynchrony.rule": "fedbuff", "asynchrony.concurrency": 24,
        "asynchrony.evaluate-every-s": 100.0, "num-server-rounds": 2, "train.local-epochs": 5,
        "hierarchy.num-servers": 1, "checkpoint.every": 0,
    }  # fmt: skip
    wall, training, run = timed_run(config, 2)
    print(f"wall {wall:.1f} s, training {training:.1f} s on 2 workers: {wall / (training / 2):.3f}")
    print(run.manifest["limits"])


def fleet() -> None:
    """Measure many devices."""
    config = {
        "clients": 10_000, "devices.pieces": 2, "devices.least-windows": 4, "asynchrony.rule": "fedbuff",
        "asynchrony.rule-args": '{"buffer": 25}', "asynchrony.concurrency": 1000, "hierarchy.num-servers": 4,
        "asynchrony.evaluate-every-s": 4.0, "num-server-rounds": 3, "train.local-epochs": 1,
    }  # fmt: skip
    start = time.process_time()
    wall, _, run = timed_run(config, 2)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    last = run.versions.row(-1, named=True)
    print(f"{last['jobs']} jobs, {last['updates']} updates: wall {wall:.0f} s, CPU "
          f"{time.process_time() - start:.0f} s, {peak:.2f} GB")  # fmt: skip


def main() -> None:
    """Command line."""
    measures: dict[str, Callable[[], None]] = {
        "events": events, "jobs": jobs, "overlap": overlap, "fleet": fleet, "staleness": staleness,
    }  # fmt: skip
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=measures, nargs="+")
    for name in parser.parse_args().what:
        measures[name]()


if __name__ == "__main__":
    exit_with(main)
