"""The subcommands `fedge predict` and `fedge export`; torch is loaded when one runs."""

import argparse
import csv
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from fedge.config.registers.option import ConfigError
from fedge.config.registers.register import add_search_folders
from fedge.config.registers.trust import FLAG, own_folders
from fedge.process.durable import output_file
from fedge.process.escape import cell
from fedge.records.folder import find_run
from fedge.records.private_file import code_folders_of

if TYPE_CHECKING:
    import numpy as np

    from fedge.inference.models import Choice, Models, Prediction
    from fedge.inference.windows import RawWindows


_THRESHOLD = 0.5  # probability from which a class is said to be there


def add_commands(commands: Any) -> None:
    """Add the subcommands to the parser's subparsers."""
    predict = commands.add_parser(
        "predict", help="classify windows with a run's models, as CSV", also=("infer",)
    )
    predict.add_argument("run", metavar="RUN", help="run folder, or its name; latest is the newest")
    predict.add_argument(
        "data", metavar="DATA", type=Path, help="window file (.npz) with raw windows x; no labels needed"
    )
    predict.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="output file (default: standard output)"
    )
    predict.add_argument(
        "--fit", action="store_true",
        help="use the best-fitting model for each user of DATA; no labels needed",
    )  # fmt: skip
    predict.set_defaults(command=_predict, needs_room=True)
    export = commands.add_parser(
        "export", help="write a run's model as ONNX or TorchScript, scaling included"
    )
    export.add_argument("run", metavar="RUN", help="run folder, or its name; latest is the newest")
    export.add_argument(
        "--onnx", type=Path, metavar="FILE", help="for ONNX Runtime and others; needs fedge[onnx]"
    )
    export.add_argument("--torchscript", type=Path, metavar="FILE", help="for torch.jit.load")
    export.set_defaults(command=_export, needs_room=True)
    for parser in (predict, export):
        parser.add_argument("--leaf", type=int, metavar="N", help="the model of leaf N for its known clients")
        parser.add_argument("--client", type=int, metavar="K", help="the served model of client K of the run")
        parser.add_argument(
            "--unseen", action="store_true",
            help="the model for people outside training (default); with --leaf, that leaf's",
        )  # fmt: skip
        parser.add_argument(
            "--kept", default="", metavar="ROUND",
            help="models of a round kept by checkpoint.models, or best (default: the final ones)",
        )  # fmt: skip
        parser.add_argument(
            "--runs-dir", type=Path, default=Path("runs"), help="folder of all run folders (default: runs)"
        )
        parser.add_argument(
            FLAG, action="store_true", help="trust the network's code from outside Fedge; remembered"
        )


def _open_models(options: argparse.Namespace) -> "Models":
    """The models of the selected run."""
    folder = find_run(options.run, options.runs_dir)
    # where the run found code of the user's, as far as these are folders of the user's own runs
    add_search_folders(*own_folders(code_folders_of(folder)), Path.cwd())
    from fedge.records.reading.reader import load_run

    return load_run(folder).opened_models(options.trust_code, options.kept)


def _choose_model(options: argparse.Namespace) -> "tuple[Models, Choice]":
    """The models of the selected run, and the requested one; prints which it is."""
    models = _open_models(options)
    choice = models.choose(options.leaf, options.client, options.unseen)
    note = models.code_note()
    for line in (f"model: {choice.reason}", *([f"note: {note}"] if note else [])):
        print(line, file=sys.stderr)
    return models, choice


