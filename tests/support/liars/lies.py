"""Lies of clients, each by a seed: what every fuzzer of outside bytes draws from.

Any value that JSON can say (`any_value`), first answers (`first_answer`), error replies (`error_reply`). Leaf
servers' answers are made into lies by `spoilt`, files of run folders by `odd_json`.
"""

import copy
import json
import math

import numpy as np
from odd_json import changed, text_of

NUMBERS = [
    0, -1, 1, 2, 99, 0.5, 1e-300, -1e-9, 1e17, 1e39, 1e308, -1e308, 2**63, 10**400, -(10**400),
    float("nan"), float("inf"), -float("inf"), True, False, None,
]  # fmt: skip
TEXTS = [
    "",
    "\x1b[2J",
    "\x1b]0;x\x07",
    "\u202e",
    "a\nb",
    "=cmd|' /C calc'!A0",
    "x" * 5000,
    "../../x",
    "__class__",
]
FACTORS = [-1.0, 0.0, 1e-9, 0.5, 2.0, 30.0, 1e3, 1e6, 1e17, 1e30, 1e300, float("nan"), float("inf")]
FIELDS = ["partition_id", "num_partitions", "seen", "told", "device", "kernels"]
REASONS = [
    "not a number", "1.2.3", "", "\x1b[2J", "\x1b]0;x\x07", "\u202e", "a\nb\r\nc", "x" * 3_000_000, "5",
    "nan", "inf", "-1", "1e400", "9" * 5000, "\x00", "\ud800", "%s%n", "=cmd|' /C calc'!A0", "Error",
    "ValueError: \x1b[2J\n", 'Traceback (most recent call last):\n  File "x", line 1\nValueError: x',
    "\u2028\u2029\x85\x0b\x0c",
]  # fmt: skip
CLASSES = [
    "OverTimeError", "fedge.engine.worker_pool.OverTimeError", "ray.exceptions.ActorDiedError", "ValueError",
    "ray.exceptions.OutOfMemoryError", "fedge.client.guarded_app.ClientError", "\x1b[2J", "x" * 100_000,
]  # fmt: skip
CODES = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 200, 201, 202, -1, 2**31 - 1, -(2**31)]


def any_value(rng):
    """Draw anything that JSON can say."""
    which = rng.integers(5)
    if which < 2:
        return NUMBERS[rng.integers(len(NUMBERS))]
    if which == 2:
        return TEXTS[rng.integers(len(TEXTS))]
    if which == 3:
        return [any_value(rng) for _ in range(rng.integers(4))]
    return {TEXTS[rng.integers(len(TEXTS))]: any_value(rng) for _ in range(rng.integers(3))}


def places(value, path=()):
    """Yield the paths of all values inside tables and lists."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inside:
        yield (*path, key)
        yield from places(each, (*path, key))


# --- first answers ---------------------------------------------------------------------------------------


def first_answer(seed):
    """A seed's lie in a client's first answer: its kind, and the lie.

    The lie makes another record of the answer's, name → value, values of any type; None: there is none.
    """
    kind = str(
        np.random.default_rng([26, seed]).choice(list(_FIRST), p=[0.16, 0.06, 0.24, 0.24, 0.1, 0.1, 0.1])
    )
    return kind, lambda record: _FIRST[kind](np.random.default_rng([27, seed]), dict(record))


def _field(rng, record):
    """A field is anything, lost, or comes under another name; or one comes that nobody knows."""
    name, how = _one(rng, FIELDS), rng.integers(5)
    if how < 3:
        record[name] = any_value(rng)
    elif how == 3:
        record.pop(name, None)
    else:
        record[_one(rng, TEXTS)] = record.pop(name, any_value(rng))
    return record


def _owner(rng, record):
    """Another's partition, or one of another number of them."""
    name = _one(rng, FIELDS[:2])
    record[name] = int(_one(rng, [-1, 0, 1, 2, 3, 8, 9, 10, 10**6, 2**62]))
    return record


def _statistics(rng, record):
    """Means and deviations of one or all channels are another's, too large, or no numbers."""
    told, factor = json.loads(record["told"]), _one(rng, FACTORS)
    of, name = told["sums"], _one(rng, ["mean", "spread"])
    each = [int(rng.integers(len(of[name])))] if rng.random() < 0.7 else range(len(of[name]))
    for at in each:
        if name == "mean" and rng.random() < 0.7:
            of[name][at] += factor
        else:
            of[name][at] *= factor
    return {**record, "told": json.dumps(told)}


