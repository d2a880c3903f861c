"""Methods of a user's class that Fedge calls by name: a misspelt one would never be called, in silence."""

import difflib
import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

from fedge.config.registers.option import ConfigError

_SIMILARITY = 0.75  # of two names: a helper is called otherwise than a method of Fedge's with a slip


def refuse_misspelt(code: type, base: type, description: str) -> None:
    """Raise ConfigError for a public method that nothing calls, where it may be meant for one of the base's.

    That is one with almost the name of a method which the class leaves as it is, or any where the class
    defines none of them. Methods called by the class itself are its helpers.

    Args:
        code: a class derived from `base`.
        base: whose methods Fedge calls.
        description: option and name of the class.
    """
    hooks = [name for name, value in vars(base).items() if _is_public_method(name, value)]
    not_overridden = [name for name in hooks if getattr(code, name) is getattr(base, name)]
    methods = {
        name: value
        for kind in code.__mro__[: code.__mro__.index(base)]
        for name, value in vars(kind).items()
        if isinstance(value, FunctionType)
    }
    called = {name for function in methods.values() for name in _referenced_names(function.__code__)}
    for name, value in methods.items():
        if not _is_public_method(name, value) or name in hooks or name in called:
            continue
        matches = difflib.get_close_matches(name, not_overridden, n=1, cutoff=_SIMILARITY)
        if matches or not_overridden == hooks:
            suggestion = matches[0] if matches else f"one of {', '.join(hooks)}"
            raise ConfigError(
                f"{description} has a method {name}, which nothing calls; did you mean {suggestion}? If it "
                f"is a helper, begin its name with _"
            )


def _is_public_method(name: str, value: Any) -> bool:
    """Whether an attribute of a class is a method without underscore."""
    return inspect.isfunction(value) and not name.startswith("_")


def _referenced_names(code: CodeType) -> Iterator[str]:
    """Names of attributes and globals in a function, and in functions within."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _referenced_names(inner)