def _predict(options: argparse.Namespace) -> int:
    """Carry out ``fedge predict``."""
    from fedge.inference.windows import read_raw_windows, scale_warning

    choice = None
    if options.fit:
        if options.leaf is not None or options.client is not None or options.unseen:
            raise ConfigError("--fit chooses the model, so it goes without --leaf, --client and --unseen")
        models = _open_models(options)
    else:
        models, choice = _choose_model(options)
    windows = read_raw_windows(options.data, models.card)
    if note := scale_warning(windows.x, models.card):
        print(f"note: {note}", file=sys.stderr)
    prediction = _predict_per_user(models, windows) if choice is None else models.predict(windows.x, choice)
    try:
        output = options.output
        if output is None:
            _write_rows(sys.stdout, windows, prediction)
        else:
            with output_file(output) as path, path.open("w", newline="", encoding="utf-8") as file:
                _write_rows(file, windows, prediction)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise ConfigError(
            f"--output must be writable, but {output}: {error.strerror or error}; choose another"
        ) from error
    return 0


def _predict_per_user(models: "Models", windows: "RawWindows") -> "Prediction":
    """Classify each user's windows with the model that fits them best; says which."""
    import numpy as np

    from fedge.inference.models import Prediction

    users = np.full(len(windows.x), "") if windows.user is None else windows.user
    card = models.card
    outputs = np.zeros((len(users), *(card.answer or (len(card.classes),))), np.float32)
    for user in np.unique(users):
        mask = users == user
        choice = models.fitting(windows.x[mask])
        print(f"{f'user {user}' if user else 'model'}: {choice.reason}", file=sys.stderr)
        outputs[mask] = models.predict(windows.x[mask], choice).probabilities
    return Prediction(outputs.argmax(axis=1), outputs, card.classes, "what fits each user best", card.says)


def _write_rows(file: TextIO, windows: "RawWindows", prediction: "Prediction") -> None:
    """Write a row per window, or per position of one: its index, user if known, and the model's answer.

    That is the class and the probability of each, the classes of at least one half, or the numbers.
    """
    from fedge.inference.card import NUMBERS

    table = csv.writer(file, lineterminator="\n")
    user_header = () if windows.user is None else ("user",)
    position_header = ("position",) if prediction.probabilities.ndim > 2 else ()
    answer_header = () if prediction.says == NUMBERS else (prediction.says,)
    prefix = "" if prediction.says == NUMBERS else "p_"
    table.writerow(
        [
            "index",
            *user_header,
            *position_header,
            *answer_header,
            *(cell(f"{prefix}{name}") for name in prediction.classes),
        ]
    )
    for index, answer in enumerate(prediction.probabilities):
        user_cell = () if windows.user is None else (cell(str(windows.user[index])),)
        for position, row in enumerate(answer.reshape(len(prediction.classes), -1).T):
            position_cell = (position,) if position_header else ()
            table.writerow(
                [
                    index,
                    *user_cell,
                    *position_cell,
                    *_answer_cells(prediction, row),
                    *(f"{p:.6g}" for p in row),
                ]
            )


def _answer_cells(prediction: "Prediction", row: "np.ndarray") -> tuple[str, ...]:
    """One answer (classes,) in a word: the class, the classes, or nothing for numbers."""
    from fedge.inference.card import CLASS, CLASSES

    if prediction.says == CLASSES:
        return (
            cell(" ".join(name for name, p in zip(prediction.classes, row, strict=True) if p >= _THRESHOLD)),
        )
    return (cell(prediction.classes[int(row.argmax())]),) if prediction.says == CLASS else ()


def _export(options: argparse.Namespace) -> int:
    """Carry out ``fedge export``."""
    if options.onnx is None and options.torchscript is None:
        raise ConfigError("fedge export must be told what to write: --onnx FILE or --torchscript FILE")
    models, choice = _choose_model(options)
    from fedge.inference.card import NUMBERS
    from fedge.inference.export import write_onnx, write_torchscript

    classifier = models.classifier(choice)
    for write, path in ((write_onnx, options.onnx), (write_torchscript, options.torchscript)):
        if path is not None:
            difference = write(classifier, models.card, path)
            answers = "numbers" if models.card.says == NUMBERS else "probabilities"
            print(f"{path} ({answers} within {difference:.1g} of the model's)")
    return 0
