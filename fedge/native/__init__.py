"""Native step: training and evaluation of common networks in C++, faster than in PyTorch (docs/native.md).

`trace` records the operations of an `nn.Module`, with the handlers of `operations`; `program` encodes them,
`plan` compares the result with PyTorch, and `training` runs it through `library`. The C++ is in ``src``,
compiled by `build`. Unsupported operations are reported in words, and PyTorch computes them.

Imports only from below: `flower`, `process`, `seeding` and rooms below them; it needs none of them.
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
