"""Projects of users with a method of their own: files in an empty folder, and options."""

DITTO = '''
"""Ditto, from the paper's text (Li et al. 2021, algorithm 1)."""

from fedge.algorithm import Algorithm


class Ditto(Algorithm):
    """v_k of client k descends on F_k(v) + lam/2 |v - w|^2; w is averaged."""

    def __init__(self, lam=1.0):
        self.lam = lam

    def start(self, client):
        return {"v": client.received}

    def train(self, client):
        own = client.fit(client.memory["v"], pull=(self.lam, client.received), stream="v")
        client.memory["v"] = own.state
        return client.fit()

    def models(self, client):
        return {"personal": client.memory["v"]}
'''

SOFT = '''
"""The soft family of models, from its formulas: K models, a mixture for each leaf; split and merge."""

import numpy as np

from fedge.clustering import CloudPart, Family


def apart(one, other):
    return ((one[:, None] - other[None]) ** 2).sum(axis=2)


class Soft(CloudPart):
    needs = frozenset({"dispersion"})

    def __init__(self, dial=0.5, warmup=5, rho=0.5, beta=1.0, most=10):
        self.tau, self.split, self.merge = 10 ** (1 - 2 * dial), 1 + 4 * (1 - dial), 0.05 + 0.95 * (1 - dial)
        self.warmup, self.rho, self.beta, self.most = warmup, rho, beta, most

    def group(self, cloud):
        w, intra = np.asarray(cloud.vectors, dtype=float), np.asarray(cloud.dispersion)
        label = np.asarray(cloud.memory.get("label", np.zeros(len(w), int)))
        groups = [list(np.flatnonzero(label == k)) for k in range(label.max() + 1)]
        if cloud.global_round > self.warmup:
            groups = self.merged(w, self.parted(w, groups, intra))
        centres = np.array([w[group].mean(axis=0) for group in groups])
        d2 = apart(w, centres)
        d2 = d2 / np.maximum(d2.mean(axis=1, keepdims=True), 1e-8)
        tau = self.tau * (1 + self.beta * intra / max(intra.mean(), 1e-8))
        pi = np.exp(-(d2 - d2.min(axis=1, keepdims=True)) / tau[:, None])
        pi /= pi.sum(axis=1, keepdims=True)
        before = cloud.memory.get("pi")
        if before is not None and before.shape == pi.shape:
            pi = (1 - self.rho) * before + self.rho * pi
            pi /= pi.sum(axis=1, keepdims=True)
        label = np.zeros(len(w), int)
        for k, group in enumerate(groups):
            label[group] = k
        cloud.memory.update(label=label, pi=pi)
        return Family(pi)

    def parted(self, w, groups, intra):
        at = 0
        while at < len(groups) and len(groups) < min(self.most, len(w)):
            group = groups[at]
            loud = intra[group].max() / max(intra[group].mean(), 1e-8)
            vector = np.linalg.eigh(apart(w[group], w[group]))[1][:, -1]
            first = [leaf for leaf, entry in zip(group, vector) if entry > np.median(vector)]
            second = [leaf for leaf in group if leaf not in first]
            if len(group) > 1 and loud > self.split and first and second:
                groups[at] = first
                groups.append(second)
                at = 0
            else:
                at += 1
        return groups

    def merged(self, w, groups):
        while len(groups) > 1:
            centres = np.array([w[group].mean(axis=0) for group in groups])
            one, other = np.triu_indices(len(groups), 1)
            pairs = apart(centres, centres)[one, other]
            least = pairs.argmin()
            if pairs[least] / max(pairs.mean(), 1e-8) >= self.merge:
                break
            groups[one[least]] += groups.pop(other[least])
        return groups
'''

_SMALL = {
    "num-server-rounds": 3, "train.local-epochs": 1, "train.model": "linear", "clients": 9,
    "scaffold.enabled": False, "gate.enabled": False, "report": False, "data.synthetic-users": 9,
}  # fmt: skip
_SOFT = {"cluster.method-args.dial": 1.0, "cluster.method-args.warmup": 1, "hierarchy.num-servers": 4}
FILES = {"ditto": {"mine.py": DITTO.lstrip()}, "soft": {"mine.py": SOFT.lstrip()}, "adapters": {}}
MOST_LINES = {"ditto": 60, "soft": 100}
OWN = {
    "ditto": {**_SMALL, "train.algorithm": "mine:Ditto", "train.algorithm-args.lam": 0.5},
    "soft": {**_SMALL, **_SOFT, "clients": 12, "data.synthetic-users": 12, "cluster.method": "mine:Soft"},
    "adapters": {
        **_SMALL, "train.model": "my_lora:Transformer", "train.model-args.hidden": 16,
        "train.exchange": "trainable",
    },
}  # fmt: skip
# the same by what comes with Fedge; of the adapters with whole models sent
FEDGES = {
    "ditto": {**OWN["ditto"], "train.algorithm": "ditto"},
    "soft": {**OWN["soft"], "cluster.method": "soft-family"},
    "adapters": {**OWN["adapters"], "train.exchange": "all"},
}
FEDGES["ditto"] = {k: v for k, v in FEDGES["ditto"].items() if not k.startswith("train.algorithm-args")} | {
    "train.algorithm-args.strength": 0.5
}
