"""docs/tutorial.md works: its blocks are carried out in order, each as a reader would."""

import re
import shlex
from pathlib import Path

import matplotlib as mpl
import pytest

from fedge import load_run
from fedge.cli import main as fedge

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"


def blocks():
    """Yield (language, text) of every fenced block."""
    yield from re.findall(
        r"^```(\w+)\n(.*?)^```$", TUTORIAL.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    mpl.use("agg")
    return tmp_path


@pytest.mark.extended
def test_the_tutorial_works(here, capsys):
    """Python blocks share one namespace; a TOML block is saved under the name in its first line."""
    names = {}
    for language, text in blocks():
        if language == "python":
            exec(compile(text, str(TUTORIAL), "exec"), names)
        elif language == "toml":
            Path(re.match(r"# (\S+\.toml)\n", text).group(1)).write_text(text)
        else:
            assert language == "sh"
            for line in text.splitlines():
                program, *words = shlex.split(line)
                assert program == "fedge"
                assert fedge(words) == 0
    assert names["run"].status == "completed"
    assert load_run("runs/alone/alone-seed2").rounds["num_clusters"].to_list() == [3] * 4
    printed = capsys.readouterr().out
    assert f"completed 0 {here / 'runs' / 'first-seed1'}" in printed
    assert (here / "leaves.svg").stat().st_size > 10_000
    assert "Comparison: first · alone" in (here / "compare.html").read_text()
    accuracies = names["numbers"].filter(names["numbers"]["metric"] == "mean test accuracy")
    assert set(accuracies["n_pairs"].drop_nulls().to_list()) == {3}  # seeds
