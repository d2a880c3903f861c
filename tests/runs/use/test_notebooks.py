"""The notebooks of the docs, carried out in a real kernel: what they show, how runs and errors look."""

import nbformat
import pytest

from tools.notebooks import FOLDER, as_markdown, carried_out, cleaned

NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def kinds(notebook):
    """Outputs per cell."""
    return [
        [(output.output_type, *sorted(output.get("data", ()))) for output in cell.get("outputs", ())]
        for cell in notebook.cells
    ]


LONG = ("3-", "4-")  # studies of many runs: carried out by make soak


@pytest.mark.extended
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[pytest.mark.soak] if path.stem.startswith(LONG) else [])
        for path in NOTEBOOKS
    ],
)
def test_it_works_and_shows_what_is_kept(path, tmp_path):
    """Numbers may differ from machine to machine, kinds of outputs may not; errors are one line."""
    done = cleaned(carried_out(path, tmp_path))
    assert kinds(done) == kinds(nbformat.read(path, as_version=4))
    outputs = [output for cell in done.cells for output in cell.get("outputs", ())]
    for output in outputs:
        if output.output_type == "error":
            assert len(output.traceback) == 1
            assert output.traceback[0].startswith("ConfigError: ")
    if path.stem == "1-first-run":
        pages = [output.data["text/html"] for output in outputs if "text/html" in output.get("data", ())]
        assert '<progress value="6" max="6"' in pages[0]
        assert "round 6/6" in pages[0]
        assert "completed, 6 of 6 rounds" in pages[1]
        assert not any("round 3/6" in output.get("text", "") for output in outputs)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_small_and_says_nothing_of_a_machine(path):
    """Outputs are kept, so they are few, and carry no paths, dates or counts."""
    text = path.read_text(encoding="utf-8")
    assert len(text) < 150_000
    assert "/tmp/" not in text
    assert "/home/" not in text
    notebook = nbformat.read(path, as_version=4)
    assert all(cell.execution_count is None for cell in notebook.cells if cell.cell_type == "code")
    assert "<style>" not in text
    assert as_markdown(path).startswith(notebook.cells[0].source)
