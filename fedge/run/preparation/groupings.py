"""Trials of groupings and signals on generated models of leaves, before the run starts.

A user's part is refused if it fails; a signal depending on nothing sent by clients gets a note.
Shape letter: S leaf servers, or other children of a server with groups.
"""

import copy
import inspect
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedge.clustering.likeness.evidence import Answers, Evidence, NotComparable, leaf_role
from fedge.clustering.registry import Need, method_named
from fedge.clustering.signals import needs_of, similarity_of
from fedge.config.config import Config
from fedge.config.registers.determinism import are_identical, call_checked
from fedge.config.registers.groupings import GROUPINGS, SIGNALS
from fedge.config.registers.option import ConfigError, shown
from fedge.config.registers.traits import BY_SIGNAL
from fedge.states.averaging import State
from fedge.states.named_states import Memory, packed, unpacked

_MADE_UP = frozenset({"starts", "one-start", "cluster-start", "cross-losses", "dispersion"})
"""Evidence that can be made up; the rest depends on what clients have trained on."""
_MOST_CLIENTS = 20  # replying clients at each leaf
_CLASSES = 2  # number of classes, unless given


def tries_grouping(config: Config) -> bool:
    """Whether a run has a user's grouping or signal that can be tried on generated evidence."""
    cluster = config.cluster
    if not cluster.enabled:
        return False
    is_own = GROUPINGS.is_own(cluster.method) or (
        GROUPINGS.has(cluster.method, BY_SIGNAL) and SIGNALS.is_own(cluster.signal)
    )
    return is_own and _needs(config) <= _MADE_UP


def _needs(config: Config) -> frozenset[Need]:
    """Evidence requested by the user's grouping or signal."""
    cluster = config.cluster
    is_own = GROUPINGS.is_own(cluster.method)
    return method_named(cluster).needs(cluster) if is_own else needs_of(cluster.signal)


def refuse_grouping_that_fails(
    config: Config, state: State, names: Sequence[str], clients: Sequence[int], classes: int = _CLASSES
) -> None:
    """Raise ConfigError if the user's grouping or signal fails in two steps on generated models.

    In a deeper tree, it is tried for each number of children of the servers with groups.

    Args:
        config: configuration for which `tries_grouping` is true.
        state: any model of the run.
        names: trainable entries of the model, in layer order.
        clients: training clients per leaf.
        classes: number of classes in the data.
    """
    cluster = config.cluster
    for weights in _clients_per_child(config, clients):
        generated = _Generated(config, state, tuple(names), weights, classes)
        with suppress(NotComparable):
            if GROUPINGS.is_own(cluster.method):
                _try_grouping(config, generated)
            else:
                similarity_of(
                    cluster.signal, generated.answered(generated.evidence(1)), cluster.arguments("signal")
                )


def unaffected_signal_note(
    config: Config, state: State, names: Sequence[str], clients: Sequence[int], sent: Collection[str]
) -> str:
    """Note on a signal that depends on nothing sent by clients, so it never changes; else empty.

    Detected by the signal's results, for the user's as well as Fedge's: they are equal in two rounds between
    which only the entries sent by clients have changed, and differ if the whole model has changed. Entries
    kept by clients, such as their own heads, stay at their initial values at every leaf.

    Args:
        config: configuration of a run in which leaves take means of the sent entries.
        state: any model of the run.
        names: trainable entries of the model, in layer order.
        clients: training clients per leaf.
        sent: entries of the model sent by clients.
    """
    cluster, unsent = config.cluster, [name for name in names if name not in sent]
    compares = cluster.enabled and GROUPINGS.has(cluster.method, BY_SIGNAL)
    if not unsent or not compares or not needs_of(cluster.signal) <= {"starts"}:
        return ""
    is_own = SIGNALS.is_own(cluster.signal)
    with suppress(NotComparable):
        for children in _clients_per_child(config, clients):
            if len(children) < 2:
                continue
            compared = children if is_own else children[:2]  # Fedge's signals compare each pair separately
            generated = _Generated(config, state, tuple(names), compared, _CLASSES, {*state} - {*unsent})
            if _is_signal_constant(config, generated) and not _is_signal_constant(
                config, replace(generated, moving=None)
            ):
                entries = ", ".join(unsent[:2]) + ", …" * (len(unsent) > 2)
                return (
                    f"cluster.signal {cluster.signal} compares only entries of the model that clients under "
                    f"train.algorithm {config.train.algorithm} do not send ({entries}), so what clients "
                    f"learn does not affect groups; use another signal, or cluster.enabled=false"
                )
    return ""


def _is_signal_constant(config: Config, generated: "_Generated") -> bool:
    """Whether the signal has the same result for two rounds' models."""
    arguments = config.cluster.arguments("signal")
    first, second = (
        similarity_of(config.cluster.signal, generated.evidence(turn), arguments) for turn in (1, 2)
    )
    return np.array_equal(first, second)


