"""The synthetic set: HHAR's structure with simulated physics, so no data need be downloaded.

Two sizes share all code. `synthetic_windows` is small and quick (216 windows per user, three phones, six
short bouts per activity); `synthetic_recordings` follows the facts in full: bouts, twelve devices, losses,
gaps and clocks. Both go through `hhar.windows.cut`, as real CSV files do. User k is drawn from (seed, k)
alone, so the user is the same for any number of users. Accuracy on synthetic data says nothing about people:
report it as synthetic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from hhar.errors import HharError
from hhar.facts import (
    ACTIVITIES,
    DEVICES,
    MISSING_PAIRS,
    NULL_LABEL,
    SENSORS,
    USERS,
    Bout,
    DeviceFacts,
    bouts_of,
    device_names,
    first_arrival_ms,
    user_name,
)
from hhar.progress import ProgressCallback, no_progress
from hhar.synthetic.devices import DeviceInstance, device_presence, make_device, record
from hhar.synthetic.motion import MotionSpread, Person, bout_motion, make_person, rotation
from hhar.windows.cut import WindowSpec, build_windows
from hhar.windows.recordings import Recording
from hhar.windows.window_file import Windows

EMBEDDED_DEVICES = ("nexus4_1", "s3_2", "s3mini_1")
MAX_USERS = 100_000

# purposes of random streams: second entry of the spawn key
_PERSON, _CARRY, _BOUT, _SAMPLE, _PRESENCE, _NULL = range(6)
_UNIT = 1 << 30  # first entry for draws of a device, not a user


@dataclass(frozen=True)
class Carrier:
    """A user with their devices; the motion of the waist (phones) and of the wrist (watches) differ."""

    index: int
    name: str
    seed: int
    persons: dict[str, Person]
    devices: dict[str, DeviceInstance]


def synthetic_windows(
    num_users: int = 9,
    seed: int = 0,
    *,
    sensors: str = "acc+gyro",
    rate_hz: float = 50.0,
    window_s: float = 2.56,
    stride_s: float = 2.56,
    bouts: int = 6,
    windows_per_bout: int = 2,
    devices: Sequence[str] = EMBEDDED_DEVICES,
    spread: MotionSpread | None = None,
) -> Windows:
    """The embedded set: every user does each of the six activities `bouts` times.

    Args:
        num_users: 1 to 100,000; about 0.1 s and 216 windows each by default.
        seed: any non-negative integer.
        sensors: "acc" (3 channels) or "acc+gyro" (6).
        rate_hz: sampling rate of the windows; 50 Hz × 2.56 s = 128 samples.
        window_s: length of a window in seconds.
        stride_s: seconds from one window to the next; windows do not overlap by default.
        bouts: sessions per user and activity.
        windows_per_bout: windows per session and device.
        devices: names from `hhar.facts.DEVICES`.
        spread: differences between people and bouts; larger ones make the task harder.

    Raises:
        HharError: a value out of range.
    """
    spec = WindowSpec(sensors, rate_hz, window_s, stride_s)
    _check_counts(num_users, seed, {"bouts": bouts, "windows_per_bout": windows_per_bout})
    unknown = [name for name in devices if name not in DEVICES]
    if unknown or not devices:
        raise HharError(
            f"devices: must be from {', '.join(DEVICES)}, but is {list(devices)}; choose one or more of these"
        )
    duration_s = window_s + (windows_per_bout - 1) * stride_s + 2 / rate_hz + 0.35
    spread = spread or MotionSpread()
    groups = (
        group
        for index in range(num_users)
        for group in _embedded_user(index, seed, devices, bouts, duration_s, spread, spec.sensor_names)
    )
    windows = build_windows(groups, spec)
    return _limit_per_bout(windows, windows_per_bout)


def synthetic_recordings(
    index: int,
    seed: int,
    *,
    devices: str = "all",
    sensors: Sequence[str] = ("acc", "gyro"),
    fraction: float = 1.0,
    with_null: bool = False,
    spread: MotionSpread | None = None,
) -> dict[str, list[Recording]]:
    """All recordings of user `index` per device, in order of time, with HHAR's structure.

    Args:
        index: 0 is user a.
        seed: any non-negative integer.
        devices: "phones", "watches" or "all".
        sensors: sensors to record.
        fraction: share of each bout's length to keep, 0 < fraction <= 1 (a bout keeps at least 6 s).
        with_null: also record the time between bouts, with the activity "null" (needed by raw files only).
        spread: differences between people and bouts.

    Raises:
        HharError: `fraction` is out of range.
    """
    if not 0 < fraction <= 1:
        raise HharError(
            f"fraction: must be greater than 0 and at most 1, but is {fraction}; 1 gives HHAR's full size"
        )
    spread = spread or MotionSpread()
    names = [name for name in device_names(devices) if (USERS[index % len(USERS)], name) not in MISSING_PAIRS]
    carrier = make_carrier(index, seed, names, spread)
    by_device: dict[str, list[Recording]] = {name: [] for name in names}
    schedule = scaled_schedule(index, fraction)
    for number, bout in enumerate(schedule):
        _record_bout(carrier, number, bout, bout.activity, spread, sensors, by_device)
        if number + 1 < len(schedule):
            end_s = bout.start_s + bout.duration_s
            pause = Bout("stand", end_s + 0.3, schedule[number + 1].start_s - end_s - 0.6)
            if pause.duration_s > 0.5:
                _record_bout(carrier, number, pause, NULL_LABEL, spread, sensors, by_device)
    return {name: as_delivered(recordings, with_null) for name, recordings in by_device.items()}


def as_delivered(recordings: Sequence[Recording], with_null: bool) -> list[Recording]:
    """Rows as a reader of the files sees them: per sensor, consecutive recordings of equal label become one.

    If a device recorded nothing of the bout between two bouts of equal label, no row separates the two; the
    same occurs in HHAR.
    """
    merged: list[Recording] = []
    for sensor in SENSORS:
        runs = [recording for recording in recordings if recording.sensor == sensor]
        for _, group in groupby(runs, key=lambda recording: recording.activity):
            merged.append(_concatenate(list(group)))
    return merged if with_null else [recording for recording in merged if recording.activity != NULL_LABEL]


def recordings_by_device(
    num_users: int, seed: int, report: ProgressCallback = no_progress, **options: object
) -> Iterator[list[Recording]]:
    """The recordings of each (user, device) in turn; options as for `synthetic_recordings`."""
    _check_counts(num_users, seed, {})
    for index in range(num_users):
        report("making", index, num_users, "users")
        yield from synthetic_recordings(index, seed, **options).values()  # type: ignore[arg-type]
    report("making", num_users, num_users, "users")


def scaled_schedule(index: int, fraction: float) -> list[Bout]:
    """The bouts of user `index`, each cut to `fraction` of its length (at least 6 s), pauses likewise."""
    schedule, clock_s, previous_end_s = [], 0.0, 0.0
    for bout in bouts_of(index):
        clock_s += (bout.start_s - previous_end_s) * fraction
        previous_end_s = bout.start_s + bout.duration_s
        duration_s = max(bout.duration_s * fraction, min(6.0, bout.duration_s))
        schedule.append(Bout(bout.activity, clock_s, duration_s))
        clock_s += duration_s
    return schedule


def make_carrier(index: int, seed: int, names: Sequence[str], spread: MotionSpread) -> Carrier:
    """User `index` with the named devices; sensors depend on the device, the way of carrying on the user."""
    person_rng = stream(seed, index, _PERSON)
    persons = {"waist": make_person(person_rng, spread), "wrist": make_person(person_rng, spread, swing=4.0)}
    devices = {}
    for name in names:
        facts = DEVICES[name]
        number = list(DEVICES).index(name)
        place = 1 if facts.is_watch else 0
        place_rng = stream(seed, index, _CARRY, 1000 + place)
        pouch = rotation(*place_rng.normal(0, [0.20, 0.30, 0.35]))  # how the pouch or strap sits on this user
        device = make_device(facts, stream(seed, _UNIT, number), stream(seed, index, _CARRY, number))
        devices[name] = DeviceInstance(
            facts, device.mounting @ pouch, device.gain, device.acc_bias, device.gyro_bias
        )
    return Carrier(index, user_name(index), seed, persons, devices)


def stream(seed: int, *key: int) -> np.random.Generator:
    """An independent random stream for (seed, key)."""
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(seed, spawn_key=key)))


def _embedded_user(
    index: int,
    seed: int,
    devices: Sequence[str],
    bouts: int,
    duration_s: float,
    spread: MotionSpread,
    sensors: Sequence[str],
) -> list[list[Recording]]:
    carrier = make_carrier(index, seed, devices, spread)
    by_device: dict[str, list[Recording]] = {name: [] for name in devices}
    for number in range(bouts * len(ACTIVITIES)):
        activity = ACTIVITIES[number % len(ACTIVITIES)]
        bout = Bout(activity, number * (duration_s + 30.0), duration_s)
        _record_bout(carrier, number, bout, activity, spread, sensors, by_device, embedded=True)
    return list(by_device.values())


def _record_bout(
    carrier: Carrier,
    number: int,
    bout: Bout,
    label: str,
    spread: MotionSpread,
    sensors: Sequence[str],
    by_device: dict[str, list[Recording]],
    embedded: bool = False,
) -> None:
    """Add one bout's recordings of every device to `by_device`; devices at one place share one motion."""
    seed, index = carrier.seed, carrier.index
    shift = 0 if label != NULL_LABEL else _NULL * 10
    motions = {}
    for place, vibration in (("waist", 1.0), ("wrist", 1.6)):
        if any(device.facts.is_watch == (place == "wrist") for device in carrier.devices.values()):
            rng = stream(seed, index, _BOUT + shift, number, place == "wrist")
            motions[place] = bout_motion(
                carrier.persons[place], bout.activity, bout.duration_s, spread, rng, vibration
            )
    start_ms = first_arrival_ms(index) + round(bout.start_s * 1000)
    for name, device in carrier.devices.items():
        key = list(DEVICES).index(name)
        rng = stream(seed, index, _PRESENCE + shift, number, key)
        if not embedded and not _is_present(device.facts, bout.activity, number, rng):
            continue
        facts = _without_losses(device.facts) if embedded else device.facts
        presence = device_presence(facts, bout.activity, bout.duration_s, rng)
        motion = motions["wrist" if facts.is_watch else "waist"]
        for sensor in sensors:
            recording = record(
                device, carrier.name, sensor, bout.activity, motion, presence, start_ms, bout.duration_s, rng
            )
            if recording is not None:
                by_device[name].append(recording if label == bout.activity else _relabelled(recording, label))


