"""A leaf's models between rounds (trained, served, personal), and all their transitions.

In the order of a global round:

    begin              start with a model, at the beginning of the run or when the leaf chooses another one
    trained            a leaf round has trained the model, or one trained beside it
    apply_cloud_step   a cloud step provides the cluster's model, and the start of a trial of new groups
    continue_with      the gate has chosen a model; serve it and train it further
    continue_with_own  the gate has kept the leaf's own model
    take_tentatively   train an offer, and keep the served model as the leaf's own line, until a round of
                       training has shown which is better (`fedge.serving.decision`)
    serve_unseen       set the model for unseen clients
    serve_personal     serve known clients a fine-tuned model; the next round ignores it
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, get_args

from fedge.exchange.round_context import LEAF, OWN_LINE, PERSONAL, TRIAL, Line
from fedge.leaf.folds import MOST_LINES
from fedge.states.averaging import State
from fedge.states.distinct import StateCache
from fedge.states.restore_checks import state

Slot = Literal[
    "model", "served", "own_line", "trial", "cluster", "unseen", "fold-0", "fold-1", "fold-2", "fold-3"
]
SLOTS: tuple[Slot, ...] = get_args(Slot)
_FOLDS: tuple[Slot, ...] = tuple(slot for slot in SLOTS if slot.startswith("fold-"))
assert len(_FOLDS) == MOST_LINES
_REQUIRED: tuple[Slot, ...] = ("model", "served")  # the others are optional

_TRAINS: Mapping[Line, Slot] = {
    LEAF: "model",
    OWN_LINE: "own_line",
    TRIAL: "trial",
    PERSONAL: "served",
}


class LeafModels:
    """The models of one leaf; identical models are one object."""

    def __init__(self, model: State) -> None:
        """Begin with a model."""
        self._models: dict[Slot, State] = {}
        self.begin(model)

    @property
    def model(self) -> State:
        """The model from which the next leaf round starts."""
        return self._models["model"]

    @property
    def served(self) -> State:
        """The model served to known clients since the last gate decision; usually `model` itself."""
        return self._models["served"]

    @property
    def own_line(self) -> State | None:
        """The leaf's own model, trained beside a tentatively accepted offer; None without one."""
        return self._models.get("own_line")

    @property
    def trial(self) -> State | None:
        """The model of its proposed cluster (`fedge.clustering.memberships.strangers`), or None."""
        return self._models.get("trial")

    @property
    def folds(self) -> list[State]:
        """Forks for judging the leaf on its own, each trained without some of its clients."""
        return [self._models[slot] for slot in _FOLDS if slot in self._models]

    @property
    def cluster(self) -> State | None:
        """The cluster's model of the last cloud step; None for a lone leaf or without unseen clients."""
        return self._models.get("cluster")

    @property
    def unseen(self) -> State | None:
        """The model served to unseen clients since the last gate decision; None if equal to `served`."""
        return self._models.get("unseen")

    def training(self, line: Line) -> State | None:
        """The model trained by a line; None if there is no such line now."""
        return self._models.get(_TRAINS[line])

    # --- transitions --------------------------------------------------------------------------------

    def begin(self, model: State) -> None:
        """Start with a model, and serve it."""
        self._models = {"model": model, "served": model}

    def trained(self, line: Line, model: State) -> None:
        """Set the model trained by a line in a leaf round; the served model changes only at gates.

        Args:
            line: the leaf itself, its own line, or its trial.
            model: the new model.
        """
        assert line != PERSONAL
        assert _TRAINS[line] in self._models
        self._models[_TRAINS[line]] = model

    def fold_trained(self, fold: int, model: State) -> None:
        """Set the model trained by a fold in a leaf round."""
        assert _FOLDS[fold] in self._models
        self._models[_FOLDS[fold]] = model

    def apply_cloud_step(
        self, cluster: State | None, trial: State | None, folds: Sequence[State] = ()
    ) -> None:
        """Set the results of a cloud step.

        Args:
            cluster: the cluster's model, or None.
            trial: starting model of a trial, or None.
            folds: starting models of the forks for judging the leaf on its own.
        """
        self._put("cluster", cluster)
        self._put("trial", trial)
        for number, slot in enumerate(_FOLDS):
            self._put(slot, folds[number] if number < len(folds) else None)

    def continue_with(self, model: State) -> None:
        """Serve a model and train it further; ends the leaf's own line."""
        self._models |= {"model": model, "served": model}
        self._put("own_line", None)

    def continue_with_own(self) -> None:
        """Serve its own model and train it further."""
        self.continue_with(self.model)

    def take_tentatively(self, offer: State) -> None:
        """Train an offer, and keep the served model as the leaf's own line."""
        self._models |= {"model": offer, "own_line": self.served}

    def serve_unseen(self, model: State | None, is_own: bool) -> None:
        """Serve unseen clients a separate model, or, with None, the known clients'.

        Args:
            model: its own model or its cluster's, or None.
            is_own: whether it is its own, to which servers below add their personal entries.
        """
        self._put("unseen", model)

    def serve_personal(self, model: State) -> None:
        """Serve known clients a model without further training."""
        self._models["served"] = model

    def _put(self, slot: Slot, model: State | None) -> None:
        if model is None:
            self._models.pop(slot, None)
        else:
            self._models[slot] = model

    # --- state beyond the process ---------------------------------------------------------------------

    def keep(self, keep: Callable[[State], State]) -> None:
        """Pass each model through `keep`, which stores it in a file or in memory; sharing is preserved."""
        store = StateCache(keep)
        self._models = {slot: store(model) for slot, model in self._models.items()}

    def states(self) -> dict[str, State]:
        """Every distinct model, under the first of its names."""
        repeated = self.repeated()
        return {slot: self._models[slot] for slot in SLOTS if slot in self._models and slot not in repeated}

    def repeated(self) -> dict[str, str]:
        """Name → the earlier name with the same model."""
        filled = [slot for slot in SLOTS if slot in self._models]
        first = {slot: next(s for s in filled if self._models[s] is self._models[slot]) for slot in filled}
        return {slot: earlier for slot, earlier in first.items() if slot != earlier}

    def restore(self, states: Mapping[str, State], repeated: Mapping[str, str]) -> None:
        """Restore the result of `states` and `repeated`.

        Raises:
            ValueError: a required model is missing, or one differs in form from the initial model.
        """
        models = {slot: states.get(repeated.get(slot, slot)) for slot in SLOTS}
        missing = [slot for slot in _REQUIRED if models[slot] is None]
        if missing:
            raise ValueError(f"the models {', '.join(missing)} of a server must be there, but are not")
        like, check = self.model, StateCache(lambda model: state(model, like, "a server's model"))
        self._models = {slot: check(model) for slot, model in models.items() if model is not None}