def _counts(rng, record):
    """Numbers of windows, the sums' own with them so that they fit, or not."""
    told = json.loads(record["told"])
    split, factor = _one(rng, ["train", "val", "test"]), _one(rng, [0, 2, 100, 10**6, 10**8, 10**30])
    counts = told["counts"][split]
    at = int(rng.integers(len(counts)))
    counts[at] = _one(rng, [counts[at] * factor, any_value(rng), -counts[at], counts[at] + 0.5])
    if split == "train" and rng.random() < 0.7 and all(type(count) is int for count in counts):
        before = told["sums"]["count"]
        told["sums"]["count"] = sum(counts) * math.prod(told["input_shape"][1:])
        more = told["sums"]["count"] / before if abs(told["sums"]["count"]) < 10**300 else math.inf
        told["sums"]["spread"] = [s * more for s in told["sums"]["spread"]]
    return {**record, "told": json.dumps(told)}


def _account(rng, record):
    """One to three things in what is told: anything else, lost, twice or elsewhere."""
    told = changed(json.loads(record["told"]), rng, [any_value(rng) for _ in range(3)])
    return {**record, "told": json.dumps(told)}


def _text(rng, record):
    """Text that is cut, doubled, deep, long, or of other bytes."""
    text = text_of(json.loads(record["told"]), rng).decode("utf-8", errors="replace")
    odd = [
        text,
        "[" * 100_000,
        '{"a":' * 50_000,
        text + " " * 2**21,
        text + " " * 2**24,
        "9" * 10**6,
        "\x1b[2J",
        "null",
    ]
    return {**record, "told": odd[rng.integers(len(odd))] if rng.random() < 0.5 else text}


def _names(rng, record):
    """Names of classes, channels, files and sums of bytes are others', odd, or endless."""
    told = json.loads(record["told"])
    name = _one(
        rng, ["source", "fingerprint", "split_kind", "dtype", "y_dtype", "classes", "channels", "about"]
    )
    text = _one(rng, [*TEXTS, "y" * 10**5, "int64", "float64"])
    if isinstance(told[name], list):
        told[name][rng.integers(len(told[name]))] = text
    else:
        told[name] = {text: text} if name == "about" else text
    return {**record, "told": json.dumps(told)}


def _one(rng, values):
    """One of some values, as it is."""
    return values[int(rng.integers(len(values)))]


_FIRST = {
    "field": _field, "owner": _owner, "statistics": _statistics, "counts": _counts, "account": _account,
    "text": _text, "names": _names,
}  # fmt: skip


# --- error replies ---------------------------------------------------------------------------------------


def error_reply(seed):
    """(code, reason) of an error reply, by a seed; the reason may be no text."""
    rng = np.random.default_rng([28, seed])
    code = _one(rng, CODES) if rng.random() < 0.7 else int(rng.integers(-(2**31), 2**31))
    reason, how = _one(rng, REASONS), rng.integers(6)
    if how < 2:
        quote = _one(rng, ["'", '"', ""])
        reason = f"<class '{_one(rng, CLASSES)}'>:<{quote}{reason}{quote}>"
    elif how == 2:
        reason = "".join(chr(c) for c in rng.integers(0, 0x2FFF, 40))
    elif how == 3:
        reason = any_value(rng)
    return code, copy.deepcopy(reason)


# --- replies to work -------------------------------------------------------------------------------------

NEAR = [-1, 1, 0.5, -0.25]  # beside what was honest
TIMES = [-1, 0, 2, 10**9, 10**17, 1e30, 1e300, float("nan")]
_WRONG_TYPES = [np.float64, np.int32, np.float16, np.int64]


