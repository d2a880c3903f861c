"""Digest of code not identified by a file: typed into a notebook, or made by a function of a script.

Unlike a file's hash, it covers values bound at run time, such as a factory's arguments in a closure. It does
not cover global variables, which code may read by any name. Equal objects of different processes have equal
digests under the same version of Python.
"""

import hashlib
import inspect
from collections.abc import Mapping, Set
from contextlib import suppress
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
    return hashlib.sha256(repr(_Digest().facts(code, _DEEPEST)).encode()).hexdigest()


class _Digest:
    """Facts of an object and of all within it, each read once: objects may refer to each other."""

    def __init__(self) -> None:
        self._seen: dict[int, Any] = {}  # id → object, kept so no other object gets its id

    def facts(self, value: Any, depth: int) -> Any:
        """Facts of a value as nested tuples of scalars and text, without addresses."""
        if value is None or isinstance(value, bool | int | float | complex | str | bytes):
            return value
        if id(value) in self._seen:
            return ("seen",)
        self._seen[id(value)] = value
        return self._facts_within(value, depth - 1) if depth else ()

    def _facts_within(self, value: Any, below: int) -> Any:
        """Facts of an object other than a scalar; `below`: further levels."""
        if isinstance(value, tuple | list):
            return type(value).__name__, *(self.facts(each, below) for each in value)
        if isinstance(value, Set):
            return "set", *sorted(repr(self.facts(each, below)) for each in value)
        if isinstance(value, Mapping):
            return "mapping", *((repr(key), self.facts(each, below)) for key, each in value.items())
        if isinstance(value, CodeType):
            return value.co_code, value.co_names, self.facts(value.co_consts, below)
        if isinstance(value, FunctionType):
            bound = [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
            parts = (value.__code__, value.__defaults__, value.__kwdefaults__, bound)
            return value.__qualname__, *(self.facts(part, below) for part in parts)
        if isinstance(value, MethodType):
            return self.facts(value.__func__, below), self.facts(value.__self__, below)
        if isinstance(value, partial):
            return tuple(self.facts(each, below) for each in (value.func, value.args, value.keywords))
        if isinstance(value, property | classmethod | staticmethod):
            inner = value.fget if isinstance(value, property) else value.__func__
            return type(value).__name__, self.facts(inner, below)
        if inspect.isclass(value):
            name = (value.__module__, value.__qualname__)
            return (*name, *self._facts_of_class(value, below)) if value.__module__ == SCRIPT else name
        if _is_array(value):
            return type(value).__name__, str(value.dtype), tuple(value.shape), _content_sha256(value)
        own = getattr(value, "__dict__", None)
        content = own if isinstance(own, dict) else _reduced(value)
        return self.facts(type(value), below), self.facts(content, below)

    def _facts_of_class(self, kind: type, depth: int) -> tuple[Any, Any]:
        """Facts of a class's bases, and of its own attributes."""
        own = {name: value for name, value in vars(kind).items() if name not in _OF_EVERY_CLASS}
        return self.facts(kind.__bases__, depth), self.facts(own, depth)


def _is_array(value: Any) -> bool:
    """Whether a value is an array, a NumPy number or a tensor."""
    is_library_s = hasattr(value, "tobytes") or hasattr(value, "detach")
    return is_library_s and hasattr(value, "dtype") and hasattr(value, "shape")


def _content_sha256(array: Any) -> str:
    """SHA-256 of the numbers of an array or tensor; "" where it gives none, as a sparse one."""
    with suppress(Exception):  # of any library
        if hasattr(array, "detach"):
            array = array.detach().cpu()
            is_short = array.is_floating_point() and array.element_size() < 4  # NumPy lacks bfloat16
            array = (array.float() if is_short else array).numpy()
        content = repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()
        return hashlib.sha256(content).hexdigest()
    return ""


def _reduced(value: Any) -> Any:
    """Way in which pickle would make an object anew, as (range, (0, 3, 1)); () where it cannot."""
    with suppress(Exception):  # of any library
        return value.__reduce_ex__(4)
    return ()


def _is_filled(cell: Any) -> bool:
    """Whether a closure's cell has a value."""
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
