"""Planted groups of leaves: changed sensors or labels of a whole group of leaf servers.

A scenario gives every leaf a group (the truth for clustering) and every group a change of its windows; group
0 is unchanged. The change applies to all windows of the group's clients, training, validation and test,
unseen clients included, before normalisation. Both are drawn from the seed. Shape letters: N windows, C
channels, T samples, S leaves, G groups.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedge.config.config import Config
from fedge.config.planted import group_count, moves, planted_numbers
from fedge.config.registers.determinism import FROM_RNG, call_checked
from fedge.config.registers.option import ConfigError, shown
from fedge.config.registers.parts import SCENARIOS
from fedge.seeding import Purpose, numpy_stream

_NEAREST_DEG = 60.0  # an axis of one group is at least this far from the line of the same axis of another
_DRAWS = 1000
_LARGEST_GAIN = 4.0
_SLOWEST_RATE = 0.5
_AXES = "xyz"


@dataclass(frozen=True)
class Change:
    """Change of the windows of one group; nothing by default.

    Attributes:
        matrix: (C, C) float32, mixes the channels at every sample.
        span: share of a window, around its middle, stretched to the whole: 0.5 is the record of a sensor of
            twice the sampling rate in as many samples.
        labels: (classes,) new label of each class.
        held: (classes,) whether the group holds windows of the class.
    """

    matrix: np.ndarray | None = None
    span: float = 1.0
    labels: np.ndarray | None = None
    held: np.ndarray | None = None

    def apply(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Windows x (N, C, T) and labels y (N,) after the change; `held` is not applied.

        Images (N, C, H, W) are windows of H × W samples.
        """
        if self.matrix is not None:
            x = np.matmul(self.matrix, x.reshape(*x.shape[:2], -1)).reshape(x.shape)
        if self.span != 1:
            x = _stretch(x, self.span)
        return x, y if self.labels is None else self.labels[y]

    def describe(self) -> dict[str, Any]:
        """Settings other than the default, as JSON."""
        arrays = {"matrix": self.matrix, "labels": self.labels, "held": self.held}
        settings: dict[str, Any] = {
            name: array.tolist() for name, array in arrays.items() if array is not None
        }
        return settings | ({"span": self.span} if self.span != 1 else {})


@dataclass(frozen=True)
class Scenario:
    """The planted truth of a run.

    Attributes:
        kind: kind as in the configuration.
        groups: (S,) the group of each leaf in global round 1.
        changes: (G,) one per group.
        clients_per_leaf: (S,) unseen clients included.
        later: (global round, groups (S,) from then on), in order, where leaves change their group.
    """

    kind: str
    groups: tuple[int, ...]
    changes: tuple[Change, ...]
    clients_per_leaf: tuple[int, ...]
    later: tuple[tuple[int, tuple[int, ...]], ...] = ()

    @property
    def eras(self) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """(first global round, groups (S,)) of every stretch of rounds in which no leaf changes its group."""
        return ((1, self.groups), *self.later)

    def groups_in(self, global_round: int) -> tuple[int, ...]:
        """The group of each leaf in a global round 1, 2, …; those of round 1 before the first."""
        return [groups for first, groups in self.eras if first <= max(1, global_round)][-1]

    def change_of(self, client: int, global_round: int = 1) -> Change:
        """Change of a client's windows in a global round."""
        leaf = int(np.searchsorted(np.cumsum(self.clients_per_leaf), client, side="right"))
        return self.changes[self.groups_in(global_round)[leaf]]

    def describe(self) -> dict[str, Any]:
        """The truth as JSON, for the manifest."""
        changes = [change.describe() for change in self.changes]
        description = {"kind": self.kind, "groups": list(self.groups), "changes": changes}
        later = [[first, list(groups)] for first, groups in self.later]
        return description | ({"later": later} if later else {})

    def line(self) -> str:
        """The truth in one line."""
        first, *later = (" ".join(map(str, groups)) for _, groups in self.eras)
        changes = [
            f"; from round {start} on {groups_text}"
            for (start, _), groups_text in zip(self.later, later, strict=True)
        ]
        return f"scenario: {self.kind}, planted groups of the leaves {first}{''.join(changes)}"


