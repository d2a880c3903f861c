"""HierFAVG on MNIST as one plain loop of PyTorch: it shows whether a missed row is due to Fedge.

    python -m studies.tables.plain MNIST.npz 15-4 [--rounds 100] [--seed 1] [--dropout 0.5] [--classes 1]

Fifty clients of one class each under five edges with every class each (edge-iid), κ1 local steps and κ2 edge
rounds; settings of hierfavg/as-published.toml. Nothing of Fedge's rounds, training or data is used. Prints
the cloud's accuracy on all test images after each global round.

Source: Liu, Zhang, Song, Letaief 2020, arXiv:1905.06641.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from studies.tables.networks import HierLeNet

EDGES, CLASSES, BATCH, LR, DECAY = 5, 10, 20, 0.01, 0.995
MEAN, STD = 0.1307, 0.3081  # of MNIST's training pixels
GOAL = 0.85
Weights = list[Tensor]


def deal(labels: np.ndarray, rng: np.random.Generator, per_client: int = 1) -> list[list[Tensor]]:
    """Indices of each client's images, per edge: client c has classes c, c + 1, …, in equal parts.

    Args:
        labels: (N,) of the training images.
        rng: shuffles each class.
        per_client: number of classes of a client.
    """
    pieces = [
        np.array_split(rng.permutation(np.flatnonzero(labels == c)), EDGES * per_client)
        for c in range(CLASSES)
    ]
    return [
        [
            torch.from_numpy(
                np.concatenate([pieces[(c + j) % CLASSES][edge * per_client + j] for j in range(per_client)])
            )
            for c in range(CLASSES)
        ]
        for edge in range(EDGES)
    ]


def batches(images: Tensor) -> Iterator[Tensor]:
    """Batches of a client's images, pass after pass, each in a new order."""
    while True:
        yield from images[torch.randperm(len(images))].split(BATCH)


def mean(models: Sequence[Weights], sizes: Sequence[int]) -> Weights:
    """Mean of models, weighted by numbers of images."""
    shares = [size / sum(sizes) for size in sizes]
    return [
        sum(share * w for share, w in zip(shares, parameter, strict=True))
        for parameter in zip(*models, strict=True)
    ]


class Hierarchy:
    """Fifty clients under five edges under a cloud."""

    def __init__(self, net: nn.Module, x: Tensor, y: Tensor, clients: list[list[Tensor]]) -> None:
        """Hierarchy of clients training on images x (N, …) with classes y (N,)."""
        self.net, self.x, self.y = net, x, y
        self.sizes = [[len(images) for images in edge] for edge in clients]
        self._batches = [[batches(images) for images in edge] for edge in clients]
        self.cloud: Weights = [w.detach().clone() for w in net.parameters()]

    def put(self, model: Weights) -> None:
        """Set the network's weights."""
        with torch.no_grad():
            for parameter, value in zip(self.net.parameters(), model, strict=True):
                parameter.copy_(value)

    def client(self, model: Weights, stream: Iterator[Tensor], steps: int, lr: float) -> Weights:
        """A client's model after local steps of SGD from `model`."""
        self.put(model)
        self.net.train()
        weights = list(self.net.parameters())
        for _ in range(steps):
            batch = next(stream)
            loss = F.cross_entropy(self.net(self.x[batch]), self.y[batch])
            slopes = torch.autograd.grad(loss, weights)
            with torch.no_grad():
                for weight, slope in zip(weights, slopes, strict=True):
                    weight.sub_(slope, alpha=lr)
        return [w.detach().clone() for w in weights]

    def round(self, steps: int, edge_rounds: int, lr: float) -> None:
        """One global round."""
        edges = []
        for streams, sizes in zip(self._batches, self.sizes, strict=True):
            model = self.cloud
            for _ in range(edge_rounds):
                model = mean([self.client(model, stream, steps, lr) for stream in streams], sizes)
            edges.append(model)
        self.cloud = mean(edges, [sum(sizes) for sizes in self.sizes])

    def accuracy(self, x: Tensor, y: Tensor) -> float:
        """Share of images classified correctly by the cloud's model."""
        self.put(self.cloud)
        self.net.eval()
        with torch.no_grad():
            return float((self.net(x).argmax(1) == y).float().mean())


def main() -> None:
    """Carry out the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("mnist", type=Path, help="x (N, 28, 28) uint8, y (N,), split or part (N,)")
    parser.add_argument("kappa", help="κ1-κ2, as 15-4")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dropout", type=float, default=0.5)
    parser.add_argument("--classes", type=int, default=1, help="of each client")
    options = parser.parse_args()
    steps, edge_rounds = map(int, options.kappa.split("-"))
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    with np.load(options.mnist) as file:
        x = torch.from_numpy(file["x"].reshape(-1, 1, 28, 28).astype(np.float32) / 255)
        y, split = file["y"].astype(np.int64), file["split" if "split" in file.files else "part"]
    x, test = (x - MEAN) / STD, torch.from_numpy(split == "test")
    net = HierLeNet((1, 28, 28), CLASSES, options.dropout)
    labels = torch.from_numpy(y)
    clients = deal(y[split == "train"], np.random.default_rng(options.seed), options.classes)
    hierarchy = Hierarchy(net, x[~test], labels[~test], clients)
    reached = 0
    for number in range(1, options.rounds + 1):
        hierarchy.round(steps, edge_rounds, LR * DECAY ** (number - 1))
        score = hierarchy.accuracy(x[test], labels[test])
        reached = reached or (number if score >= GOAL else 0)
        print(f"round {number}  accuracy {score:.4f}", flush=True)
    print(f"{GOAL:.0%} in round {reached}" if reached else f"{GOAL:.0%} not reached")


if __name__ == "__main__":
    main()
