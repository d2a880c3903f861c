"""The native step: training and evaluation of common networks in C++, faster than PyTorch's (docs/native.md).

`trace` finds an `nn.Module`'s operations, with `operations`; `program` writes them down, `plan` compares it
with PyTorch, `training` carries it out through `library`. The C++ lies in ``src``, and `build` compiles it.
Operations unknown to the native step are reported in words, and PyTorch computes them.

Imports only from below: `flower`, `process`, `seeding` and rooms below them; it needs neither.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "build": ["BuildError"],
        "library": ["UnavailableError", "best_kernel"],
        "plan": ["Plan", "plan_of"],
        "trace": ["UnknownError"],
    },
)
