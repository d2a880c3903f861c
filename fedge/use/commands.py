"""The subcommands `fedge predict` and `fedge export`; torch is loaded when one runs."""

import argparse
import csv
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from fedge.config.registers.option import ConfigError
from fedge.config.registers.register import look_in
from fedge.config.registers.trust import FLAG, own_folders
from fedge.process.durable import output_file
from fedge.process.escape import cell
from fedge.records.folder import find_run
from fedge.records.private import code_folders_of

if TYPE_CHECKING:
    import numpy as np

    from fedge.inference.models import Choice, Models, Prediction
    from fedge.inference.windows import RawWindows


_HALF = 0.5  # probability from which a class is said to be there


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


def _opened(options: argparse.Namespace) -> "Models":
    """The models of the run that is meant."""
    folder = find_run(options.run, options.runs_dir)
    # where the run found code of the user's, as far as these are folders of the user's own runs
    look_in(*own_folders(code_folders_of(folder)), Path.cwd())
    from fedge.records.reading.reader import load_run

    return load_run(folder).opened_models(options.trust_code, options.kept)


def _chosen(options: argparse.Namespace) -> "tuple[Models, Choice]":
    """The models of the run that is meant, and the one that is asked for; says which."""
    models = _opened(options)
    choice = models.choose(options.leaf, options.client, options.unseen)
    note = models.code_note()
    for line in (f"model: {choice.why}", *([f"note: {note}"] if note else [])):
        print(line, file=sys.stderr)
    return models, choice


def _predict(options: argparse.Namespace) -> int:
    """Carry out ``fedge predict``."""
    from fedge.inference.windows import read_raw_windows, unlike

    choice = None
    if options.fit:
        if options.leaf is not None or options.client is not None or options.unseen:
            raise ConfigError("--fit chooses the model, so it goes without --leaf, --client and --unseen")
        models = _opened(options)
    else:
        models, choice = _chosen(options)
    windows = read_raw_windows(options.data, models.card)
    if note := unlike(windows.x, models.card):
        print(f"note: {note}", file=sys.stderr)
    found = _fitted(models, windows) if choice is None else models.predict(windows.x, choice)
    try:
        to = options.output
        if to is None:
            _write(sys.stdout, windows, found)
        else:
            with output_file(to) as path, path.open("w", newline="", encoding="utf-8") as file:
                _write(file, windows, found)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise ConfigError(
            f"--output must be writable, but {to}: {error.strerror or error}; choose another"
        ) from error
    return 0


def _fitted(models: "Models", windows: "RawWindows") -> "Prediction":
    """Classify each user's windows with the model that fits them best; says which."""
    import numpy as np

    from fedge.inference.models import Prediction

    users = np.full(len(windows.x), "") if windows.user is None else windows.user
    card = models.card
    found = np.zeros((len(users), *(card.answer or (len(card.classes),))), np.float32)
    for user in np.unique(users):
        mine = users == user
        choice = models.fitting(windows.x[mine])
        print(f"{f'user {user}' if user else 'model'}: {choice.why}", file=sys.stderr)
        found[mine] = models.predict(windows.x[mine], choice).probabilities
    return Prediction(found.argmax(axis=1), found, card.classes, "what fits each user best", card.says)


def _write(file: TextIO, windows: "RawWindows", found: "Prediction") -> None:
    """Write a row per window, or per position of one: its index, user if known, and the model's answer.

    That is the class and the probability of each, the classes of at least one half, or the numbers.
    """
    from fedge.inference.card import NUMBERS

    table = csv.writer(file, lineterminator="\n")
    user = () if windows.user is None else ("user",)
    at = ("position",) if found.probabilities.ndim > 2 else ()
    said = () if found.says == NUMBERS else (found.says,)
    head = "" if found.says == NUMBERS else "p_"
    table.writerow(["index", *user, *at, *said, *(cell(f"{head}{name}") for name in found.classes)])
    for index, answer in enumerate(found.probabilities):
        who = () if windows.user is None else (cell(str(windows.user[index])),)
        for position, row in enumerate(answer.reshape(len(found.classes), -1).T):
            where = (position,) if at else ()
            table.writerow([index, *who, *where, *_said(found, row), *(f"{p:.6g}" for p in row)])


def _said(found: "Prediction", row: "np.ndarray") -> tuple[str, ...]:
    """One answer (classes,) in a word: the class, the classes, or nothing for numbers."""
    from fedge.inference.card import CLASS, CLASSES

    if found.says == CLASSES:
        return (cell(" ".join(name for name, p in zip(found.classes, row, strict=True) if p >= _HALF)),)
    return (cell(found.classes[int(row.argmax())]),) if found.says == CLASS else ()


def _export(options: argparse.Namespace) -> int:
    """Carry out ``fedge export``."""
    if options.onnx is None and options.torchscript is None:
        raise ConfigError("fedge export must be told what to write: --onnx FILE or --torchscript FILE")
    models, choice = _chosen(options)
    from fedge.inference.card import NUMBERS
    from fedge.inference.export import write_onnx, write_torchscript

    classifier = models.classifier(choice)
    for write, path in ((write_onnx, options.onnx), (write_torchscript, options.torchscript)):
        if path is not None:
            off = write(classifier, models.card, path)
            answers = "numbers" if models.card.says == NUMBERS else "probabilities"
            print(f"{path} ({answers} within {off:.1g} of the model's)")
    return 0
