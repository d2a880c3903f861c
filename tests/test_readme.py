"""README is short, its links lead somewhere, and what it says to type works."""

import re
import subprocess
from pathlib import Path

import pytest

from fedge.cli import main as fedge

pytestmark = pytest.mark.whole_runs

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SHORT = "num-server-rounds=1 train.local-epochs=1 report=false data.path='synthetic' train.model='linear'"


def blocks(language):
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def commands():
    """The lines of all sh blocks, without their remarks."""
    lines = "".join(blocks("sh")).splitlines()
    return [re.sub(r"\s+#.*", "", line) for line in lines]


def test_it_is_short():
    assert len(README.splitlines()) <= 150


def test_every_link_leads_somewhere():
    links = [link.split("#")[0] for link in re.findall(r"\]\(([^)]+)\)", README)]
    own = [link for link in links if not link.startswith("https://")]
    assert len(own) > 20
    assert [link for link in own if not (ROOT / link).exists()] == []


def test_every_command_is_one_that_a_test_below_knows():
    known = (
        "make ",
        "fedge ",
        "python3 -m venv .venv ",
        "pip install -c constraints.txt ",
        "SEED=42 flwr run .",
    )
    assert [line for line in commands() if not line.startswith(known)] == []


@pytest.mark.parametrize(("target", "does"), [("run", "flwr run ."), ("test", "-m pytest")])
def test_make_does_what_is_said(target, does):
    """`make run` is the very line that README gives without make; `make test` is all tests."""
    assert f"make {target}" in commands()
    recipe = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=True)
    assert does in recipe.stdout
    assert "SEED=42 flwr run ." in commands()
    assert "-e '.[ray]'" in README


@pytest.mark.parametrize("line", [line for line in commands() if line.startswith("fedge ")])
def test_the_commands_of_fedge_run_in_an_empty_folder(line, tmp_path, monkeypatch, capsys):
    """Shortened to a round."""
    monkeypatch.chdir(tmp_path)
    words = line.split()[1:]
    assert fedge([*words, *(["-c", SHORT] if words[0] == "run" else [])]) == 0
    if words[0] == "run":
        assert "round 1/1" in capsys.readouterr().out
    else:
        assert (tmp_path / "my-study" / "pyproject.toml").is_file()


def test_its_python_runs(tmp_path, monkeypatch):
    """The model of one's own, in at most ten lines of code, then the run as data."""
    monkeypatch.chdir(tmp_path)
    reading, model = blocks("python")
    assert len([line for line in model.splitlines() if line]) <= 10
    names = {}
    exec(compile(model, "README.md", "exec"), names)
    assert (names["run"].status, len(names["run"].rounds)) == ("completed", 3)
    assert names["run"].config["train.model"].endswith("Net")
    exec(compile(reading, "README.md", "exec"), names)
    assert names["run"].name == (tmp_path / "runs" / "latest").resolve().name
    assert "head.weight" in names["run"].models()[0]
