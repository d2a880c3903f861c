"""Parts of a page, and one HTML file of them that needs no network.

Everything can be read without a script; where there is one, it shows values where one points, and copies.
"""

import base64
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from fedge.console.palette import css_variables
from fedge.process.durable import write_new
from fedge.process.escape import on_page
from fedge.report.html.points import Points
from fedge.report.html.svg import to_svg
from fedge.report.html.tables import NumberTable
from fedge.report.html.tree import Branch


@dataclass(frozen=True)
class Panel:
    """A figure with its numbers, or numbers alone.

    Attributes:
        title: of the page.
        table: the numbers of the figure.
        figure: drawn within `figure_style`.
        caption: how to read it, in a sentence or two.
        is_open: whether the table is shown without being asked for.
        is_wide: whether the panel takes the width of the page.
        points: the figure's key below it, which shows values where one points; None for a figure that has
            its key drawn.
        tree: servers, drawn as nested rows.
        views: (words, panel) of a panel that is nothing but a choice of others; one is shown at a time.
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
    """A part of a page: sentences, then panels, text to copy, and links (words, file beside the page).

    `copies` are texts that are shown when they are asked for: name, text.
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
    """A notice before any number."""

    level: Literal["error", "warning", "note"]
    text: str


@dataclass(frozen=True)
class Tile:
    """A number that is read first."""

    label: str
    value: str
    detail: str = ""


@dataclass(frozen=True)
class Page:
    """A whole page.

    Attributes:
        title: in the window and on top.
        lead: introduction, a paragraph each.
        badge: status, or nothing.
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
        """Whether something on it can be pointed at or copied."""
        shown = [panel for s in self.sections for panel in s.panels]
        shown += [view for panel in shown for _, view in panel.views]
        return any(s.copies for s in self.sections) or any(panel.points for panel in shown)


class _Templates(PackageLoader):
    """Templates under names that end in .md: Flower's app bundles take .py, .toml and .md only."""

    def get_source(
        self, environment: Environment, template: str
    ) -> tuple[str, str, Callable[[], bool] | None]:
        """The text of a template."""
        return super().get_source(environment, f"{template}.md")


def render(page: Page) -> str:
    """The page as HTML. Everything but our own SVG and CSS is escaped."""
    environment = Environment(
        loader=_Templates("fedge.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=_finalize,
    )  # fmt: skip
    css, script = (
        environment.loader.get_source(environment, name)[0]  # type: ignore[union-attr]
        for name in ("style.css", "points.js")
    )
    return environment.get_template("page.html").render(
        page=page,
        css=Markup(css),
        light=Markup(_css(css_variables(dark=False))),
        dark=Markup(_css(css_variables(dark=True))),
        svg=_svg_maker(),
        script=Markup(script) if page.has_script else "",
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        points=lambda panel: json.dumps(panel.points.as_json(), ensure_ascii=False, separators=(",", ":")),
    )


def _finalize(value: Any) -> Any:
    """A value as it is shown; our own SVG and CSS stay."""
    return on_page(value) if type(value) is str else value


def write_page(page: Page, path: Path) -> None:
    """Write the page to `path`, whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write_new(temporary, render(page).encode())
        temporary.replace(path)
    finally:
        with suppress(OSError):  # a full disk raises above
            temporary.unlink(missing_ok=True)


def _css(variables: dict[str, str]) -> str:
    """CSS declarations."""
    return " ".join(f"{name}: {value};" for name, value in variables.items())


def _svg_maker() -> Callable[[Panel], Markup]:
    """Function that draws the figure of a panel; it numbers the figures of the page."""
    number = 0

    def draw(panel: Panel) -> Markup:
        nonlocal number
        number += 1
        assert panel.figure is not None
        return Markup(to_svg(panel.figure, f"f{number}", f"{panel.title}. {panel.caption}"))

    return draw
