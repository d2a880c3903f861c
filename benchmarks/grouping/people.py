"""Rejection rate of the deal test on real people: trained once, dealt to leaves thousands of times.

    python -m benchmarks.grouping.people FILE.npz [--leaves 6] [--clients 4] [--deals 1000] [--draws 499]
        [--planted none,lone-labels,lone-rotate,half-labels,half-rotate] [--noise 0] [--seed 1]

Every user trains once from one initial model: on the unchanged windows, with classes renamed, with sensors
rotated. Then users are repeatedly drawn and dealt to leaves, and their updates are tested: with `none` the
share of p ≤ .01 is the level on these people, else the power. `--noise r` adds normal noise to each update
(separately for parameters and BatchNorm statistics) whose norm is r times the update's: the power that
remains if clients add noise before they send.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from benchmarks.commands import exit_with
from fedge.clustering.deal_test.deals import deal_test
from fedge.clustering.likeness.sketch import cosines, sketch
from fedge.config.flat import from_run_config
from fedge.data.scenario import Change, make_scenario
from fedge.seeding import Purpose, numpy_stream, torch_stream
from fedge.training.local import train
from fedge.training.networks.models import build_model, parameter_names
from fedge.training.networks.module_state import get_state, load_state, tensor_of
from fedge.training.schedule import local_training
from hhar.windows.window_file import Windows, load_windows

VERSIONS = {"none": None, "labels": "label-permutation", "rotate": "rotate"}


def updates_of(windows: Windows, seed: int, epochs: int) -> list[list[list[np.ndarray]]]:
    """Version → user → changes of parameters and of BatchNorm statistics, whole."""
    config = from_run_config({"train.local-epochs": epochs})
    settings = local_training(config.train, 1)
    model = build_model(
        "cnn", windows.x.shape[1:], len(windows.classes), torch_stream(seed, Purpose.MODEL), {}
    )
    start, names = get_state(model), parameter_names(model)
    statistics = [n for n, a in start.items() if n not in names and np.issubdtype(a.dtype, np.floating)]
    x = windows.x - windows.x.mean(axis=(0, 2), keepdims=True)
    x /= x.std(axis=(0, 2), keepdims=True)
    updates: list[list[list[np.ndarray]]] = []
    for kind in VERSIONS.values():
        change = Change()
        if kind is not None:
            keys = {"scenario": kind, "hierarchy.num-servers": 2}
            planted = make_scenario(
                from_run_config(keys), windows.channels, len(windows.classes), [1, 1], seed
            )
            assert planted is not None
            change = planted.changes[1]
        version_updates = []
        for number, user in enumerate(np.unique(windows.user)):
            rows = windows.user == user
            ux, uy = change.apply(x[rows], windows.y[rows])
            load_state(model, start)
            batches = torch_stream(seed, Purpose.BATCHES, 1, number)
            trained = train(
                model, tensor_of(np.ascontiguousarray(ux)), tensor_of(uy), settings, batches
            ).state
            version_updates.append(
                [
                    np.concatenate([(trained[n].astype(np.float64) - start[n]).ravel() for n in group])
                    for group in (names, statistics)
                ]
            )
        updates.append(version_updates)
    return updates


def with_noise(update: Sequence[np.ndarray], ratio: float, rng: np.random.Generator) -> list[np.ndarray]:
    """An update with normal noise whose norm is about `ratio` times its own, kind by kind."""
    return [
        part + rng.normal(size=part.size) * ratio * np.linalg.norm(part) / np.sqrt(part.size)
        for part in update
    ]


def p_values(
    updates: list[list[list[np.ndarray]]], planted: str, options: argparse.Namespace
) -> tuple[list[float], int]:
    """The p of every deal, and the number of deals in which the cut separates the planted groups."""
    rng = numpy_stream(options.seed, Purpose.DEAL, sum(map(ord, planted)))
    pattern, _, change = planted.partition("-")
    version = list(VERSIONS).index(change or "none")
    sketched = [
        [[sketch([part]) for part in with_noise(update, options.noise, rng)] for update in version_updates]
        for version_updates in updates
    ]
    users = len(sketched[0])
    flat = [np.stack([s[kind] for version_updates in sketched for s in version_updates]) for kind in (0, 1)]
    similarities = np.stack([cosines(vectors) for vectors in flat])
    leaf_of = np.repeat(np.arange(options.leaves), options.clients)
    is_planted = {"none": leaf_of < 0, "lone": leaf_of == 0, "half": leaf_of < options.leaves // 2}[pattern]
    values, right = [], 0
    for _ in range(options.deals):
        selected = rng.permutation(users)[: len(leaf_of)] + users * version * is_planted
        labels, _, p, *_ = deal_test(similarities[:, selected][:, :, selected], leaf_of, rng, options.draws)
        values.append(p)
        right += len(set(zip(labels[leaf_of].tolist(), is_planted.tolist(), strict=True))) == 2
    return values, right


def main() -> None:
    """Print a line per way of planting."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data")
    numbers = {"leaves": 6, "clients": 4, "deals": 1000, "draws": 499, "seed": 1, "epochs": 2}
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--noise", type=float, default=0.0)
    parser.add_argument("--planted", default="none,lone-labels,lone-rotate,half-labels,half-rotate")
    options = parser.parse_args()
    torch.set_num_threads(1)
    windows = load_windows(options.data)
    updates = updates_of(replace(windows), options.seed, options.epochs)
    print(
        f"{options.data}: {options.leaves} × {options.clients}, noise {options.noise:g}, seed {options.seed}"
    )
    for planted in options.planted.split(","):
        p, right = p_values(updates, planted, options)
        shares = ", ".join(f"p ≤ {level:g} in {sum(v <= level for v in p)}" for level in (0.01, 0.05))
        print(
            f"  {planted}: {shares} of {len(p)}; cut right in {right}; median p {np.median(p):.4f}",
            flush=True,
        )


if __name__ == "__main__":
    exit_with(main)
