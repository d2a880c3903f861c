"""A leaf's models from round to round: trained, served and personal ones, and all their transitions.

In the order of a global round:

    begin             the leaf begins with a model, at the start of the run or of its own choice
    trained           a leaf round has moved the model itself, or one that trains beside it
    meet_cloud        a cloud step leaves the cluster's model, and the start of a trial of new groups
    go_on_with        the gate has chosen; the leaf serves that model and goes on with it
    stay              the gate has kept the model that is there
    take_tentatively  instead it goes on with an offer, and keeps its served model as its own line, until a
                      round of training has shown which is better (`fedge.serving.decision`)
    serve_unseen      the model for unseen clients
    serve_personal    known clients get a fine-tuned model; the next round starts as if it had not been
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, get_args

from fedge.exchange.round_context import LEAF, OWN_LINE, PERSONAL, TRIAL, Line
from fedge.leaf.folds import MOST_LINES
from fedge.states.averaging import State
from fedge.states.distinct import Once
from fedge.states.restored import state

Slot = Literal[
    "model", "served", "own_line", "trial", "cluster", "unseen", "fold-0", "fold-1", "fold-2", "fold-3"
]
SLOTS: tuple[Slot, ...] = get_args(Slot)
_FOLDS: tuple[Slot, ...] = tuple(slot for slot in SLOTS if slot.startswith("fold-"))
assert len(_FOLDS) == MOST_LINES
_ALWAYS: tuple[Slot, ...] = ("model", "served")  # the others are there at times

_TRAINS: Mapping[Line, Slot] = {LEAF: "model", OWN_LINE: "own_line", TRIAL: "trial", PERSONAL: "served"}


class LeafModels:
    """The models of one leaf; equal ones are one object."""

    def __init__(self, model: State) -> None:
        """Begin with a model."""
        self._held: dict[Slot, State] = {}
        self.begin(model)

    @property
    def model(self) -> State:
        """With which its next leaf round begins."""
        return self._held["model"]

    @property
    def served(self) -> State:
        """Model served to known clients since the last gate; mostly `model` itself."""
        return self._held["served"]

    @property
    def own_line(self) -> State | None:
        """Own model beside a tentatively accepted offer; None where there is none."""
        return self._held.get("own_line")

    @property
    def trial(self) -> State | None:
        """The model of its proposed cluster (`fedge.clustering.memberships.strangers`), or None."""
        return self._held.get("trial")

    @property
    def folds(self) -> list[State]:
        """The forks for judging it as a lone leaf, each made without some of its clients."""
        return [self._held[slot] for slot in _FOLDS if slot in self._held]

    @property
    def cluster(self) -> State | None:
        """Its cluster's, as of the last cloud step; None for a lone leaf, or one without unseen clients."""
        return self._held.get("cluster")

    @property
    def unseen(self) -> State | None:
        """Model served to unseen clients since the last gate; None if equal to `served`."""
        return self._held.get("unseen")

    def training(self, line: Line) -> State | None:
        """Model trained by a line; None where there is none now."""
        return self._held.get(_TRAINS[line])

    # --- transitions --------------------------------------------------------------------------------

    def begin(self, model: State) -> None:
        """Start with a model, and serve the model."""
        self._held = {"model": model, "served": model}

    def trained(self, line: Line, model: State) -> None:
        """Take a line's model from a leaf round; the served model changes at gates only.

        Args:
            line: leaf, own line or trial.
            model: the new one.
        """
        assert line != PERSONAL
        assert _TRAINS[line] in self._held
        self._held[_TRAINS[line]] = model

    def fold_trained(self, fold: int, model: State) -> None:
        """Take the model of one of the folds from a leaf round."""
        assert _FOLDS[fold] in self._held
        self._held[_FOLDS[fold]] = model

    def meet_cloud(self, cluster: State | None, trial: State | None, folds: Sequence[State] = ()) -> None:
        """Take the results of a cloud step.

        Args:
            cluster: the cluster's model, or None.
            trial: with which a fork begins, or None.
            folds: starting models of the forks for judging it as a lone leaf.
        """
        self._put("cluster", cluster)
        self._put("trial", trial)
        for number, slot in enumerate(_FOLDS):
            self._put(slot, folds[number] if number < len(folds) else None)

    def go_on_with(self, model: State) -> None:
        """Serve a model and train it further; there is no line beside the model."""
        self._held |= {"model": model, "served": model}
        self._put("own_line", None)

    def stay(self) -> None:
        """Serve its own model and train it further."""
        self.go_on_with(self.model)

    def take_tentatively(self, offer: State) -> None:
        """Train an offer on, beside the served model."""
        self._held |= {"model": offer, "own_line": self.served}

    def serve_unseen(self, model: State | None) -> None:
        """Serve unseen clients a separate model, or with None the known clients'."""
        self._put("unseen", model)

    def serve_personal(self, model: State) -> None:
        """Serve known clients a model without further training."""
        self._held["served"] = model

    def _put(self, slot: Slot, model: State | None) -> None:
        if model is None:
            self._held.pop(slot, None)
        else:
            self._held[slot] = model

    # --- state beyond the process ---------------------------------------------------------------------

    def keep(self, keep: Callable[[State], State]) -> None:
        """Let `keep` decide where each model lies; shared objects remain shared."""
        once = Once(keep)
        self._held = {slot: once(model) for slot, model in self._held.items()}

    def states(self) -> dict[str, State]:
        """Every model once, under the first of its places."""
        repeated = self.repeated()
        return {slot: self._held[slot] for slot in SLOTS if slot in self._held and slot not in repeated}

    def repeated(self) -> dict[str, str]:
        """Place → the preceding place with the same model."""
        there = [slot for slot in SLOTS if slot in self._held]
        first = {slot: next(s for s in there if self._held[s] is self._held[slot]) for slot in there}
        return {slot: same for slot, same in first.items() if slot != same}

    def restore(self, states: Mapping[str, State], repeated: Mapping[str, str]) -> None:
        """Restore the result of `states` and `repeated`.

        Raises:
            ValueError: a required model is missing, or one has another form than that of the beginning.
        """
        found = {slot: states.get(repeated.get(slot, slot)) for slot in SLOTS}
        missing = [slot for slot in _ALWAYS if found[slot] is None]
        if missing:
            raise ValueError(f"the models {', '.join(missing)} of a server must be there, but are not")
        like, once = self.model, Once(lambda model: state(model, like, "a server's model"))
        self._held = {slot: once(model) for slot, model in found.items() if model is not None}
