"""`fedge predict` and `fedge export` on a run of a network of the user's own."""

import csv
import io
import json
import shutil
import sys

import numpy as np
import pytest
from small_runs import small_config

from fedge import load_run
from fedge.cli import main
from fedge.records.outputs import MODELS
from fedge.states.files import map_state, write_state
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
    """A folder with a network, a run of it, and its windows."""
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
    sys.modules.pop("used_net", None)
    assert main(["predict", "r", "small.npz", "-o", "o.csv"]) == 4  # the yes was to other bytes
    assert "add --trust-code" in capsys.readouterr().err
    assert main(["predict", "r", "small.npz", "-o", "o.csv", "--trust-code"]) == 0
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


def forged(project, runs, **card):
    """Copy the run, and let its models say something else of themselves; returns the folder."""
    folder = runs / "forged"
    shutil.copytree(project / "runs" / "r", folder)
    path = folder / MODELS
    state = map_state(path)
    said = {**json.loads(state.metadata["fedge"]), **card}
    write_state(
        folder / "new", {name: np.array(state[name]) for name in state}, metadata={"fedge": json.dumps(said)}
    )
    (folder / "new").replace(path)
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["outputs"][MODELS]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


@pytest.mark.parametrize("words", [[], ["--trust-code"]])
def test_a_command_in_place_of_a_network_is_not_carried_out(project, tmp_path, capsys, words):
    """`input_shape` as the words of a command, and one that has the kind of a shape."""
    for shape in (["sh", "-c", f"touch {tmp_path}/canary"], [2, 16]):
        folder = forged(project, tmp_path, model="subprocess:Popen", input_shape=shape, arguments={})
        assert main(["export", str(folder), "--torchscript", str(tmp_path / "m.pt"), *words]) == 4
        assert len(capsys.readouterr().err.splitlines()) <= 2
        shutil.rmtree(folder)
    assert not (tmp_path / "canary").exists()


def test_code_that_makes_no_network_is_not_called(project, tmp_path, capsys):
    """Looked at after a yes to import it, and before it is called: it is no subclass of nn.Module."""
    (project / "no_net.py").write_text(
        f"def run(*_, **__): open({str(tmp_path / 'canary')!r}, 'w').close()\n"
        f"def honest(input_shape, classes, **more) -> 'torch.nn.Module': return None\nimport torch\n"
    )
    folder = forged(project, tmp_path, model="no_net:run", arguments={})
    assert main(["predict", str(folder), "small.npz", "--trust-code"]) == 4
    assert "must be a subclass of torch.nn.Module" in capsys.readouterr().err
    assert not (tmp_path / "canary").exists()
    shutil.rmtree(folder)
    folder = forged(project, tmp_path, model="no_net:honest", arguments={})
    assert main(["predict", str(folder), "small.npz", "--trust-code"]) == 4
    assert "but made NoneType" in capsys.readouterr().err


def test_code_beside_a_run_that_is_no_project_of_this_user_is_not_taken(
    project, tmp_path, monkeypatch, capsys
):
    """A folder from elsewhere: its runs, and code that they name beside them."""
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "runs").mkdir(parents=True)
    for place in (elsewhere, elsewhere / "runs"):
        (place / "other_net.py").write_text(f"open({str(tmp_path / 'canary')!r}, 'w').close()\n" + NET)
    folder = forged(project, elsewhere / "runs", model="other_net:Net")
    (folder / "other_net.py").write_text(f"open({str(tmp_path / 'canary')!r}, 'w').close()\n" + NET)
    private = json.loads((folder / "private.json").read_text())
    (folder / "private.json").write_text(json.dumps({**private, "code": [str(elsewhere), str(folder)]}))
    for words in ([], ["--trust-code"]):
        assert main(["predict", str(folder), "small.npz", *words]) == 4
        assert "there is no module other_net" in capsys.readouterr().err
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize(
    "arguments", [{"width": "5"}, {"width": [5]}, {"width": True}, {"depth": 5}, {"width": None}]
)
def test_arguments_of_another_kind_are_one_line(project, tmp_path, capsys, arguments):
    folder = forged(project, tmp_path, arguments=arguments)
    assert main(["predict", str(folder), "small.npz"]) == 4
    said = capsys.readouterr().err.splitlines()
    assert len([line for line in said if not line.startswith("model: ")]) == 1
