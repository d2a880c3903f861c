"""FedRevive's study on images: data and networks of the sweeps beside this file.

    python -m studies.revive MNIST.npz CIFAR10.npz

writes data/study/mnist-14.npz and data/study/cifar10-16.npz: 12,000 images each, of half their size.
"""

from studies.revive.data import halved, write
from studies.revive.network import SmallConv

__all__ = ["SmallConv", "halved", "write"]