Maker = Callable[..., list[Change]]
"""(groups, names of the channels, classes, stream, further arguments) → the change of each group."""


def make_scenario(
    config: Config, channels: Sequence[str], num_classes: int, clients_per_leaf: Sequence[int], seed: int
) -> Scenario | None:
    """Draw the scenario of a run; None if there is none.

    Args:
        config: its `scenario` and related options are read; the groups are at most the leaves.
        channels: names of the C channels.
        num_classes: number of classes in the data.
        clients_per_leaf: S numbers, unseen clients included.
        seed: root of the streams.

    Raises:
        ConfigError: the scenario does not fit the data.
    """
    if config.scenario == "none":
        return None
    count = group_count(config)
    sizes = planted_numbers(config.scenario_sizes, "scenario-sizes", "1,5")
    planted_groups = _draw_groups(len(clients_per_leaf), count, sizes, seed)
    maker: Maker = SCENARIOS.load(config.scenario)

    def make_changes() -> list[Change]:
        rng = numpy_stream(seed, Purpose.SCENARIO, 1)
        return maker(count, list(channels), num_classes, rng, **config.arguments("scenario"))

    with SCENARIOS.explaining_errors(config.scenario):
        changes = call_checked(SCENARIOS, config.scenario, make_changes, FROM_RNG)
    _refuse_other_changes(config.scenario, changes, count, len(channels), num_classes)
    (_, groups), *later = _plan_eras(config, planted_groups, count, seed)
    return Scenario(config.scenario, groups, tuple(changes), tuple(clients_per_leaf), tuple(later))


def _refuse_other_changes(scenario: str, changes: Any, groups: int, channels: int, classes: int) -> None:
    """Raise ConfigError unless a scenario made one change per group, suitable for the data."""
    if not isinstance(changes, Sequence) or len(changes) != groups:
        raise _changes_error(scenario, f"must give {groups} groups a Change each", changes)
    for group, change in enumerate(changes):
        if not isinstance(change, Change):
            raise _changes_error(scenario, f"must give group {group} a fedge.data.scenario.Change", change)
        shapes = {"matrix": (channels, channels), "labels": (classes,), "held": (classes,)}
        for name, shape in shapes.items():
            value = getattr(change, name)
            if value is not None and np.shape(value) != shape:
                raise _changes_error(scenario, f"must give group {group} a {name} of shape {shape}", value)
        if change.labels is not None and not np.isin(change.labels, np.arange(classes)).all():
            raise _changes_error(scenario, f"must give group {group} labels 0..{classes - 1}", change.labels)


def _changes_error(scenario: str, rule: str, value: Any) -> ConfigError:
    """An error in one line."""
    return ConfigError(f"scenario {scenario} {rule}, but gave {shown(value)}; fix it")


Groups = tuple[int, ...]


def _draw_groups(num_leaves: int, num_groups: int, sizes: Sequence[int], seed: int) -> Groups:
    """The group of each leaf, drawn; sizes are given, or differ by at most one."""
    ordered = np.repeat(np.arange(len(sizes)), sizes) if sizes else np.arange(num_leaves) % num_groups
    return tuple(int(g) for g in numpy_stream(seed, Purpose.SCENARIO, 0).permutation(ordered))


def _plan_eras(config: Config, planted: Groups, count: int, seed: int) -> list[tuple[int, Groups]]:
    """(first global round, groups) of each stretch of rounds in which groups stay, from round 1 on."""
    unchanged: Groups = (0,) * len(planted)
    eras = [(1, unchanged)] if config.scenario_from > 1 else []
    eras.append((config.scenario_from, planted))
    for number, (global_round, leaves) in enumerate(moves(config.scenario_moves)):
        rng = numpy_stream(seed, Purpose.SCENARIO, 2, number)
        eras.append((global_round, _move_leaves(eras[-1][1], count, leaves, rng)))
    if config.scenario_until:
        eras.append((config.scenario_until + 1, unchanged))
    return eras


