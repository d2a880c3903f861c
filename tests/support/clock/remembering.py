"""Devices of a small world (`virtual_world`) with a memory: Ditto's in two numbers, in files of a folder.

    v ← (v + w) / 2, at first v = w, the model received;   sent is w + 1 + d + m, d the device's number

m is what the leaf sends beside the model, 0 without a leaf part. A device is evaluated with v.
"""

from typing import ClassVar

import numpy as np
from evaluations import classified
from flwr.clientapp import ClientApp

from fedge.algorithm.leaf_part import LeafPart
from fedge.client.memory import keep_memory, memory_in
from fedge.devices.clients.algorithms import ClockAlgorithms
from fedge.exchange.algorithm import OWN_MODELS, ReplyForm, leaf_part_arrays, memory_place
from fedge.exchange.content import ARRAYS, arrays_of
from fedge.exchange.evaluate import evaluate_reply, models_to_evaluate, splits_to_evaluate
from fedge.exchange.round_context import RoundContext
from fedge.exchange.train import train_reply
from fedge.leaf.algorithm import LeafAlgorithm
from fedge.training.local import TrainResult

WINDOWS = 4
PERSONAL = f"{OWN_MODELS}/personal"


class Adding(LeafPart):
    """m ← m + mean of the devices' numbers a; the model is the mean, and m on top."""

    def start(self, model):
        return {"m": 0.0}

    def send(self, memory):
        return memory

    def combine(self, leaf):
        if leaf.means["a"] < 0:
            raise ValueError("a must not be negative")
        leaf.memory["m"] += float(leaf.means["a"])
        return {**leaf.mean, "w": leaf.mean["w"] + np.float32(leaf.memory["m"])}


class Halfway(LeafPart):
    """Half of the way to what the rule has made."""

    reads_replies: ClassVar[bool] = False

    def combine(self, leaf):
        assert not leaf.brought
        return {**leaf.mean, "w": (leaf.model["w"] + leaf.mean["w"]) / 2}


class Remembering:
    """Devices with such a memory, and their leaves.

    Beside the model they send a = device + attempt if the leaf part reads replies; `told` has others, by
    (device, attempt).
    """

    def __init__(self, folder, part=LeafPart, fails=(), told=None, only_w=False):
        self.folder, self.part, self.fails, self.told, self.only_w = folder, part, fails, told or {}, only_w
        self.sends = part.combines() and part.reads_replies
        entries = ("w",) if only_w else ("w", "steps")
        arrays = {"a": ((), np.dtype(float).str)} if self.sends else {}
        self.form = ReplyForm(entries, arrays, keeps=True, models=("personal",))

    def at_leaves(self, who, model):
        """The leaves' sides of it."""
        leaves = [
            LeafAlgorithm(self.part(), self.form, str(self.folder), model, ["w"]) for _ in range(who.leaves)
        ]
        return ClockAlgorithms(leaves, who, lambda period: 0.1, seed=0)

    def app(self):
        """The devices."""
        made = ClientApp()

        @made.train()
        def train(message, context):
            device, context_ = int(context.node_config["partition-id"]), RoundContext.from_message(message)
            attempt = context_.leaf_round
            if (device, attempt) in self.fails:
                raise RuntimeError("lost")
            start, m = arrays_of(message, ARRAYS), leaf_part_arrays(message).get("m", np.array(0.0))
            place = memory_place(message)
            memory, _ = memory_in(place, device, {})
            v = start["w"] if memory is None else memory["v"]
            after = {"v": (v + start["w"]) / np.float32(2)}
            kept, _ = keep_memory(place, device, attempt, after, {}, {})
            state = {"w": start["w"] + np.float32(1 + device + m), "steps": start["steps"] + 1}
            extra = {"a": np.array(self.told.get((device, attempt), float(device + attempt)))}
            return train_reply(
                message, TrainResult({name: state[name] for name in self.form.entries}, 1.0, 1), WINDOWS, 0.0,
                extra=extra if self.sends else None, kept=kept,
            )  # fmt: skip

        @made.evaluate()
        def evaluate(message, context):
            device, found = int(context.node_config["partition-id"]), {}
            memory, _ = memory_in(memory_place(message), device, {})
            for role, state in models_to_evaluate(message):
                v = state["w"] if memory is None else memory["v"]
                name, number = (PERSONAL, v[0]) if role == OWN_MODELS else (role, state["w"][0])
                for split in splits_to_evaluate(message):
                    found[name, split] = classified(np.array([[1, 1], [0, 2]]), float(number))
            return evaluate_reply(message, found)

        return made
