"""Pages with output: their blocks are executed in order, each with its printed output below.

python -m tools.shown [PAGE …]      executes docs/tutorial.md and docs/quickstarts.md, or one of them, and
                                    writes it back, with the figures that it draws

A block of Python continues where the last one ended; one beginning with ``# NAME.py`` or ``# NAME.toml`` is
saved under that name; the lines of a shell block are commands. Output is a block of text after its block.
"""

import argparse
import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tools.notebooks import steady

DOCS = Path(__file__).parents[1] / "docs"
PAGES = ("tutorial", "quickstarts")
_BLOCK = re.compile(r"^```(python|sh|toml)\n(.*?)^```\n(?:\n```text\n.*?^```\n)?", re.DOTALL | re.MULTILINE)
_NAME = re.compile(r"# (\S+\.(?:py|toml))\n")
_FIGURE = re.compile(r"!\[[^\]]*\]\((images/[\w-]+\.svg)\)")
_HEAD, _TAIL = 4, 9  # lines kept of a long output


def main(arguments: Sequence[str] | None = None) -> int:
    """Execute the pages and write them back."""
    parser = argparse.ArgumentParser(
        description="Carry out pages that show their output, and write them back."
    )
    parser.add_argument("pages", nargs="*", choices=[*PAGES, []], help="by name (default: all)")
    for name in parser.parse_args(arguments).pages or PAGES:
        page = DOCS / f"{name}.md"
        with tempfile.TemporaryDirectory() as folder:
            shown = carried_out(page.read_text(encoding="utf-8"), Path(folder))
            for figure in figures(shown):
                shutil.copy(Path(folder) / Path(figure).name, DOCS / figure)
        page.write_text(shown, encoding="utf-8")
        print(page)
    return 0


def carried_out(text: str, folder: Path) -> str:
    """A page with the output of its blocks, executed in an empty folder.

    Raises:
        Exception: an exception raised by a block of Python.
        RuntimeError: a command fails.
    """
    names: dict[str, Any] = {"__name__": "page"}
    with _working_in(folder):
        return _BLOCK.sub(lambda match: _block_with_output(match[1], match[2], names), text)


def figures(text: str) -> list[str]:
    """Names of the figures drawn by a page's blocks."""
    return _FIGURE.findall(text)


@contextlib.contextmanager
def _working_in(folder: Path) -> Iterator[None]:
    """Work in a folder on Python's path; figures have the same bytes every time."""
    import matplotlib as mpl

    previous = Path.cwd()
    os.environ["SOURCE_DATE_EPOCH"] = "0"
    sys.path.insert(0, str(folder))
    os.chdir(folder)
    try:
        with mpl.rc_context({"backend": "agg", "svg.hashsalt": "fedge"}):
            yield
    finally:
        os.chdir(previous)
        sys.path.remove(str(folder))
        del os.environ["SOURCE_DATE_EPOCH"]


def _block_with_output(language: str, code: str, names: dict[str, Any]) -> str:
    """A block and, if it printed anything, its output."""
    block = f"```{language}\n{code}```\n"
    if name := _NAME.match(code):
        Path(name[1]).write_text(code, encoding="utf-8")
        return block
    output = _python_output(code, names) if language == "python" else _command_output(code)
    return f"{block}\n```text\n{_shortened(steady(output))}```\n" if output.strip() else block


def _python_output(code: str, names: dict[str, Any]) -> str:
    """Output of a block of Python."""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(compile(code, "page", "exec"), names)
    return output.getvalue()


def _command_output(lines: str) -> str:
    """Output of commands, one after the other.

    Raises:
        RuntimeError: one of them fails.
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    variables = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    result = subprocess.run(
        ["bash", "-euc", lines], env={**os.environ, **variables, "PATH": path}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    if result.returncode:
        raise RuntimeError(f"{lines}{result.stdout}{result.stderr}")
    return result.stdout


def _shortened(output: str) -> str:
    """An output, without its middle if it is long."""
    lines = [line.rstrip() for line in output.rstrip().splitlines()]
    if len(lines) > _HEAD + _TAIL + 1:
        lines = [*lines[:_HEAD], "…", *lines[-_TAIL:]]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