def _move_leaves(groups: Groups, count: int, leaves: int, rng: np.random.Generator) -> Groups:
    """The groups (S,) after some leaves, drawn, have gone to another; no group is left empty.

    Args:
        groups: (S,) before.
        count: of groups.
        leaves: number of moving leaves, at most S - count.
        rng: draws movers, and their destinations.
    """
    after, moved = list(groups), set[int]()
    for _ in range(leaves):
        movable = [leaf for leaf, group in enumerate(after) if leaf not in moved and after.count(group) > 1]
        leaf = int(rng.choice(movable))
        after[leaf] = int(rng.choice([g for g in range(count) if g != after[leaf]]))
        moved.add(leaf)
    return tuple(after)


# --- the kinds ----------------------------------------------------------------------------------------


def rotate(count: int, channels: Sequence[str], _: int, rng: np.random.Generator) -> list[Change]:
    """Turn the axes of every sensor of a group by one rotation, drawn uniformly from all distant enough ones.

    No axis of a group is within 60° of the line of the same axis of another group, so gravity leaves its
    axis, whichever it is. If 1000 draws find no such rotation, the most distant one is taken.
    """
    triples = triples_of(channels, "rotate")
    rotations = [np.eye(3)]
    while len(rotations) < count:
        farthest, best_deg = rotations[0], -1.0
        for _ in range(_DRAWS):
            drawn = random_rotation(rng)
            nearest_deg = min(axes_apart_deg(drawn, other) for other in rotations)
            if nearest_deg > best_deg:
                farthest, best_deg = drawn, nearest_deg
            if best_deg >= _NEAREST_DEG:
                break
        rotations.append(farthest)
    return [Change(), *(Change(_matrix_for_sensors(r, triples, len(channels))) for r in rotations[1:])]


def flip(count: int, channels: Sequence[str], _: int, rng: np.random.Generator) -> list[Change]:
    """Change the signs of some axes of every sensor of a group, each group's in its own way.

    Two axes come first (a device turned over by 180°), then one or three (mirrored).
    """
    triples = triples_of(channels, "flip")
    signs = [np.array(s) for s in itertools.product((1.0, -1.0), repeat=3)][1:]
    if count > len(signs) + 1:
        raise ConfigError(
            f"scenario-groups must be at most {len(signs) + 1} for scenario flip, which has three axes to "
            f"change the sign of, but is {count}; lower it"
        )
    order = sorted(rng.permutation(len(signs)), key=lambda k: -signs[k].prod())  # stable: as drawn
    flips = [np.diag(signs[k]) for k in order[: count - 1]]
    return [Change(), *(Change(_matrix_for_sensors(flip, triples, len(channels))) for flip in flips)]


def gain(count: int, channels: Sequence[str], _: int, rng: np.random.Generator) -> list[Change]:
    """Scale all channels of a group, by 1 to 4 in equal ratios."""
    gains = _LARGEST_GAIN ** (np.arange(1, count) / (count - 1))
    return [Change(), *(Change((g * np.eye(len(channels))).astype(np.float32)) for g in gains)]


def rate(count: int, channels: Sequence[str], _: int, rng: np.random.Generator) -> list[Change]:
    """Let a group's windows span 1 to 0.5 of the time in equal ratios, as a faster sensor's do."""
    return [Change(), *(Change(span=float(_SLOWEST_RATE ** (g / (count - 1)))) for g in range(1, count))]


def permute_labels(
    count: int, channels: Sequence[str], num_classes: int, rng: np.random.Generator
) -> list[Change]:
    """Rename the classes of a group, without a class of equal meaning in two groups.

    Group g moves every class g places on in a random order.
    """
    if count > num_classes:
        raise ConfigError(
            f"scenario-groups must be at most the number of classes for scenario label-permutation, but is "
            f"{count} for {num_classes} classes; lower it"
        )
    order = rng.permutation(num_classes)
    changes = [Change()]
    for group in range(1, count):
        labels = np.empty(num_classes, dtype=np.int64)
        labels[order] = np.roll(order, -group)
        changes.append(Change(labels=labels))
    return changes


