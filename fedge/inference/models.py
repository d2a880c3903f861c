"""A file of models: the clients served by each, its network, and predictions."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedge.config.registers.failing import own_error, own_errors
from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import MODELS, refuse_input_shape
from fedge.config.registers.register import source_sha256
from fedge.config.registers.trust import load_trusted
from fedge.inference.card import CLASS, Card, Served, read_card
from fedge.inference.network import Classifier, probabilities
from fedge.inference.placement import best_fit, input_misfit
from fedge.inference.windows import checked
from fedge.states.files import map_state
from fedge.training.networks.models import build_model, state_entries
from fedge.training.networks.module_state import load_state
from fedge.training.networks.own_models import OwnFit, refuse_other_types, refuse_undeclared_network


@dataclass(frozen=True)
class Choice:
    """A stored model.

    Attributes:
        name: name in the file, "leaf-0" or "unseen-0".
        reason: the model's clients and the reason for the choice, in words.
    """

    name: str
    reason: str


@dataclass(frozen=True)
class Prediction:
    """Predictions of a model for windows.

    Attributes:
        labels: int64 (N,), index into `classes`, or (N, …) at positions; the largest output if there are
            several classes or numbers.
        probabilities: float32 (N, classes), or (N, classes, …); the predicted numbers in tasks with numbers.
        classes: names, in the order of the columns.
        model: the used model, in words.
        says: kind of answer, see `fedge.inference.card.Card`.
    """

    labels: np.ndarray
    probabilities: np.ndarray
    classes: tuple[str, ...]
    model: str
    says: str = CLASS


class Models:
    """The models of one run.

    Attributes:
        card: the file's description of itself.
    """

    def __init__(self, path: Path, folder: Path | None = None, trust_code: bool = False) -> None:
        """Open a run's final.safetensors.

        Args:
            path: path of the file.
            folder: folder of its run, which is not searched for code; None: the file's folder.
            trust_code: trust the code of a network from outside Fedge, and remember this.

        Raises:
            ConfigError: missing, or without a card.
        """
        self.card: Card = read_card(path)
        self._path = path
        self._folder = path.parent if folder is None else folder
        self._trust_code = trust_code

    def choose(self, leaf: int | None = None, client: int | None = None, unseen: bool = False) -> Choice:
        """The model for a leaf, a client of the run, or people outside training.

        Args:
            leaf: leaf whose model for known clients is taken; with `unseen`, the one for others.
            client: client of the run whose served model is taken.
            unseen: take a model for people outside training: of those for unseen clients, the one based on
                the most training windows. The default.

        Raises:
            ConfigError: there is no such leaf or client, or both are given.
        """
        served = self.card.served
        if client is not None and (leaf is not None or unseen):
            raise ConfigError("a client is served one model, so --client goes without --leaf and --unseen")
        if client is not None:
            name = next((n for n, s in served.items() if client in s.clients), None)
            if name is None:
                clients = sorted(c for s in served.values() for c in s.clients)
                raise ConfigError(
                    f"client must be one of the run's, {_range(clients)}, but is {client}; choose another"
                )
            return Choice(name, f"{_describe(name, served[name])}, which client {client} is served")
        if leaf is not None:
            return self._choose_for_leaf(leaf, unseen)
        return self._choose_by_windows()

    def _choose_for_leaf(self, leaf: int, unseen: bool) -> Choice:
        """A leaf's model for its known clients, or for others."""
        leaves = sorted({s.leaf for s in self.card.served.values()})
        if leaf not in leaves:
            raise ConfigError(
                f"leaf must be one of the run's, {_range(leaves)}, but is {leaf}; choose another"
            )
        name = f"leaf-{leaf}"
        if unseen and not self.card.served[name].unseen:
            name = f"unseen-{leaf}"
        return Choice(name, _describe(name, self.card.served[name]))

    def _unseen_groups(self) -> list[list[str]]:
        """The possible models for people outside training, equal ones together."""
        state = map_state(self._path)
        groups: dict[bytes, list[str]] = {}
        for name, served in self.card.served.items():
            if served.unseen:
                groups.setdefault(_bytes_of(state, name), []).append(name)
        return list(groups.values())

    def fitting(self, x: np.ndarray) -> Choice:
        """The model for people outside training that best fits one person's windows (docs/use.md).

        Args:
            x: raw windows (N, C, T) or images (N, C, H, W) of one person; no labels are needed.
        """
        groups, windows = self._unseen_groups(), checked(x, self.card)
        classifiers = [self.classifier(Choice(group[0], "")) for group in groups]
        with _on(windows, self.card):
            misfits = [input_misfit(classifier, windows) for classifier in classifiers]
        best = best_fit(misfits)
        leaves = ", ".join(str(self.card.served[name].leaf) for name in groups[best])
        origin = f"of leaf {leaves}" if len(groups[best]) == 1 else f"of leaves {leaves}"
        other_misfits = sorted(m for number, m in enumerate(misfits) if number != best)
        comparison = f"; the next {other_misfits[0]:.3g}" if other_misfits else "; there is no other"
        return Choice(
            groups[best][0], f"the model {origin} fits best: misfit {misfits[best]:.3g}{comparison}"
        )

    def _choose_by_windows(self) -> Choice:
        """The model for people outside training based on the most training windows."""
        groups = self._unseen_groups()

        def weight(names: list[str]) -> int:
            return sum(self.card.served[name].train_windows for name in names)

        best = max(groups, key=weight)
        leaves = ", ".join(str(self.card.served[name].leaf) for name in best)
        reason = f"used for people outside training by {'leaves' if len(best) > 1 else 'leaf'} {leaves}"
        if len(groups) > 1:
            verb = "have" if len(best) > 1 else "has"
            reason += (
                f", which {verb} the most training windows ({len(groups)} models differ: --leaf chooses)"
            )
        return Choice(best[0], f"{_describe(best[0], self.card.served[best[0]])}; {reason}")

    def classifier(self, choice: Choice) -> Classifier:
        """The run's network with the weights of a stored model, and the run's scaling.

        Raises:
            ConfigError: the network's code cannot be found, or no longer fits the weights.
        """
        card, code = self.card, self._code()
        state = map_state(self._path)
        prefix = choice.name + "/"
        entries = {
            name.removeprefix(prefix): np.array(state[name]) for name in state if name.startswith(prefix)
        }
        if code is None:
            _refuse_other_entries(card, _expected_entries(card), entries)
        try:
            network = build_model(
                card.model, card.input_shape, len(card.classes), torch.Generator(), card.arguments,
                OwnFit(card.dtype == "int64", card.answer, "answers"),
            )  # fmt: skip
        except (TypeError, ValueError, RuntimeError) as error:
            raise _build_error(card, error) from error
        _refuse_other_entries(card, state_entries(network), entries)
        load_state(network, entries)
        return Classifier(network, card.input_shape, card.mean, card.std, card.dtype, card.says)

    def _code(self) -> Any:
        """The network's class or function, if from outside Fedge and trusted; None for Fedge's own.

        Raises:
            ConfigError: there is no such network, or its code is not trusted.
        """
        name = self.card.model
        if not MODELS.is_own(name):
            return None
        code, has_run = load_trusted(MODELS, name, never_in=self._folder, trust=self._trust_code)
        if not has_run:
            refuse_undeclared_network(name, code)
        refuse_other_types(name, code, self.card.arguments)
        return code

    def code_note(self) -> str:
        """A line if the code of a user's model has changed since the run; else empty."""
        code = self._code()
        if code is None:
            return ""
        before, now = self.card.code.get("sha256"), source_sha256(code)
        return (
            "" if not before or before == now else f"the code of {self.card.model} has changed since the run"
        )

    def predict(self, x: np.ndarray, choice: Choice) -> Prediction:
        """Answers of a model for raw windows (N, C, T), images (N, C, H, W) or other inputs."""
        classifier, windows = self.classifier(choice), checked(x, self.card)
        with _on(windows, self.card):
            outputs = probabilities(classifier, windows)
        outputs = outputs.reshape(len(x), *(self.card.answer or (len(self.card.classes),)))
        return Prediction(outputs.argmax(axis=1), outputs, self.card.classes, choice.reason, self.card.says)


