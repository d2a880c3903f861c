"""Whole global rounds written a second time, from the published rules, in NumPy and double precision.

An oracle for Fedge's own: it shares no arithmetic with it. From Fedge it takes the deal of windows to
clients and the names of the random streams, which are part of every result. The network has no kink
(`SmoothNet`), so single and double precision stay together: a difference is a fault, not rounding.

Rules: FedAvg (McMahan et al. 2017), FedProx (Li et al. 2020), SCAFFOLD (Karimireddy et al. 2020, option II)
on one level and, above it, the correction of MTGC (Fang et al. 2024); `weight_clustering`, the gates
"published" and "after-round", blends, fine-tuning.

Shape letters: N windows, D = channels × samples, H hidden units, Q classes.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn

from fedge.config.flat import from_run_config
from fedge.data.partition import partition
from fedge.seeding import Purpose, numpy_stream, torch_stream

HIDDEN = 6
_HEAD = "head.weight"  # the last matrix, which is compared between leaves


class SmoothNet(nn.Module):
    """One hidden layer of tanh: every derivative is continuous."""

    def __init__(self, input_shape, classes):
        super().__init__()
        self.hidden = nn.Linear(input_shape[0] * input_shape[1], HIDDEN)
        self.head = nn.Linear(HIDDEN, classes)

    def forward(self, x):
        return self.head(torch.tanh(self.hidden(x.flatten(1))))


def logits(w, x):
    """Logits (N, Q) and hidden units (N, H) of windows x (N, D)."""
    hidden = np.tanh(x @ w["hidden.weight"].T + w["hidden.bias"])
    return hidden @ w["head.weight"].T + w["head.bias"], hidden


def gradient(w, x, y, smoothing):
    """Gradient of the mean cross entropy with smoothed labels, entry by entry."""
    z, hidden = logits(w, x)
    p = np.exp(z - z.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    target = np.full_like(p, smoothing / p.shape[1])
    target[np.arange(len(y)), y] += 1 - smoothing
    dz = (p - target) / len(y)
    dh = (dz @ w["head.weight"]) * (1 - hidden**2)
    return {
        "hidden.weight": dh.T @ x,
        "hidden.bias": dh.sum(0),
        "head.weight": dz.T @ hidden,
        "head.bias": dz.sum(0),
    }


def initial_weights(seed, input_shape, classes):
    """Weights with which a run begins: drawn by the network's own code, from a stream of the seed."""
    drawn = int(torch.randint(2**62, (), generator=torch_stream(seed, Purpose.MODEL)))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(drawn)
        return {
            name: p.detach().numpy().astype(float)
            for name, p in SmoothNet(input_shape, classes).named_parameters()
        }


def mean(states, weights):
    """Weighted mean of states, entry by entry."""
    shares = np.asarray(weights, float) / np.sum(weights)
    return {name: sum(s * state[name] for s, state in zip(shares, states, strict=True)) for name in states[0]}


def plus(a, b, factor=1.0):
    """a + factor · b, entry by entry."""
    return {name: a[name] + factor * b[name] for name in a}


def like(state):
    """Zeros in the form of a state."""
    return {name: np.zeros_like(array) for name, array in state.items()}


@dataclass
class Round:
    """One global round as the oracle sees it; lists have an entry per leaf."""

    labels: list
    decisions: list
    own: list  # validation accuracy of the leaf's own model
    offered: list  # of the offer, or None
    test: list  # accuracy of what is served


@dataclass
class LeafState:
    """A leaf server between rounds."""

    members: list
    model: dict
    served: dict
    control: dict
    start: dict
    length: float = 0.0  # Σ K lr since the last cloud step, mean over windows
    correction: dict | None = None
    group: object = "all"  # those that began with the same model
    own_line: dict | None = None  # "after-round": the leaf as it were without the offer
    taken: object = None
    offer: dict | None = None