def skew_labels(
    count: int, channels: Sequence[str], num_classes: int, rng: np.random.Generator
) -> list[Change]:
    """Let a group hold its share of the classes only, at least two, in a random order.

    Groups share no class if there are twice as many classes as groups, or more.
    """
    order = rng.permutation(num_classes)
    changes = []
    for group in range(count):
        first, end = group * num_classes // count, (group + 1) * num_classes // count
        held = np.zeros(num_classes, dtype=bool)
        held[order[np.arange(first, max(end, first + 2)) % num_classes]] = True
        changes.append(Change(held=held))
    if len({change.held.tobytes() for change in changes if change.held is not None}) < count:
        raise ConfigError(
            f"scenario-groups must leave every group other classes for scenario label-skew, but is {count} "
            f"for {num_classes} classes; {'lower it' if count > 2 else 'set another scenario'}"
        )
    return changes


def other_files(count: int, channels: Sequence[str], _: int, rng: np.random.Generator) -> list[Change]:
    """Change nothing: the users of a group are those of the group's own window file."""
    return [Change() for _ in range(count)]


# --- axes and time ------------------------------------------------------------------------------------


def triples_of(channels: Sequence[str], kind: str) -> list[tuple[int, int, int]]:
    """The channels x, y, z of every sensor: names with different last letters only, as acc_x.

    Raises:
        ConfigError: the channels are not whole triples, by their names; `kind` is the scenario.
    """
    sensors: dict[str, dict[str, int]] = {}
    for index, name in enumerate(channels):
        sensors.setdefault(name[:-1].lower(), {})[name[-1:].lower()] = index
    triples = [axes for axes in sensors.values() if set(axes) == set(_AXES)]
    if 3 * len(triples) != len(channels):
        raise ConfigError(
            f"scenario {kind} needs sensors of three axes, with channels named as acc_x, acc_y, acc_z, but "
            f"the data have {', '.join(channels)}; rename them or use scenario gain"
        )
    return [(axes["x"], axes["y"], axes["z"]) for axes in triples]


def _matrix_for_sensors(
    matrix: np.ndarray, triples: Sequence[tuple[int, int, int]], num_channels: int
) -> np.ndarray:
    """(C, C) float32, applies a (3, 3) matrix to every sensor's axes."""
    combined = np.zeros((num_channels, num_channels), dtype=np.float32)
    for triple in triples:
        combined[np.ix_(triple, triple)] = matrix
    return combined


def random_rotation(rng: np.random.Generator) -> np.ndarray:
    """A (3, 3) rotation drawn uniformly: a unit quaternion of normals (Shoemake 1992)."""
    w, x, y, z = (q := rng.standard_normal(4)) / np.linalg.norm(q)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def axes_apart_deg(first: np.ndarray, second: np.ndarray) -> float:
    """The smallest angle, 0..90 degrees, between the lines of an axis under two rotations (3, 3)."""
    cosines = np.abs((first * second).sum(axis=1))  # rows: where an axis of the changed sensor points
    return float(np.degrees(np.arccos(min(1.0, cosines.max()))))


def _stretch(x: np.ndarray, span: float) -> np.ndarray:
    """The middle `span` of windows x (N, C, T) stretched to T samples, linear between samples."""
    samples = x.shape[2]
    positions = (samples - 1) * ((1 - span) / 2 + span * np.linspace(0, 1, samples))
    left = np.minimum(positions.astype(np.int64), max(samples - 2, 0))
    right = np.minimum(left + 1, samples - 1)
    share = (positions - left).astype(np.float32)
    stretched: np.ndarray = x[:, :, left] * (1 - share) + x[:, :, right] * share
    return stretched
