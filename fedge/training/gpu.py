"""How a GPU computes: every sum in a fixed order, in the run's precision.

cuDNN may add the parts of a gradient in any order of completion; its deterministic mode prevents this. TF32
rounds the factors of a product to 10 bits: two to five times as fast on large models, and a thousand times as
far from float32 as another order of sums is. PyTorch uses TF32 for convolutions by default. Source: PyTorch's
notes on reproducibility, and on TensorFloat-32.
"""

import os

import torch

FLOAT32, TF32 = "float32", "tf32"
_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"


def settle_gpus(precision: str) -> None:
    """Have the GPUs of this process compute the same bits again and again; called before they are used.

    Args:
        precision: "float32", or "tf32" for products of convolutions and matrices; sums are in float32.
    """
    os.environ.setdefault(_WORKSPACE, ":4096:8")  # cuBLAS: memory of a fixed size for every stream
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.allow_tf32 = precision == TF32
    torch.backends.cuda.matmul.allow_tf32 = precision == TF32
