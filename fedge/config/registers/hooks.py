"""Names in a user's class read by Fedge: a misspelt or misplaced one would silently have no effect."""

import difflib
import inspect
import sys
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any

from fedge.config.registers.option import ConfigError, nearest

_SIMILARITY = 0.75  # of two names: a helper is called otherwise than a method of Fedge's with a slip
_PACKAGES = ("fedge", "flwr")  # whose classes are no user's
_LIKE_A_HOOK = ("on_", "before_", "after_")  # names of hooks in other libraries

TIERS: Mapping[str, frozenset[str]] = {
    "Algorithm": frozenset(
        {"train", "models", "unseen", "leaf", "corrected", "reads", "within", "beside_models"}
    ),
    "LeafPart": frozenset({"send", "combine", "reads_replies"}),
    "CloudPart": frozenset({"ask", "group", "needs", "compares", "told", "keeps"}),
}
"""Base class of each tier of a method → the names that Fedge reads in it and in no other."""


def refuse_misspelt(code: type, base: type, description: str) -> None:
    """Raise ConfigError for a public name that nothing reads, if possibly meant for one Fedge reads.

    These are a method or an attribute with almost the name of one of the base's, or with a name from the
    class of another tier; a method with a hook's argument, as ``evaluate(client)``; and any method in a class
    that defines none of the base's. Names used by the class itself are its helpers, as are those of methods
    with a hook's argument if its module uses them.

    Args:
        code: a class derived from `base`.
        base: whose methods and attributes Fedge reads.
        description: option and name of the class.
    """
    hooks = [name for name, value in vars(base).items() if _is_public_method(name, value)]
    ours = [kind for kind in code.__mro__[:-1] if kind.__module__.partition(".")[0] in _PACKAGES]
    users = [kind for kind in reversed(code.__mro__[: code.__mro__.index(base)]) if kind not in ours]
    methods = {name: value for kind in users for name, value in vars(kind).items()}
    known = {name for kind in ours if kind is not base for name in vars(kind)}
    functions = [value for value in methods.values() if inspect.isfunction(value)]
    called = {name for function in functions for name in _referenced_names(function.__code__)}
    not_overridden = [name for name in hooks if name not in methods]
    has_none = all(getattr(code, name) is getattr(base, name) for name in hooks)
    for name, value in methods.items():
        if name.startswith("_") or name in known or name in called or name in hooks:
            continue
        if isinstance(value, FunctionType):
            _refuse_method(name, not_overridden, hooks if has_none else [], base, description)
            is_used = any(name in _names_in_module(kind) for kind in users)
            if base.__name__ in TIERS and "getattr" not in called and not is_used:
                _refuse_like_hook(name, value, hooks, base, description)
        elif name not in vars(base):
            _refuse_attribute(name, value, base, description)


def refuse_foreign_hooks(code: type, hooks: tuple[str, ...], what: str) -> None:
    """Raise ConfigError for a method named like hooks of other libraries, such as on_round_end.

    Args:
        code: a user's class; only methods defined and not called by it are examined.
        hooks: the methods called by Fedge.
        what: option and name of the class.
    """
    own = {name: value for name, value in vars(code).items() if inspect.isfunction(value)}
    called = {name for function in own.values() for name in _referenced_names(function.__code__)}
    for name in own.keys() - called - set(hooks):
        if name.startswith(_LIKE_A_HOOK):
            raise ConfigError(
                f"{what} has a method {name}, which nothing calls; did you mean one of {', '.join(hooks)}? "
                f"If it is a helper, begin its name with _"
            )


def refuse_misspelt_marks(function: Any, marks: tuple[str, ...], what: str) -> None:
    """Raise ConfigError for an attribute of a user's function with almost the name of one Fedge reads.

    Args:
        function: the user's.
        marks: the attributes read by Fedge.
        what: option and name of the function.
    """
    for name in getattr(function, "__dict__", {}):
        near = _near(name, [mark for mark in marks if mark not in vars(function)])
        if near and name not in marks and not name.startswith("_"):
            raise ConfigError(
                f"{what} has an attribute {name}, which nothing reads; did you mean {near}? If not, begin "
                f"its name with _"
            )