def reply_lie(rng, arrays, metrics, others, beside=None):
    """Make a lie of a client's reply: one thing in its arrays, metrics or other records, changed in place.

    Args:
        rng: draws what.
        arrays: name → array, of the caller's own; empty where the reply has none.
        metrics: name → number or list, of the caller's own.
        others: names of the records that the reply has beside them, of the caller's own.
        beside: name → content of some of those, name → array or value, of the caller's own; None for none.
    """
    if beside and rng.random() < 0.3:
        _beside_lie(rng, beside[_one(rng, sorted(beside))])
    elif rng.random() < 0.06:
        others ^= {_one(rng, ["extra", "kept", "arrays"])}
    elif arrays and rng.random() < 0.5:
        _array_lie(rng, arrays)
    else:
        _metric_lie(rng, metrics)


SIZES = [0, -1, 5, 2**31, 2**53, 2**53 + 1, 2**62, 10**400, 0.5, True, None, "5", [5]]
CHECKSUMS = ["", "0" * 63, "0" * 64, "g" * 64, "0" * 10**6, "\x1b[2J" * 16, 5, None, ["0"] * 64]


def _beside_lie(rng, content):
    """Arrays beside a model are others; a checksum, a size or a text is another, or is lost."""
    arrays = {name: array for name, array in content.items() if isinstance(array, np.ndarray)}
    if rng.random() < 0.1:  # a record of the other kind
        content.clear()
        content.update({"a": 1} if arrays else {"a": np.zeros(3)})
    elif arrays and rng.random() < 0.3:
        name = _one(rng, ["__metadata__", *TEXTS, next(iter(arrays))])
        kinds = [
            np.ones(3, "S1"),
            np.ones(3, complex),
            np.ones(3, np.longdouble),
            np.full(3, np.nan),
            np.zeros(0),
        ]
        content[name] = _one(rng, kinds)
    elif arrays:
        _array_lie(rng, content)
    else:
        name = _one(rng, ["checksum", "bytes", "lost", *content])
        drawn = {"checksum": CHECKSUMS, "bytes": SIZES}.get(name, [*TEXTS, any_value(rng)])
        content[name] = _one(rng, drawn)
        if rng.random() < 0.1:
            del content[name]


def _metric_lie(rng, metrics):
    """A metric is anything, a little or a lot beside the truth, lost, or of another name."""
    kind, how = _one(rng, sorted({name.rpartition("/")[2] for name in metrics})), rng.integers(12)
    name = _one(rng, sorted(name for name in metrics if name.rpartition("/")[2] == kind))
    value = metrics[name]
    if how == 0:
        metrics.pop(name)
    elif how == 1:
        metrics[_one(rng, ["own/val/loss", "other/val/loss", "weight", "weight", "norm_bit", *TEXTS])] = value
    elif how < 5 or isinstance(value, str):
        metrics[name] = any_value(rng)
    elif isinstance(value, list) and value:
        _list_lie(rng, value, how)
    elif isinstance(value, int | float):
        metrics[name] = value + _one(rng, NEAR) if how < 9 else value * _one(rng, TIMES)


def _list_lie(rng, values, how):
    """One number in a list is another, or two have changed places, or there is one more."""
    at, other = (int(each) for each in rng.integers(len(values), size=2))
    if how == 5:
        values.append(values[at])
    elif how < 8:
        values[at], values[other] = values[at] - 1, values[other] + 1
    elif how < 10:
        values[at] += _one(rng, NEAR)
    else:
        values[at] = _one(rng, [values[at] * _one(rng, TIMES), any_value(rng)])


def _array_lie(rng, arrays):
    """An array has other values, another form, another name, or is lost."""
    name, how = _one(rng, sorted(arrays)), rng.integers(10)
    array = arrays[name] = np.array(arrays[name])
    is_float = np.issubdtype(array.dtype, np.floating)
    if how < 6 and array.size:
        values = [float("nan"), float("inf"), 1e17, -1e30, -1.0, -1e-6] if is_float else [-5, 1, 10**6, 2**40]
        at = slice(None) if rng.random() < 0.3 else int(rng.integers(array.size))
        with np.errstate(over="ignore"):
            array.reshape(-1)[at] = _one(rng, values)
    elif how == 6:
        arrays[name] = array.reshape(-1)[: rng.integers(3)]
    elif how == 7:
        with np.errstate(over="ignore", invalid="ignore"):
            arrays[name] = array.astype(_one(rng, _WRONG_TYPES))
    elif how == 8:
        del arrays[name]
    else:
        arrays[_one(rng, TEXTS)] = arrays.pop(name) if rng.random() < 0.5 else array
