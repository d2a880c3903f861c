"""Trial of a client's algorithm before the first round: two clients, two leaf rounds, a few windows.

It determines the form of messages, memory and models, which must be the same in every round and at every
client; later deviations are refused when they occur.
"""

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from fedge.algorithm.client import Client, Place
from fedge.algorithm.client_round import ClientTurnResult, further_models, plain_training, run_algorithm
from fedge.algorithm.configured import algorithm_of, leaf_part_of
from fedge.algorithm.leaf_part import LeafTurn
from fedge.config.config import Config
from fedge.config.registers.determinism import are_identical, call_checked
from fedge.config.registers.failing import own_error, own_errors
from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import ALGORITHMS, MODELS
from fedge.exchange.algorithm import ReplyForm
from fedge.exchange.schema import ReplyRejected, TrainTask, check_train
from fedge.exchange.train import TrainReply
from fedge.leaf.algorithm import LeafAlgorithm, replies_to_leaf
from fedge.leaf.strategies.checks import first_not_finite
from fedge.states.averaging import State, weighted_mean
from fedge.states.named_states import Memory, first_difference, form_of, packed, unpacked
from fedge.training.networks.frozen import frozen_names, full_state, split_frozen
from fedge.training.networks.models import variance_names
from fedge.training.networks.module_state import get_state, load_state, tensor_of
from fedge.training.networks.unsaved_state import Unsaved
from fedge.training.schedule import local_training

WINDOWS = 10  # windows of the trial: 6 of one client, 4 of the other
_SHARES = (slice(0, 6), slice(6, 10))
_LARGE = 2**22  # entries
_DRAW_HINT = "draw by client.stream(name) and client.rng(name) alone, "
_OF_LEAF = (
    "draw by client.stream(name) and client.rng(name), in a leaf part by leaf.rng(name), build a leaf part's "
    "network within torch.random.fork_rng() and load its weights, "
)
_BY_ANSWERS = "and call a trainer's network by its answers(x)"


def try_algorithm(config: Config, network: nn.Module, x: np.ndarray, y: np.ndarray) -> ReplyForm:
    """Form of the arrays sent by clients for a run's algorithm.

    Args:
        config: configuration of the run.
        network: a network of the run on the CPU; a large one is trained itself, and only once.
        x: (10, …) windows of the run, or similar ones.
        y: (10, …) their labels.

    Raises:
        ConfigError: the algorithm fails, or sends or stores invalid values.
    """
    name = config.train.algorithm
    is_large = sum(entry.numel() for entry in network.state_dict().values()) > _LARGE

    def run_trial() -> tuple[ReplyForm, State, list[Memory | None]]:
        trial = _Trial(config, network if is_large else copy.deepcopy(network), x, y)
        return trial.form(), trial.model, trial.memories

    with _carried_out(name, "a trial of two rounds on a few windows"):
        if is_large:
            return run_trial()[0]
        has_part = type(algorithm_of(config.train)).leaf is not None
        hint = (_OF_LEAF if has_part else _DRAW_HINT) + _BY_ANSWERS
        result = call_checked(ALGORITHMS, name, run_trial, hint, in_threads=True)
        if ALGORITHMS.is_own(name) and has_part:
            _refuse_state_in_part(config, network, x, y, result[1])
        return result[0]


@contextmanager
def _carried_out(name: str, where: str) -> Iterator[None]:
    """Context in which an algorithm's own error becomes a ConfigError.

    Args:
        name: of the algorithm.
        where: the trial, in words.
    """
    try:
        yield
    except ConfigError:
        raise
    except own_errors() as error:
        raise ConfigError(
            f"train.algorithm {name} fails in {where}: {own_error(error)}; fix it (docs/own-method.md)"
        ) from error


def _refuse_state_in_part(
    config: Config, network: nn.Module, x: np.ndarray, y: np.ndarray, model: State
) -> None:
    """Raise ConfigError for a leaf part with state in its object, found by recreating it between rounds.

    Forks would change such state, and a resumed run would have lost it.

    Args:
        config, network, x, y: as for `try_algorithm`; x (10, …), y (10, …).
        model: the model after both rounds with a single object.
    """
    trial = _Trial(config, copy.deepcopy(network), x, y, recreate=True)
    trial.form()
    if not are_identical(model, trial.model):
        raise ConfigError(
            f"leaf of train.algorithm {config.train.algorithm} must keep its state in leaf.memory, but keeps "
            f"some in its object, which is lost when a run resumes after a stop, so that it then "
            f"combines differently; move it there"
        )


@dataclass(frozen=True)
class Tiers:
    """Memory and messages of an algorithm on each tier, determined by its trial.

    Attributes:
        form: form of clients' messages.
        client_keeps: a client's memory, by name.
        leaf_keeps: memory of the leaf part, by name.
        leaf_sends: arrays sent by the leaf beside the model, by name.
        model: entries of the model.
    """

    form: ReplyForm
    client_keeps: Memory
    leaf_keeps: Memory
    leaf_sends: Memory
    model: tuple[str, ...]


