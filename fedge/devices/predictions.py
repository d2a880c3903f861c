"""Predictions for a run on the virtual clock before it starts, and advice if it produced no model."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedge.config.config import Config
from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import DURATIONS, SERVER_RULES
from fedge.config.registers.traits import ROUNDS
from fedge.config.topology import places_per_leaf
from fedge.devices.clients.results import Population
from fedge.devices.planning import steps_of_jobs, windows_of_jobs
from fedge.devices.population.availability import FOREVER_US, Presence
from fedge.devices.population.fleet import Fleet, fast_job_s, mean_job_s, watts_of
from fedge.devices.procedure import Procedure
from fedge.devices.timeline.clock import SECOND_US
from hhar.quantity import quantity

_MOMENTS, _SAMPLE = 32, 1000
_NO_MODEL = (
    "the model is still the initial one after {seconds:g} virtual s: {jobs} ended, {updates} of them "
    "brought something; {remedy}"
)


def always_present(device: int, now_us: int) -> tuple[bool, int]:
    """A device always present."""
    return True, FOREVER_US


def jobs_expected(
    fleet: Fleet,
    population: Population,
    config: Config,
    model_bytes: int,
    presence: Presence = always_present,
) -> int:
    """Approximate number of jobs in a run without rounds, lost ones included.

    Up to `_SAMPLE` devices of each leaf are examined at `_MOMENTS` moments. Devices for new jobs are drawn
    evenly from those idle and present, so all wait equally long, g: device i starts a job every t_i + g, and
    Σ t_i / (t_i + g) devices work at a time, as many as there are places (or all, if fewer). A job takes its
    mean time t_i, or half of it if the device drops out, but no longer than the device stays or
    `asynchrony.timeout-s`. A leaf's shared link carries a limited number of models per second.

    Args:
        fleet: a row per client.
        population: clients and leaves of the run.
        config: configuration of the run.
        model_bytes: size of a model in bytes.
        presence: presence of devices, queried from time 0 on.
    """
    link = config.asynchrony.leaf_link_megabytes_s * 1e6
    link_limit = link / model_bytes if link else math.inf
    job_s = mean_job_s(fleet, _job_windows(fleet, population, config), model_bytes) * (
        1 - config.devices.dropout / 2
    )
    if config.asynchrony.timeout_s:
        job_s = np.minimum(job_s, config.asynchrony.timeout_s)
    run_s = config.num_server_rounds * config.asynchrony.evaluate_every_s
    places = places_per_leaf(config.asynchrony.concurrency, population.leaves)
    sampled = [_sample_devices(devices) for devices in population.devices_by_leaf()]
    rate = 0.0
    for moment in range(_MOMENTS):
        now_us = int((moment + 0.5) * run_s / _MOMENTS * SECOND_US)
        for (devices, represented), count in zip(sampled, places, strict=True):
            stays_us = [
                until_us - now_us if is_present else 0
                for is_present, until_us in (presence(d, now_us) for d in devices)
            ]
            stays_s = np.array(stays_us, np.float64) / SECOND_US
            durations = np.minimum(job_s[devices], stays_s)[stays_s > 0]
            rate += min(link_limit, represented * _jobs_per_second(durations, count / represented))
    return round(rate * run_s / _MOMENTS)


def _sample_devices(devices: Sequence[int]) -> tuple[list[int], float]:
    """At most `_SAMPLE` devices of a leaf, evenly spaced, and the number of devices each stands for."""
    count = min(len(devices), _SAMPLE)
    return [devices[number * len(devices) // count] for number in range(count)], len(devices) / max(1, count)


def refuse_unknown_power(fleet: Fleet, config: Config) -> None:
    """Raise ConfigError for a limit in joules if the devices' power is unknown."""
    if config.asynchrony.end_joules and watts_of(fleet) is None:
        raise ConfigError(
            f"asynchrony.end-joules needs the power of the devices, but devices.preset "
            f"{config.devices.preset} says none; set devices.train-watts or devices.radio-watts"
        )


def _jobs_per_second(job_s: np.ndarray, places: float) -> float:
    """Jobs ended per second with `places` places, for devices whose jobs take `job_s` (N,) float64 s."""
    if len(job_s) <= places:
        return float((1 / job_s).sum())
    low, high = 0.0, float(job_s.sum()) / places  # with g = Σ t_i / places, at most `places` work
    for _ in range(60):
        wait = (low + high) / 2
        low, high = (wait, high) if (job_s / (job_s + wait)).sum() > places else (low, wait)
    return float((1 / (job_s + high)).sum())


