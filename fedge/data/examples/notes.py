"""Example with several classes per example: which of six notes sound together; synthetic."""

import numpy as np

from fedge.config.registers.option import ConfigError
from hhar.windows.window_file import Windows

HALF_TONES = ("c", "c sharp", "d", "d sharp", "e", "f", "f sharp", "g", "g sharp", "a", "a sharp", "b")
NOTES = ("c", "d", "e", "f", "g", "a")
_PLACES = np.array([HALF_TONES.index(note) for note in NOTES])
_FIFTH = 7  # half tones above a note, where its second overtone is heard
_ROWS = 60  # of a user
_SHARE = 0.4  # of the rows in which a note sounds
_NOISE = 0.3  # standard deviation


def notes(users: int = 10) -> Windows:
    """Loudness of each half tone (60 rows per user, 12), and y (N, 6), 1 for a sounding note; `multilabel`.

    Each user has an instrument, with its own loudness of notes and of their second overtone, a fifth above,
    which sounds like another note. The data are the same for every seed of a run.

    Args:
        users: number of users.

    Raises:
        ConfigError: too many, or none.
    """
    if not 1 <= users <= 1000:
        raise ConfigError(f"data.path-args.users must be 1 to 1000, but is {users}; take for example 10")
    rows_by_user = [_make_user_rows(number) for number in range(users)]
    return Windows(
        x=np.concatenate([x for x, _ in rows_by_user]),
        y=np.concatenate([y for _, y in rows_by_user]),
        user=np.repeat([f"player-{number:03d}" for number in range(users)], _ROWS),
        device=None,
        session=None,
        classes=NOTES,
        channels=HALF_TONES,
    )


def _make_user_rows(user: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows of a user, x (60, 12) float32 and y (60, 6) int64."""
    rng = np.random.default_rng(np.random.SeedSequence([user, _ROWS]))
    loud, overtone = rng.uniform(0.5, 1.5, size=len(NOTES)), rng.uniform(0.0, 0.8)
    sounds = rng.random((_ROWS, len(NOTES))) < _SHARE
    x = rng.normal(0, _NOISE, size=(_ROWS, len(HALF_TONES)))
    x[:, _PLACES] += sounds * loud
    x[:, (_PLACES + _FIFTH) % len(HALF_TONES)] += sounds * loud * overtone
    return x.astype(np.float32), sounds.astype(np.int64)
