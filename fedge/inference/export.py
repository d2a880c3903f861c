"""A trained model as a file for other programs: ONNX or TorchScript, raw windows in, probabilities out.

A written file is accepted only after it has been read back and compared with the model on batches of several
sizes.
"""

import importlib
import importlib.util
import logging
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedge.config.registers.option import ConfigError
from fedge.inference.card import NUMBERS, Card
from fedge.inference.network import Classifier
from fedge.process.durable import output_file

TOLERANCE = 1e-5  # of a probability; of numbers relative to the largest, if above 1
_REQUIRED = ("onnx", "onnxscript", "onnxruntime")
_COUNTS = (2, 1, 5)  # windows at a time; the model is traced with the first

Run = Callable[[np.ndarray], np.ndarray]


def write_onnx(classifier: Classifier, card: Card, path: Path) -> float:
    """Write an ONNX file with input "windows" (any number, …) and output "probabilities".

    Returns:
        The largest difference of a probability from the model's.

    Raises:
        ConfigError: a package is missing, the network cannot be written, or the file computes something else.
    """
    missing = [name for name in _REQUIRED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"--onnx needs {', '.join(missing)}, not installed here; pip install 'fedge[onnx]'")
    onnxruntime: Any = importlib.import_module("onnxruntime")

    def write(part: Path) -> None:
        (example,) = _examples(card)[:1]
        torch.onnx.export(
            classifier, (torch.from_numpy(example),), str(part), input_names=["windows"],
            output_names=["probabilities"], dynamic_shapes={"x": {0: torch.export.Dim("windows", min=1)}},
            dynamo=True, external_data=False,
        )  # fmt: skip

    def read(part: Path) -> Run:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(str(part), options, providers=["CPUExecutionProvider"])
        return lambda x: session.run(["probabilities"], {"windows": x})[0]

    return _write(classifier, card, path, write, read)


def write_torchscript(classifier: Classifier, card: Card, path: Path) -> float:
    """Write a TorchScript file, for `torch.jit.load`; otherwise as `write_onnx`."""

    def write(part: Path) -> None:
        with torch.no_grad():
            traced = torch.jit.trace(classifier, torch.from_numpy(_examples(card)[0]), check_trace=False)
        part.write_bytes(traced.save_to_buffer())  # on a full disk its own `save` ends the process

    def read(part: Path) -> Run:
        loaded = torch.jit.load(str(part))
        return lambda x: loaded(torch.from_numpy(x)).numpy()

    return _write(classifier, card, path, write, read)


def _write(
    classifier: Classifier,
    card: Card,
    path: Path,
    write: Callable[[Path], None],
    read: Callable[[Path], Run],
) -> float:
    """Write a file under a temporary name, compare it, and move it into place."""
    try:
        with output_file(path) as part:
            part.touch()  # exporters say it on a page of their own
            with _Quiet():
                write(part)
                exported = read(part)
                difference, size = _compare(classifier, exported, _examples(card))
            if not difference <= TOLERANCE * size:
                answers = "numbers" if card.says == NUMBERS else "probabilities"
                raise ConfigError(
                    f"the file must give the model's {answers} to {TOLERANCE * size:.2g}, but is "
                    f"{difference:.2g} off; its network "
                    f"does something else when it is traced, as a branch that depends on its input"
                )
    except OSError as error:
        raise ConfigError(
            f"{path} must be writable, but: {error.strerror or error}; choose another"
        ) from error
    except ConfigError:
        raise
    except Exception as error:  # the exporters raise dozens of kinds, over pages
        message = next((line.strip() for line in str(error).splitlines() if line.strip()), "")[:300]
        raise ConfigError(
            f"train.model {card.model} cannot be written as {path.name}: {type(error).__name__}: "
            f"{message}; write it "
            f"with other operations"
        ) from error
    return difference


def _examples(card: Card) -> list[np.ndarray]:
    """Made-up raw windows, of about the scale of the training windows."""
    rng = np.random.default_rng(0)
    examples = []
    for count in _COUNTS:
        if card.dtype == "uint8":
            examples.append(rng.integers(0, 256, (count, *card.input_shape), dtype=np.uint8))
            continue
        if card.dtype == "int64":
            examples.append(np.zeros((count, *card.input_shape), dtype=np.int64))
            continue
        ones = (1,) * (len(card.input_shape) - 1)
        mean = np.array(card.mean or [0.0] * card.input_shape[0]).reshape(-1, *ones)
        std = np.array(card.std or [1.0] * card.input_shape[0]).reshape(-1, *ones)
        examples.append((rng.normal(size=(count, *card.input_shape)) * std + mean).astype(np.float32))
    return examples


def _compare(classifier: Classifier, exported: Run, examples: Sequence[np.ndarray]) -> tuple[float, float]:
    """The largest difference between the model's and a file's answers, and the largest answer, at least 1.

    Both are NaN if any answer of the model is, the difference also if one of the file's is.
    """
    differences, sizes = [], [1.0]
    for x in examples:
        with torch.no_grad():
            expected = classifier(torch.from_numpy(x)).numpy()
        differences.append(np.abs(exported(x) - expected).max())
        sizes.append(np.abs(expected).max())
    return float(np.max(differences)), float(np.max(sizes))


class _Quiet:
    """Hides output and warnings of exporters."""

    def __enter__(self) -> None:
        self._caught = warnings.catch_warnings()
        self._caught.__enter__()
        warnings.simplefilter("ignore")
        self._out, self._err = redirect_stdout(StringIO()), redirect_stderr(StringIO())
        self._out.__enter__()
        self._err.__enter__()
        self._previous_level = logging.root.manager.disable
        logging.disable(logging.ERROR)

    def __exit__(self, *reason: object) -> None:
        logging.disable(self._previous_level)
        self._err.__exit__(None, None, None)
        self._out.__exit__(None, None, None)
        self._caught.__exit__(None, None, None)
