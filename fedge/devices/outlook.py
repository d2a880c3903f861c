"""What can be told of a run on the virtual clock beforehand, and what helps where no model came of it."""

import numpy as np

from fedge.config.config import Config
from fedge.config.option import ConfigError
from fedge.config.topology import places_per_leaf
from fedge.devices.fleet import Fleet, quickest_s, usual_s
from fedge.devices.procedure import Procedure
from fedge.devices.results import Population

_NOTHING = (
    "the model is still the initial one after {seconds:g} virtual s: {jobs} jobs ended, {updates} of them "
    "brought something; {remedy}"
)


def jobs_expected(fleet: Fleet, who: Population, config: Config, model_bytes: int) -> int:
    """Return about how many jobs will end in a run without rounds if enough devices are there at any time.

    Who is idle begins, drawn evenly, so all wait equally long, g: device i begins a job every t_i + g, and as
    many are at work as there are places, Σ t_i / (t_i + g). A model has `model_bytes` bytes.
    """
    usual = usual_s(fleet, _windows(fleet, who, config), model_bytes)
    found = 0.0
    for leaf, places in enumerate(places_per_leaf(config.asynchrony.concurrency, who.leaves)):
        found += _per_second(usual[who.devices_of(leaf)], places)
    return round(found * config.num_server_rounds * config.asynchrony.evaluate_every_s)


def _per_second(usual: np.ndarray, places: int) -> float:
    """Return the jobs that end in a second at `places` of devices whose jobs take `usual` (N,) float64 s."""
    low, high = 0.0, float(usual.sum()) / places  # with g = Σ t_i / places at most `places` are at work
    for _ in range(60):
        wait = (low + high) / 2
        low, high = (wait, high) if (usual / (usual + wait)).sum() > places else (low, wait)
    return float((1 / (usual + high)).sum())


def refuse_vain_deadline(fleet: Fleet, who: Population, config: Config, model_bytes: int) -> None:
    """Raise ConfigError when rounds would end before the quickest device is back, but once in a thousand.

    A model has `model_bytes` bytes.
    """
    deadline_s = config.asynchrony.deadline_s
    shortest = float(quickest_s(fleet, _windows(fleet, who, config), model_bytes)[sorted(who.windows)].min())
    if 0 < deadline_s < shortest:
        raise ConfigError(
            f"asynchrony.deadline-s must leave the quickest device time for a job, {shortest:.3g} virtual s, "
            f"but is {deadline_s:g}; raise it, or set 0 for none"
        )


def nothing_made(procedure: Procedure) -> str | None:
    """Return what to say of a run whose model has never changed, and what helps; None if it has."""
    if any(top.number for top in procedure.tops):
        return None
    ledger, seconds = procedure.ledger, procedure.clock.now_us / 1e6
    updates = ledger.total("updates")
    if not updates:
        remedy = "lengthen the run, or make devices quicker or more often there"
    elif not any(server.number for server in procedure.servers):
        remedy = "lower the buffer in asynchrony.rule-args, or lengthen the run"
    else:
        remedy = "lower asynchrony.cloud-every, asynchrony.cloud-delay-s or the buffer in cloud-rule-args"
        if procedure.cloud is not None and not all(server.number for server in procedure.servers):
            remedy += ", or see to leaves that made none"
    return _NOTHING.format(seconds=seconds, jobs=ledger.total("jobs"), updates=updates, remedy=remedy)


def _windows(fleet: Fleet, who: Population, config: Config) -> np.ndarray:
    """Return the windows of a job of each client, (N,) int64, once per epoch; 0 where it does not train."""
    windows = np.zeros(len(fleet), np.int64)
    for device, count in who.windows.items():
        windows[device] = count * config.train.local_epochs
    return windows
