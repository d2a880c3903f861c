"""python -m studies.revive MNIST.npz CIFAR10.npz."""

import argparse
from pathlib import Path

from studies.revive.data import write

parser = argparse.ArgumentParser(description="Write the images of FedRevive's study.")
parser.add_argument("mnist", type=Path)
parser.add_argument("cifar10", type=Path)
parser.add_argument("--out", type=Path, default=Path("data/study"), help="folder (default: data/study)")
options = parser.parse_args()
for path in write(options.mnist, options.cifar10, options.out):
    print(path)
