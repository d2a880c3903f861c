"""Parts of the virtual clock: a rule, a preset of devices, a duration, an availability, a selection."""

import numpy as np

from fedge.devices import Fleet


def damped(model, memory, arrival, step=0.5):
    """A rule: the older an arrival, the less of it; a model at every arrival."""
    return model + step / (1 + arrival.staleness) * arrival.delta


def two_kinds(owner, rng, slow=4.0):
    """A preset: one device in two takes `slow` seconds for a job, the others one."""
    count = len(owner)
    seconds = np.where(rng.random(count) < 0.5, slow, 1.0)
    nothing, at_once = np.zeros(count), np.full(count, np.inf)
    return Fleet(nothing, seconds, at_once, at_once, nothing, nothing)


def warming_up(work, slower=0.5):
    """A duration: a device's first jobs take longer, and no two jobs of it the same."""
    return work.usual_s * (1 + slower / work.attempt) * work.rng.uniform(0.9, 1.1)


def shifts(devices, seed, hours=8.0):
    """An availability: every third device is there in each of three shifts."""
    shift = round(hours * 3600e6)  # virtual microseconds

    def presence(device, now_us):
        number, until_us = now_us // shift, (now_us // shift + 1) * shift
        return number % 3 == device % 3, until_us

    return presence


def least_lately(there, history, turn):
    """A selection: of three drawn from those that are there, whose last result took least time."""
    drawn = [there.at(turn.below(len(there))) for _ in range(3)]
    return min(drawn, key=lambda device: np.nan_to_num(history.seconds[device]))
