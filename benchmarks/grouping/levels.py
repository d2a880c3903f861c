"""Level and power of the closed test on real people, trained once, dealt to leaves 1,000 times per shape.

    python -m benchmarks.grouping.levels FILE.npz [--shapes 3x3,3x4,4x4,6x3,6x4,10x2] [--deals 1000]
            [--seeds 3001]
        [--planted none,large,lone-labels,…] [--level auto] [--out FILE.jsonl]

Every user trains once from one initial model: on the unchanged windows, and with the planted differences.
Then users are repeatedly drawn and dealt to leaves, and the closed test is carried out as by a cloud
(`fedge.clustering.deal_test.auto`), including the sizes of clients. A line per shape and way of planting:
shares of p ≤ .01 and ≤ .05 of the test of all leaves, the p of Kolmogorov and Smirnov against the uniform
distribution, the number of deals in which leaves were split, and in which they were split into exactly the
planted groups.

Ways of planting: `none`; `large`: leaf 0 only has clients with 5 to 15 times the windows of the others;
`surplus`: there are only five users per four clients; `lone`, `pair`, `half`, `four` (all but two leaves,
one, one) and `apart` (every leaf its own), each with `-labels`, `-rotate` or `-gain`.
"""

import argparse
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import kstest

from benchmarks.commands import exit_with
from fedge.clustering.deal_test import deals
from fedge.clustering.deal_test.auto import run_deal_tests
from fedge.clustering.likeness.sketch import cosines, sketch
from fedge.clustering.likeness.updates import Likeness, even_windows
from fedge.config.flat import from_run_config
from fedge.config.sections.cluster import ClusterConfig
from fedge.data.owners import clients_of_owners
from fedge.data.scenario import Change, make_scenario
from fedge.seeding import Purpose, numpy_stream, torch_stream
from fedge.training.local import train
from fedge.training.networks.models import build_model, parameter_names
from fedge.training.networks.module_state import get_state, load_state, tensor_of
from fedge.training.schedule import local_training
from hhar.windows.window_file import Windows, load_windows

KINDS = {"labels": "label-permutation", "rotate": "rotate", "gain": "gain"}
SHAPES = "3x3,3x4,4x4,6x3,6x4,10x2"
_FEW = 25  # windows of a small client, if sizes differ


