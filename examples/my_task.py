"""A learning task: counts of events by Poisson regression, with its score and its data."""

import numpy as np
import torch

from fedge.tasks import Score, Task
from hhar import Windows


class Counts(Task):
    """y is float32 (N,), answers are log rates (N, 1)."""

    scores = (
        Score("deviance", lambda s: float(s["deviance"]) / int(s["n"]), higher_is_better=False, lowest=0.0),
    )
    takes = "float32 (N,), counts"
    least_loss = -1e30

    def refuse(self, y, outputs):
        """Refuse targets (N,) that are not counts."""
        if y.dtype != np.float32 or y.ndim != 1 or (y < 0).any():
            raise ValueError(f"y must be float32 (N,) and 0 or more, is {y.dtype} {y.shape}")

    def losses(self, answers, y, smoothing=0.0):
        """Loss of each example, (N,)."""
        return answers[:, 0].exp() - y * answers[:, 0]

    def form(self, outputs):
        """Sums over zero examples: float64 () and int64 ()."""
        return {"deviance": np.zeros(()), "n": np.zeros((), np.int64)}

    def values(self, answers, y):
        """Value of each answer for paired tests, (N,): minus its deviance."""
        rate, y = answers[:, 0].double().exp(), y.double()
        return -2 * (torch.special.xlogy(y, y / rate) - (y - rate))

    def sums(self, answers, y):
        """Sums over examples, as in `form`."""
        return {"deviance": -self.values(answers, y).sum(), "n": torch.tensor(len(y))}


def visits(users: int = 8) -> Windows:
    """Rows of three numbers with counts drawn from them, 40 of each user."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40 * users, 3)).astype(np.float32)
    y = rng.poisson(np.exp(x @ [0.5, -0.3, 0.0] + 0.2)).astype(np.float32)
    user = np.repeat([f"shop-{number}" for number in range(users)], 40)
    return Windows(x, y, user, None, None, classes=("visits",), channels=("a", "b", "c"))
