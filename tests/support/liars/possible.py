"""Answers that an honest client could have given: a second opinion on replies that a boundary lets in.

Nothing here is of Fedge: rules are written down once more from what docs/reliability.md promises, beside the
honest answer, which is known here. Each function says why nobody could have told a thing honestly, or None.
"""

import json
import math

import numpy as np

LARGEST = {np.dtype(np.float32): 1.8e16, np.dtype(np.float64): 1.4e151}  # of an entry: squares have a sum
MOST_LOSS = 1e39


def is_number(value):
    """Tell whether a value is a number, as JSON has them."""
    return type(value) in (int, float)


def is_between(value, least, most):
    """Tell whether a value is a finite number in a range."""
    return is_number(value) and least <= value <= most and abs(value) < 1.8e308


def is_whole(value, least, most):
    """Tell whether a value is a whole number in a range."""
    return type(value) is int and least <= value <= most


def array_fault(start, honest, told, steps, windows):
    """Look at a model: entries, forms, sizes, variances and counters.

    Args:
        start: name → array, the model that was sent; None where there is none to count from.
        honest: what came of it.
        told: what is said to have come of it.
        steps: that can have been taken.
        windows: that can have been seen, each as often as it was.
    """
    if told.keys() != honest.keys():
        return f"entries {sorted(map(str, told.keys() ^ honest.keys()))[:3]}"
    layers = {name.rpartition(".")[0] for name in honest if name.endswith("running_var")}
    for name, wanted in honest.items():
        array = np.asarray(told[name])
        if (array.shape, array.dtype) != (wanted.shape, wanted.dtype):
            return f"{name}: {array.dtype} {array.shape}"
        if array.dtype in LARGEST:
            if array.size and not float(np.abs(array.astype(np.float64)).max()) <= LARGEST[array.dtype]:
                return f"{name}: {array.max()}"
        elif start is not None:
            risen = [int(new) - int(old) for new, old in zip(array.ravel(), start[name].ravel(), strict=True)]
            counts = name.rpartition(".")[0] in layers
            least = [0 if counts else -max(0, int(old)) for old in start[name].ravel()]
            most = steps if counts else windows
            if any(not low <= one <= most for low, one in zip(least, risen, strict=True)):
                return f"{name}: has risen by {risen[:3]}"
        if name.endswith("running_var") and (array < 0).any():
            return f"{name}: negative"
    return None


def train_fault(start, honest, told, asked):
    """Look at a reply to work, as (arrays, metrics, other records); what `work` says is about itself only.

    Args:
        start: the model that was sent.
        honest, told: of the honest reply, and of this one; a fourth part is the content of other records.
        asked: given (windows), batch (windows of a step), epochs, most_s (seconds that the client can have
            taken), is_free (whether it takes as many steps as its method likes).
    """
    (arrays, metrics, records, *beside), honest_metrics = told, honest[1]
    if records != honest[2] or not metrics.keys() >= honest_metrics.keys() - {"work"}:
        return "something is missing, or more than asked for"
    windows = metrics["num-examples"]
    if not is_whole(windows, 1, asked["given"]):
        return f"windows: {windows!r:.50}"
    steps = asked["epochs"] * math.ceil(windows / asked["batch"])
    least, most = (1, 2**31) if asked["is_free"] else (steps, steps)
    if not is_whole(metrics["steps"], least, most):
        return f"steps: {metrics['steps']!r:.50} of {windows} windows"
    if not is_between(metrics["train-loss"], -MOST_LOSS if asked["is_free"] else 0, MOST_LOSS):
        return f"loss: {metrics['train-loss']!r:.50}"
    if not is_between(metrics["train-seconds"], 0, asked["most_s"]):
        return f"seconds: {metrics['train-seconds']!r:.50}"
    if "weight" in metrics and not (asked["is_free"] and is_between(metrics["weight"], 1e-320, windows)):
        return f"weight: {metrics['weight']!r:.50}"
    if not is_whole(metrics.get("norm_bit", 0), 0, 1):
        return f"clipped: {metrics['norm_bit']!r:.50}"
    if beside and (fault := beside_fault(honest[3], beside[0])):
        return fault
    most_windows = metrics["steps"] * asked["batch"] if asked["is_free"] else windows * asked["epochs"]
    return array_fault(start, honest[0], arrays, metrics["steps"], most_windows)


SHARES = {"m", "u"}  # of methods that send some


def beside_fault(honest, told):
    """Look at what comes beside a model: extra arrays, a memory that goes into a file, or a version of it.

    A memory's form is its client's own affair, which gets it back and nobody else.
    """
    if "extra" in told and (fault := array_fault(None, honest["extra"], told["extra"], 0, 0)):
        return f"extra: {fault}"
    for name in SHARES & told.get("extra", {}).keys():
        if not ((told["extra"][name] >= 0) & (told["extra"][name] <= 1)).all():
            return f"extra: {name} is no share"
    for name, array in told.get("memory", {}).items():
        if name == "__metadata__" or array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
            return f"memory: {name!r:.50} of {array.dtype}"
        if not np.isfinite(array).all():
            return f"memory: {name!r:.50} is not finite"
    if "kept" not in told:
        return None
    checksum, size, lost = (told["kept"].get(name, "") for name in ("checksum", "bytes", "lost"))
    if type(checksum) is not str or len(checksum) != 64 or checksum.strip("0123456789abcdef"):
        return f"checksum: {checksum!r:.50}"
    if not is_whole(size, 0, 2**53 - 1) or type(lost) is not str:
        return f"size: {size!r:.50}, lost: {lost!r:.50}"
    return None


