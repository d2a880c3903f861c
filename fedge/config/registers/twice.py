"""Custom parts asked twice from the same start: a seed says all that they answer (contracts C2, C3).

A generator of the part's own, the clock or memory of earlier calls shows as another answer. Draws from a
global stream of NumPy, Python or PyTorch may by chance give the same answer, so these streams are compared,
too: both calls have moved one, and not to the same state, as does a part that begins the stream anew.
"""

import random
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, nullcontext
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from fedge.config.registers.option import ConfigError
from fedge.config.registers.register import Register

Answer = TypeVar("Answer")
GLOBAL_STREAMS = threading.RLock()  # to watch, move or seed them: leaf servers in threads begin at once
_TIMES = 3  # that a part must be seen to draw: Flower's threads draw, too, now and then (heartbeats, retries)
FROM_RNG = "draw from its generator alone, and keep nothing between calls"
WITHOUT_RNG = "compute it from the given arguments alone"


def asked_twice(
    register: Register,
    name: str,
    ask: Callable[[], Answer],
    hint: str = WITHOUT_RNG,
    in_threads: bool = False,
) -> Answer:
    """Answer of a part; one of a user's is asked again.

    Args:
        register: of the part.
        name: of the part.
        ask: makes what the part is given anew, its streams included, and asks.
        hint: the next step for an error.
        in_threads: several threads of a process ask it at a time, so that one would go on with a stream begun
            anew by another. No use of a global stream is allowed.

    Raises:
        ConfigError: the answers of the user's differ, or it draws from a global stream.
    """
    whose = f"{register.option} {name}"
    return asked_again(whose, ask, hint, in_threads) if register.is_own(name) else ask()


def asked_again(
    what: str, ask: Callable[[], Answer], hint: str = WITHOUT_RNG, in_threads: bool = False
) -> Answer:
    """The first of two answers of a user's part.

    Args:
        what: option and name of the part, for errors.
        ask: as of `asked_twice`.
        hint: likewise.
        in_threads: likewise.

    Raises:
        ConfigError: as there.
    """
    for _ in range(_TIMES):
        first, second, drawn = _asked_pair(ask, in_threads)
        if not drawn:
            break
    else:
        raise ConfigError(
            f"{what} must follow from the seed, but draws from the global stream of {drawn[0]}"
            f"{' or seeds it' if in_threads else ''}; {hint}"
        )
    if not alike(first, second):
        raise ConfigError(
            f"{what} must answer alike from the same start, so that a seed determines the run, but answered "
            f"differently the second time; {hint}"
        )
    return first


def _asked_pair(ask: Callable[[], Answer], in_threads: bool) -> tuple[Answer, Answer, list[str]]:
    """Two answers, and the global streams that moved both times, sorted."""
    with GLOBAL_STREAMS, _moved_on() if in_threads else nullcontext():
        before = _streams()
        first = ask()
        between = _streams()
        moved = sorted(stream for stream, state in between.items() if before.get(stream, state) != state)
        if in_threads:
            _move_on()
            between = _streams()
        second = ask()
        after = _streams()
    return first, second, [stream for stream in moved if after[stream] != between[stream]]


def _move_on() -> None:
    """Draw from every global stream, so that one begun anew is another than before."""
    random.random()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.random()
    if "torch" in sys.modules:
        sys.modules["torch"].rand(())


@contextmanager
def _moved_on() -> Iterator[None]:
    """Context in which the global streams stand elsewhere; afterwards they are as before."""
    of_python = random.getstate()
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    of_numpy = None if numpy is None else numpy.random.get_state()
    of_torch = None if torch is None else torch.random.get_rng_state()
    _move_on()
    try:
        yield
    finally:
        random.setstate(of_python)
        if numpy is not None:
            numpy.random.set_state(of_numpy)
        if torch is not None:
            torch.random.set_rng_state(of_torch)


def _streams() -> dict[str, Any]:
    """Library → state of its global stream, of those loaded."""
    found: dict[str, Any] = {"random": random.getstate()}
    if "numpy" in sys.modules:
        kind, key, *rest = sys.modules["numpy"].random.get_state()
        found["numpy.random"] = (kind, key.tobytes(), *rest)
    if "torch" in sys.modules:
        found["torch"] = sys.modules["torch"].random.get_rng_state().numpy().tobytes()
    return found


def alike(one: Any, other: Any) -> bool:
    """Whether two answers are equal to the bit; objects of unknown classes are, if of one class.

    >>> alike({"a": [1.0, float("nan")]}, {"a": [1.0, float("nan")]}), alike([1], [2]), alike({1, 2}, {2, 1})
    (True, False, True)
    """
    if type(one) is not type(other):
        return False
    if hasattr(one, "detach"):
        one, other = (tensor.detach().cpu().numpy() for tensor in (one, other))
    if hasattr(one, "tobytes") and hasattr(one, "dtype"):
        same = (one.dtype, one.shape) == (other.dtype, other.shape)
        return same and (one.tolist() == other.tolist() if one.dtype.hasobject else _bytes_alike(one, other))
    if isinstance(one, float):
        return one.hex() == other.hex()
    if isinstance(one, Mapping):
        return list(one) == list(other) and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, Sequence) and not isinstance(one, str | bytes):
        return len(one) == len(other) and all(map(alike, one, other))
    if is_dataclass(one) and not isinstance(one, type):
        return all(alike(getattr(one, each.name), getattr(other, each.name)) for each in fields(one))
    if isinstance(one, int | str | bytes | AbstractSet):
        return bool(one == other)
    return True


def _bytes_alike(one: Any, other: Any) -> bool:
    """Whether two arrays of one form have the same bytes."""
    return bool(one.tobytes() == other.tobytes())
