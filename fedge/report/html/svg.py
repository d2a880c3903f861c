"""Matplotlib figures as inline SVG: text stays text, colours become CSS variables, bytes are reproducible."""

import io
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, MaxNLocator

from fedge.console.palette import FAINT, INK, css_name
from fedge.process.escape import on_page

WIDTH_IN = 5.0  # 360 pt, the width of a phone, where text is not scaled

_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "fedge",  # otherwise ids are random
    "text.parse_math": False,  # a $ in a class name is just a $
    "font.size": 11,
    "font.family": "DejaVu Sans",  # part of Matplotlib; the page's own font is narrower
    "axes.labelsize": 11,
    "legend.fontsize": 10,
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.5,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "axes.formatter.use_mathtext": False,
    "axes.formatter.useoffset": False,
}


@contextmanager
def figure_style() -> Iterator[None]:
    """Context with the figure style of reports."""
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "Glyph .* missing from font"
        )  # text stays text: the browser has fonts
        yield


def new_figure(height_in: float = 2.9) -> tuple[Figure, Axes]:
    """An empty figure of the usual width with one pair of axes."""
    figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
    return figure, figure.add_subplot()


def new_figures(count: int, height_in: float) -> tuple[Figure, list[Axes]]:
    """An empty figure of the usual width with `count` pairs of axes, stacked vertically."""
    figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
    grid = figure.subplots(count, 1, sharex=True, squeeze=False)
    return figure, list(grid[:, 0])


def integer_ticks(axes: Axes) -> None:
    """Restrict the x axis to whole numbers, for rounds."""
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=7, min_n_ticks=1))


def legend_below(figure: Figure, axes: Axes, columns: int = 3) -> None:
    """Place the legend below the axes, where it hides nothing."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower left", ncols=columns, handlelength=1.8)


def stacked_over_rounds(
    rounds: Sequence[int], parts: Sequence[tuple[str, np.ndarray, str]], ylabel: str
) -> Figure:
    """Stacked quantities over rounds, as steps.

    Args:
        rounds: round numbers in ascending order, at least one.
        parts: (label, (rounds,) float64, colour), from the bottom to the top.
        ylabel: label of the y axis.
    """
    figure, axes = new_figure()
    edges = np.append(np.array(rounds) - 0.5, rounds[-1] + 0.5)
    base = np.zeros(len(rounds))
    for label, values, hex_colour in parts:
        axes.stairs(base + values, edges, baseline=base, fill=True, color=hex_colour, label=label)
        base = base + values
    axes.set_xlabel("global round")
    axes.set_ylabel(ylabel)
    axes.set_ylim(bottom=0)
    integer_ticks(axes)
    legend_below(figure, axes)
    return figure


def to_svg(figure: Figure, name: str, description: str) -> str:
    """`figure` as an SVG element for an HTML page.

    Args:
        figure: drawn within `figure_style`.
        name: unique on the page; prefix of all ids, which Matplotlib repeats across figures.
        description: text for screen readers.
    """
    stream = io.StringIO()
    _escape_texts(figure)
    figure.savefig(
        stream, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
    )
    svg = on_page(stream.getvalue())
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<[^>]+>", lambda tag: _fit_tag(tag.group(), name), svg)
    label = re.sub(r'[<>&"]', " ", on_page(description))
    opening_tag = r'^<svg [^>]*?(viewBox="[^"]*")[^>]*>'
    return re.sub(opening_tag, lambda tag: f'<svg {tag[1]} role="img" aria-label="{label}">', svg)


def _escape_texts(figure: Figure) -> None:
    """Escape characters in a figure's texts that a page cannot contain; Matplotlib cannot draw surrogates."""
    for text in figure.findobj(Text):
        text.set_text(on_page(text.get_text()))
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        formatter = axis.get_major_formatter()
        if isinstance(formatter, FuncFormatter):  # tick labels are names
            formatter.func = partial(_label_on_page, formatter.func)


def _label_on_page(label: Callable[[float, int | None], str], value: float, position: int | None) -> str:
    return on_page(label(value, position))


def _fit_tag(tag: str, name: str) -> str:
    """A tag with unique ids, colours as variables and only visible digits."""
    tag = re.sub(r'\b(id="|href="#|url\(#)', rf"\g<1>{name}-", tag)
    tag = re.sub(r"#[0-9a-f]{6}\b", lambda match: _css_variable(match.group()), tag)
    tag = re.sub(r"(\d\.\d\d)\d+", r"\1", tag)  # a hundredth of a point is enough
    return re.sub(r"\s*\n\s*", " ", tag)


def _css_variable(hex_colour: str) -> str:
    """CSS variable of a palette colour; any other colour unchanged."""
    name = css_name(hex_colour)
    return f"var({name})" if name else hex_colour