def evaluate_fault(honest, told):
    """Look at evaluations: the metrics of a reply, beside the honest ones, of a task with classes."""
    asked = {name.rpartition("/")[0] for name in honest if name.endswith("/loss")}
    if {name.rpartition("/")[0] for name in told if name.endswith("/loss")} != asked:
        return "other models or splits"
    for look in (_evaluated_fault, _pair_fault):
        for where in sorted(asked):
            fault = look(where, honest, told)
            if fault:
                return f"{where}: {fault}"
    return None


def _evaluated_fault(where, honest, told):
    """Look at one model on one split."""
    loss, windows = told[f"{where}/loss"], honest[f"{where}/windows"]
    if not is_number(loss) or (loss == loss and loss != math.inf and not 0 <= loss <= MOST_LOSS):
        return f"loss {loss!r:.50}"
    if not is_whole(told.get(f"{where}/windows"), windows, windows):
        return f"windows {told.get(f'{where}/windows')!r:.50}"
    counts = confusion_of(told, where)
    size = len(honest[f"{where}/sums/confusion"])
    if type(counts) is not list or len(counts) != size or any(not is_whole(c, 0, windows) for c in counts):
        return "counts that are none"
    if sum(counts) != windows:
        return f"{sum(counts)} windows counted of {windows}"
    return moments_fault(told.get(f"{where}/moments"), honest.get(f"{where}/moments"))


def _pair_fault(where, honest, told):
    """Look at what windows gain by a model beside the own one; all counts have been looked at."""
    pair, honest_pair = told.get(f"{where}/differences"), honest.get(f"{where}/differences")
    if (pair is None) != (honest_pair is None):
        return "differences"
    if pair is None:
        return None
    own = confusion_of(told, f"own/{where.rpartition('/')[2]}")
    return pair_fault(pair, own, confusion_of(told, where), honest[f"{where}/windows"])


def moments_fault(told, honest):
    """Look at the description of windows: numbers, as many as the honest one has."""
    if (told is None) != (honest is None):
        return "a description"
    if honest is None:
        return None
    fits = type(told) is list and len(told) == len(honest)
    return None if fits and all(is_between(each, -MOST_LOSS, MOST_LOSS) for each in told) else "description"


def pair_fault(pair, own, this, windows):
    """Look at (c − b, b + c): b windows that only the own model has right, c that only the other one has."""
    if (
        type(pair) is not list
        or len(pair) != 2
        or not all(is_between(each, -windows, windows) for each in pair)
    ):
        return f"differences {pair!r:.50}"
    b, c = (pair[1] - pair[0]) / 2, (pair[1] + pair[0]) / 2
    if b != int(b) or c != int(c) or not 0 <= b <= right(own) or not 0 <= c <= windows - right(own):
        return f"differences {pair} of {right(own)} right"
    return None if c - b == right(this) - right(own) else f"differences {pair}: {right(own)}, {right(this)}"


def right(counts):
    """Windows that a flat confusion matrix has right."""
    classes = math.isqrt(len(counts))
    return sum(counts[:: classes + 1])


def confusion_of(told, where):
    """Flat confusion matrix of a model on a split."""
    return told.get(f"{where}/sums/confusion")


# --- first answers -------------------------------------------------------------------------------------

MOST_WINDOWS, MOST_PARTITIONS, LONGEST, LONGEST_NAME, LONGEST_ABOUT = 10**9, 10**6, 2**24, 500, 20_000


def first_fault(honest, told):
    """Look at a first answer, name → value; what is taken as text may be anything that has one."""
    at, of = told.get("partition_id"), told.get("num_partitions")
    if not is_whole(of, 1, MOST_PARTITIONS) or not is_whole(at, 0, of - 1) or "seen" not in told:
        return f"partition {at!r:.50} of {of!r:.50}"
    if "told" not in told:
        return None
    text = str(told["told"])
    if len(text) > LONGEST:
        return "too long"
    try:
        account = json.loads(text)
        return _account_fault(json.loads(honest["told"]), account)
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        return f"an account that is none: {error!r:.50}"


def _account_fault(honest, told):
    """Look at what a client tells of its windows."""
    words = [str(told[name]) for name in ("source", "fingerprint", "split_kind", "dtype", "y_dtype")]
    names = [*words, *map(str, told["classes"]), *map(str, told["channels"])]
    about = [str(word) for entry in told["about"].items() for word in entry]
    if not all(map(str.isprintable, [*names, *about])) or max(map(len, names)) > LONGEST_NAME:
        return "names"
    if told["y_dtype"] not in ("int64", "float32") or sum(map(len, about)) > LONGEST_ABOUT:
        return "kinds"
    shape, y_shape = list(told["input_shape"]), list(told["y_shape"])
    if not all(is_whole(each, 0, math.inf) for each in shape) or not all(
        is_whole(e, 1, math.inf) for e in y_shape
    ):
        return "shapes"
    columns = len(told["classes"]) if told["y_dtype"] == "int64" and not y_shape else 1
    for split in ("train", "val", "test"):
        counts = list(told["counts"][split])
        if len(counts) != columns or not all(is_whole(each, 0, MOST_WINDOWS) for each in counts):
            return f"counts of {split}"
        if sum(counts) > MOST_WINDOWS:
            return f"windows of {split}"
    return _sums_fault(told, shape)


def _sums_fault(told, shape):
    """Look at sums of channels, which may be of any size."""
    sums, has_tokens, channels = told["sums"], told["dtype"] == "int64", len(list(told["channels"]))
    for name in ("mean", "spread"):
        if type(sums[name]) is not list or len(sums[name]) != channels or not all(map(is_number, sums[name])):
            return name
    if not (shape[:1] == [channels] or (has_tokens and not channels)):
        return "rows of a window"
    values = 0 if has_tokens else sum(told["counts"]["train"]) * math.prod(shape[1:])
    return None if is_whole(sums["count"], values, values) else "number of values"
