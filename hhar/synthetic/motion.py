"""Body motion of one person during one bout: the physics of the synthetic set.

A bout has a phase ψ(t), which advances by 2π per stride (or crank turn), and three signals depending on it:

- linear acceleration a(t) = Σ_k A_k cos(kψ + φ_k) in m/s², k = 1…8; k = 2 is the step (two per stride);
- attitude angles θ(t) (roll, pitch, yaw in rad), a sum of the same form plus slow sway; the gyroscope reads
  dθ/dt;
- gravity, 9.81 m/s², in the tilted frame, so accelerometer and gyroscope are consistent.

The body frame is x forward, y left, z up; a sensor at rest reads +9.81 on z. Stairs have landings (a few
seconds of walking), cycling has coasting, standing and sitting have weight shifts: as in real life, such
windows deviate from their label.

Sources. Step frequency of walking 1.8–2.0 Hz: Pachi & Ji 2005 (The Structural Engineer 83). Pelvis rotations
of a few degrees at stride and step frequency: Perry 1992, Gait Analysis. Crank 55–75 /min: leisure cycling.
Amplitudes are near the standard deviations of HHAR's user a on a Nexus 4, over three axes: walk 3.5, stairs
3.9 to 4.2, bike 1.5, stand 0.17, sit 0.06 m/s²; the median of the synthetic set lies within a factor of two
of each. The spreads between users and bouts were chosen so that a model does clearly worse on an unseen user,
as on HHAR.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

GRAVITY_M_S2 = 9.81
MOTION_RATE_HZ = 100.0
NUM_HARMONICS = 8

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class ActivityPhysics:
    """Physics of an activity for the average person, at the waist.

    `forward`, `lateral`, `vertical` map harmonic → amplitude in m/s²; `roll`, `pitch`, `yaw` map harmonic →
    rad. `cycle_hz` is strides (or crank turns) per second; `rough` broadband vibration in m/s² rms; `sway`
    slow tilt in rad rms; `tilt` the mean pitch of the trunk or thigh relative to standing in rad; `interlude`
    the activity that interrupts it for short times.
    """

    cycle_hz: float
    forward: dict[int, float]
    lateral: dict[int, float]
    vertical: dict[int, float]
    roll: dict[int, float]
    pitch: dict[int, float]
    yaw: dict[int, float]
    rough: float
    sway: float
    tilt: float
    interlude: str | None = None


PHYSICS: dict[str, ActivityPhysics] = {
    "walk": ActivityPhysics(
        0.93, {2: 1.7, 4: 0.7}, {1: 1.1, 3: 0.7}, {2: 3.0, 4: 1.3, 6: 0.5},
        {1: 0.05, 3: 0.02}, {2: 0.045}, {1: 0.07}, 0.9, 0.02, 0.0,
    ),
    "stairsup": ActivityPhysics(
        0.82, {2: 2.0, 4: 0.7}, {1: 1.2, 3: 0.7}, {2: 3.1, 4: 1.2, 6: 0.6},
        {1: 0.07, 3: 0.03}, {2: 0.08}, {1: 0.05}, 0.8, 0.03, 0.14, "walk",
    ),
    "stairsdown": ActivityPhysics(
        0.97, {2: 1.5, 4: 0.9}, {1: 1.2, 3: 0.9}, {2: 3.2, 4: 1.7, 6: 1.0},
        {1: 0.05, 3: 0.03}, {2: 0.04}, {1: 0.09}, 1.3, 0.03, -0.08, "walk",
    ),
    "bike": ActivityPhysics(
        1.08, {1: 0.2, 2: 0.35}, {1: 0.45, 2: 0.2}, {1: 0.2, 2: 0.45},
        {1: 0.03}, {1: 0.02, 2: 0.02}, {1: 0.02}, 0.75, 0.02, 0.30, "coast",
    ),
    "coast": ActivityPhysics(1.08, {}, {}, {}, {}, {}, {}, 0.6, 0.02, 0.30),
    "stand": ActivityPhysics(0.3, {}, {}, {}, {}, {}, {}, 0.02, 0.012, 0.0, "shift"),
    "shift": ActivityPhysics(
        0.3, {1: 0.15}, {1: 0.25}, {1: 0.1}, {1: 0.04}, {1: 0.03}, {1: 0.04}, 0.03, 0.02, 0.0,
    ),
    "sit": ActivityPhysics(0.25, {}, {}, {1: 0.01}, {}, {1: 0.001}, {}, 0.012, 0.004, -0.55, "shift"),
}  # fmt: skip


@dataclass(frozen=True)
class MotionSpread:
    """How people, and bouts of one person, differ: standard deviations (log: of a log-normal factor)."""

    tempo_user_log: float = 0.07
    tempo_activity_log: float = 0.04
    tempo_bout_log: float = 0.02
    amplitude_user_log: float = 0.18
    amplitude_harmonic_log: float = 0.24
    amplitude_bout_log: float = 0.08
    phase_user_rad: float = 0.4
    phase_bout_rad: float = 0.12
    tilt_user_rad: float = 0.22
    tilt_bout_rad: float = 0.07
    still_user_log: float = 0.5
    interlude_share: float = 0.08


@dataclass(frozen=True)
class Person:
    """One person's gait: per activity tempo, tilt, and complex harmonics (6, 8) of a and θ."""

    cycle_hz: dict[str, float]
    tilt_rad: dict[str, Matrix]
    harmonics: dict[str, NDArray[np.complex128]]
    stillness: float