def refuse_impossible_times(fleet: Fleet, population: Population, config: Config, model_bytes: int) -> None:
    """Raise ConfigError for instantaneous jobs, or a time limit missed even by the quickest jobs.

    The quickest are one job in a thousand. The limit is `asynchrony.deadline-s` in rounds, and otherwise
    `asynchrony.timeout-s`. A model has `model_bytes` bytes.
    """
    if DURATIONS.is_own(config.devices.duration):
        return  # unknown in advance
    asynchrony, clients = config.asynchrony, sorted(population.windows)
    windows = _job_windows(fleet, population, config)
    job_s = mean_job_s(fleet, windows, model_bytes)[clients]
    if job_s.min() < 1 / SECOND_US:
        raise ConfigError(
            f"devices.preset {config.devices.preset} must make jobs take a microsecond, the smallest virtual "
            f"time, but those of device {clients[int(job_s.argmin())]} take {job_s.min():.3g} s; give it "
            f"seconds, or fewer bytes per second"
        )
    name, limit_s = "asynchrony.timeout-s", asynchrony.timeout_s
    if SERVER_RULES.has(asynchrony.rule, ROUNDS):
        name, limit_s = "asynchrony.deadline-s", asynchrony.deadline_s
    if link := asynchrony.leaf_link_megabytes_s * 1e6:
        fleet = replace(fleet, down=np.minimum(fleet.down, link), up=np.minimum(fleet.up, link))
    quickest = fast_job_s(fleet, windows, model_bytes)
    if config.devices.partial_work:  # one step is enough
        zeros = np.zeros(len(fleet))
        transfers = fast_job_s(replace(fleet, per_job_s=zeros, per_window_s=zeros), zeros, model_bytes)
        quickest = transfers + (quickest - transfers) / np.maximum(
            1, steps_of_jobs(population.window_counts(len(fleet)), config)
        )
    shortest = float(quickest[clients].min())
    if 0 < limit_s < shortest:
        raise ConfigError(
            f"{name} must leave the quickest device time for a job, {shortest:.3g} virtual s, "
            f"but is {limit_s:g}; raise it, or set 0 for none"
        )


def refuse_absent_devices(population: Population, config: Config, presence: Presence) -> None:
    """Raise ConfigError if no device is present before the run ends; `presence` is queried at 0 only."""
    end_us = round(config.num_server_rounds * config.asynchrony.evaluate_every_s * SECOND_US)
    first_us = FOREVER_US
    for device in sorted(population.windows):
        is_present, until_us = presence(device, 0)
        if is_present or until_us < end_us:
            return
        first_us = min(first_us, until_us)
    arrival = f"the first is at {first_us / SECOND_US:g} s" if first_us < FOREVER_US else "none ever is"
    raise ConfigError(
        f"devices.availability {config.devices.availability} must make a device available before "
        f"the run ends, at {end_us / SECOND_US:g} virtual s, but {arrival}; lengthen the run, or let devices "
        f"come sooner"
    )


def unchanged_model_advice(procedure: Procedure) -> str | None:
    """Advice for a run whose model never changed; None if it did."""
    if procedure.versions or _has_regrouped_models(procedure):
        return None
    ledger, seconds = procedure.ledger, procedure.clock.now_us / 1e6
    updates = ledger.total("updates")
    if not procedure.planning.begun:
        remedy = "change devices.selection, which chose no device, or devices.availability"
    elif not updates:
        remedy = "lengthen the run, or make devices faster or more often available"
    elif not any(server.number for server in procedure.servers):
        remedy = "lower the buffer in asynchrony.rule-args, or lengthen the run"
    else:
        remedy = "lower asynchrony.cloud-every, asynchrony.cloud-delay-s or the buffer in cloud-rule-args"
        if procedure.above is not None and not all(server.number for server in procedure.servers):
            remedy += ", or see to leaves that made none"
    return _NO_MODEL.format(
        seconds=seconds, jobs=quantity(ledger.total("jobs"), "job"), updates=updates, remedy=remedy
    )


def _has_regrouped_models(procedure: Procedure) -> bool:
    """Whether new groups of the cloud's children started from the mean of models that these had made."""
    above = procedure.above
    if above is None or not any(link.exchange for link in above.cloud.links):
        return False
    return any(child.number for child in above.branches)


def _job_windows(fleet: Fleet, population: Population, config: Config) -> np.ndarray:
    """Windows in a job of each client, (N,) int64, with repetition; 0 for clients that never train."""
    return windows_of_jobs(population.window_counts(len(fleet)), config)
