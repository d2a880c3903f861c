"""Real arrivals: replies are taken in as they come, and a log records their order.

On a real clock, jobs end when their replies come. All else is as on the virtual clock, with the same events,
rules and draws, at microseconds since the start of the run. Arrivals are logged in devices/arrivals.csv. With
this log, a run on the virtual clock is an exact repetition (`read_job_ends`): chosen devices, starting
versions and all models depend on no other real quantity than the ends of jobs.
"""

import csv
import io
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fedge.config.config import Config
from fedge.config.registers.option import ConfigError, shown
from fedge.config.registers.parts import AVAILABILITY, SERVER_RULES
from fedge.config.registers.traits import ROUNDS
from fedge.config.sections.devices import DevicesConfig
from fedge.devices.timeline.clock import SECOND_US, Clock, Event, Kind
from hhar.regular import open_regular

LOG = "devices/arrivals.csv"
_POLL_S = 0.5  # interval of checks for other events due
_MOST_US = 10**18  # thirty thousand years


class RealClock(Clock):
    """A clock on which jobs end when their replies arrive.

    Events are scheduled by time; arrivals found together get the same time, and are taken in by id, as on the
    virtual clock.
    """

    def __init__(self, arrived: Callable[[float], list[tuple[int, int]]]) -> None:
        """Start now.

        Args:
            arrived: function from seconds to wait to (device, number) of each job with a reply, reported
                once.
        """
        super().__init__()
        self._arrived = arrived
        self._began = time.monotonic()

    def continued_from(self, clock: Clock) -> "RealClock":
        """This clock, with the events ahead of another one except arrivals."""
        facts = clock.facts()
        super().__init__(clock.now_us, clock.events, [
            event for event in facts["ahead"] if event[1] != Kind.ARRIVE  # type: ignore[attr-defined]
        ])  # fmt: skip
        self._began = time.monotonic() - clock.now_us / SECOND_US
        return self

    def next(self) -> Event:
        """The next event, as soon as it is due or has arrived."""
        while True:
            wait_us = self._heap[0].time_us - self._real_us() if self._heap else _MOST_US
            arrivals = self._arrived(min(_POLL_S, max(0, wait_us) / SECOND_US))
            arrival_us = max(self.now_us + 1, self._real_us())
            for device, number in arrivals:
                self.schedule(arrival_us, Kind.ARRIVE, device, number)
            if self._heap and self._heap[0].time_us <= self._real_us():
                return super().next()

    def _real_us(self) -> int:
        """Microseconds since the start of the run."""
        return int((time.monotonic() - self._began) * SECOND_US)


@dataclass(frozen=True)
class RealJobEnds:
    """Ends of jobs in a run on the real clock.

    Attributes:
        path: path of the log.
        by_job: number of a job → its device, its end, and whether it failed.
    """

    path: Path
    by_job: Mapping[int, tuple[int, int, bool]]

    def of_job(self, number: int, device: int) -> tuple[int, bool]:
        """End of a job in virtual microseconds, and whether it fails; "never" if it did not finish.

        Raises:
            ConfigError: the job belonged to another device, so the log is of another run.
        """
        logged, end_us, failed = self.by_job.get(number, (device, _MOST_US, False))
        if logged != device:
            raise ConfigError(
                f"asynchrony.replay must be the log of a run with the same options, seed and clients, but "
                f"job {number} of {self.path} was device {logged}'s, and here it is device {device}'s; give "
                f"the log of such a run"
            )
        return end_us, failed


def read_job_ends(path: str) -> RealJobEnds:
    """Ends of jobs in a run's log.

    Args:
        path: path of the log, or of the run folder.

    Raises:
        ConfigError: the file is missing, or is not such a log.
    """
    file = Path(path) / LOG if Path(path).is_dir() else Path(path)
    ends: dict[int, tuple[int, int, bool]] = {}
    try:
        with io.TextIOWrapper(open_regular(file), newline="", encoding="utf-8") as rows:
            for line, row in enumerate(csv.DictReader(rows), start=2):
                number, device, end_us = (int(row[name]) for name in ("job", "device", "ended_us"))
                if number < 1 or device < 0 or not 0 < end_us < _MOST_US or number in ends:
                    raise ValueError(f"line {line}")
                ends[number] = device, end_us, row["outcome"] == "failed"
    except OSError as error:
        raise ConfigError(
            f"asynchrony.replay must be a run folder, or its {LOG}, but {file}: "
            f"{error.strerror or error}; change it"
        ) from error
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        raise ConfigError(
            f"asynchrony.replay must be a run's {LOG}, with whole numbers as job, device and ended_us, but "
            f"in {file} is {shown(str(error))}; change it"
        ) from error
    return RealJobEnds(file, ends)


def refuse_simulated_times(config: Config) -> None:
    """Raise ConfigError for options that simulate times if arrivals are real or replayed from a log."""
    asynchrony, devices = config.asynchrony, config.devices
    if not asynchrony.is_on or not (asynchrony.is_real or asynchrony.replay):
        return
    option = "asynchrony.clock real" if asynchrony.is_real else "asynchrony.replay"
    default = DevicesConfig()
    conflicts = {
        'asynchrony.replay=""': asynchrony.is_real and bool(asynchrony.replay),
        "another asynchrony.rule, without rounds": SERVER_RULES.has(asynchrony.rule, ROUNDS),
        f'devices.availability="{default.availability}"': devices.availability != AVAILABILITY.names[0],
        "devices.dropout=0.0": devices.dropout != default.dropout,
        "devices.partial-work=false": devices.partial_work,
        "asynchrony.timeout-s=0.0": asynchrony.timeout_s > 0,
        "asynchrony.leaf-link-megabytes-s=0.0": asynchrony.leaf_link_megabytes_s > 0,
    }
    remedies = [remedy for remedy, is_set in conflicts.items() if is_set]
    if remedies:
        raise ConfigError(
            f"{option} needs {', '.join(remedies)}, because real replies say when a job ends, and whether; "
            f"guard.client-timeout gives up who takes too long"
        )
    if asynchrony.replay:
        read_job_ends(asynchrony.replay)