@dataclass(frozen=True)
class Motion:
    """Motion of a rigid body at the waist (or wrist), n instants at `MOTION_RATE_HZ`.

    Attributes:
        force: float64 (3, n), specific force in m/s² (gravity included), frame of the carried device's pouch.
        spin: float64 (3, n), angular velocity in rad/s, same frame.
    """

    force: Matrix
    spin: Matrix


def make_person(rng: np.random.Generator, spread: MotionSpread, swing: float = 1.0) -> Person:
    """Draw one person; `swing` scales attitude angles (1 at the waist, several times that at a wrist)."""
    tempo = rng.normal(0, spread.tempo_user_log)
    amplitude = rng.normal(0, spread.amplitude_user_log) + 0.6 * tempo  # a brisk walker also steps harder
    stillness = float(np.exp(rng.normal(0, spread.still_user_log)))
    cycle_hz, tilt, harmonics = {}, {}, {}
    for name, physics in PHYSICS.items():
        cycle_hz[name] = physics.cycle_hz * float(np.exp(tempo + rng.normal(0, spread.tempo_activity_log)))
        tilt[name] = np.array([0.5, 1.0, 0.5]) * rng.normal(0, spread.tilt_user_rad, 3) + [0, physics.tilt, 0]
        size = np.exp(amplitude + rng.normal(0, spread.amplitude_harmonic_log, (6, NUM_HARMONICS)))
        phase = rng.normal(0, spread.phase_user_rad, (6, NUM_HARMONICS)) + _CANONICAL_PHASE
        mean = _mean_amplitudes(physics)
        mean[3:] *= swing
        harmonics[name] = mean * size * np.exp(1j * phase)
    return Person(cycle_hz, tilt, harmonics, stillness)


def bout_motion(
    person: Person,
    activity: str,
    duration_s: float,
    spread: MotionSpread,
    rng: np.random.Generator,
    vibration: float = 1.0,
) -> Motion:
    """Motion during one bout.

    Args:
        person: the person who moves.
        activity: one of the six.
        duration_s: length of the bout in seconds.
        spread: differences between bouts.
        rng: generator used for this bout only.
        vibration: factor on broadband vibration (a handlebar shakes a wrist more than a waist).
    """
    physics = PHYSICS[activity]
    num = int(np.ceil(duration_s * MOTION_RATE_HZ)) + 2
    slow = slow_noise(rng, 5, num)  # tempo, size, roll, pitch, yaw
    tempo = person.cycle_hz[activity] * np.exp(rng.normal(0, spread.tempo_bout_log) + 0.03 * slow[0])
    cycle = np.exp(1j * (2 * np.pi * np.cumsum(tempo) / MOTION_RATE_HZ + rng.uniform(0, 2 * np.pi)))
    powers = _powers(cycle)
    bout_factor = np.exp(
        rng.normal(0, spread.amplitude_bout_log, (6, NUM_HARMONICS))
        + 1j * rng.normal(0, spread.phase_bout_rad, (6, NUM_HARMONICS))
    )
    motion = _wave(person.harmonics[activity] * bout_factor, powers)
    rough = np.full(num, physics.rough)
    if physics.interlude is not None:
        weight = interlude_weight(rng, duration_s, num, spread.interlude_share)
        interlude = _wave(person.harmonics[physics.interlude] * bout_factor, powers)
        motion += weight * (interlude - motion)
        rough += weight * (PHYSICS[physics.interlude].rough - physics.rough)
    motion *= 1 + 0.12 * slow[1]
    if activity in ("sit", "stand"):
        rough *= person.stillness
    motion[:3] += rough * vibration * _rough_noise(rng, num)
    sway = physics.sway * (person.stillness if activity in ("sit", "stand") else 1.0)
    motion[3:] += sway * slow[2:]
    tilt = person.tilt_rad[activity] + rng.normal(0, spread.tilt_bout_rad, 3) * [0.5, 1.0, 0.5]
    return _in_pouch(motion[:3], motion[3:], rotation(*tilt))


