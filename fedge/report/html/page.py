"""Parts of a page, rendered as one HTML file that needs no network.

Pages are readable without scripts; a script shows values at the pointer and adds copy buttons.
"""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from matplotlib.figure import Figure

from fedge.console.palette import css_variables
from fedge.process.durable import write_output
from fedge.process.escape import on_page
from fedge.report.html.points import Points
from fedge.report.html.svg import to_svg
from fedge.report.html.tables import NumberTable
from fedge.report.html.tree import Branch


@dataclass(frozen=True)
class Panel:
    """A figure with its numbers, or numbers alone.

    Attributes:
        title: title of the panel.
        table: numbers of the figure.
        figure: figure drawn within `figure_style`.
        caption: one or two sentences on how to read it.
        is_open: whether the table is initially shown.
        is_wide: whether the panel has the width of the page.
        points: legend below the figure with values at the pointer; None for a figure with its own legend.
        tree: servers as nested rows.
        views: (words, panel) of alternative panels, shown one at a time; for panels without other content.
    """

    title: str
    table: NumberTable | None = None
    figure: Figure | None = None
    caption: str = ""
    is_open: bool = False
    is_wide: bool = False
    points: Points | None = None
    tree: Branch | None = None
    views: Sequence[tuple[str, "Panel"]] = ()


@dataclass(frozen=True)
class PageSection:
    """Section of a page: sentences, then panels, text to copy, and links (words, file beside the page).

    `copies` are (name, text) pairs, initially hidden.
    """

    title: str
    text: Sequence[str] = ()
    panels: Sequence[Panel] = ()
    code: str = ""
    links: Sequence[tuple[str, str]] = ()
    copies: Sequence[tuple[str, str]] = ()

    @property
    def anchor(self) -> str:
        """Name of the section in links."""
        return self.title.lower().replace(" ", "-")


@dataclass(frozen=True)
class Notice:
    """Notice before any number."""

    level: Literal["error", "warning", "note"]
    text: str


@dataclass(frozen=True)
class Tile:
    """A headline number."""

    label: str
    value: str
    detail: str = ""


@dataclass(frozen=True)
class Page:
    """A whole page.

    Attributes:
        title: shown in the window and at the top.
        lead: introduction, one string per paragraph.
        badge: status, or empty.
        footer: origin of the page: program, time, sources.
    """

    title: str
    lead: Sequence[str]
    footer: str
    badge: str = ""
    notices: Sequence[Notice] = ()
    tiles: Sequence[Tile] = ()
    sections: Sequence[PageSection] = ()

    @property
    def has_script(self) -> bool:
        """Whether the page has anything to point at or to copy."""
        shown = [panel for s in self.sections for panel in s.panels]
        shown += [view for panel in shown for _, view in panel.views]
        return any(s.copies for s in self.sections) or any(panel.points for panel in shown)


class _Templates(PackageLoader):
    """Templates with names ending in .md, because Flower's app bundles accept only .py, .toml and .md."""

    def get_source(
        self, environment: Environment, template: str
    ) -> tuple[str, str, Callable[[], bool] | None]:
        """Source of a template."""
        return super().get_source(environment, f"{template}.md")


def render(page: Page) -> str:
    """The page as HTML. Everything but Fedge's own SVG and CSS is escaped."""
    environment = Environment(
        loader=_Templates("fedge.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=_finalize,
    )  # fmt: skip
    environment.filters["kept"] = _unbroken_times
    css, script = (
        environment.loader.get_source(environment, name)[0]  # type: ignore[union-attr]
        for name in ("style.css", "points.js")
    )
    return environment.get_template("page.html").render(
        page=page,
        css=Markup(css),
        light=Markup(_css_declarations(css_variables(dark=False))),
        dark=Markup(_css_declarations(css_variables(dark=True))),
        svg=_svg_maker(),
        script=Markup(script) if page.has_script else "",
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        points=lambda panel: json.dumps(panel.points.as_json(), ensure_ascii=False, separators=(",", ":")),
    )


def _finalize(value: Any) -> Any:
    """A value as shown; Fedge's own SVG and CSS are unchanged."""
    return on_page(value) if type(value) is str else value


_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)? UTC")


def _unbroken_times(text: str) -> Markup:
    """A text in which times are never broken across lines."""
    return Markup(_TIME.sub(r"<time>\g<0></time>", str(escape(on_page(text)))))


def write_page(page: Page, path: Path) -> None:
    """Write the page to `path` atomically."""
    write_output(path, render(page).encode())


def _css_declarations(variables: dict[str, str]) -> str:
    """CSS declarations."""
    return " ".join(f"{name}: {value};" for name, value in variables.items())


def _svg_maker() -> Callable[[Panel], Markup]:
    """Function rendering the figure of a panel; it numbers the figures of the page."""
    number = 0

    def draw(panel: Panel) -> Markup:
        nonlocal number
        number += 1
        assert panel.figure is not None
        return Markup(to_svg(panel.figure, f"f{number}", f"{panel.title}. {panel.caption}"))

    return draw
