"""Detection of networks returning probabilities where the loss of a task expects logits."""

import torch
from torch import Tensor, nn

from fedge.config.registers.failing import own_errors

_INPUTS = 10
_FAR = 1e3  # inputs so large that logits leave [0, 1]


def last_function(network: nn.Module, input_shape: tuple[int, ...], tokens: bool) -> str:
    """The function a new network seems to end with: "softmax", "sigmoid", or "" for neither.

    Softmax: outputs of at least 0 that sum to 1 over axis 1. Sigmoid: outputs between 0 and 1 even for very
    large inputs; token networks cannot be given such inputs, so only softmax is detected there.

    Args:
        network: network with its initial weights; left in training mode.
        input_shape: shape of one example.
        tokens: inputs are int64.

    >>> last_function(nn.Sequential(nn.Linear(4, 3), nn.Softmax(1)), (4,), tokens=False)
    'softmax'
    >>> last_function(nn.Linear(4, 3), (4,), tokens=False)
    ''
    """
    if tokens:
        x = torch.zeros(_INPUTS, *input_shape, dtype=torch.int64)
    else:
        x = torch.randn(_INPUTS, *input_shape, generator=torch.Generator().manual_seed(0))
    try:
        outputs = _evaluate_network(network, x)
        extreme = outputs if tokens else _evaluate_network(network, _FAR * x)
    except own_errors():  # the network takes no generated inputs, such as floats that it uses as indices
        return ""
    if outputs.shape[1] > 1 and _sums_to_one(outputs) and _sums_to_one(extreme):
        return "softmax"
    is_share = bool(
        (outputs > 0).all() and (outputs < 1).all() and (extreme >= 0).all() and (extreme <= 1).all()
    )
    return "sigmoid" if is_share and not tokens else ""


def _evaluate_network(network: nn.Module, x: Tensor) -> Tensor:
    """Answers in evaluation mode, (N, …)."""
    try:
        with torch.no_grad():
            answers: Tensor = network.eval()(x)
        return answers
    finally:
        network.train()


def _sums_to_one(answers: Tensor) -> bool:
    """Whether answers are shares of 1 over axis 1."""
    sums = answers.sum(1)
    return bool((answers >= 0).all()) and torch.allclose(sums, torch.ones_like(sums), atol=1e-4)