def tiers_of(config: Config, network: nn.Module, x: np.ndarray, y: np.ndarray) -> Tiers:
    """Run the trial and return an algorithm's memory and messages on each tier.

    Arguments as for `try_algorithm`: x (10, …), y (10, …).

    Raises:
        ConfigError: as for `try_algorithm`.
    """
    train = config.train
    where = (
        f"a trial with train.model {train.model} on windows {x.shape[1:]}, which a run repeats with its own"
    )
    with _carried_out(train.algorithm, where):
        trial = _Trial(config, network, x, y)
        form = trial.form()
    assert trial.leaf is not None
    kept = trial.memories[0] or {}
    return Tiers(form, kept, unpacked(trial.leaf.memory), unpacked(trial.beside), tuple(get_state(network)))


class _Trial:
    """One leaf with two clients; with `recreate`, the leaf part is recreated after each round."""

    def __init__(
        self, config: Config, network: nn.Module, x: np.ndarray, y: np.ndarray, recreate: bool = False
    ) -> None:
        self._config, self._network, self._recreate = config, network, recreate
        self._algorithm, self._part = algorithm_of(config.train), leaf_part_of(config.train)
        self._windows = [(x[share], y[share]) for share in _SHARES]
        self._settings = replace(
            local_training(config.train, 1), batch_size=2, epochs=min(config.train.local_epochs, 2)
        )
        self.model: State
        self.model, self._frozen = split_frozen(get_state(network), frozen_names(network, config.train))
        shape, tokens = x.shape[1:], x.dtype == np.int64
        self._variances = [n for n in variance_names(network, shape, tokens) if n in self.model]
        self._names = [name for name, p in network.named_parameters() if p.requires_grad]
        self.memories: list[Memory | None] = [None, None]
        self.leaf: LeafAlgorithm | None = None
        self.beside: State = {}
        self._own_entries: set[str] = set()
        own = MODELS.is_own(config.train.model) or ALGORITHMS.is_own(config.train.algorithm)
        self._unsaved = Unsaved(network) if own else None  # as clients have it

    def form(self) -> ReplyForm:
        """Run both rounds; returns the form of messages."""
        form: ReplyForm | None = None
        start_memory = unpacked(packed(self._part.start(self.model), "memory of the leaf"))
        self.beside = packed(self._part.send(start_memory), "what the leaf sends")
        sends = self.beside
        for leaf_round in (1, 2):
            parts = []
            for client, memory in enumerate(self.memories):
                participant = self._client(client, leaf_round, self.beside)
                parts.append(self._without_frozen(run_algorithm(self._algorithm, participant, memory)))
                self._refuse_changed(client, participant)
                self._own_entries |= {*parts[-1].own}
                self.memories[client] = unpacked(parts[-1].memory)
            forms = [self._form(part) for part in parts]
            form = form or forms[0]
            _refuse_other_forms(form, forms)
            for client, part in enumerate(parts):
                self._refuse_unanswerable(form, client, part)
            self.leaf = self.leaf or LeafAlgorithm(self._part, form, "", self.model, self._names)
            self.model = self._combine(self.leaf, parts, leaf_round)
            if self._recreate:
                self._part = leaf_part_of(self._config.train)
                self.leaf.continue_with(self._part)
            self.beside = packed(self._part.send(unpacked(self.leaf.memory)), "what the leaf sends")
            changed = first_difference(sends, self.beside)
            if changed:
                raise ValueError(f"what the leaf sends must keep its names, shapes and dtypes, but {changed}")
        assert form is not None
        own_entries = tuple(
            name for name in self.model if name in self._own_entries and self.model[name].dtype.kind == "f"
        )
        return self._with_models(replace(form, leaf_sends=form_of(sends), own=own_entries), self.memories)

    def _form(self, part: ClientTurnResult) -> ReplyForm:
        """Form of a client's messages, from its result."""
        within, models = self._algorithm.within, self._algorithm.beside_models
        form = form_of(part.arrays)
        unknown = sorted({*within, *models} - {name.partition("/")[0] for name in form})
        if unknown:
            raise ValueError(
                f"within and beside_models must name arrays that are sent, but {unknown[0]!r} is not"
            )
        return ReplyForm(
            tuple(part.sent), form, bool(part.memory), within=dict(within), beside_models=frozenset(models),
            many_passes=ALGORITHMS.is_own(self._config.train.algorithm),
        )  # fmt: skip

    def _client(self, client: int, leaf_round: int, beside: State, evaluates: bool = False) -> Client:
        x, y = (tensor_of(a.copy()) for a in self._windows[client])
        draws = torch.Generator() if MODELS.is_own(self._config.train.model) else None  # as clients have
        if self._unsaved is not None:  # likewise: hooks of the client before are gone
            self._unsaved.restore()
        if ALGORITHMS.is_own(self._config.train.algorithm):  # likewise
            load_state(self._network, self._full_model())
            self._network.train()
        return Client(
            received=self._full_model(), x=x, y=y, network=self._network, settings=self._settings,
            place=Place(0, (leaf_round, client), evaluates), plain=plain_training(self._network, x, y, draws),
            global_round=leaf_round, leaf_round=leaf_round, beside=unpacked(beside), draws=draws, id=client,
        )  # fmt: skip

    def _refuse_changed(self, client: int, participant: Client) -> None:
        """Raise ValueError if windows were modified in ways missed by PyTorch's version counter."""
        for name, original in zip("xy", self._windows[client], strict=True):
            if getattr(participant, name).numpy().tobytes() != original.tobytes():
                raise ValueError(f"client.{name} is read only, but was changed; change client.{name}.clone()")

    def _refuse_unanswerable(self, form: ReplyForm, client: int, part: ClientTurnResult) -> None:
        """Raise ValueError for a message a leaf would refuse."""
        count = len(self._windows[client][1])
        task = TrainTask(
            self.model, count, batch_size=self._settings.batch_size, variances=self._variances, form=form
        )
        reply = TrainReply(
            part.sent, count, part.steps, part.loss, 1.0, 0, weight=part.weight, extra=part.arrays
        )
        try:
            check_train(reply, task)
        except ReplyRejected as rejected:
            raise ValueError(f"its message to the leaf is {rejected.failure}") from rejected

    def _full_model(self) -> State:
        """The whole model, as clients train it."""
        return dict(full_state(self.model, self._frozen, self._network))

    def _without_frozen(self, part: ClientTurnResult) -> ClientTurnResult:
        """A client's result without frozen entries; raises ValueError if one of them changed."""
        for name in self._frozen.keys() & part.sent.keys():
            if not np.array_equal(part.sent[name], self._frozen[name]):
                raise ValueError(
                    f"train must leave frozen parameters as they are with train.exchange "
                    f"{self._config.train.exchange}, but changes {name!r}"
                )
        return replace(part, sent={n: a for n, a in part.sent.items() if n not in self._frozen})

    def _combine(self, leaf: LeafAlgorithm, parts: list[ClientTurnResult], leaf_round: int) -> State:
        """Combine both messages as a leaf does."""
        replies: dict[int, TrainReply] = {}
        for client, part in enumerate(parts):
            state = {name: part.sent.get(name, array) for name, array in self.model.items()}
            for arrays in (state, part.arrays):
                if (entry := first_not_finite(arrays)) is not None:
                    raise FloatingPointError(f"{entry!r} of what it sends is not finite")
            count = len(self._windows[client][1])
            replies[client] = TrainReply(
                state, count, part.steps, part.loss, 1.0, 0, weight=part.weight, extra=part.arrays
            )
        mean = weighted_mean([r.state for r in replies.values()], [r.mean_weight for r in replies.values()])
        turn = LeafTurn(0, leaf_round, leaf_round, where=(leaf_round, 0))
        model = leaf.combined(
            self.model, mean, replies_to_leaf(replies), len(replies), self._settings.lr, turn
        )
        if (entry := first_not_finite(model)) is not None:
            raise FloatingPointError(f"entry {entry!r} of the leaf's model is not finite")
        return model

    def _with_models(self, form: ReplyForm, memories: list[Memory | None]) -> ReplyForm:
        """The form, extended by the names of the further models evaluated by clients."""
        models = self._evaluate_models(0, memories[0])
        other_models = self._evaluate_models(1, memories[1])
        if models.keys() != other_models.keys():
            raise ValueError(
                "models must have the same names at all clients, but "
                f"{sorted(models.keys() ^ other_models.keys())[0]!r} differs"
            )
        unseen = self._evaluate_models(0, None, unseen=True)
        if unseen and unseen.keys() != models.keys():
            raise ValueError(
                f"unseen must return none or all of {', '.join(models) or 'no models'}, but returned "
                f"{', '.join(unseen)}"
            )
        return replace(form, models=tuple(models), unseen=bool(unseen))

    def _evaluate_models(self, client: int, memory: Memory | None, unseen: bool = False) -> Mapping[str, Any]:
        participant = self._client(client, 3, {}, evaluates=True)
        models = further_models(self._algorithm, participant, memory, unseen)
        self._refuse_changed(client, participant)
        return models


def _refuse_other_forms(expected: ReplyForm, forms: list[ReplyForm]) -> None:
    """Raise ValueError when clients or rounds differ in the form of messages."""
    for form in forms:
        if form.entries != expected.entries:
            raise ValueError(
                "only must name the same entries in every round and at every client, but they differ"
            )
        for name in sorted(form.arrays.keys() | expected.arrays.keys()):
            if form.arrays.get(name) != expected.arrays.get(name):
                shapes = [
                    candidate.arrays[name][0] if name in candidate.arrays else "absent"
                    for candidate in (expected, form)
                ]
                raise ValueError(
                    f"arrays must keep their shapes in every round and at every client, but {name!r} is "
                    f"{shapes[0]} and {shapes[1]}"
                )
