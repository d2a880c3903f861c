"""Honest owners left out of the scale, for real data dealt in ways as different as owners are.

    python -m benchmarks.grouping.honest_owners [--data FOLDER] [--repeats 12]

Without --data, it uses data without a download: tables and digits of scikit-learn, the synthetic set on all
twelve devices of HHAR, phones and watches. With --data, it also uses the window files and images of a folder
as for tests (FEDGE_TEST_DATA), and rows of HHAR's own phones and watches. For each set and way of
dealing: the number of deals, clients left out by `fedge.data.outliers`, and the largest deviation of a client
as a share of the allowed factor c. Exit code 1 if any client is left out.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from benchmarks.commands import exit_with
from fedge.data.outliers import outlying_clients, proportions
from fedge.data.scaling import channel_sums
from hhar.facts import DEVICES
from hhar.synthetic.generate import synthetic_windows

CLIENTS = (3, 4, 5, 9, 24, 100)
FEW = 5  # windows of a client with hardly any
_ROWS = 3000  # rows of a data set, drawn again for every repeat
_SAMPLES, _FIELDS = 128, 10  # of a window of raw rows, and of a row


@dataclass(frozen=True)
class Owned:
    """Data of owners.

    Attributes:
        x: (N, C, …).
        y: (N,).
        user, device: (N,) names; None if unknown.
    """

    x: np.ndarray
    y: np.ndarray
    user: np.ndarray | None = None
    device: np.ndarray | None = None


def deals(owned: Owned, clients: int, draw: np.random.Generator) -> Iterator[tuple[str, list[np.ndarray]]]:
    """Yield (way of dealing, rows of each client): users, devices, labels, Dirichlet draws, a few rows."""
    by_label = np.argsort(owned.y, kind="stable")
    yield "sorted labels in runs", np.array_split(by_label, clients)
    pieces = np.array_split(by_label, 2 * clients)
    order = draw.permutation(2 * clients)
    yield "two runs of labels", [np.concatenate([pieces[i], pieces[j]]) for i, j in order.reshape(-1, 2)]
    for alpha in (0.05, 0.5):
        yield f"Dirichlet {alpha}", _deal_dirichlet(owned.y, clients, alpha, draw)
    yield "five windows each", [draw.choice(len(owned.y), FEW, replace=False) for _ in range(clients)]
    if owned.user is not None:
        yield "users", _deal_names(owned.user, clients, draw)
        yield "one class of a user", _deal_names(np.char.add(owned.user, owned.y.astype(str)), clients, draw)
    if owned.device is not None:
        yield "devices of users", _deal_names(np.char.add(owned.device, owned.user), clients, draw)
        yield from _deal_phones_and_watches(owned, clients, draw)


def _deal_dirichlet(y: np.ndarray, clients: int, alpha: float, draw: np.random.Generator) -> list[np.ndarray]:
    """Rows of each client; every label is distributed by drawn shares."""
    parts: list[list[np.ndarray]] = [[] for _ in range(clients)]
    for label in np.unique(y):
        rows = draw.permutation(np.flatnonzero(y == label))
        cuts = (np.cumsum(draw.dirichlet([alpha] * clients)) * len(rows)).astype(int)[:-1]
        for part, piece in zip(parts, np.split(rows, cuts), strict=True):
            part.append(piece)
    return [np.concatenate(part) for part in parts]


def _deal_names(names: np.ndarray, clients: int, draw: np.random.Generator) -> list[np.ndarray]:
    """Rows of some names, one client each."""
    distinct = np.unique(names)
    chosen = draw.choice(distinct, min(clients, len(distinct)), replace=False)
    return [np.flatnonzero(names == name) for name in chosen]


def _deal_phones_and_watches(
    owned: Owned, clients: int, draw: np.random.Generator
) -> Iterator[tuple[str, list[np.ndarray]]]:
    """Phones and one watch, watches and one phone, half of each: with all activities, or one each."""
    assert owned.device is not None
    is_watch = np.isin(owned.device, [name for name, facts in DEVICES.items() if facts.is_watch])
    for watches in sorted({1, clients // 2, clients - 1}):
        kinds = [is_watch] * watches + [~is_watch] * (clients - watches)
        yield (
            f"{watches} of {clients} with a watch",
            [draw.choice(np.flatnonzero(kind), min(30, int(kind.sum())), replace=False) for kind in kinds],
        )
        single_activity = []
        for kind in kinds:
            label = draw.choice(np.unique(owned.y[kind]))
            rows = np.flatnonzero(kind & (owned.y == label))
            single_activity.append(draw.choice(rows, min(FEW, len(rows)), replace=False))
        yield f"{watches} of {clients} with a watch, one activity each, five windows", single_activity


# --- data -------------------------------------------------------------------------------------------------


def _sklearn_table(name: str) -> Callable[[], Owned]:
    def load() -> Owned:
        from sklearn import datasets

        table = getattr(datasets, f"load_{name}")()
        return Owned(table.data.astype(np.float32)[:, :, None], table.target)

    return load


def _synthetic_devices() -> Owned:
    """The synthetic set, on all phones and watches of HHAR."""
    windows = synthetic_windows(9, devices=list(DEVICES), bouts=2)
    return Owned(windows.x[:, :, ::4], windows.y, windows.user.astype(str), windows.device.astype(str))


EMBEDDED: dict[str, Callable[[], Owned]] = {
    "breast cancer": _sklearn_table("breast_cancer"),
    "wine": _sklearn_table("wine"),
    "digits as columns": _sklearn_table("digits"),
    "synthetic HHAR, phones and watches": _synthetic_devices,
}


def _window_file(path: str, as_windows: Callable[[np.ndarray], np.ndarray]) -> Callable[[Path], Owned]:
    def load(folder: Path) -> Owned:
        with np.load(folder / path, allow_pickle=False) as file:
            user = file["user"].astype(str) if "user" in file else None
            return Owned(as_windows(file["x"]), file["y"], user)

    return load


_RAW = (
    ("six-activities/Phones", "nexus4_1"),
    ("first-10000-rows/Watch", "gear_1"),
)


def _raw_rows(sensor: str) -> Callable[[Path], Owned]:
    """Rows of one user's phone, in six activities, and watch as recorded, in windows."""

    def load(folder: Path) -> Owned:
        x, y, devices = [], [], []
        for kind, device in _RAW:
            text = (folder / "hhar-raw-excerpt" / f"{kind}_{sensor}.csv").read_text().replace("\t", ",")
            lines = [line.split(",") for line in text.splitlines() if not line.startswith("Index")]
            rows = np.array([fields for fields in lines if len(fields) == _FIELDS])
            labels = rows[:, 9]
            edges = [0, *(np.flatnonzero(labels[1:] != labels[:-1]) + 1).tolist(), len(rows)]
            for begin, end in pairwise(edges):
                for first in range(begin, end - _SAMPLES + 1, _SAMPLES):
                    x.append(rows[first : first + _SAMPLES, 3:6].astype(np.float32).T)
                    y.append(labels[first])
                    devices.append(device)
        _, numbers = np.unique(y, return_inverse=True)
        return Owned(np.stack(x), numbers, np.full(len(x), "a"), np.array(devices))

    return load