@contextmanager
def _on(windows: np.ndarray, card: Card) -> Iterator[None]:
    """Within, an error of the network on windows (N, …) becomes a ConfigError of one line."""
    try:
        yield
    except ConfigError:
        raise
    except own_errors() as error:  # of a user's network
        most = f" up to {windows.max()}" if windows.dtype == np.int64 and windows.size else ""
        kind = f"these tokens{most}" if card.dtype == "int64" else "these windows"
        raise ConfigError(
            f"train.model {card.model} cannot take {kind}: {own_error(error)}; give windows like those of "
            f"training"
        ) from error


def _expected_entries(card: Card) -> Mapping[str, Tensor]:
    """The entries of a built-in network, made without memory: a card may name any sizes.

    Raises:
        ConfigError: Fedge has no such network.
    """
    factory = MODELS.load(card.model)
    refuse_input_shape(card.model, card.input_shape)
    refuse_other_types(card.model, factory, card.arguments)
    try:
        with torch.device("meta"):
            return state_entries(factory(card.input_shape, len(card.classes), **card.arguments))
    except (TypeError, ValueError, RuntimeError, OverflowError, ArithmeticError) as error:
        raise _build_error(card, error) from error


def _build_error(card: Card, error: Exception) -> ConfigError:
    """Fault of a card with a failing network, in one line."""
    if isinstance(error, ConfigError):
        return error
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    return ConfigError(
        f"train.model {card.model} cannot be made as the file of models says: {reason}; get another"
    )


def _refuse_other_entries(
    card: Card, expected: Mapping[str, Tensor], stored: Mapping[str, np.ndarray]
) -> None:
    """Raise ConfigError unless a network has the stored entries, in shapes and kinds of numbers."""
    signatures = {
        name: (tuple(entry.shape), entry.dtype.is_floating_point) for name, entry in expected.items()
    }
    if signatures != {
        n: (array.shape, np.issubdtype(array.dtype, np.floating)) for n, array in stored.items()
    }:
        raise ConfigError(
            f"train.model {card.model} must have the entries that were trained, but its code makes others; "
            f"bring back the code of the run"
        )


def _describe(name: str, served: Served) -> str:
    """Description of a stored model."""
    if name.startswith("unseen-"):
        return f"leaf {served.leaf}'s model for clients outside training"
    return f"leaf {served.leaf}'s model" + (" for the clients that it knows" if not served.unseen else "")


def _range(numbers: list[int]) -> str:
    return f"{numbers[0]} to {numbers[-1]}" if numbers else "none"


def _bytes_of(state: Mapping[str, np.ndarray], head: str) -> bytes:
    """The contents of a stored model, for comparison with others."""
    return b"".join(state[name].tobytes() for name in sorted(state) if name.startswith(f"{head}/"))
