"""Runs docs/notebooks/*.ipynb again and keeps them clean; shows one as Markdown for the site.

python -m tools.notebooks [NAME …]      runs all, or the named ones, and writes them back

They are stored with their outputs, to be read without running them. Execution counts, times and metadata of
the editor, which change from run to run without meaning, are removed.
"""

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
# text changing from run to run → its replacement
_REPLACEMENTS = (
    (re.compile(r"\b\d+\.\d s\b(  left \d+:\d\d)?"), "… s"),
    (re.compile(r"\b\d{8}-\d{6}-seed"), "DATE-seed"),
    (re.compile(r"/[\w./-]+/runs/"), "runs/"),
    (re.compile(r"<style>.*?</style>\n?", re.DOTALL), ""),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the notebooks and write them back."""
    parser = argparse.ArgumentParser(description="Carry out the notebooks of the docs and write them back.")
    parser.add_argument("names", nargs="*", help="of notebooks, as 1-first-run (default: all)")
    names = parser.parse_args(arguments).names
    import nbformat

    for path in sorted(FOLDER.glob("*.ipynb")):
        if not names or path.stem in names:
            with tempfile.TemporaryDirectory() as folder:
                notebook = carried_out(path, Path(folder))
            nbformat.write(cleaned(notebook), path)
            print(path)
    return 0


def carried_out(path: Path, folder: Path) -> Any:
    """A notebook after all its cells have run in a new kernel, which works in `folder`.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell without the tag "raises-exception" fails.
    """
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    os.environ.setdefault("JUPYTER_PLATFORM_DIRS", "1")
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=300, resources=resources).execute()
    return notebook


def cleaned(notebook: Any) -> Any:
    """A notebook without counts, changing ids, metadata and times."""
    notebook.metadata = {"kernelspec": _KERNEL, "language_info": {"name": "python"}}
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata = {"tags": cell.metadata["tags"]} if cell.metadata.get("tags") else {}
        if cell.cell_type == "code":
            cell.execution_count = None
            cell.outputs = _merge_streams([_cleaned_output(output) for output in cell.outputs])
    return notebook


def _cleaned_output(output: Any) -> Any:
    """An output without count and times, and without parts only for editors."""
    if "execution_count" in output:
        output.execution_count = None
    if "metadata" in output:
        output.metadata = {}
    if output.output_type == "stream":
        output.text = steady(output.text)
    for kind in ("text/plain", "text/html"):
        if kind in output.get("data", {}):
            output.data[kind] = steady(output.data[kind])
    return output


def steady(text: str) -> str:
    """A text with replacements for parts changing from run to run."""
    for pattern, replacement in _REPLACEMENTS:
        text = pattern.sub(replacement, text)
    return text


def _merge_streams(outputs: Sequence[Any]) -> list[Any]:
    """Outputs, with each piece of printed text joined to the previous one."""
    merged: list[Any] = []
    for output in outputs:
        if (
            merged
            and output.output_type == merged[-1].output_type == "stream"
            and output.name == merged[-1].name
        ):
            merged[-1].text += output.text
        else:
            merged.append(output)
    return merged


# --- the site -----------------------------------------------------------------------------------------


def as_markdown(path: Path) -> str:
    """A notebook as a page: text, code, and below it the output."""
    import json

    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    download_link = f"\n\n[This page as a notebook]({path.name}){{ download }}\n"
    return "\n\n".join(part for cell in cells for part in _cell_parts(cell)) + download_link


def _cell_parts(cell: Mapping[str, Any]) -> Iterator[str]:
    """Yield the parts of a cell."""
    source = _joined_text(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source.replace(".ipynb)", ".md)")  # links between pages
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        if shown := _output_text(output):
            yield shown


def _output_text(output: Mapping[str, Any]) -> str:
    """Output of a cell, in the richest form a page can hold."""
    if output["output_type"] == "stream":
        return _output_block(_joined_text(output["text"]))
    if output["output_type"] == "error":
        return _output_block(re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(output["traceback"])))
    data = output["data"]
    if "text/html" in data:
        lines = (line for line in _joined_text(data["text/html"]).splitlines() if line.strip())
        return '<div class="output">\n' + "\n".join(lines) + "\n</div>"
    if "image/png" in data:
        return f'<img alt="figure" src="data:image/png;base64,{_joined_text(data["image/png"]).strip()}">'
    return _output_block(_joined_text(data.get("text/plain", "")))


def _output_block(text: str) -> str:
    """Text as a block that looks like output."""
    return f"```{{ .text .output }}\n{text.rstrip()}\n```" if text.strip() else ""


def _joined_text(value: str | Sequence[str]) -> str:
    """A text, which a notebook may store as lines."""
    return value if isinstance(value, str) else "".join(value)


if __name__ == "__main__":
    sys.exit(main())
