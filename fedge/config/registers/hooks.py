"""Methods of a user's class that Fedge calls by name: a misspelt one would never be called, in silence."""

import difflib
import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

from fedge.config.registers.option import ConfigError

_ALIKE = 0.75  # of two names: a helper is called otherwise than a method of Fedge's with a slip


def refuse_misspelt(code: type, base: type, what: str) -> None:
    """Raise ConfigError for a public method that nothing calls, where it may be meant for one of the base's.

    That is one with almost the name of a method which the class leaves as it is, or any where the class
    defines none of them. Methods called by the class itself are its helpers.

    Args:
        code: a class derived from `base`.
        base: whose methods Fedge calls.
        what: option and name of the class.
    """
    hooks = [name for name, value in vars(base).items() if _is_public_method(name, value)]
    left = [name for name in hooks if getattr(code, name) is getattr(base, name)]
    own = {
        name: value
        for kind in code.__mro__[: code.__mro__.index(base)]
        for name, value in vars(kind).items()
        if isinstance(value, FunctionType)
    }
    called = {name for function in own.values() for name in _names(function.__code__)}
    for name, value in own.items():
        if not _is_public_method(name, value) or name in hooks or name in called:
            continue
        near = difflib.get_close_matches(name, left, n=1, cutoff=_ALIKE)
        if near or left == hooks:
            meant = near[0] if near else f"one of {', '.join(hooks)}"
            raise ConfigError(
                f"{what} has a method {name}, which nothing calls; did you mean {meant}? If it is a helper, "
                f"begin its name with _"
            )


def _is_public_method(name: str, value: Any) -> bool:
    """Whether an attribute of a class is a method without underscore."""
    return inspect.isfunction(value) and not name.startswith("_")


def _names(code: CodeType) -> Iterator[str]:
    """Names of attributes and globals in a function, and in functions within."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)
