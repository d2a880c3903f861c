"""Use of trained models: raw windows in, class probabilities out (docs/use.md).

`card` describes a file of models, `models` opens such a file and selects a model, `windows` reads the windows
to classify, `placement` finds the best-fitting model, `network` adds scaling to a network, `export` writes it
for other programs.

Imports only from below: `data`, `datasets`, `link`, `training` and rooms below them.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "card": ["Card", "read_card"],
        "export": ["write_onnx", "write_torchscript"],
        "models": ["Choice", "Models", "Prediction"],
        "network": ["Classifier", "probabilities"],
        "placement": ["best_fit", "input_misfit"],
        "windows": ["RawWindows", "read_raw_windows"],
    },
)
