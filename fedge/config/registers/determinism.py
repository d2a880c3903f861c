"""Determinism check for users' parts: called twice from the same state, they must agree (contracts C2, C3).

A part with its own generator, or one that reads the clock or remembers earlier calls, gives a different
result. Draws from a global stream of NumPy, Python or PyTorch may give the same result by chance, so these
streams are compared, too: a part is refused if both calls moved one, and to different states. A part seeding
the stream itself ends in the same state.
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
GLOBAL_STREAMS = threading.RLock()  # held to read, move or seed them: leaf servers may be threads
_ATTEMPTS = 3  # draws seen before a refusal: Flower's threads draw occasionally, too (heartbeats, retries)
FROM_RNG = "draw from its generator alone, and keep nothing between calls"
WITHOUT_RNG = "compute it from the given arguments alone"


def call_checked(
    register: Register,
    name: str,
    ask: Callable[[], Answer],
    hint: str = WITHOUT_RNG,
    in_threads: bool = False,
) -> Answer:
    """Call a part and return its result; a user's part is called again to compare.

    Args:
        register: of the part.
        name: of the part.
        ask: creates fresh arguments, including random streams, and calls the part.
        hint: next step for the error.
        in_threads: several threads call the part at the same time, so one could continue a stream another has
            just seeded. Any use of a global stream is refused.

    Raises:
        ConfigError: a user's part gave different results, or drew from a global stream.
    """
    description = f"{register.option} {name}"
    return call_twice(description, ask, hint, in_threads) if register.is_own(name) else ask()


def call_twice(
    description: str, ask: Callable[[], Answer], hint: str = WITHOUT_RNG, in_threads: bool = False
) -> Answer:
    """Call a user's part twice and return the first result.

    Args:
        description: option and name of the part, for errors.
        ask: as for `call_checked`.
        hint: as for `call_checked`.
        in_threads: as for `call_checked`.

    Raises:
        ConfigError: as for `call_checked`.
    """
    for _ in range(_ATTEMPTS):
        first, second, drawn = _call_twice(ask, in_threads)
        if not drawn:
            break
    else:
        raise ConfigError(
            f"{description} must follow from the seed, but draws from the global stream of {drawn[0]}"
            f"{' or seeds it' if in_threads else ''}; {hint}"
        )
    if not are_identical(first, second):
        raise _other_result(description, hint)
    return first


def call_again(register: Register, name: str, ask: Callable[[], Answer], hint: str = WITHOUT_RNG) -> Answer:
    """Call a part and return its result; a user's part is called again at once, one of many calls of a trial.

    Two equal series of calls do not show a part that counts them: it may start over with the first one, or
    after as many as there are.

    Args:
        register: of the part.
        name: of the part.
        ask: as for `call_checked`.
        hint: as for `call_checked`.

    Raises:
        ConfigError: a user's part gave different results.
    """
    answer = ask()
    if register.is_own(name) and not are_identical(answer, ask()):
        raise _other_result(f"{register.option} {name}", hint)
    return answer


def call_watched(description: str, ask: Callable[[], Answer], hint: str) -> Answer:
    """Call a user's part that may take long; call it again to compare only if a global stream moved.

    A move alone proves nothing: PyTorch's DataLoader draws from its stream in any order of its examples.

    Args:
        description: option and name of the part, for errors.
        ask: as for `call_checked`.
        hint: as for `call_checked`.

    Raises:
        ConfigError: the results differ.
    """
    with GLOBAL_STREAMS:
        before = _stream_states()
        answer = ask()
        moved = any(before.get(stream, state) != state for stream, state in _stream_states().items())
        if moved and not are_identical(answer, ask()):
            raise _other_result(description, hint)
    return answer


def _other_result(description: str, hint: str) -> ConfigError:
    """Error of a part that gave two results from the same start."""
    return ConfigError(
        f"{description} must give the same result from the same start, so that a seed determines the "
        f"run, but gave another the second time; {hint}"
    )


def _call_twice(ask: Callable[[], Answer], in_threads: bool) -> tuple[Answer, Answer, list[str]]:
    """Two results, and the sorted names of the global streams moved by both calls."""
    with GLOBAL_STREAMS, _advanced_streams() if in_threads else nullcontext():
        before = _stream_states()
        first = ask()
        between = _stream_states()
        moved = sorted(stream for stream, state in between.items() if before.get(stream, state) != state)
        if in_threads:
            _advance_streams()
            between = _stream_states()
        second = ask()
        after = _stream_states()
    return first, second, [stream for stream in moved if after[stream] != between[stream]]


def _advance_streams() -> None:
    """Draw from every global stream: a part seeding one again then changes its state."""
    random.random()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.random()
    if "torch" in sys.modules:
        sys.modules["torch"].rand(())


@contextmanager
def _advanced_streams() -> Iterator[None]:
    """Context with the global streams moved on; restores them afterwards."""
    python_state = random.getstate()
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    numpy_state = None if numpy is None else numpy.random.get_state()
    torch_state = None if torch is None else torch.random.get_rng_state()
    _advance_streams()
    try:
        yield
    finally:
        random.setstate(python_state)
        if numpy is not None:
            numpy.random.set_state(numpy_state)
        if torch is not None:
            torch.random.set_rng_state(torch_state)


def _stream_states() -> dict[str, Any]:
    """Loaded library → state of its global stream."""
    states: dict[str, Any] = {"random": random.getstate()}
    if "numpy" in sys.modules:
        kind, key, *rest = sys.modules["numpy"].random.get_state()
        states["numpy.random"] = (kind, key.tobytes(), *rest)
    if "torch" in sys.modules:
        states["torch"] = sys.modules["torch"].random.get_rng_state().numpy().tobytes()
    return states


def are_identical(one: Any, other: Any) -> bool:
    """Whether two results are bit-identical; objects of unknown types count as equal if their types agree.

    >>> are_identical({"a": [1.0, float("nan")]}, {"a": [1.0, float("nan")]})
    True
    >>> are_identical([1], [2]), are_identical({1, 2}, {2, 1})
    (False, True)
    """
    if type(one) is not type(other):
        return False
    if hasattr(one, "detach"):
        one, other = (tensor.detach().cpu().numpy() for tensor in (one, other))
    if hasattr(one, "tobytes") and hasattr(one, "dtype"):
        same = (one.dtype, one.shape) == (other.dtype, other.shape)
        return same and (
            one.tolist() == other.tolist() if one.dtype.hasobject else _have_same_bytes(one, other)
        )
    if isinstance(one, float):
        return one.hex() == other.hex()
    if isinstance(one, Mapping):
        return list(one) == list(other) and all(are_identical(one[key], other[key]) for key in one)
    if isinstance(one, Sequence) and not isinstance(one, str | bytes):
        return len(one) == len(other) and all(map(are_identical, one, other))
    if is_dataclass(one) and not isinstance(one, type):
        return all(
            are_identical(getattr(one, field.name), getattr(other, field.name)) for field in fields(one)
        )
    if isinstance(one, int | str | bytes | AbstractSet):
        return bool(one == other)
    return True


def _have_same_bytes(one: Any, other: Any) -> bool:
    """Whether two arrays of the same shape and dtype have the same bytes."""
    return bool(one.tobytes() == other.tobytes())