FILES: dict[str, Callable[[Path], Owned]] = {
    "HHAR": _window_file("hhar-9users/hhar-9users-128x3.npz", lambda x: x[:, :, ::8]),
    "MotionSense": _window_file("motionsense-24users/motionsense-24users-128x6.npz", lambda x: x[:, :, ::8]),
    "MNIST": _window_file("mnist/mnist-70000.npz", lambda x: x[:, None, ::2, ::2] / np.float32(255)),
    "pixels of MNIST as columns": _window_file(
        "mnist/mnist-70000.npz", lambda x: x.reshape(len(x), 784, 1)[:, ::5] / np.float32(255)
    ),
    "CIFAR-10": _window_file("cifar10/cifar10-12000.npz", lambda x: x[:, :, ::4, ::4] / np.float32(255)),
    "raw HHAR accelerometers, phone and watch": _raw_rows("accelerometer"),
    "raw HHAR gyroscopes, phone and watch": _raw_rows("gyroscope"),
}


# --- counting ---------------------------------------------------------------------------------------------


@dataclass
class Found:
    """Counts for one set.

    Attributes:
        deals, clients, out: numbers of deals, of clients, and of clients left out.
        furthest: largest share of the allowed deviation, d / (c E).
        where: way of dealing, and number of clients, for the furthest.
    """

    deals: int = 0
    clients: int = 0
    out: int = 0
    furthest: float = 0.0
    where: str = ""


def count(owned: Owned, repeats: int, draw: np.random.Generator, numbers: Sequence[int] = CLIENTS) -> Found:
    """Deal a set in every way to every number of clients, `repeats` times."""
    counts, names = Found(), tuple(map(str, range(owned.x.shape[1])))
    for _ in range(repeats):
        rows = np.sort(draw.choice(len(owned.y), min(_ROWS, len(owned.y)), replace=False))
        part = Owned(*(None if a is None else a[rows] for a in (owned.x, owned.y, owned.user, owned.device)))
        for clients in numbers:
            for way, dealt in deals(part, clients, draw):
                sums = [channel_sums(part.x[client_rows]) for client_rows in dealt if len(client_rows)]
                deviations, factors = proportions(sums)
                share = float((deviations / factors).max())
                counts.deals, counts.clients = counts.deals + 1, counts.clients + len(sums)
                counts.out += len(outlying_clients(dict(enumerate(sums)), names))
                if share > counts.furthest:
                    counts.furthest, counts.where = share, f"{way}, {len(sums)} clients"
    return counts


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table; returns 1 if any client was left out."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of window files, images and raw rows")
    parser.add_argument("--repeats", type=int, default=12, help="of every deal, each with other draws")
    options = parser.parse_args(arguments)
    loaders = dict(EMBEDDED)
    if options.data is not None:
        loaders |= {name: lambda load=load: load(options.data) for name, load in FILES.items()}
    total, draw = Found(), np.random.default_rng(7)
    print("| data | deals | clients | left out | furthest, of what is allowed | where |")
    print("|---|---|---|---|---|---|")
    for name, load in loaders.items():
        counts = count(load(), options.repeats, draw)
        total.deals, total.clients = total.deals + counts.deals, total.clients + counts.clients
        total.out += counts.out
        counted = f"{counts.deals} | {counts.clients} | {counts.out}"
        print(f"| {name} | {counted} | {counts.furthest:.2f} | {counts.where} |", flush=True)
    print(f"| all | {total.deals} | {total.clients} | {total.out} | | |")
    return int(total.out > 0)


if __name__ == "__main__":
    exit_with(main)
