"""The native step: training and evaluation of common networks in C++, some three times as fast (docs/native.md).

`trace` finds what an `nn.Module` does, `program` writes it down, `plan` compares it with PyTorch, `training` carries
it out through `library`; the sources lie in ``src``, and `build` compiles them. What it does not know is told in
words, and PyTorch trains that.

Imports from `fedge` only itself; PyTorch and NumPy beside it.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "build": ["BuildError", "build"],
        "library": ["UnavailableError", "best_kernel"],
        "plan": ["Plan", "plan_of"],
        "trace": ["UnknownError", "trace"],
    },
)
