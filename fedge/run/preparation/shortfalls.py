"""Remarks on data of which less is tested, or learned, than the options ask for."""

from collections.abc import Iterable, Sequence

import numpy as np

from fedge.config.config import Config
from fedge.data.composition import Holding
from fedge.data.partition import Partition
from fedge.data.split import fewest_windows_to_cut
from fedge.data.window_split import pair_codes, stream_codes
from hhar.quantity import quantity
from hhar.windows.window_file import Windows

_FAR_LESS = 0.5  # of the share asked for
_MANY = 0.2  # of all windows
_SHOWN = 6  # names in a remark


def split_remarks(windows: Windows, dealt: Partition, config: Config) -> list[str]:
    """Remarks if windows of validation or test are far fewer than asked for, or many windows are unused.

    Classes too small to be cut in time, and sessions, which are never cut, stay in training.

    Args:
        windows: all windows of the run.
        dealt: windows of each client.
        config: configuration, of which section `data` is read.
    """
    data, kind = config.data, dealt.split_kind
    if kind == "given" or dealt.scenario is not None:  # the data's own split; unused classes of a group
        return []
    sizes = [sum(len(parts[at]) for parts in dealt.clients) for at in range(3)]
    held, all_windows = sum(sizes), len(windows.y)
    asked = (
        ("validation", sizes[1], data.val_fraction, "val-fraction"),
        ("test", sizes[2], data.test_fraction, "test-fraction"),
    )
    few = [
        f"{quantity(count, f'{name} window', separated=True)} (data.{option} {share:g})"
        for name, count, share, option in asked
        if count < _FAR_LESS * share * held
    ]
    fewest = fewest_windows_to_cut(data)
    why = (
        f"a class of which a user has fewer than {fewest} windows stays in training (data.split blocks)"
        if kind == "blocks"
        else "sessions are never cut (data.split session), and there are few of a class"
    )
    found = []
    if few:
        of = quantity(held, "window", separated=True)
        found.append(f"of {of}, only {' and '.join(few)}: {why}; scores are uncertain")
    unused = min(all_windows - held, _guards(windows, fewest, data.guard_windows)) if kind == "blocks" else 0
    if unused > _MANY * all_windows:
        found.append(
            f"{unused:,} of {all_windows:,} windows are unused: data.guard-windows drops "
            f"{data.guard_windows} before each cut in time; if windows do not overlap, set it to 0"
        )
    return found


def _guards(windows: Windows, fewest: int, guard: int) -> int:
    """Number of windows dropped before cuts, if no stream is cut over several clients."""
    streams = pair_codes(stream_codes(windows), windows.labels)
    return 2 * guard * int((np.unique(streams, return_counts=True)[1] >= fewest).sum())


def untrained_class_remarks(held: Iterable[Holding], classes: Sequence[str]) -> list[str]:
    """Remarks on classes of which no known client has a training window; none if windows have no classes.

    >>> of = lambda split, label: Holding(0, 0, split, "u", "", label, 9, 0, None)
    >>> untrained_class_remarks([of("train", "sit"), of("test", "walk")], ("sit", "walk", "run"))
    ['2 of 3 classes have no training windows: walk (9 untrained windows), run; no model can learn them']
    """
    others: dict[str, int] = {}
    taught = set()
    for each in held:
        if each.split == "train" and not each.unseen_client:
            taught.add(each.label)
        else:
            others[each.label] = others.get(each.label, 0) + each.windows
    missing = [name for name in classes if name not in taught]
    if "" in taught or not missing:
        return []
    shown = [
        name + (f" ({quantity(others[name], 'untrained window')})" if name in others else "")
        for name in missing[:_SHOWN]
    ]
    more = ", …" if len(missing) > _SHOWN else ""
    have = "has" if len(missing) == 1 else "have"
    return [
        f"{len(missing)} of {quantity(len(classes), 'class')} {have} no training windows: "
        f"{', '.join(shown)}{more}; no model can learn {'it' if len(missing) == 1 else 'them'}"
    ]
