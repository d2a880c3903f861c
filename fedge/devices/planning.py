"""Planning of jobs: duration and fate of a job are known when it starts."""

from dataclasses import replace
from typing import NamedTuple, cast

import numpy as np

from fedge.config.config import Config
from fedge.config.registers import parts, traits
from fedge.devices.population.availability import FOREVER_US
from fedge.devices.population.draws import Draw, JobDraws
from fedge.devices.population.duration import Duration, Work, checked_seconds
from fedge.devices.population.fleet import Durations, Fleet, Times, micros
from fedge.devices.population.selection import History
from fedge.devices.servers.server import DeviceServer
from fedge.devices.timeline.clock import SECOND_US
from fedge.devices.timeline.fair_sharing import duration_us, rate_of
from fedge.devices.timeline.real_arrivals import read_job_ends
from fedge.devices.work.jobs import Fate, Job
from fedge.devices.work.routes import NOT_YET_US, Route
from fedge.training.passes import steps_of_passes, windows_seen


def windows_of_jobs(windows: np.ndarray, config: Config) -> np.ndarray:
    """Windows that a job of each client passes through the model, (N,) int64; 0 for clients that never train.

    Args:
        windows: (N,) int64, training windows of all clients.
        config: configuration; its section on training is read.
    """
    train = config.train
    assert isinstance(train.local_steps, int), "a number by now, see fedge.run.asynchronous"
    if not train.local_steps:
        return windows * train.local_epochs
    job_windows = [
        windows_seen(n, train.batch_size, train.local_epochs, train.local_steps) if n else 0
        for n in windows.tolist()
    ]
    return np.array(job_windows, np.int64)


