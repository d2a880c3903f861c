"""``fedge new``: a project in which `fedge run`, `flwr run .` and `pytest` work, with custom parts."""

import keyword
import os
import re
import sys
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path

from fedge.config.registers.option import ConfigError, shown
from fedge.launch.projects.packaged import packaged_folder
from fedge.process.durable import removed_on_failure

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*([._-][A-Za-z0-9]+)*")  # of a project, and of a module made from it
_TABLES = ("[tool.flwr.app.config", '[tool."flwr".federations')  # tables of a new project

_PROJECT = """\
[project]
name = "{name}"
version = "0.1.0"
description = "A study with Fedge"
requires-python = ">=3.10"
dependencies = ["fedge[ray]"]

[tool.pytest.ini_options]
pythonpath = ["."]

[tool.flwr.app]
publisher = "{name}"

[tool.flwr.app.components]
serverapp = "fedge.server_app:app"
clientapp = "fedge.client_app:app"

# Every option, with Fedge's default but for train.model. `flwr run` accepts only these with -c.
"""

_MODEL = '''\
"""The network of this study."""

from torch import Tensor, nn


class Net(nn.Module):
    """One convolution over time, its mean, and a linear layer; any nn.Module can be used.

    Args:
        input_shape: channels and samples of a window.
        classes: number of classes.
        width: features of the convolution; train.model-args sets it.
    """

    def __init__(self, input_shape: tuple[int, ...], classes: int, width: int = 16) -> None:
        super().__init__()
        self.features = nn.Conv1d(input_shape[0], width, kernel_size=5, stride=2)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Windows (N, C, T) to scores (N, classes)."""
        return self.head(self.features(x).relu().mean(dim=-1))
'''

_TEST = '''\
"""A round of this study with its own model; then with its own data and way to group leaves, too."""

from pathlib import Path

import pytest

import fedge
from fedge.cli import main

OWN = "data.path='{module}.data:rows_of_digits' cluster.method='{module}.method:largest_gap'"


@pytest.mark.parametrize("parts", ["", OWN], ids=["model", "all"])
def test_a_round(parts, tmp_path, monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[1])
    changes = f"num-server-rounds=1 train.local-epochs=1 report=false runs-dir='{{tmp_path}}' {{parts}}"
    assert main(["run", "-c", changes]) == 0
    run = fedge.load_run(tmp_path / "latest")
    assert run.config["train.model"] == "{module}.model:Net"
    assert len(run.models()) == 3
'''

_METHOD_TEST = '''

def test_clients_have_models_of_their_own(tmp_path, monkeypatch):
    """The method's personal models are evaluated beside the leaf's, for every client and round."""
    monkeypatch.chdir(Path(__file__).parents[1])
    changes = f"num-server-rounds=2 train.local-epochs=1 report=false runs-dir='{{tmp_path}}'"
    assert main(["run", "-c", changes]) == 0
    run = fedge.load_run(tmp_path / "latest")
    assert run.config["train.algorithm"] == "{module}.algorithm:Ditto"
    assert set(run.client_models["model"]) == {{"personal"}}
    assert run.client_models["global_round"].max() == 2
'''

_README = """\
# {name}

A study with Fedge, a simulator of federated learning: its own model, data, method and options.

```sh
fedge run -c num-server-rounds=5    # in this process; without -c 100 rounds
flwr run .                          # the same on Flower and Ray
fedge run -c fedge:hierfl           # with a configuration that comes with Fedge; fedge configs lists them
fedge run -c 'train.model-args.width=32'
fedge run -c 'data.path="{module}.data:rows_of_digits" cluster.method="{module}.method:largest_gap"'
pytest
```

| file | what it has |
|---|---|
| `pyproject.toml` | every option, and who takes part |
| `{module}/model.py` | the model, which `train.model` names |
| `{module}/data.py` | a data set to begin with; `data.path` names it, or a window file |
| `{module}/method.py` | a way to group leaves to begin with; `cluster.method` names it |
| `tests/` | a round of it all; needs pytest |
| `runs/` | what comes out: a folder per run, `fedge runs` lists them |
"""