def rotation(roll: float, pitch: float, yaw: float) -> Matrix:
    """Rotation matrix (3, 3) of the given angles in rad, roll applied first."""
    (cr, cp, cy), (sr, sp, sy) = np.cos([roll, pitch, yaw]), np.sin([roll, pitch, yaw])
    about_x = np.array([[1, 0, 0], [0, cr, -sr], [0, sr, cr]])
    about_y = np.array([[cp, 0, sp], [0, 1, 0], [-sp, 0, cp]])
    about_z = np.array([[cy, -sy, 0], [sy, cy, 0], [0, 0, 1]])
    return np.asarray(about_z @ about_y @ about_x)


def slow_noise(rng: np.random.Generator, rows: int, num: int) -> Matrix:
    """Smooth noise (rows, num), of unit variance at its knots: white noise at 0.5 Hz, interpolated."""
    knots = rng.normal(size=(rows, int(num / MOTION_RATE_HZ * 0.5) + 3))
    position = np.arange(num) * (0.5 / MOTION_RATE_HZ)
    lower = position.astype(np.int64)
    blend = 0.5 - 0.5 * np.cos(np.pi * (position - lower))
    return np.asarray(knots[:, lower] * (1 - blend) + knots[:, lower + 1] * blend)


def interlude_weight(rng: np.random.Generator, duration_s: float, num: int, share: float) -> Matrix:
    """Weights 0…1 (num,): 1 during interludes of 1.2–2.6 s with ramps of 0.3 s, about `share` of the time."""
    expected = duration_s * share / 1.9
    starts = rng.uniform(0, duration_s, rng.poisson(expected))
    lengths = rng.uniform(1.2, 2.6, len(starts))
    time = np.arange(num) / MOTION_RATE_HZ
    weight = np.zeros(num)
    for start, length in zip(starts, lengths, strict=True):
        first, last = np.searchsorted(time, [start - 0.3, start + length + 0.3])
        inside = time[first:last]
        ramp = np.minimum(inside - start, start + length - inside) / 0.3 + 1
        weight[first:last] = np.maximum(weight[first:last], np.clip(ramp, 0, 1))
    return weight


def _powers(cycle: NDArray[np.complex128]) -> NDArray[np.complex128]:
    powers = np.empty((NUM_HARMONICS, len(cycle)), dtype=np.complex128)
    powers[0] = cycle
    for k in range(1, NUM_HARMONICS):
        np.multiply(powers[k - 1], cycle, out=powers[k])
    return powers


def _wave(harmonics: NDArray[np.complex128], powers: NDArray[np.complex128]) -> Matrix:
    return np.asarray(harmonics.real @ powers.real - harmonics.imag @ powers.imag)


def _rough_noise(rng: np.random.Generator, num: int) -> Matrix:
    """Unit-variance noise (3, num), mostly at 3 to 20 Hz: differences of a 5-sample moving mean."""
    white = rng.normal(size=(3, num + 12))
    smooth = white[:, :-4] + white[:, 1:-3] + white[:, 2:-2] + white[:, 3:-1] + white[:, 4:]
    return np.asarray((smooth[:, 8:] - smooth[:, :-8])[:, :num] / np.sqrt(10.0))


def _in_pouch(linear: Matrix, angles: Matrix, tilt: Matrix) -> Motion:
    roll, pitch = angles[0], angles[1]
    force = linear.copy()
    force[0] -= GRAVITY_M_S2 * np.sin(pitch)
    force[1] += GRAVITY_M_S2 * np.sin(roll) * np.cos(pitch)
    force[2] += GRAVITY_M_S2 * np.cos(roll) * np.cos(pitch)
    spin = np.empty_like(angles)  # small angles: body rates are the derivatives of the angles
    spin[:, 1:-1] = (angles[:, 2:] - angles[:, :-2]) * (MOTION_RATE_HZ / 2)
    spin[:, 0], spin[:, -1] = spin[:, 1], spin[:, -2]
    return Motion(tilt @ force, tilt @ spin)


def _mean_amplitudes(physics: ActivityPhysics) -> Matrix:
    table = np.zeros((6, NUM_HARMONICS))
    rows = (physics.forward, physics.lateral, physics.vertical, physics.roll, physics.pitch, physics.yaw)
    for row, harmonics in enumerate(rows):
        for order, amplitude in harmonics.items():
            table[row, order - 1] = amplitude
    return table


# Phases of the average person, one per (axis, harmonic): fixed irregular numbers, the same for all
# activities.
_CANONICAL_PHASE: Matrix = np.array(
    [[(2.4 * row + 1.7 * k * k + 0.9 * row * k) % (2 * np.pi) for k in range(8)] for row in range(6)]
)
