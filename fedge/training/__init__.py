"""Networks, local SGD, SCAFFOLD's arithmetic: arrays in, arrays out, nothing of Flower.

`local` trains as its `settings` say, step by step of `sgd`; `evaluation` measures; `scaffold` has the control
variates, `schedule` the step size of a round. `kernels` chooses the kernel of a step; `host` and `cuda_graph`
make PyTorch's fast without a change of its results; `gpu` settles in which precision and order GPUs add.
Inner room: `networks` has Fedge's own and the user's, their first weights, and their state as arrays.

Imports only from below: `privacy`, `states`, `timing`, `metrics`, `native` and rooms below them.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "evaluation": ["EvalResult", "evaluate", "evaluate_parts"],
        "local": ["TrainResult", "train"],
        "networks.models": ["build_model", "parameter_names"],
        "networks.module_state": ["get_state", "load_state"],
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
        "settings": ["LocalTraining"],
    },
)
