"""Types of the names that documentation and examples import, as a type checker of a user's sees them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_IMPORT = re.compile(r"from ((?:fedge|hhar)[\w.]*) import ([A-Za-z]\w*(?:, [A-Za-z]\w*)*)")


def _imported() -> dict[str, str]:
    """Name → its module, of every import of Fedge in pages, notebooks and examples."""
    kinds = ("*.md", "*.ipynb", "*.py")
    pages = [ROOT / "README.md"]
    pages += [
        page for folder in ("docs", "examples") for kind in kinds for page in (ROOT / folder).rglob(kind)
    ]
    found: dict[str, str] = {}
    for page in pages:
        for module, names in _IMPORT.findall(page.read_text(encoding="utf-8")):
            found |= dict.fromkeys(names.split(", "), module)
    return found


@pytest.mark.extended
def test_every_name_that_pages_import_has_its_type(tmp_path: Path) -> None:
    """mypy --strict refuses a class of a user's whose base is of unknown type."""
    names = _imported()
    assert {"Callback", "Algorithm", "Task", "Windows"} <= set(names)
    lines = [f"from {module} import {name}" for name, module in names.items()]
    lines += [
        "import fedge",
        *(f"fedge.{name}" for name in ("simulate", "load_run", "compare", "ConfigError")),
    ]
    lines += [
        f"class Mine{number}({name}): ..." for number, name in enumerate(("Callback", "Algorithm", "Task"))
    ]
    (tmp_path / "mine.py").write_text("\n".join([*lines, *(f"reveal_type({name})" for name in names)]) + "\n")
    words = [sys.executable, "-m", "mypy", "--strict", f"--cache-dir={tmp_path}", "mine.py"]
    environment = {"MYPYPATH": "", "PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout
    assert '"Any"' not in ended.stdout, ended.stdout
    assert ended.stdout.count("Revealed type") == len(names)
