"""Methods of clients written a second time, from their papers, in NumPy and double precision.

Whole runs of `reference_rounds.Oracle` in which clients train by a method: what each sends, keeps, and is
served. From Fedge it takes the deal of windows and the names of the random streams.
"""

import copy
import json
import zlib
from dataclasses import dataclass, field

import numpy as np
import torch
from reference_rounds import Oracle, gradient, like, logits, mean, plus

from fedge.config.flat import from_run_config
from fedge.data.partition import partition
from fedge.seeding import Purpose, torch_stream

HEAD, BASE = ("head.weight", "head.bias"), ("hidden.weight", "hidden.bias")
METHODS = ("fedprox", "ditto", "pfedme", "apfl", "fedper", "fedrep", "fedbabu", "feddyn", "moon")


def losses(w, x, y):
    """Cross entropy of every window, (N,)."""
    z = logits(w, x)[0]
    z = z - z.max(axis=1, keepdims=True)
    return np.log(np.exp(z).sum(axis=1)) - z[np.arange(len(y)), y]


def contrast(w, shared, old, x, mu, temperature):
    """Gradient of MOON's term for windows x (N, D)."""
    own = {name: torch.tensor(array, requires_grad=True) for name, array in w.items()}
    windows = torch.tensor(x)

    def features(state):
        given = {name: torch.as_tensor(array) for name, array in state.items()}
        return torch.tanh(windows @ given["hidden.weight"].T + given["hidden.bias"])

    near, far = (
        torch.cosine_similarity(features(own), features(other), dim=1) / temperature
        for other in (shared, old)
    )
    (mu * (torch.logaddexp(near, far) - near)).mean().backward()
    return {n: np.zeros_like(w[n]) if a.grad is None else a.grad.numpy() for n, a in own.items()}