def refuse_unknown_attribute(lent: Any, name: str, called: str, instead: str) -> None:
    """Raise AttributeError for a new public attribute of an object lent to a user's code for one call.

    Args:
        lent: the object; its class declares its attributes.
        name: of the attribute to be set.
        called: the object, as in the documentation.
        instead: advice on a replacement.
    """
    known = lent.__dataclass_fields__
    if not name.startswith("_") and name not in known and not hasattr(type(lent), name):
        raise AttributeError(
            f"{called} has no {name} that anything would read{nearest(name, list(known)) or f'; {instead}'}"
        )


def _refuse_method(name: str, left: list[str], meant: list[str], base: type, what: str) -> None:
    """Raise ConfigError for a method that nothing calls, and whose name is not a helper's.

    Args:
        name: of the method.
        left: hooks not defined by the class.
        meant: hooks of which it must mean one; empty if it may be a helper.
        base: whose hooks they are.
        what: option and name of the class.
    """
    near = _near(name, left)
    if near or meant:
        said = near or f"one of {', '.join(meant)}"
        raise ConfigError(
            f"{what} has a method {name}, which nothing calls; did you mean {said}? If it is a helper, "
            f"begin its name with _"
        )
    _refuse_of_other_tier(name, "a method", "calls", base, what)


def _refuse_like_hook(name: str, method: FunctionType, hooks: list[str], base: type, what: str) -> None:
    """Raise ConfigError for a method that nothing calls, with the arguments of a hook."""
    takes = list(inspect.signature(method).parameters)[1:2]
    if takes in [list(inspect.signature(getattr(base, hook)).parameters)[1:2] for hook in hooks]:
        raise ConfigError(
            f"{what} has a method {name}({takes[0]}), which nothing calls; did you mean one of "
            f"{', '.join(hooks)}? If it is a helper, begin its name with _"
        )


def _refuse_attribute(name: str, value: Any, base: type, what: str) -> None:
    """Raise ConfigError for an attribute that nothing reads, and whose name is not a constant's."""
    tier = next((kind.__name__ for kind in getattr(value, "__mro__", ()) if kind.__name__ in TIERS), None)
    if tier is not None and base.__name__ in TIERS:
        raise ConfigError(
            f"{what} has an attribute {name}, a {tier}, which nothing reads; a leaf part is the attribute "
            f"leaf of an Algorithm, and a cloud part is named by cluster.method"
        )
    near = _near(name, [each for each, read in vars(base).items() if _is_attribute(each, read)])
    if near:
        raise ConfigError(
            f"{what} has an attribute {name}, which nothing reads; did you mean {near}? If not, begin its "
            f"name with _"
        )
    _refuse_of_other_tier(name, "an attribute", "reads", base, what)


def _refuse_of_other_tier(name: str, kind: str, reads: str, base: type, what: str) -> None:
    """Raise ConfigError for a name read only in the class of another tier."""
    tier = next((tier for tier, names in TIERS.items() if name in names), None)
    if tier is not None and base.__name__ in TIERS:
        raise ConfigError(
            f"{what} has {kind} {name}, which nothing {reads} here: it belongs to the {tier} of a method; "
            f"move it there, or begin its name with _"
        )


def _near(name: str, names: list[str]) -> str | None:
    """The name most like another one, if any is."""
    found = difflib.get_close_matches(name, names, n=1, cutoff=_SIMILARITY)
    found = found or difflib.get_close_matches(name.lower(), names, n=1, cutoff=_SIMILARITY)
    return found[0] if found else None


def _is_public_method(name: str, value: Any) -> bool:
    """Whether an attribute of a class is a method without underscore."""
    return inspect.isfunction(value) and not name.startswith("_")


def _is_attribute(name: str, value: Any) -> bool:
    """Whether an entry of a class is an attribute without underscore, and no method of any kind."""
    return not name.startswith("_") and not isinstance(
        value, FunctionType | classmethod | staticmethod | property
    )


def _names_in_module(kind: type) -> set[str]:
    """Names of attributes and globals in the functions of a class's module, and in methods of its classes."""
    module = sys.modules.get(kind.__module__)
    values = [value for value in vars(module).values() if _is_of(value, kind)] if module else []
    within = [each for value in values if inspect.isclass(value) for each in vars(value).values()]
    functions = [value for value in (*values, *within) if isinstance(value, FunctionType)]
    return {name for function in functions for name in _referenced_names(function.__code__)}


def _is_of(value: Any, kind: type) -> bool:
    """Whether an object was defined in a class's module."""
    return getattr(value, "__module__", None) == kind.__module__


def _referenced_names(code: CodeType) -> Iterator[str]:
    """Names of attributes and globals in a function, and in functions within."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _referenced_names(inner)