def steps_of_jobs(windows: np.ndarray, config: Config) -> np.ndarray:
    """Optimiser steps in a job of each client, (N,) int64; 0 for clients that never train.

    Args:
        windows: (N,) int64, training windows of all clients.
        config: configuration; its section on training is read.
    """
    train = config.train
    assert isinstance(train.local_steps, int), "a number by now, see fedge.run.asynchronous"
    epoch_steps = train.local_epochs * -(-windows // train.batch_size)
    return np.where(windows > 0, train.local_steps or epoch_steps, 0)


def cut_short(download_us: int, trained_us: int, full_us: int, limit_us: int, steps: int) -> tuple[int, int]:
    """Steps completed by a shortened job, and when its training ends; the usual upload follows.

    All steps take equally long. (0, 0) if there is no time for one.

    Args:
        download_us, trained_us, full_us: virtual microseconds from the start until the model has
            arrived, has been trained, and would be back.
        limit_us: virtual microseconds allowed until it is back, less than `full_us`.
        steps: steps of the full job.

    The model arrives after 1 s, ten steps take 10 s, the upload 2 s. Of 6.5 s, 3.5 s are left for training:

    >>> cut_short(1_000_000, 11_000_000, 13_000_000, 6_500_000, steps=10)
    (3, 4000000)
    """
    training_us = trained_us - download_us
    left_us = limit_us - (full_us - trained_us) - download_us
    completed = steps * left_us // training_us if left_us > 0 else 0
    return (completed, download_us - (-completed * training_us // steps)) if completed else (0, 0)


class JobStart(NamedTuple):
    """The start of a device's job.

    Attributes:
        leaf: leaf of the device.
        device: partition id.
        attempt: number of the device's job, 1, 2, …
        now_us: virtual time.
        until_us: virtual time at which the device leaves.
        period: evaluations so far, plus 1.
        server: server of the leaf, with the starting model.
    """

    leaf: int
    device: int
    attempt: int
    now_us: int
    until_us: int
    period: int
    server: DeviceServer


class Planning:
    """Plans jobs, one after another.

    Attributes:
        begun: number of jobs so far.
    """

    def __init__(
        self,
        config: Config,
        seed: int,
        fleet: Fleet,
        windows: np.ndarray,
        model_bytes: int,
        duration: Duration | None = None,
        history: History | None = None,
        up_bytes: int | None = None,
    ) -> None:
        """Start counting jobs at 1.

        Args:
            config: configuration; its sections on devices, asynchrony and training are read.
            seed: root of the random streams of jobs.
            fleet: a row per client.
            windows: (N,) int64, training windows of all clients.
            model_bytes: bytes received by a device, and sent back.
            duration: the user's function for training times; None for those of the fleet.
            history: facts about all devices.
            up_bytes: bytes sent back, if not `model_bytes`.
        """
        self.begun = 0
        self._seed, self._duration = seed, duration
        self._history = History.of(windows) if history is None else history
        self._durations, self._draws = Durations(fleet), JobDraws(seed)
        self._windows = windows_of_jobs(windows, config)
        self._train = config.train
        self._partial = config.devices.partial_work
        self._model_bytes, self._up_bytes = model_bytes, model_bytes if up_bytes is None else up_bytes
        self._link = rate_of(config.asynchrony.leaf_link_megabytes_s * 1e6)
        self._dropout = config.devices.dropout
        self._is_real = config.asynchrony.is_real
        self._ends = read_job_ends(config.asynchrony.replay) if config.asynchrony.replay else None
        in_rounds = parts.SERVER_RULES.has(config.asynchrony.rule, traits.ROUNDS)
        timeout_s = config.asynchrony.timeout_s
        # in rounds, late devices are stopped at the deadline (`fedge.devices.work.rounds`), or send in time
        if in_rounds:
            timeout_s = config.asynchrony.deadline_s if config.devices.partial_work else 0.0
        self._limit_us = max(1, round(timeout_s * SECOND_US)) if timeout_s else None

    def job(self, start: JobStart) -> Job:
        """Plan the next job."""
        self.begun += 1
        device, now_us = start.device, start.now_us
        if self._is_real or self._ends is not None:
            end_us, failed = (now_us, False) if self._ends is None else self._ends.of_job(self.begun, device)
            trained_us = NOT_YET_US if self._is_real else end_us
            return self._build_job(start, end_us, now_us, trained_us, "failed" if failed else "trains")
        draw, times = self._draw_times(start)
        there_us, trained_us, full_us = self._durations.job_times(
            device, self._model_bytes, times, self._up_bytes
        )
        busy_us, fate = self._outcome(full_us, start.until_us - now_us, draw)
        steps = all_steps = 0
        if self._partial and fate in ("away", "late"):
            all_steps = self._job_steps(device)
            steps, until_trained_us = cut_short(there_us, trained_us, full_us, busy_us, all_steps)
            if steps:
                fate, busy_us = "trains", until_trained_us + full_us - trained_us
                trained_us = until_trained_us
        job = self._build_job(start, now_us + busy_us, now_us + there_us, now_us + trained_us, fate)
        return replace(job, steps=steps, of_steps=all_steps) if steps else job

    def _build_job(self, start: JobStart, end_us: int, there_us: int, trained_us: int, fate: Fate) -> Job:
        """The job of a device with all steps."""
        return Job(
            self.begun, start.device, start.leaf, start.attempt, start.period, start.server.number,
            start.now_us, end_us, there_us, trained_us, fate, start.server.version,
        )  # fmt: skip

    def routed(self, start: JobStart) -> tuple[Job, Route]:
        """Plan the next job over the leaf's shared link: the job, with its earliest end, and its route."""
        self.begun += 1
        now_us, until_us = start.now_us, start.until_us
        draw, times = self._draw_times(start)
        down, up = (min(rate_of(rate), self._link) for rate in self.links(start.device))
        download_us, upload_us = duration_us(self._model_bytes, down), duration_us(self._up_bytes, up)
        route = Route(micros(times.down_s), micros(times.train_s), micros(times.up_s), upload_us)
        unshared_us = route.down_us + download_us + route.train_us + route.up_us + upload_us
        busy_us, fate = self._outcome(unshared_us, until_us - now_us, draw)
        if fate != "trains":
            route.cut_us, route.lost_as = now_us + busy_us, fate
        else:
            if until_us < FOREVER_US:
                route.cut_us, route.lost_as = until_us, "away"
            if self._limit_us is not None and (
                route.cut_us is None or now_us + self._limit_us < route.cut_us
            ):
                route.cut_us, route.lost_as = now_us + self._limit_us, "late"
        return self._build_job(start, now_us + busy_us, NOT_YET_US, NOT_YET_US, fate), route

    def links(self, device: int) -> tuple[float, float]:
        """Bytes per second received and sent by a device alone on the link."""
        return self._durations.links(device)

    def _draw_times(self, start: JobStart) -> tuple[Draw, Times]:
        """The random draws of a job, and its times."""
        device, attempt = start.device, start.attempt
        draw, windows = self._draws.draw(device, attempt), int(self._windows[device])
        times = self._durations.times(device, windows, draw)
        if self._duration is None:
            return draw, times
        work = Work(
            device, attempt, start.leaf, windows, self._job_steps(device), self._model_bytes,
            start.now_us / SECOND_US, times.train_s, self._history, self._seed,
        )  # fmt: skip
        return draw, times._replace(train_s=checked_seconds(self._duration, work))

    def _outcome(self, full_us: int, presence_us: int, draw: Draw) -> tuple[int, Fate]:
        """Time of a job on its device, and its outcome; `full_us` is the full job's."""
        busy_us, fate = full_us, "trains"
        if draw.dropout < self._dropout:
            busy_us, fate = max(1, round(busy_us * draw.dropout_point)), "dropped"
        if busy_us > presence_us:
            busy_us, fate = presence_us, "away"
        if self._limit_us is not None and busy_us > self._limit_us:
            busy_us, fate = self._limit_us, "late"
        return busy_us, cast(Fate, fate)

    def _job_steps(self, device: int) -> int:
        """Optimiser steps in a job of a device."""
        train, windows = self._train, int(self._history.windows[device])
        assert isinstance(train.local_steps, int), "a number by now, see `windows_of_jobs`"
        return sum(steps_of_passes(windows, train.batch_size, train.local_epochs, train.local_steps))
