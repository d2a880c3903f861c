"""`fedge predict` and `fedge export` on a run of a network of the user's own."""

import csv
import io
import json
import sys

import numpy as np
import pytest
from small_runs import small_config

from fedge import load_run
from fedge.cli import main
from hhar.windows.window_file import load_windows

NET = """
from torch import nn
class Net(nn.Module):
    def __init__(self, input_shape, classes, width=4):
        super().__init__()
        self.a = nn.Linear(input_shape[0] * input_shape[1], width)
        self.b = nn.Linear(width, classes)
    def forward(self, x):
        return self.b(self.a(x.flatten(1)).relu())
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Return a folder with a network, a run of it, and its windows."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "used_net.py").write_text(NET)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", list(sys.path))
        config = small_config(folder, train__model="used_net:Net", runs_dir="runs", run_name="r")
        words = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
        assert main(["run", "-c", words, "-c", "train.model-args.width=5"]) == 0
    yield folder
    sys.modules.pop("used_net", None)


@pytest.fixture(autouse=True)
def there(project, monkeypatch):
    monkeypatch.chdir(project)
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_predict_prints_a_row_per_window(capsys):
    assert main(["predict", "r", "small.npz", "--leaf", "1"]) == 0
    out, err = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(out)))
    windows = load_windows("small.npz")
    assert list(rows[0]) == ["index", "user", "class", *(f"p_{name}" for name in windows.classes)]
    assert [int(row["index"]) for row in rows] == list(range(len(windows)))
    assert [row["user"] for row in rows] == windows.user.tolist()
    found = load_run("runs/r").predict(windows.x, leaf=1)
    assert [row["class"] for row in rows] == [found.classes[label] for label in found.labels]
    first = [float(rows[0][f"p_{name}"]) for name in windows.classes]
    assert np.allclose(first, found.probabilities[0], atol=1e-5)
    assert err.startswith("model: leaf 1's model")


def test_predict_writes_a_file_from_x_alone(tmp_path, capsys):
    np.savez(tmp_path / "x.npz", x=load_windows("small.npz").x[:2])
    assert main(["predict", "latest", str(tmp_path / "x.npz"), "-o", str(tmp_path / "o.csv")]) == 0
    assert capsys.readouterr().out == ""
    assert (tmp_path / "o.csv").read_text().startswith("index,class,p_")
    assert len((tmp_path / "o.csv").read_text().splitlines()) == 3


def test_windows_in_another_unit_are_classified_with_a_word(tmp_path, capsys):
    np.savez(tmp_path / "x.npz", x=load_windows("small.npz").x[:2] * 100)
    assert main(["predict", "latest", str(tmp_path / "x.npz")]) == 0
    assert "note: these windows are unlike those of training: u is " in capsys.readouterr().err


def test_export_writes_torchscript(tmp_path, capsys):
    assert main(["export", "r", "--client", "4", "--torchscript", str(tmp_path / "m.pt")]) == 0
    assert "probabilities within" in capsys.readouterr().out
    assert (tmp_path / "m.pt").stat().st_size > 0


@pytest.mark.parametrize(
    ("words", "telling"),
    [
        (["export", "r"], "--onnx FILE or --torchscript FILE"),
        (["predict", "gone", "small.npz"], "must be a run folder"),
        (["predict", "r", "gone.npz"], "data must be a readable file"),
        (["predict", "r", "small.npz", "--leaf", "7"], "leaf must be one of the run's, 0 to 2, but is 7"),
        (["predict", "r", "small.npz", "-o", "no/o.csv"], "--output must be writable"),
    ],
)
def test_refusals_are_one_line(words, telling, capsys):
    assert main(words) == 4
    said = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("model: ")]
    assert len(said) == 1
    assert telling in said[0]


def test_code_that_has_changed_is_said_and_gone_code_is_one_line(project, request, capsys):
    file = project / "used_net.py"
    request.addfinalizer(lambda: (file.write_text(NET), sys.modules.pop("used_net", None)))
    file.write_text(NET + "\n# a remark\n")
    assert main(["predict", "r", "small.npz", "-o", "o.csv"]) == 0
    assert "note: the code of used_net:Net has changed since the run" in capsys.readouterr().err
    sys.modules.pop("used_net")
    file.unlink()
    assert main(["predict", "r", "small.npz"]) == 4
    assert "train.model used_net:Net cannot be imported" in capsys.readouterr().err


def test_another_folder_finds_the_code_beside_the_run(project, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    sys.modules.pop("used_net", None)
    assert main(["predict", str(project / "runs" / "r"), str(project / "small.npz")]) == 0
    assert capsys.readouterr().out.startswith("index,user,class,")
