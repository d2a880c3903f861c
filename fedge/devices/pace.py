"""Speeds of clients as devices, and of links between servers, for synchronous rounds."""

import numpy as np

from fedge.config.clock_tiers import clock_of_tiers
from fedge.config.config import Config
from fedge.devices.planning import windows_of_jobs
from fedge.devices.population.draws import JobDraws
from fedge.devices.population.fleet import Durations, Fleet, fleet_of, watts_of


class DevicePace:
    """Durations of a fleet's jobs and transfers in the form needed by `virtual_time`."""

    def __init__(self, config: Config, seed: int, windows: np.ndarray, fleet: Fleet) -> None:
        """Store the speeds.

        Args:
            config: configuration; read for links (`asynchrony`) and training, with local steps as a number.
            seed: root of the random streams of jobs.
            windows: (N,) int64, training windows of all clients.
            fleet: a row per client.
        """
        self._windows = windows_of_jobs(windows, config).tolist()
        self._durations, self._draws, self._watts = Durations(fleet), JobDraws(seed), watts_of(fleet)
        self._links = [
            (options.cloud_delay_s, options.cloud_megabytes_s * 1e6) for options in clock_of_tiers(config)
        ]

    def job(
        self, client: int, attempt: int, down_bytes: float, up_bytes: float
    ) -> tuple[float, float | None]:
        """Seconds and joules of a client's job with its bytes; arguments as in the protocol."""
        times = self._durations.times(client, self._windows[client], self._draws.draw(client, attempt))
        down, up = self._durations.links(client)
        radio_s = times.down_s + down_bytes / down + times.up_s + up_bytes / up
        if self._watts is None:
            return radio_s + times.train_s, None
        train, radio = (float(watts[client]) for watts in self._watts)
        return radio_s + times.train_s, train * times.train_s + radio * radio_s

    def link(self, nbytes: int, tier: int) -> float:
        """Seconds to send bytes between a server of a tier and its child; sending none takes no time."""
        delay_s, bytes_s = self._links[tier]
        return delay_s + nbytes / bytes_s if nbytes else 0.0


def pace_of(config: Config, seed: int, windows: np.ndarray) -> DevicePace | None:
    """Pace of a run's devices, one user per device; None if rounds take real time only.

    Args:
        config: configuration of the run, with local steps as a number.
        seed: root of all random streams.
        windows: (N,) int64, training windows of all clients.

    Raises:
        ConfigError: the preset cannot make a fleet of this size.
    """
    if not config.devices.time_rounds:
        return None
    return DevicePace(config, seed, windows, fleet_of(config.devices, np.arange(len(windows)), seed))
