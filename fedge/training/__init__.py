"""Networks, local SGD and SCAFFOLD's arithmetic on arrays, independent of Flower.

`local` trains according to its `settings`, in steps of `sgd`; `evaluation` measures; `scaffold` has the
control variates, `schedule` the step size of a round. `kernels` chooses the kernel of a step; `host` and
`cuda_graph` speed up PyTorch without changing its results; `gpu` fixes the precision and order of sums on
GPUs. Inner room: `networks` has Fedge's networks and the user's, initial weights, and states as arrays.

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