@dataclass
class Oracle:
    """A run of `options` (flat, complete) on `windows` dealt to leaves of `sizes` clients."""

    options: dict
    windows: object
    sizes: tuple
    logit_gap: float = (
        np.inf
    )  # least difference of a window's two highest logits: a rounding decides near ties
    tau_gap: float = np.inf  # least distance of a similarity from tau
    rounds: list = field(default_factory=list)

    def __post_init__(self):
        config = from_run_config(self.options)
        self.seed = self.options["seed"]
        dealt = partition(self.windows, config, self.sizes, self.seed)
        self.data = self._scaled(dealt)
        first, self.leaves = 0, []
        model = initial_weights(self.seed, self.windows.x.shape[1:], len(self.windows.classes))
        for size in self.sizes:
            members = [c for c in range(first, first + size) if c not in dealt.unseen_clients]
            self.leaves.append(LeafState(members, model, model, like(model), model))
            first += size
        self.samples = {c: len(self.data[c][0][1]) for leaf in self.leaves for c in leaf.members}
        self.client_control = {c: like(model) for leaf in self.leaves for c in leaf.members}

    def _scaled(self, dealt):
        """Splits of every client, flattened and scaled per channel by known clients' training windows."""
        known = [p for c, p in enumerate(dealt.clients) if c not in dealt.unseen_clients]
        train = np.concatenate([self.windows.x[parts[0]] for parts in known]).astype(float)
        centre, spread = train.mean(axis=(0, 2))[:, None], train.std(axis=(0, 2))[:, None]
        scaled = ((self.windows.x.astype(float) - centre) / spread).reshape(len(self.windows.y), -1)
        return [[(scaled[i], self.windows.y[i]) for i in parts] for parts in dealt.clients]

    # --- clients ------------------------------------------------------------------------------------------

    def train(self, w, client, lr, where, correction):
        """Local SGD; the new weights and the number of steps."""
        o, start, speed, steps = self.options, w, like(w), 0
        x, y = self.data[client][0]
        generator = torch_stream(self.seed, Purpose.BATCHES, *where)
        last = o["train.local-steps"] or o["train.local-epochs"] * -(-len(y) // o["train.batch-size"])
        while steps < last:
            order = torch.randperm(len(y), generator=generator).numpy()
            batches = np.split(order, range(o["train.batch-size"], len(y), o["train.batch-size"]))
            for batch in batches[: last - steps]:
                g = gradient(w, x[batch], y[batch], o["train.label-smoothing"])
                if o["train.clip-norm"]:
                    norm = np.sqrt(sum((a**2).sum() for a in g.values()))
                    g = plus(like(g), g, min(1.0, o["train.clip-norm"] / (norm + 1e-6)))
                g = plus(g, plus(w, start, -1), o["train.prox-mu"])
                if correction is not None:
                    g = plus(g, correction)
                g = plus(g, w, o["train.weight-decay"])
                speed = plus(g, speed, o["train.momentum"])
                w, steps = plus(w, speed, -lr), steps + 1
        return w, steps

    def accuracy(self, w, leaf, split):
        """Share of the leaf's windows of a split that are recognised."""
        right = windows = 0
        for client in leaf.members:
            x, y = self.data[client][split]
            z = logits(w, x)[0]
            if len(y):
                top = np.sort(z, axis=1)
                self.logit_gap = min(self.logit_gap, float((top[:, -1] - top[:, -2]).min()))
            right, windows = right + int((z.argmax(axis=1) == y).sum()), windows + len(y)
        return right / windows

    # --- leaves -------------------------------------------------------------------------------------------

    def leaf_round(self, number, index, w, lr, told, line=(), moves=False):
        """One exchange of a leaf from the model `w`; the new model. `moves`: control variates follow."""
        leaf = self.leaves[index]
        present = self._sampled(number, index, line)
        got = {}
        for c in present:
            correction = None if told is None else plus(told, self.client_control[c], -1)
            got[c] = self.train(w, c, lr, (number, c, *line), correction)
        if moves:
            weights = [steps * self.samples[c] for c, (_, steps) in got.items()]
            share = sum(weights) / sum(self.samples[c] for c in present)
            leaf.length += lr / (1 - self.options["train.momentum"]) * share
            if told is not None:
                self._move_controls(leaf, w, told, got, lr)
        return mean([state for state, _ in got.values()], [self.samples[c] for c in present])

    def _sampled(self, number, index, line):
        members = self.leaves[index].members
        count = max(1, round(self.options["hierarchy.fraction-train"] * len(members)))
        if count == len(members):
            return members
        rng = numpy_stream(self.seed, Purpose.SAMPLING, number, index, *line)
        return sorted(rng.choice(members, size=count, replace=False).tolist())

    def _move_controls(self, leaf, start, told, got, lr):
        """c_i⁺ = c_i − told + (x − y)(1 − m) / (K lr); c⁺ = c + Σ n_i / n · Δc_i, n over all clients."""
        total = sum(self.samples[c] for c in leaf.members)
        for c, (state, steps) in got.items():
            path = plus(
                like(start), plus(start, state, -1), (1 - self.options["train.momentum"]) / (steps * lr)
            )
            delta = plus(path, told, -1)
            self.client_control[c] = plus(self.client_control[c], delta)
            leaf.control = plus(leaf.control, delta, self.samples[c] / total)

    # --- a global round -----------------------------------------------------------------------------------

    def run(self):
        """All rounds; the served models, a state per leaf."""
        for number in range(1, self.options["num-server-rounds"] + 1):
            self.global_round(number)
        return [leaf.served for leaf in self.leaves]

    def global_round(self, number):
        o = self.options
        lr = o["train.lr"] * o["train.lr-decay"] ** (number - 1)
        per = o["hierarchy.leaf-rounds"]
        for leaf_round in range((number - 1) * per + 1, number * per + 1):
            for index, leaf in enumerate(self.leaves):
                self._train_leaf(leaf_round, index, leaf, lr)
        labels = self._labels()
        trained = [leaf.model for leaf in self.leaves]
        self._offer(labels)
        decisions = [self._decide(leaf) for leaf in self.leaves]
        if o["scaffold.enabled"] and o["scaffold.levels"] == 2:
            self._correct(trained)
        for leaf in self.leaves:
            leaf.start, leaf.length = leaf.model, 0.0
        if o["personal.leaf-rounds"] and number == o["num-server-rounds"]:
            for index, leaf in enumerate(self.leaves):
                self._personalise(number, index, leaf, lr)
        test = [self.accuracy(leaf.served, leaf, 2) for leaf in self.leaves]
        self.rounds.append(Round(labels, *map(list, zip(*decisions, strict=True)), test))

    def _train_leaf(self, number, index, leaf, lr):
        told = None
        if self.options["scaffold.enabled"]:
            told = leaf.control if leaf.correction is None else plus(leaf.control, leaf.correction)
        if leaf.own_line is not None:  # with the same controls as the leaf's model, so before they move
            leaf.own_line = self.leaf_round(number, index, leaf.own_line, lr, told)
        leaf.model = self.leaf_round(number, index, leaf.model, lr, told, moves=True)

    def _weight(self, leaf):
        return sum(self.samples[c] for c in leaf.members)

    def _labels(self):
        """Connected components of |cos| ≥ tau of the last matrices, numbered in order of their first leaf."""
        v = [leaf.model[_HEAD].ravel() / np.linalg.norm(leaf.model[_HEAD]) for leaf in self.leaves]
        alike = np.abs(np.array(v) @ np.array(v).T)
        tau = self.options["cluster.tau"]
        off = alike[~np.eye(len(v), dtype=bool)]
        if off.size:
            self.tau_gap = min(self.tau_gap, float(np.abs(off - tau).min()))
        labels = list(range(len(v)))
        for a in range(len(v)):
            for b in range(len(v)):
                if alike[a, b] >= tau:
                    low, high = sorted((labels[a], labels[b]))
                    labels = [low if label == high else label for label in labels]
        order = list(dict.fromkeys(labels))
        return [order.index(label) for label in labels]

    def _offer(self, labels):
        """Offers of the cloud: the cluster's mean, blended with the mean of all where there are several."""
        everybody = mean([leaf.model for leaf in self.leaves], [self._weight(leaf) for leaf in self.leaves])
        blend = 1.0 if len(set(labels)) == 1 else self.options["cluster.blend"]
        models = {}
        for label in set(labels):
            mates = [leaf for leaf, own in zip(self.leaves, labels, strict=True) if own == label]
            middle = mean([leaf.model for leaf in mates], [self._weight(leaf) for leaf in mates])
            alone = blend == 1.0 and len(mates) == 1
            models[label] = None if alone else mean([middle, everybody], [blend, 1 - blend])
        for leaf, label in zip(self.leaves, labels, strict=True):
            leaf.offer, leaf.taken = models[label], None
            leaf.offer_key = (label, blend)

    def _decide(self, leaf):
        """(decision, accuracy of the own model, of the offer) of a leaf, which goes on accordingly."""
        o = self.options
        if o["gate.rule"] == "after-round" and o["gate.enabled"]:
            return self._decide_late(leaf)
        own = self.accuracy(leaf.model, leaf, 1)
        if leaf.offer is None:
            leaf.served = leaf.model
            return "off", own, None
        offered = self.accuracy(leaf.offer, leaf, 1)
        takes = not o["gate.enabled"] or offered >= own + o["gate.min-gain"]
        if takes:
            leaf.model, leaf.taken = leaf.offer, leaf.offer_key
        leaf.served = leaf.model
        return ("accepted" if takes else "rejected") if o["gate.enabled"] else "off", own, offered

    def _decide_late(self, leaf):
        """The last offer is judged now that it has trained on; then the new one is taken on trial."""
        decision, own, offered = "off", self.accuracy(leaf.model, leaf, 1), None
        if leaf.own_line is not None:
            own, offered = self.accuracy(leaf.own_line, leaf, 1), own
            takes = offered >= own + self.options["gate.min-gain"]
            decision = "accepted" if takes else "rejected"
            leaf.model = leaf.model if takes else leaf.own_line
        leaf.served, leaf.own_line = leaf.model, None
        if leaf.offer is not None:
            leaf.own_line, leaf.model, leaf.taken = leaf.served, leaf.offer, leaf.offer_key
        return decision, own, offered

    def _correct(self, trained):
        """u_j = mean of drifts of those that began and go on together, minus its own drift."""
        drifts = []
        for leaf, model in zip(self.leaves, trained, strict=True):
            path = plus(like(model), plus(leaf.start, model, -1), 1 / leaf.length)
            drifts.append(path if leaf.correction is None else plus(path, leaf.correction, -1))
        corrections = []
        for leaf, drift in zip(self.leaves, drifts, strict=True):
            mates = [
                n for n, other in enumerate(self.leaves)
                if None not in (leaf.taken, leaf.group)
                and (other.taken, other.group) == (leaf.taken, leaf.group)
            ]  # fmt: skip
            weights = [self._weight(self.leaves[n]) for n in mates]
            alone = len(mates) < 2
            corrections.append(None if alone else plus(mean([drifts[n] for n in mates], weights), drift, -1))
        for leaf, correction in zip(self.leaves, corrections, strict=True):
            leaf.correction, leaf.group = correction, leaf.taken

    def _personalise(self, number, index, leaf, lr):
        """Fine-tuning without controls of the served model; served unless worse."""
        rounds, tuned = self.options["personal.leaf-rounds"], leaf.served
        for leaf_round in range((number - 1) * rounds + 1, number * rounds + 1):
            tuned = self.leaf_round(leaf_round, index, tuned, lr, None, line=(int(Purpose.PERSONAL),))
        if self.accuracy(tuned, leaf, 1) >= self.accuracy(leaf.served, leaf, 1):
            leaf.served = tuned
