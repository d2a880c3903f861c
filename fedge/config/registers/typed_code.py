"""Digest of code that no file identifies: typed into a notebook, or made by a function of a script.

Unlike a file's hash, it covers values bound at run time, such as a factory's arguments in a closure. It does
not cover global variables, which code may read by any name. Equal objects of different processes have equal
digests under the same version of Python.
"""

import hashlib
import inspect
from collections.abc import Mapping, Set
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

SCRIPT = "__main__"
_DEEPEST = 8  # levels of objects within objects
_OF_EVERY_CLASS = {
    "__annotations__", "__annotate_func__", "__annotations_cache__", "__dict__", "__doc__", "__firstlineno__",
    "__module__", "__static_attributes__", "__weakref__",
}  # fmt: skip


def object_sha256(code: Any) -> str:
    """SHA-256 of a class, function or object of a script or notebook; "" for code of another module."""
    of = code.func if isinstance(code, partial) else code
    of = of if hasattr(of, "__qualname__") else type(of)
    if getattr(of, "__module__", "") != SCRIPT:
        return ""
    return hashlib.sha256(repr(_facts(code, _DEEPEST)).encode()).hexdigest()


def _facts(value: Any, depth: int) -> Any:
    """Facts of a value as nested tuples of scalars and text, without addresses."""
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return value
    if not depth:
        return ()
    below = depth - 1
    if isinstance(value, tuple | list):
        return type(value).__name__, *(_facts(each, below) for each in value)
    if isinstance(value, Set):
        return "set", *sorted(repr(_facts(each, below)) for each in value)
    if isinstance(value, Mapping):
        return "mapping", *((repr(key), _facts(each, below)) for key, each in value.items())
    if isinstance(value, CodeType):
        return value.co_code, value.co_names, _facts(value.co_consts, depth)  # a function within a function
    if isinstance(value, FunctionType):
        bound = [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
        said = (value.__code__, value.__defaults__, value.__kwdefaults__, bound)
        return value.__qualname__, *(_facts(each, below) for each in said)
    if isinstance(value, MethodType):
        return _facts(value.__func__, below), _facts(value.__self__, below)
    if isinstance(value, partial):
        return tuple(_facts(each, below) for each in (value.func, value.args, value.keywords))
    if isinstance(value, property | classmethod | staticmethod):
        inner = value.fget if isinstance(value, property) else value.__func__
        return type(value).__name__, _facts(inner, below)
    if inspect.isclass(value):
        name = (value.__module__, value.__qualname__)
        return (*name, *_of_class(value, below)) if value.__module__ == SCRIPT else name
    own = getattr(value, "__dict__", None)
    return _facts(type(value), below), _facts(own, below) if isinstance(own, dict) else ()


def _of_class(kind: type, depth: int) -> tuple[Any, Any]:
    """Facts of a class's bases, and of its own attributes."""
    own = {name: value for name, value in vars(kind).items() if name not in _OF_EVERY_CLASS}
    return _facts(kind.__bases__, depth), _facts(own, depth)


def _is_filled(cell: Any) -> bool:
    """Whether a closure's cell has a value."""
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
