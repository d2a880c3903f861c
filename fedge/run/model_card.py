"""Card of a run's final models: how they were trained, and which clients each serves."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from fedge.config.config import Config
from fedge.data.prepared import DataShape
from fedge.inference.card import Card, Served
from fedge.leaf.leaf import Leaf
from fedge.process.versions import versions
from fedge.run.preparation.data_facts import DataFacts
from fedge.run.preparation.parts import described_parts
from fedge.tasks.configured import task_of
from fedge.training.networks.fitting import fit_of

_ABOUT = ("rate_hz", "units", "window_s")  # needed to record windows of the same kind


def card_of(config: Config, facts: DataFacts, shape: DataShape) -> Card:
    """Card of the models, as far as it is known before training.

    Args:
        config: the run's configuration.
        facts: facts of the raw windows.
        shape: sizes and scale of clients' windows.
    """
    code = described_parts(config).get("train.model", {})
    return Card(
        fedge=versions()["fedge"],
        model=config.train.model,
        arguments=config.train.arguments("model"),
        code={key: code[key] for key in ("package", "version", "sha256")} if code else {},
        input_shape=tuple(shape.input_shape),
        dtype=facts.dtype,
        channels=tuple(facts.channels),
        classes=tuple(facts.classes),
        mean=shape.mean,
        std=shape.std,
        about={key: facts.about[key] for key in _ABOUT if key in facts.about},
        says=task_of(config.train).says,
        answer=fit_of(config.train, shape.classes, shape.y_shape, tokens=shape.tokens).answer,
    )


@dataclass(frozen=True)
class Members:
    """Clients under a leaf.

    Attributes:
        index: number of the leaf.
        clients: training clients.
        unseen_clients: clients held out of training.
        weight: training windows of all training clients.
    """

    index: int
    clients: Sequence[int]
    unseen_clients: Sequence[int]
    weight: int


def with_served(card: Card, leaves: Sequence[Leaf | Members], others: Collection[int]) -> Card:
    """Card with the clients served by each stored model.

    Args:
        card: the run's card.
        leaves: all leaves, in order.
        others: leaves serving another model to their unseen clients.
    """
    served = {}
    for leaf in leaves:
        training, unseen = tuple(leaf.clients), tuple(leaf.unseen_clients)
        is_other = leaf.index in others
        clients = training if is_other else (*training, *unseen)
        served[f"leaf-{leaf.index}"] = Served(leaf.index, clients, not is_other, leaf.weight)
        if is_other:
            served[f"unseen-{leaf.index}"] = Served(leaf.index, unseen, True, leaf.weight)
    return replace(card, served=served)