_ALGORITHM = "| `{module}/algorithm.py` | what every client does; `train.algorithm` names it |\n"


def new_project(folder: Path, method: bool = False) -> list[Path]:
    """Write a small project into a folder and name it after the folder; returns the files written.

    Args:
        folder: new or empty folder.
        method: whether to add a custom method for clients (`train.algorithm`).

    Raises:
        ConfigError: the folder is not empty or not writable, or its name is unsuitable for a project.
    """
    name = folder.absolute().name
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"the project's name must be letters and digits, starting with a letter, joined by - . _, but is "
            f"{shown(name)}; e.g. fedge new my-study"
        )
    if os.path.lexists(folder) and not (folder.is_dir() and not any(folder.iterdir())):
        raise ConfigError(
            f"the project's folder must be new or empty, but {folder} is not; choose another name"
        )
    module = re.sub(r"[.-]", "_", name.lower())
    _refuse_taken_module(name, module)
    written = []
    with nullcontext() if folder.is_dir() else removed_on_failure(folder):
        for path, text in _project_files(name, module, method).items():
            file = folder / path
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
            except OSError as error:
                raise ConfigError(
                    f"the project's folder must be writable, but {file}: {error.strerror or error}; "
                    f"choose another"
                ) from error
            written.append(file)
    return written


def _refuse_taken_module(name: str, module: str) -> None:
    """Raise ConfigError for a module name that is a keyword or the name of an existing module."""
    is_taken = keyword.iskeyword(module) or module in {*sys.stdlib_module_names, "tests", "runs"}
    if not is_taken:
        spec = find_spec(module)
        is_taken = spec is not None and spec.origin is not None
    if is_taken:
        raise ConfigError(
            f"the project's name must not be a Python keyword or module, as {module} is, but is "
            f"{shown(name)}; e.g. fedge new {name}-study"
        )


def _project_files(name: str, module: str, method: bool) -> dict[str, str]:
    """Path → content of all files of a project."""
    options = _default_tables().replace('\nmodel = "cnn" ', f'\nmodel = "{module}.model:Net" ', 1)
    extra: dict[str, str] = {}
    test = _TEST
    if method:
        test += _METHOD_TEST
        algorithm, scaffold = (
            f'\nalgorithm = "{module}.algorithm:Ditto" ',
            "[tool.flwr.app.config.scaffold]\nenabled = ",
        )
        options = options.replace('\nalgorithm = "fedavg" ', algorithm, 1).replace(
            f"{scaffold}true", f"{scaffold}false", 1
        )
        extra[f"{module}/algorithm.py"] = _read_example("my_method")
    readme = _README.format(name=name, module=module)
    if method:
        readme = readme.replace("| `tests/`", _ALGORITHM.format(module=module) + "| `tests/`")
    return {
        **extra,
        "pyproject.toml": _PROJECT.format(name=name) + options,
        "README.md": readme,
        f"{module}/__init__.py": f'"""{name}: a study with Fedge."""\n',
        f"{module}/model.py": _MODEL,
        f"{module}/data.py": _read_example("my_data"),
        f"{module}/method.py": _read_example("my_grouping"),
        f"tests/test_{module}.py": test.format(module=module),
        ".gitignore": "/runs/\n__pycache__/\n",
    }


def _read_example(name: str) -> str:
    """Source of one of the worked examples."""
    return (packaged_folder() / "examples" / f"{name}.py").read_text(encoding="utf-8")


def _default_tables() -> str:
    """Options and federations from Fedge's pyproject.toml, with their comments."""
    kept, comments, is_included = [], [], False
    for line in (packaged_folder() / "pyproject.toml").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            is_included = line.startswith(_TABLES)
        elif not line or line.startswith("#"):
            comments.append(line)  # belongs to the next entry
            continue
        kept += [*comments, line] if is_included else []
        comments = []
    while not kept[0].startswith("["):
        kept.pop(0)
    return "\n".join(kept) + "\n"
