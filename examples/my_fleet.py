"""Parts of the virtual clock: a rule, a preset of devices, a duration, an availability, a selection."""

import numpy as np

from fedge.devices import Fleet


def damped(model, memory, arrival, step=0.5):
    """A rule: a new model at every arrival, with a smaller step for older updates."""
    return model + step / (1 + arrival.staleness) * arrival.delta


def two_kinds(owner, rng, slow=4.0):
    """A preset: a random half of the devices takes `slow` seconds for a job, the others one second."""
    count = len(owner)
    seconds = np.where(rng.random(count) < 0.5, slow, 1.0)
    nothing, at_once = np.zeros(count), np.full(count, np.inf)
    return Fleet(nothing, seconds, at_once, at_once, nothing, nothing)


def warming_up(work, slower=0.5):
    """A duration: a device's first jobs take longer, with random differences between jobs."""
    return work.usual_s * (1 + slower / work.attempt) * work.rng.uniform(0.9, 1.1)


def shifts(devices, seed, hours=8.0):
    """An availability: a third of the devices in each of three shifts."""
    shift = round(hours * 3600e6)  # virtual microseconds

    def presence(device, now_us):
        number, until_us = now_us // shift, (now_us // shift + 1) * shift
        return number % 3 == device % 3, until_us

    return presence


def least_lately(there, history, turn):
    """A selection: of three randomly drawn idle devices, the one with the fastest last job."""
    drawn = [there.at(turn.below(len(there))) for _ in range(3)]
    return min(drawn, key=lambda device: np.nan_to_num(history.seconds[device]))
