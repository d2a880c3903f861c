"""Networks, local SGD, SCAFFOLD's arithmetic: arrays in, arrays out, nothing of Flower.

`local` trains and evaluates, `models` has the networks by name, `scaffold` the control variates, `schedule`
the step size of a round; `kernels` chooses what computes a step; `layout` and `cuda_graph` make PyTorch's
fast and change nothing in what it computes; `gpu` settles in which precision and order GPUs add.

Imports only from below: `privacy`, `states`, `timing`, `metrics`, `native` and what is under them.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "local": [
            "EvalResult",
            "LocalTraining",
            "TrainResult",
            "evaluate",
            "evaluate_parts",
            "get_state",
            "load_state",
            "train",
        ],
        "models": ["build_model", "parameter_names"],
        "scaffold": [
            "control_delta",
            "correction",
            "leaf_control",
            "leaf_corrections",
            "updated_client_control",
            "updated_server_control",
            "zero_control",
        ],
        "schedule": ["local_training"],
    },
)
