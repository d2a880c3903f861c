"""How a GPU computes: every sum in a fixed order, in the run's precision.

cuDNN may add the parts of a gradient in the order in which they are completed; its deterministic mode
prevents this. TF32 rounds the factors of a product to 10 bits: this is two to five times as fast on large
models, and changes results a thousand times as much as another order of sums. PyTorch uses TF32 for
convolutions by default. Source: PyTorch's notes on reproducibility, and on TensorFloat-32.

With "bf16", the forward pass of training runs under PyTorch's autocast: convolutions, matrix products and
recurrent layers take factors of 8 bits and give results of 8 bits, as do their gradients; every sum within a
product is in float32. Weights, the optimiser's memory and update, statistics of normalisation, softmax and
loss are float32. Evaluation is in float32, as with the native step. Source: Micikevicius et al. 2018, with
bfloat16, whose range needs no scaling of the loss.
"""

import os
from contextlib import AbstractContextManager, nullcontext

import torch

from fedge.config.registers.option import ConfigError

FLOAT32, TF32, BF16 = "float32", "tf32", "bf16"
_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
_AMPERE = (8, 0)  # compute capability from which a GPU multiplies bf16


def settle_gpus(precision: str) -> None:
    """Make the GPUs of this process compute reproducible bits; must be called before they are used.

    Args:
        precision: "float32", "tf32" for products of convolutions and matrices, or "bf16", whose forward pass
            is `products`; sums are in float32.
    """
    _set_workspaces()
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.allow_tf32 = precision == TF32
    torch.backends.cuda.matmul.allow_tf32 = precision == TF32
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False  # or parts are added in bf16


def _set_workspaces() -> None:
    """Give cuBLAS a workspace of fixed size for every stream, unless the environment sets one.

    PyTorch reads the size at every use but keeps the memory: a workspace made for a smaller size would be
    overrun, and with it other tensors. So existing workspaces are freed.
    """
    if _WORKSPACE in os.environ:
        return
    os.environ[_WORKSPACE] = ":4096:8"
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
        torch._C._cuda_clearCublasWorkspaces()


def products(device: torch.device, precision: str) -> AbstractContextManager[object]:
    """Context for a model's forward pass in training; with "bf16" on a GPU, products in it are rounded.

    Weights are rounded in every pass (no cache), so a pass can be recorded as a CUDA graph.
    """
    if precision != BF16 or device.type != "cuda":
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)


def refuse_gpu_without_bf16(precision: str) -> None:
    """Raise ConfigError for "bf16" on a GPU of this process that cannot multiply bf16."""
    if precision == BF16 and torch.cuda.get_device_capability() < _AMPERE:
        raise ConfigError(
            f"train.precision bf16 needs an NVIDIA GPU of the Ampere generation or newer, but a client has "
            f"{torch.cuda.get_device_name()}; set train.precision=float32, or train.device=cpu"
        )
