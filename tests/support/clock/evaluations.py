"""Evaluations at classification, made from confusion matrices."""

import numpy as np

from fedge.exchange.evaluate import Evaluation


def classified(confusion, loss, only_one_right=None, moments=None):
    """An evaluation; of windows that only the own model has right, or only this one, if told."""
    sums = {"confusion": np.asarray(confusion, dtype=np.int64)}
    differences = None
    if only_one_right is not None:
        own, this = only_one_right
        differences = (float(this - own), float(this + own))
    return Evaluation(sums, loss, int(sums["confusion"].sum()), differences, moments)
