"""JSON as somebody else may have written it: one thing or several of it changed, drawn from a seed."""

import copy
import json

import numpy as np

ODD = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 10**400, -(10**400), 0.5, 1e308, float("nan"), float("inf"),
    float("-inf"), -0.0, 1e-320, "", " ", "a" * 100_000, "\x1b[2J", "\u202e", "\ud800", "\x00", "%s%n",
    "<script>alert(1)</script>", "{{7*7}}", "=HYPERLINK(1)", "../../../etc/passwd", "/dev/zero",
    [], {}, [[]], [None], [{}], [[1, 2], [3]], [0] * 10_000, {"": ""}, {"a": {"b": {"c": []}}},
)  # fmt: skip
CODE = (
    "subprocess:Popen", "os:system", "builtins:exec", "builtins:eval", "sys:exit", "importlib:import_module",
    "shutil:rmtree", "torch:load", "torch.hub:load", "numpy:load", "pickle:loads", "planted_here:Net",
    "planted_here:run", "no_such_module:Net", "os.path:join", "torch.nn:Linear", "torch.nn:Sequential",
    "a.b.c:d", ":", "x:", ":x", "fedge.cli:main", "pty:spawn", "ctypes:CDLL", "antigravity:fly",
    "torch.utils.cpp_extension:load",
)  # fmt: skip


def places(value, path=()):
    """Every place in a JSON value, as the keys that lead there."""
    yield path
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, entry in entries:
        yield from places(entry, (*path, key))


def changed(value, rng: np.random.Generator, extra=()):
    """A JSON value with one to three things changed: replaced, removed, doubled or put elsewhere.

    Args:
        value: JSON; not modified.
        rng: draws what.
        extra: further odd values.
    """
    value = copy.deepcopy(value)
    for _ in range(int(rng.integers(1, 4))):
        there = [path for path in places(value) if path]
        if not there:
            return ODD[int(rng.integers(len(ODD)))]
        *way, last = there[int(rng.integers(len(there)))]
        parent = value
        for key in way:
            parent = parent[key]
        odd = [*ODD, *extra]
        kind = int(rng.integers(6))
        if kind == 0:
            del parent[last]
        elif kind == 1 and isinstance(parent, list):
            parent.insert(last, copy.deepcopy(parent[last]))
        elif kind == 2:
            other = there[int(rng.integers(len(there)))]
            found = value
            for key in other:
                found = found[key]
            parent[last] = copy.deepcopy(found)
        else:
            parent[last] = copy.deepcopy(odd[int(rng.integers(len(odd)))])
    return value


def text_of(value, rng: np.random.Generator) -> bytes:
    """The bytes of a JSON value, now and then cut, doubled or with a byte changed."""
    text = json.dumps(value).encode("utf-8", errors="surrogatepass")
    kind = int(rng.integers(12))
    at = int(rng.integers(len(text) + 1))
    if kind == 0:
        return text[:at]
    if kind == 1:
        return text[:at] + bytes([int(rng.integers(256))]) + text[at + 1 :]
    if kind == 2:
        return text + text
    if kind == 3:
        return b"[" * 100_000
    return text
