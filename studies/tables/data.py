"""Window files of the tables, made from the data sets they name.

    python -m studies.tables.data SWEEP.toml … [--mnist FILE.npz] [--cifar10 FILE.npz] [--hhar FILE.npz]

Files of images hold x (N, H, W) or (N, C, H, W) uint8, y (N,) and split or part (N,), "train" or "test". The
first images of either part are taken, in the order of the file; test images of the data set stay test images.
An existing file stays.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import fedge
from fedge.config.registers.option import ConfigError
from fedge.sweep.plan import read_sweep
from hhar.windows.thin import thin
from hhar.windows.window_file import Windows, load_windows, save_windows

FOLDER = Path("data/tables")


@dataclass(frozen=True)
class Recipe:
    """Recipe of a window file.

    Attributes:
        source: "mnist", "cifar10" or "hhar".
        train, test: images of either part; 0: all.
        users: to whom images are dealt in turn, class by class, each part by itself; 0: one nominal user.
        copies: how often every image is dealt, as to one client of every rotation.
    """

    source: str
    train: int = 0
    test: int = 0
    users: int = 0
    copies: int = 1


FILES: Mapping[str, Recipe] = {
    "mnist": Recipe("mnist"),
    "mnist-6000": Recipe("mnist", 6000, 1000),
    "mnist-3000": Recipe("mnist", 3000, 1000),
    "mnist-1500": Recipe("mnist", 1500, 1000),
    "mnist-1200users": Recipe("mnist", users=1200, copies=4),
    "mnist-40users": Recipe("mnist", 6000, 2000, users=40),
    "mnist-30users": Recipe("mnist", 3000, 1500, users=30),
    "cifar10": Recipe("cifar10"),
    "cifar10-3000": Recipe("cifar10", 3000, 1000),
    "hhar": Recipe("hhar"),
}


def images(path: str | Path, recipe: Recipe) -> Windows:
    """Images as windows in their own split.

    Raises:
        ConfigError: the file has no split, or fewer images than the recipe takes; one line.
    """
    with np.load(path, allow_pickle=False) as file:
        split_name = next((name for name in ("split", "part") if name in file), None)
        if split_name is None:
            raise ConfigError(
                f"{path} must have x, y and split, but has {', '.join(file)}; name another file"
            )
        x, y, split = file["x"], file["y"].astype(np.int64), file[split_name].astype(str)
    rows, owners = [], []
    for part, count in (("train", recipe.train), ("test", recipe.test)):
        members = np.flatnonzero(split == part)
        if count > len(members):
            raise ConfigError(
                f"{path} must have {count} images of {part}, but has {len(members)}; choose another"
            )
        selected = np.tile(members[: count or len(members)], recipe.copies)
        by_class = np.argsort(y[selected], kind="stable")
        rows.append(selected[by_class] if recipe.users else selected)
        owners.append(np.arange(len(rows[-1])) % max(1, recipe.users))
    chosen = np.concatenate(rows)
    users = [f"user-{owner:04d}" for owner in np.concatenate(owners)]
    classes = [str(label) for label in range(int(y.max()) + 1)]
    windows = fedge.from_images(x[chosen], y[chosen], users=users, classes=classes)
    return replace(windows, part=split[chosen])


def windows_of(name: str, sources: Mapping[str, str | Path]) -> Windows:
    """Windows of a file of `FILES`; of HHAR every second one, four samples of it as one.

    Raises:
        ConfigError: its source is not named; one line.
    """
    recipe = FILES[name]
    path = sources.get(recipe.source)
    if not path:
        raise ConfigError(
            f"data/tables/{name}.npz needs {recipe.source}, but none is given; add --{recipe.source} FILE"
        )
    if recipe.source == "hhar":
        return thin(load_windows(Path(path)), 2, 4)
    return images(path, recipe)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the missing files named by sweeps; 2 with one line on stderr if this is impossible."""
    parser = argparse.ArgumentParser(description="Write window files of tables.")
    parser.add_argument("sweeps", type=Path, nargs="+")
    for source in dict.fromkeys(recipe.source for recipe in FILES.values()):
        parser.add_argument(f"--{source}")
    options = parser.parse_args(arguments)
    try:
        paths = {run.config.data.path for path in options.sweeps for run in read_sweep(path).runs}
        for path in sorted(Path(path) for path in paths):
            if path.parent == FOLDER and not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                save_windows(path, windows_of(path.stem, vars(options)))
                print(path)
    except ConfigError as error:
        print(f"studies.tables.data: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