class People:
    """Users of a window file, and their updates of one model, computed when first needed."""

    def __init__(self, windows: Windows, seed: int, epochs: int = 2) -> None:
        """Start without trained users.

        Args:
            windows: windows of all users.
            seed: seed of the model, the batches and the changes.
            epochs: local epochs of a client.
        """
        self._mean = windows.x.mean(axis=(0, 2), keepdims=True)
        self._std = windows.x.std(axis=(0, 2), keepdims=True)
        self._windows, self._seed = windows, seed
        self._settings = local_training(from_run_config({"train.local-epochs": epochs}).train, 1)
        shape, classes = windows.x.shape[1:], len(windows.classes)
        self._model = build_model("cnn", shape, classes, torch_stream(seed, Purpose.MODEL), {})
        self._start = get_state(self._model)
        names = parameter_names(self._model)
        floating = [n for n, a in self._start.items() if np.issubdtype(a.dtype, np.floating)]
        self.entries = (names, [n for n in floating if n not in names])
        self.users = [np.flatnonzero(windows.user == user) for user in np.unique(windows.user)]
        self.summaries = cache(self._summaries)
        self.changes = cache(self._changes)

    def _changes(self, kind: str, groups: int) -> list[Change]:
        """Changes of each group, as drawn by a scenario of Fedge."""
        keys = {"scenario": KINDS[kind], "hierarchy.num-servers": groups, "scenario-groups": groups}
        windows = self._windows
        scenario = make_scenario(
            from_run_config(keys), windows.channels, len(windows.classes), [1] * groups, self._seed
        )
        assert scenario is not None
        return list(scenario.changes)

    def rows(self, owners: Sequence[int], most: int = 0) -> np.ndarray:
        """Windows of some users, `most` of them at equal distances; 0 for all."""
        rows = np.sort(np.concatenate([self.users[owner] for owner in owners]))
        return rows if not most or len(rows) <= most else rows[np.arange(most) * len(rows) // most]

    def _summaries(
        self, owners: tuple[int, ...], most: int, kind: str, groups: int, group: int
    ) -> list[np.ndarray]:
        """Summaries of the update by a client with the windows of some users."""
        change = self.changes(kind, groups)[group] if kind else Change()
        rows = self.rows(owners, most)
        x, y = change.apply(self._windows.x[rows], self._windows.y[rows])
        x = ((x - self._mean) / self._std).astype(np.float32)  # changes are applied before scaling
        load_state(self._model, self._start)
        batches = torch_stream(self._seed, Purpose.BATCHES, 1, owners[0])
        inputs, classes = tensor_of(np.ascontiguousarray(x)), tensor_of(y)
        trained = train(self._model, inputs, classes, self._settings, batches).state
        return [
            sketch([trained[n].astype(np.float64) - self._start[n] for n in names])
            for names in self.entries
            if names
        ]


def groups_of(planted: str, leaves: int) -> list[int]:
    """Group of each leaf.

    >>> groups_of("four", 6), groups_of("half", 4)
    ([0, 0, 0, 0, 1, 2], [0, 0, 1, 1])
    """
    sizes = {
        "lone": [leaves - 1, 1],
        "pair": [leaves - 2, 2],
        "half": [leaves - leaves // 2, leaves // 2],
        "four": [leaves - 2, 1, 1],
        "apart": [1] * leaves,
    }.get(planted, [leaves])
    return np.repeat(np.arange(len(sizes)), sizes).tolist()


def deal(people: People, planted: str, shape: tuple[int, int], rng: np.random.Generator) -> Likeness:
    """Comparison of updates of users dealt to leaves at random."""
    pattern, _, kind = planted.partition("-")
    leaves, clients = shape[0], shape[0] * shape[1]
    leaf_of = np.repeat(np.arange(leaves), shape[1])
    groups = np.array(groups_of(pattern, leaves))
    count = clients * 5 // 4 if pattern == "surplus" else clients
    users = rng.permutation(len(people.users))[:count]
    client_of = clients_of_owners(np.arange(count), count, clients)
    owners = [tuple(int(u) for u in users[client_of == k]) for k in range(clients)]
    limits = [0] * clients
    if pattern == "large":
        limits = [int(_FEW * rng.uniform(5, 15)) if leaf == 0 else _FEW for leaf in leaf_of]
    windows = [len(people.rows(owners[k], limits[k])) for k in range(clients)]
    if even := even_windows(windows):
        windows = [min(count, even) for count in windows]
        limits = windows
    group_of = groups[leaf_of]
    summaries = [
        people.summaries(owners[k], limits[k], kind, int(groups.max()) + 1, int(group_of[k]))
        for k in range(clients)
    ]
    similarities = np.stack([cosines(np.stack(entries)) for entries in zip(*summaries, strict=True)])
    return Likeness(similarities, leaf_of, 1, np.array(windows, dtype=np.int64))


def measured(
    people: People, planted: str, shape: tuple[int, int], options: argparse.Namespace
) -> dict[str, Any]:
    """The p of every deal, and the numbers of deals with a split and with the right split."""
    config = ClusterConfig(
        signal="affinity", method="agglomerative", count="auto", patience=2, level=options.level
    )
    truth = np.array(groups_of(planted.partition("-")[0], shape[0]))
    ps, num_splits, num_right, level = [], 0, 0, 1.0
    for number in range(options.deals):
        rng = numpy_stream(options.seed, Purpose.DEAL, *shape, *map(ord, planted), number)
        tests = run_deal_tests(deal(people, planted, shape, rng), config, number)
        assert not isinstance(tests, str), tests
        ps.append(tests[0].p)
        level = tests[0].level
        labels = deals.labels_after(tests, np.zeros(shape[0], dtype=np.int64))
        num_splits += bool(labels.any())
        num_right += np.array_equal(labels, truth)
    return {"p": ps, "parted": num_splits, "right": num_right, "level": level}


def main() -> None:
    """Print a line per shape and way of planting."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data")
    parser.add_argument("--shapes", default=SHAPES)
    parser.add_argument("--planted", default="none")
    parser.add_argument("--deals", type=int, default=1000)
    parser.add_argument("--seeds", default="3001")
    parser.add_argument("--level", default="auto", type=lambda text: text if text == "auto" else float(text))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    windows = load_windows(options.data)
    for seed in map(int, options.seeds.split(",")):
        people, options.seed = People(windows, seed), seed
        for text in options.shapes.split(","):
            leaves, _, clients = text.partition("x")
            shape = int(leaves), int(clients)
            for planted in options.planted.split(","):
                result = measured(people, planted, shape, options)
                p = np.array(result["p"])
                shares = ", ".join(f"p ≤ {level:g} in {(p <= level).sum()}" for level in (0.01, 0.05))
                uniform = kstest(p, "uniform").pvalue
                print(
                    f"{Path(options.data).stem} {text} {planted}, seed {options.seed}: {shares} of {len(p)}; "
                    f"Kolmogorov-Smirnov {uniform:.3f}; parted at {result['level']:g} in {result['parted']}, "
                    f"into these groups in {result['right']}",
                    flush=True,
                )
                if options.out:
                    with options.out.open("a") as file:
                        row = {"data": Path(options.data).stem, "shape": text, "planted": planted}
                        file.write(json.dumps({**row, "seed": options.seed, **result}) + "\n")


if __name__ == "__main__":
    exit_with(main)
