"""Forged, cut and odd model cards and manifests: one line each, and nothing that they name is carried out.

Every case follows from its number alone: case N is drawn from seed N. `make test` tries a sample, `make
extended` 500 of each kind; FEDGE_ODD_FILES=FIRST tries others.
"""

import io
import json
import os
import shutil
import sys

import numpy as np
import pytest
from odd_json import CODE, changed, text_of
from small_runs import small_config

from fedge import simulate
from fedge.cli import main
from fedge.inference import card as cards
from fedge.records.outputs import MODELS
from fedge.states.files import map_state
from hhar.windows.window_file import load_windows

SAMPLE, ALL = 60, 500
FIRST = int(os.environ.get("FEDGE_ODD_FILES", "0"))
PLANTED = """
from pathlib import Path
import torch
Path({canary!r}).write_text("imported")
def run(*_, **__):
    Path({canary!r}).write_text("called")
class Net(torch.nn.Module):
    def __init__(self, *_, **__):
        super().__init__()
        Path({canary!r}).write_text("made")
"""


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A run, its windows, and a module that leaves a trace beside its models."""
    folder = tmp_path_factory.mktemp("odd")
    config = small_config(folder, run_name="r", train__model="mlp-tiny", checkpoint__every=1)
    run = simulate(config, terminal=io.StringIO())
    assert run.status == "completed", run.reason
    return folder, run.folder, load_windows(config["data.path"]).x[:3]


@pytest.fixture
def place(study, tmp_path, monkeypatch):
    """A copy of the run, a canary, and a working directory without code."""
    _, original, x = study
    folder = tmp_path / "runs" / "r"
    shutil.copytree(original, folder, symlinks=True)
    canary = tmp_path / "canary"
    for where in (folder, folder / "checkpoints", tmp_path / "runs", tmp_path):
        (where / "planted_here.py").write_text(PLANTED.format(canary=str(canary)))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr("fedge.config.registers.register._looked_in", [])
    yield folder, x, canary
    sys.modules.pop("planted_here", None)


def with_header(path, text: bytes) -> bytes:
    """The bytes of a state file with another card."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header["__metadata__"][cards.KEY] = text.decode("utf-8", errors="replace")
    there = json.dumps(header).encode()
    return len(there).to_bytes(8, "little") + there + content[8 + length :]


def odd_models(original, number: int) -> bytes:
    """A run's models with an odd card, or cut."""
    rng = np.random.default_rng([number, 0])
    path = original / MODELS
    if number % 10 == 9:
        content = bytearray(path.read_bytes())
        if number % 20 == 9:
            return bytes(content[: int(rng.integers(len(content)))])
        for at in rng.integers(0, 2000, 3):
            content[at] = int(rng.integers(256))
        return bytes(content)
    said = json.loads(map_state(path).metadata[cards.KEY])
    extra = [*CODE, 10**9, [10**9, 10**9], [2**40], ["sh", "-c", "touch canary"]]
    if number % 3 == 0:
        said["model"] = CODE[int(rng.integers(len(CODE)))]
        if rng.integers(2):
            said["input_shape"] = ["sh", "-c", "true"]
    if number % 7 == 0:
        said["arguments"] = {
            str(extra[int(rng.integers(len(extra)))])[:50]: extra[int(rng.integers(len(extra)))]
        }
    return with_header(path, text_of(changed(said, rng, extra) if number % 5 else said, rng))


def use(words) -> tuple[int, str]:
    """Exit code of a command and what it says on standard error; nothing else may come of it."""
    said = io.StringIO()
    before, sys.stderr = sys.stderr, said
    out, sys.stdout = sys.stdout, io.StringIO()
    try:
        code = main(words)
    finally:
        sys.stderr, sys.stdout = before, out
    return code, said.getvalue()


def look_at_models(place, original, numbers) -> dict[int, str]:
    """Use odd models in every way; returns case → what went wrong."""
    folder, x, canary = place
    np.savez("x.npz", x=x)
    wrong = {}
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest.get("outputs", {}).pop(MODELS, None)  # whoever forges the models can forge their sum
    (folder / "manifest.json").write_text(json.dumps(manifest))
    for number in numbers:
        (folder / MODELS).write_bytes(odd_models(original, number))
        ways = (
            ["predict", str(folder), "x.npz"],
            ["export", str(folder), "--torchscript", "m.pt"],
            ["predict", str(folder), "x.npz", "--fit"],
            ["predict", str(folder), "x.npz", "--leaf", "1"],
        )
        try:
            code, said = use(ways[number % 4])
        except BaseException as error:  # whatever it is, it is no line
            wrong[number] = f"{type(error).__name__}: {error}"
            continue
        lines = [line for line in said.splitlines() if not line.startswith(("model: ", "note: ", "user "))]
        if canary.exists():
            wrong[number] = f"code was carried out: {canary.read_text()}"
            canary.unlink()
        elif code not in (0, 4) or len(lines) != (code == 4) or "\x1b" in said:
            wrong[number] = f"exit code {code}: {said[:300]!r}"
    return wrong


def look_at_manifests(place, original, numbers) -> dict[int, str]:
    """Read a run with an odd manifest, private.json or checkpoint, and all pages made of it."""
    folder, _, canary = place
    wrong = {}
    checkpoint = max((original / "checkpoints").glob("*/*.json"))
    for number in numbers:
        rng = np.random.default_rng([number, 1])
        name = ("manifest.json", "manifest.json", "private.json", str(checkpoint.relative_to(original)))[
            number % 4
        ]
        said = json.loads((original / name).read_text())
        (folder / name).write_bytes(text_of(changed(said, rng, CODE), rng))
        ways = [["status", str(folder)], ["runs", "--runs-dir", str(folder.parent)]]
        ways += [["report", str(folder)]] * (number % 20 == 0)  # seconds of figures
        ways += [["resume", str(folder)]] * (number % 3 == 0)
        for words in ways:
            try:
                _, text = use(words)
            except BaseException as error:
                wrong[number] = f"{words[0]} {name}: {type(error).__name__}: {error}"
                break
            if canary.exists():
                wrong[number] = f"{words[0]} {name}: code was carried out: {canary.read_text()}"
                canary.unlink()
            elif "Traceback" in text or "\x1b" in text:
                wrong[number] = f"{words[0]} {name}: {text[:300]!r}"
        shutil.rmtree(folder)
        shutil.copytree(original, folder, symlinks=True)
    return wrong


def test_a_sample_of_odd_models_is_one_line_each(study, place):
    assert look_at_models(place, study[1], range(FIRST, FIRST + SAMPLE)) == {}


@pytest.mark.extended
def test_500_odd_models_are_one_line_each(study, place):
    assert look_at_models(place, study[1], range(FIRST, FIRST + ALL)) == {}


def test_a_sample_of_odd_manifests_is_read_or_refused(study, place):
    assert look_at_manifests(place, study[1], range(FIRST, FIRST + SAMPLE // 5)) == {}


@pytest.mark.extended
def test_500_odd_manifests_are_read_or_refused(study, place):
    assert look_at_manifests(place, study[1], range(FIRST, FIRST + ALL)) == {}
