"""The site as `make docs` builds it: strictly, nothing from elsewhere, with what is made from the code."""

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from accessible import contrast

import fedge
from fedge.config.flat import options
from tools.site import PUBLIC

pytestmark = pytest.mark.whole_runs

ROOT = Path(__file__).parents[1]
LOADED = re.compile(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"([^\"]+)|<link\b([^>]*)>")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site, built as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_no_page_loads_anything_from_elsewhere(site):
    """Scripts, pictures, styles and fonts are files of the site, or in the page."""
    for page in site.rglob("*.html"):
        for source, link in LOADED.findall(page.read_text(encoding="utf-8")):
            href = re.search(r'href="([^"]+)', link)
            assert not (source or (href[1] if href else "")).startswith(("http:", "https:", "//")), page
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(\s*['\"]?(https?:)?//", style.read_text(encoding="utf-8")), style


def test_text_can_be_read(site):
    """The colours of docs/assets/site.css have a contrast of 4.5 at least on what is behind them."""
    style = (site / "assets" / "site.css").read_text(encoding="utf-8")
    behind = {
        "--md-primary-fg-color": "#ffffff",  # the header's white words, too
        "--md-typeset-a-color": "#ffffff",
        "--md-code-hl-number-color": "#272a35",
        "--md-code-hl-constant-color": "#272a35",
        ".md-copyright { color": "#171717",
    }
    for name, paper in behind.items():
        (ink,) = re.findall(rf"{re.escape(name)}: (#[0-9a-f]{{6}});", style)
        assert contrast(ink, paper) >= 4.5, name


def test_dialogs_have_names_and_colours_are_the_system_s(site):
    """For a screen reader, and at night; the theme leaves both to the site."""
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert re.findall(r'<[^>]*role="(?:alert)?dialog"(?![^>]*aria-label)[^>]*>', text) == [], page
    first = re.search(r"<input[^>]*data-md-color-media[^>]*>", (site / "index.html").read_text("utf-8"))
    assert 'data-md-color-media="(prefers-color-scheme)"' in first[0]


def test_the_keyboard_scrolls_wide_tables(site):
    """Every table is in a place that scrolls and takes the focus, as tables of reports are."""
    pages = [page.read_text(encoding="utf-8") for page in site.rglob("*.html")]
    assert sum(page.count("<table>") for page in pages) > 100
    for page in pages:
        assert not re.search(r'(?<!<div class="md-typeset__table">)<table>', page)
        assert page.count('<div class="md-typeset__scrollwrap" tabindex="0"') == page.count("<table>")


def test_what_is_made_from_the_code_is_there(site):
    """Every command, every option, every package, and README as the first page."""
    commands = (site / "commands.html").read_text(encoding="utf-8")
    assert {"run", "resume", "sweep", "compare"} <= set(re.findall(r'id="fedge-([\w-]+)"', commands))
    assert "<code>--workers WORKERS</code>" in commands
    page = (site / "options.html").read_text(encoding="utf-8")
    assert all(f"<code>{key}</code>" in page for key in options())
    assert 'id="fedge.states.averaging.weighted_mean"' in (site / "api/states.html").read_text(
        encoding="utf-8"
    )
    for page, name in (("model", "Gru"), ("method", "largest_gap"), ("gate", "probably_better")):
        assert f'class="n{"c" if name == "Gru" else "f"}">{name}<' in (site / f"own-{page}.html").read_text()
    assert "Two commands" in (site / "index.html").read_text(encoding="utf-8")


def test_no_link_is_named_by_a_file_of_the_docs(site):
    """A page is named by its title; in the folder api, links had the names of files."""
    for page in site.rglob("*.html"):
        named = re.findall(r"<a [^>]*>(?:docs/)?([\w-]+\.md)</a>", page.read_text(encoding="utf-8"))
        assert [name for name in named if (ROOT / "docs" / name).is_file()] == [], page


def test_every_public_name_has_its_entry(site):
    """Those of `import fedge`, and the parts that a user's code is made of, with arguments and errors."""
    page = (site / "api/index.html").read_text(encoding="utf-8")
    listed = [name for names in PUBLIC.values() for name in names]
    assert {name.rpartition(".")[2] for name in listed} == set(fedge.__all__)
    for name in listed:
        module, _, last = name.rpartition(".")
        thing = getattr(importlib.import_module(module), last)
        assert getattr(fedge, last) is thing
        assert f'id="{name}"' in page, name
        assert inspect.getdoc(thing), name
    assert page.count("Parameters:") + page.count("Attributes:") >= len(listed) * 2 // 3
    assert 'id="fedge.algorithm.algorithm.Algorithm.train"' in page  # methods, too


def test_examples_of_docstrings_are_code(site):
    """Markdown would take ``>>>`` for a quotation of a quotation."""
    for page in (site / "api").glob("*.html"):
        assert "<blockquote>" not in page.read_text(encoding="utf-8"), page


def test_what_leads_nowhere_ends_the_build(tmp_path):
    """A page, an anchor; a page without a place is held by tests/test_house.py."""
    (tmp_path / "tools").symlink_to(ROOT / "tools")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "there.md").write_text("# There\n")
    faults = {"nowhere.md": "[page](nowhere.md)", "#no": "[anchor](there.md#no)"}
    (tmp_path / "docs" / "index.md").write_text("\n\n".join(["# Home", *faults.values()]))
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    config = re.sub(r"^nav:.*", "nav: [index.md, there.md]\n", config, flags=re.DOTALL | re.MULTILINE)
    (tmp_path / "mkdocs.yml").write_text(re.sub(r"^(hooks|extra_css):.*\n", "", config, flags=re.MULTILINE))
    words = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    for telling in faults:
        assert re.search(f"(WARNING|ERROR).*{re.escape(telling)}", done.stdout + done.stderr), telling