@dataclass
class MethodOracle(Oracle):
    """A run whose clients train by `train.algorithm`."""

    personal: dict = field(default_factory=dict)  # (round, client) → score, mean loss of its own model

    def __post_init__(self):
        super().__post_init__()
        dealt = partition(self.windows, from_run_config(self.options), self.sizes, self.seed)
        self.strangers = set(dealt.unseen_clients)
        self.method = self.options["train.algorithm"]
        given = json.loads(self.options["train.algorithm-args"] or "{}")
        self.given = {name.replace("-", "_"): value for name, value in given.items()}
        self.memory, self.h, self.h_of_forks = {}, [None] * len(self.leaves), {}

    # --- descent ------------------------------------------------------------------------------------------

    def batches(self, client, where, stream="", evaluates=False, epochs=None):
        """Rows of every batch of a client."""
        o, count = self.options, len(self.data[client][0][1])
        purpose = Purpose.ALGORITHM if stream or evaluates else Purpose.BATCHES
        more = (zlib.crc32(stream.encode()), int(evaluates)) if stream or evaluates else ()
        generator = torch_stream(self.seed, purpose, *where, *more)
        per_pass = -(-count // o["train.batch-size"])
        left = (epochs or o["train.local-epochs"]) * per_pass
        left = o["train.local-steps"] or left if epochs is None else left
        while left > 0:
            order = torch.randperm(count, generator=generator).numpy()
            found = np.split(order, range(o["train.batch-size"], count, o["train.batch-size"]))[:left]
            left -= len(found)
            yield from found

    def slope(self, w, client, rows, names=None, added=None):
        """Clipped gradient of a batch, of some entries."""
        x, y = self.data[client][0]
        found = gradient(w, x[rows], y[rows], self.options["train.label-smoothing"])
        found = found if added is None else plus(found, added(w, x[rows]))
        return self.clipped({name: found[name] for name in names or found})

    def clipped(self, found):
        """A gradient within `train.clip-norm`."""
        limit, norm = self.options["train.clip-norm"], np.sqrt(sum((a**2).sum() for a in found.values()))
        factor = min(1.0, limit / (norm + 1e-6)) if limit else 1.0
        return {name: factor * array for name, array in found.items()}

    def move(self, w, speed, found, start, lr, decay=0.0):
        """One step of heavy-ball SGD, in place."""
        o = self.options
        for name, g in found.items():
            drawn = o["train.prox-mu"] * (w[name] - start[name])
            g = g + drawn + (o["train.weight-decay"] + decay) * w[name]
            speed[name] = g + o["train.momentum"] * speed[name]
            w[name] = w[name] - lr * speed[name]

    def fit(self, client, start, lr, where, *, only=None, pulls=(), correction=None, added=None, **batches):
        """Local SGD from `start`, with a method's changes."""
        w, speed = dict(start), like(start)
        for rows in self.batches(client, where, **batches):
            found = self.slope(w, client, rows, only, added)
            if correction is not None:
                found = plus(found, correction)
            for strength, target in pulls:
                found = {n: g + strength * (w[n] - target[n]) for n, g in found.items()}
            self.move(w, speed, found, start, lr)
        return w

    # --- clients ------------------------------------------------------------------------------------------

    def start(self, w):
        """A client's memory before its first round, from the received model."""
        return {
            "ditto": lambda: {"v": w},
            "pfedme": lambda: {"theta": w},
            "apfl": lambda: {"v": w, "alpha": self.given["alpha"]},
            "fedper": lambda: {"head": {n: w[n] for n in HEAD}},
            "fedrep": lambda: {"head": {n: w[n] for n in HEAD}},
            "fedbabu": lambda: {"own": w},
            "feddyn": lambda: {"h": like(w)},
            "moon": lambda: {"old": w},
        }.get(self.method, dict)()

    def step(self, client, w, lr, where, memory):
        """Weights that a client sends after a leaf round from `w`; its memory goes on."""
        return getattr(self, f"_{self.method}")(client, w, lr, where, memory)

    def _fedprox(self, client, w, lr, where, memory):
        return self.fit(client, w, lr, where, pulls=[(self.given["mu"], w)])

    def _ditto(self, client, w, lr, where, memory):
        pull, epochs = [(self.given["strength"], w)], self.given["epochs"] or None
        memory["v"] = self.fit(client, memory["v"], lr, where, pulls=pull, stream="v", epochs=epochs)
        return self.fit(client, w, lr, where)

    def _pfedme(self, client, w, lr, where, memory):
        o, strength, inner = self.given, self.given["strength"], self.given["lr"] or lr
        sent, theta, speed = dict(w), dict(w), like(w)
        for rows in self.batches(client, where):
            if o["restart"]:  # a new inner problem: nothing is left of the last one
                theta, speed = dict(sent), like(w)
            for _ in range(o["inner_steps"]):
                found = self.slope(theta, client, rows)
                found = {n: g + strength * (theta[n] - sent[n]) for n, g in found.items()}
                self.move(theta, speed, found, w, inner, o["decay"])
            sent = plus(sent, plus(sent, theta, -1), -lr * strength)
        memory["theta"] = theta
        return sent

    def _apfl(self, client, w, lr, where, memory):
        begun, alpha = memory["v"], memory["alpha"]
        v, own, fast_v, fast_w = dict(begun), dict(w), like(w), like(w)
        for rows in self.batches(client, where):
            x, y = self.data[client][0]
            mixed = {n: alpha * v[n] + (1 - alpha) * own[n] for n in v}
            along = gradient(mixed, x[rows], y[rows], self.options["train.label-smoothing"])
            of_w = self.slope(own, client, rows)
            change = sum(((v[n] - own[n]) * along[n]).sum() for n in v)
            self.move(v, fast_v, self.clipped({n: alpha * g for n, g in along.items()}), begun, lr)
            self.move(own, fast_w, of_w, w, lr)
            alpha = float(np.clip(alpha - lr * change, 0, 1))
        memory.update(v=v, alpha=alpha)
        return own

    def _fedper(self, client, w, lr, where, memory):
        found = self.fit(client, {**w, **memory["head"]}, lr, where)
        memory["head"] = {n: found[n] for n in HEAD}
        return found

    def _fedrep(self, client, w, lr, where, memory):
        o, begun = self.given, {**w, **memory["head"]}
        found = self.fit(client, begun, lr, where, only=HEAD, stream="head", epochs=o["head_epochs"])
        found = self.fit(client, found, lr, where, only=BASE, epochs=o["base_epochs"])
        memory["head"] = {n: found[n] for n in HEAD}
        return found

    def _fedbabu(self, client, w, lr, where, memory):
        memory["own"] = self.fit(client, w, lr, where, only=BASE)
        return memory["own"]

    def _feddyn(self, client, w, lr, where, memory):
        alpha, linear = self.given["alpha"], {n: -a for n, a in memory["h"].items()}
        found = self.fit(client, w, lr, where, pulls=[(alpha, w)], correction=linear)
        memory["h"] = plus(memory["h"], plus(found, w, -1), -alpha)
        return found

    def _moon(self, client, w, lr, where, memory):
        old, o = memory["old"], self.given
        memory["old"] = self.fit(
            client, w, lr, where, added=lambda own, x: contrast(own, w, old, x, o["mu"], o["temperature"])
        )
        return memory["old"]

    def own_models(self, client, w, lr, number):
        """The client's own model where it is served `w`; None without one."""
        o, where, memory = self.given, (number, client), self.memory.get(client) or self.start(w)
        if client in self.strangers:
            there = {"evaluates": True}
            if self.method == "ditto":
                pull, epochs = [(o["strength"], w)], o["epochs"] or None
                return self.fit(client, w, lr, where, pulls=pull, stream="v", epochs=epochs, **there)
            if self.method == "fedper":
                return self.fit(client, w, lr, where, only=HEAD, **there)
            if self.method == "fedrep":
                return self.fit(client, w, lr, where, only=HEAD, epochs=o["head_epochs"], **there)
            if self.method != "fedbabu":
                return None
        if self.method == "fedbabu":
            start = memory["own"] if o["from_own"] and client not in self.strangers else w
            tuned = {"stream": "tune", "epochs": o["tune_epochs"], "evaluates": True}
            return self.fit(client, start, lr, where, **tuned)
        if self.method == "apfl":
            alpha = memory["alpha"]
            return {n: alpha * memory["v"][n] + (1 - alpha) * a for n, a in w.items()}
        if self.method in ("fedper", "fedrep"):
            return {**w, **memory["head"]}
        return {"ditto": memory.get("v"), "pfedme": memory.get("theta")}.get(self.method)

    # --- leaves -------------------------------------------------------------------------------------------

    def leaf_round(self, number, index, w, lr, told, line=(), moves=False):
        """As `Oracle`; memories follow the leaf's own model alone."""
        sent = {}
        for c in self._sampled(number, index, line):
            memory = dict(self.memory.get(c) or self.start(w))
            sent[c] = self.step(c, w, lr, (number, c, *line), memory)
            if moves:
                self.memory[c] = memory
        middle = mean(list(sent.values()), [self.samples[c] for c in sent])
        if self.method in ("fedper", "fedrep", "fedbabu"):
            return {**middle, **{n: w[n] for n in HEAD}}
        if self.method == "pfedme":
            beta = self.given["beta"]
            return plus({n: (1 - beta) * a for n, a in w.items()}, middle, beta)
        return self._corrected(number, index, w, sent, line, moves) if self.method == "feddyn" else middle

    def _corrected(self, number, index, w, sent, line, moves):
        """FedDyn's leaf; a fork has an h of its own, from the round in which it begins."""
        per = self.options["personal.leaf-rounds" if line else "hierarchy.leaf-rounds"]
        if not moves and (number - 1) % per == 0:
            self.h_of_forks[index] = copy.deepcopy(self.h[index])
        h = self.h[index] if moves else self.h_of_forks[index]
        h, alpha = like(w) if h is None else h, self.given["alpha"]
        for state in sent.values():
            h = plus(h, plus(state, w, -1), -alpha / len(self.leaves[index].members))
        if moves:
            self.h[index] = h
        else:
            self.h_of_forks[index] = h
        return plus(mean(list(sent.values()), [1] * len(sent)), h, -1 / alpha)

    # --- a global round -----------------------------------------------------------------------------------

    def _offer(self, labels):
        super()._offer(labels)
        for leaf, label in zip(self.leaves, labels, strict=True):
            mates = [each for each, own in zip(self.leaves, labels, strict=True) if own == label]
            of_cluster = mean([each.model for each in mates], [self._weight(each) for each in mates])
            leaf.of_cluster = None if len(mates) == 1 else of_cluster

    def global_round(self, number):
        """As `Oracle`, then clients' own models on their test windows."""
        super().global_round(number)
        lr = self.options["train.lr"] * self.options["train.lr-decay"] ** (number - 1)
        ends = np.cumsum(self.sizes)
        for client in range(int(ends[-1])):
            leaf = self.leaves[int(np.searchsorted(ends, client, side="right"))]
            w = leaf.served
            if client in self.strangers and self.options["personal.unseen-clients"] == "cluster":
                w = leaf.before_tuning if leaf.of_cluster is None else leaf.of_cluster
            own, (x, y) = self.own_models(client, w, lr, number), self.data[client][2]
            if own is not None and len(y):
                right = (logits(own, x)[0].argmax(axis=1) == y).mean()
                self.personal[number, client] = (float(right), float(losses(own, x, y).mean()))

    def _decide(self, leaf):
        found = super()._decide(leaf)
        leaf.before_tuning = leaf.served
        return found