def _clients_per_child(config: Config, clients: Sequence[int]) -> list[list[int]]:
    """Clients below each child, for servers with groups with different numbers of children."""
    hierarchy = config.hierarchy
    if hierarchy.tiers == 2:
        return [list(clients)]
    tiers = {0} if config.asynchrony.is_on else hierarchy.parse_tiers(config.cluster.tiers, "cluster.tiers")
    counts = {len(server.children) for tier in tiers for server in hierarchy.shape.servers(tier)}
    return [[max(1, sum(clients) // count)] * count for count in sorted(counts) if count]


def _try_grouping(config: Config, generated: "_Generated") -> None:
    """Group in two steps; a class is tried again with a new object in between, as after a restart.

    Raises:
        ConfigError: the method fails, or its results depend on more than its arguments and its memory.
    """
    name = config.cluster.method
    if not inspect.isclass(GROUPINGS.load(name)):  # a function is called twice in every step
        _run_two_steps(config, generated)
        return
    steps = call_checked(GROUPINGS, name, lambda: _run_two_steps(config, generated))
    if not are_identical(steps, _run_two_steps(config, generated, with_new_object=True)):
        raise ConfigError(
            f"cluster.method {name} must keep its state in cloud.memory, but keeps some in its object, which "
            f"is lost when a run is resumed, so that groups then differ; move it there"
        )


def _run_two_steps(
    config: Config, generated: "_Generated", with_new_object: bool = False
) -> list[tuple[Any, Memory]]:
    """Groupings and memories of two rounds, the second with the labels and the memory of the first."""
    cluster = config.cluster
    method, labels = method_named(cluster), None
    memory: Memory = {}
    kept: Mapping[str, Any] = {}
    steps = []
    for global_round in (1, 2):
        method = method_named(cluster) if with_new_object else method
        evidence = replace(generated.evidence(global_round), before=labels, kept=kept, memory=memory)
        if method.ask is not None:
            evidence = generated.answered(
                evidence, _roles_asked(cluster.method, method.ask(evidence), len(generated.clients))
            )
        else:
            evidence = generated.answered(evidence)
        grouping = method.group(evidence, cluster, labels)
        labels, kept = grouping.labels, kept if grouping.kept is None else grouping.kept
        try:
            memory = unpacked(packed(evidence.memory, "memory of the cloud"))
        except (TypeError, FloatingPointError) as error:
            raise ConfigError(f"cluster.method {cluster.method}: {error}; fix it") from error
        steps.append((grouping, copy.deepcopy(memory)))
    return steps


def _roles_asked(name: str, questions: Any, children: int) -> set[str]:
    """Roles named in a method's questions.

    Raises:
        ConfigError: the questions are not models by role, for each child.
    """
    if questions is None:
        return set()
    try:
        if len(questions) != children or not all(isinstance(question, Mapping) for question in questions):
            raise TypeError
    except TypeError:
        raise ConfigError(
            f"cluster.method {name} must ask with a mapping role → model for each of {children} leaves, but "
            f"ask returned {shown(questions)}; fix it"
        ) from None
    return {str(role) for question in questions for role in question}


@dataclass(frozen=True)
class _Generated:
    """Generated evidence for servers of a tier.

    Attributes:
        config: configuration of the run.
        state: any model of the run.
        names: trainable entries of the model, in layer order.
        clients: clients below each child (S).
        classes: number of classes in the data.
        moving: entries differing from leaf to leaf; None for all.
    """

    config: Config
    state: State
    names: tuple[str, ...]
    clients: Sequence[int]
    classes: int
    moving: Collection[str] | None = None

    def evidence(self, global_round: int) -> Evidence:
        """Evidence of a round in which children trained from one start, each differently."""
        rng, needs, count = np.random.default_rng(global_round), _needs(self.config), len(self.clients)
        moving = self.state if self.moving is None else self.moving
        models = [
            {name: _perturbed(array, rng) if name in moving else array for name, array in self.state.items()}
            for _ in self.clients
        ]
        on_clock = self.config.asynchrony.is_on
        return Evidence(
            models,
            [self.state] * count if needs and not on_clock else None,
            [10.0 * each for each in self.clients],
            self.names,
            common_start=not on_clock,
            truth=None if self.config.scenario == "none" else np.zeros(count, dtype=np.int64),
            global_round=global_round,
            seed=self.config.seed,
            dispersion=rng.random(count) if "dispersion" in needs else None,
        )

    def answered(self, evidence: Evidence, roles: Collection[str] = ()) -> Evidence:
        """Evidence with replies of a few clients of each child, for the models in the questions."""
        count = len(self.clients)
        if "cross-losses" in _needs(self.config):
            roles = {*roles, *map(leaf_role, range(count))}
        if not roles:
            return evidence
        rng = np.random.default_rng((evidence.global_round, 1))
        leaf_of = np.repeat(np.arange(count, dtype=np.int64), np.clip(self.clients, 1, _MOST_CLIENTS))
        total = len(leaf_of)
        confusions = {role: rng.integers(1, 9, (total, self.classes, self.classes)) for role in sorted(roles)}
        answers = Answers(
            {role: 0.5 + rng.random(total) for role in sorted(roles)},
            np.full(total, 10, dtype=np.int64),
            leaf_of,
            clients=np.arange(total, dtype=np.int64),
            accuracies={role: rng.random(total) for role in sorted(roles)},
            confusions=confusions if self.config.train.task == "classification" else {},
        )
        return replace(evidence, answers=answers)


def _perturbed(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """An entry of a model after some training; integers are unchanged."""
    if array.dtype.kind != "f":
        return array
    return (array + 0.01 * rng.standard_normal(array.shape)).astype(array.dtype)
