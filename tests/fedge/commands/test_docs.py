"""`fedge docs`: pages by name, here from a checkout; tests/runs/use/test_wheel.py has a wheel's."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from fedge.cli import main
from fedge.commands import docs

ROOT = Path(__file__).parents[3]


@pytest.fixture
def without_site(monkeypatch):
    """An installation without the site, whatever `make docs` has left in this checkout."""
    monkeypatch.setattr(docs, "site_folder", lambda: None)


def test_every_page_is_listed_with_its_title(capsys, without_site):
    assert main(["docs"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert names == ["index", *sorted(path.stem for path in (ROOT / "docs").glob("*.md"))]
    assert main(["docs", "--list"]) == 0
    assert "clustering" in capsys.readouterr().out


@pytest.mark.parametrize("word", ["serving", "serving.md", "docs/serving.md"])
def test_a_page_is_printed_as_it_is_where_nobody_looks(capsys, without_site, word):
    assert main(["docs", word]) == 0
    assert capsys.readouterr().out == (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")


def test_readme_is_the_first_page(capsys):
    assert main(["docs", "--print", "README.md"]) == 0
    assert capsys.readouterr().out.startswith("# Fedge\n")


def test_a_page_that_is_not_there_leads_to_the_nearest(capsys):
    assert main(["docs", "clusterin"]) == 4
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "did you mean clustering?" in error


def test_the_site_opens_where_it_is(tmp_path, capsys, monkeypatch):
    site = tmp_path / "site"
    site.mkdir()
    (site / "index.html").touch()
    monkeypatch.setattr(docs, "site_folder", lambda: site)
    assert main(["docs", "privacy"]) == 0
    assert capsys.readouterr().out == f"{site / 'privacy.html'}\n"


@pytest.mark.whole_runs
def test_a_browser_is_asked_and_a_terminal_gets_a_laid_out_page(tmp_path):
    """On a real terminal: a browser that writes down what it was asked for; a pager that passes all on."""
    asked = tmp_path / "asked"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" >> {asked}\n')
    browser.chmod(0o755)
    environment = {**os.environ, "BROWSER": str(browser), "DISPLAY": ":1", "PAGER": "cat", "TERM": "xterm"}
    code = (
        "import sys; from pathlib import Path; from fedge.commands import docs; from fedge.cli import main\n"
        f"docs.site_folder = lambda: Path({str(tmp_path)!r}) if '--print' not in sys.argv else None\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    for words in (["docs", "trackers"], ["docs", "--print", "trackers"]):
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            [sys.executable, "-c", code, *words], env=environment, stdout=theirs, stderr=theirs, stdin=theirs
        ) as process:
            os.close(theirs)
            said = b""
            while piece := _read(ours):
                said += piece
        os.close(ours)
        assert process.returncode == 0, said
    assert asked.read_text() == f"{(tmp_path / 'trackers.html').as_uri()}\n"
    assert b"Trackers" in said
    assert b"# Trackers" not in said


def _read(terminal):
    """Bytes that came next on a terminal; none once the other end is closed."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""