def _is_present(facts: DeviceFacts, activity: str, number: int, rng: np.random.Generator) -> bool:
    """Whether the device recorded the bout; every device has the fourth bout of every user."""
    return bool(rng.uniform() < facts.presence[ACTIVITIES.index(activity)]) or number == 3


def _without_losses(facts: DeviceFacts) -> DeviceFacts:
    return DeviceFacts(
        facts.name, facts.model, facts.acc_hz, facts.gyro_hz, (1.0,) * 6, (0.0,) * 6,
        facts.clock, facts.boot_epoch_s, facts.burst_ms,
    )  # fmt: skip


def _concatenate(parts: Sequence[Recording]) -> Recording:
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    arrival_ms = np.concatenate([part.arrival_ms for part in parts])
    creation_ns = np.concatenate([part.creation_ns for part in parts])
    values = np.concatenate([part.values for part in parts])
    return Recording(first.user, first.device, first.sensor, first.activity, arrival_ms, creation_ns, values)


def _relabelled(recording: Recording, label: str) -> Recording:
    return Recording(
        recording.user,
        recording.device,
        recording.sensor,
        label,
        recording.arrival_ms,
        recording.creation_ns,
        recording.values,
    )


def _check_counts(num_users: int, seed: int, positive: dict[str, int]) -> None:
    if not 1 <= num_users <= MAX_USERS:
        raise HharError(f"num_users: must be from 1 to {MAX_USERS}, but is {num_users}; HHAR has 9")
    if seed < 0:
        raise HharError(f"seed: must not be negative, but is {seed}; choose 0 or more")
    for name, value in positive.items():
        if value < 1:
            raise HharError(f"{name}: must be at least 1, but is {value}; choose a larger number")


def _limit_per_bout(windows: Windows, windows_per_bout: int) -> Windows:
    """Keep the first `windows_per_bout` windows per (session, device); the margin may have added one."""
    assert windows.session is not None
    assert windows.device is not None
    changed = (windows.session[1:] != windows.session[:-1]) | (windows.device[1:] != windows.device[:-1])
    starts = np.flatnonzero(np.concatenate([[True], changed]))
    rank = np.arange(len(windows)) - np.repeat(starts, np.diff(np.append(starts, len(windows))))
    keep = rank < windows_per_bout
    if keep.all():
        return windows
    return Windows(
        windows.x[keep], windows.y[keep], windows.user[keep], windows.device[keep], windows.session[keep],
        windows.classes, windows.channels, windows.about,
    )  # fmt: skip
