"""``fedge docs``: the documentation, offline, as a site in a browser or in the terminal."""

import argparse
import os
import sys
import webbrowser
from pathlib import Path
from typing import Any

from fedge.config.registers.option import ConfigError, nearest
from fedge.launch.projects.packaged import packaged_folder

_HOME = "index"  # the start page, which is README


def add_docs(commands: Any) -> None:
    """Add the subcommand ``docs``."""
    docs = commands.add_parser(
        "docs",
        help="open the documentation, offline, or print one of its pages",
        also=("documentation", "manual", "man"),
    )
    docs.add_argument("page", nargs="?", help="name of a page, as clustering or docs/clustering.md")
    docs.add_argument("--list", action="store_true", help="list all pages with their titles")
    docs.add_argument(
        "--print", action="store_true", help="print the page in the terminal, even if the site is installed"
    )
    docs.set_defaults(command=_docs)


def _docs(options: argparse.Namespace) -> int:
    """Carry out ``fedge docs``."""
    pages = page_files()
    name = _page_name(options.page, pages)
    site = site_folder()
    if options.list or (options.page is None and site is None):
        _print_list(pages)
    elif site is None or options.print:
        _print_page(pages[name])
    else:
        _open_page(site / f"{name}.html")
    return 0


def page_files() -> dict[str, Path]:
    """Every page of the documentation, name → Markdown file; README is "index".

    Raises:
        ConfigError: the installation has none.
    """
    root = packaged_folder()
    pages = {path.stem: path for path in sorted((root / "docs").glob("*.md"), key=lambda path: path.stem)}
    readme = pages.pop(_HOME, root / "README.md")
    if not pages or not readme.is_file():
        raise ConfigError(
            f"Fedge's installation must have its documentation, but {root} has none; reinstall Fedge"
        )
    return {_HOME: readme, **pages}


def site_folder() -> Path | None:
    """Folder of the built site: the wheel's, or the one made by `make docs`; None without one."""
    site = packaged_folder() / "site"
    return site if (site / "index.html").is_file() else None


def _page_name(page: str | None, pages: dict[str, Path]) -> str:
    """Name of a page, given with or without its folder and suffix.

    Raises:
        ConfigError: there is no page of this name.
    """
    name = (page or _HOME).removeprefix("docs/").removesuffix(".md").lower()
    name = _HOME if name == "readme" else name
    if name not in pages:
        raise ConfigError(
            f"the page must be one of the documentation, but is {page!r}"
            f"{nearest(name, tuple(pages)) or '; fedge docs --list lists them'}"
        )
    return name


def _print_list(pages: dict[str, Path]) -> None:
    """Print names and titles, one per line."""
    width = max(map(len, pages))
    for name, path in pages.items():
        with path.open(encoding="utf-8") as lines:
            print(f"{name:{width}}  {next(lines).removeprefix('#').strip()}")


def _print_page(path: Path) -> None:
    """Print a page: rendered on a terminal, verbatim otherwise."""
    text = path.read_text(encoding="utf-8")
    if not sys.stdout.isatty():
        print(text, end="")
        return
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    with console.pager(styles=True):
        console.print(Markdown(text))


def _open_page(page: Path) -> None:
    """Print the path of a page of the site, and open it in a browser if there is a screen."""
    print(page)
    screen = sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if screen and sys.stdout.isatty():
        webbrowser.open(page.resolve().as_uri())
