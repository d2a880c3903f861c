"""Data points of a figure, whose values the page's script shows in the legend at the pointer.

The script is a small one of Fedge's own instead of a library: it overlays the SVG figure, which prints, is
accessible, follows light and dark mode and needs no script. A library would draw the figure again, on a
canvas or otherwise, with 50 kB (uPlot) to over a megabyte (Plotly) on every page.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from matplotlib.axes import Axes

from fedge.console.palette import css_name

_DASHES = {"solid": "", "dashed": "6 3", "dotted": "2 2", "dashdot": "6 2 2 2"}


@dataclass(frozen=True)
class Series:
    """One legend entry of a figure.

    Attributes:
        label: its name.
        colour, dashes: style of its line.
        points: (x, y, words for x, words for the value), in the units of the axes; y may be NaN.
        shown: words beside its name when there is no pointer.
    """

    label: str
    colour: str
    dashes: str
    points: Sequence[tuple[float, float, str, str]]
    shown: str

    @property
    def stroke(self) -> str:
        """Its colour in CSS."""
        name = css_name(self.colour)
        return f"var({name})" if name else self.colour

    @property
    def dash_array(self) -> str:
        """Its line style in SVG."""
        return _DASHES[self.dashes]


@dataclass(frozen=True)
class Points:
    """Legend and data of a figure.

    Attributes:
        axes: axes in which it was drawn.
        series: one per legend entry.
        near: "x" shows every series at the pointer's x, "xy" only the nearest point.
        shown: words above the legend when there is no pointer.
    """

    axes: Axes
    series: Sequence[Series]
    near: Literal["x", "xy"] = "x"
    shown: str = ""

    def as_json(self) -> dict[str, Any]:
        """Points in the units of the SVG; to be called after the figure has been rendered.

        Points not visible in the figure (NaN) are left out.
        """
        figure = self.axes.get_figure()
        assert figure is not None
        width, height = 72 * figure.get_figwidth(), 72 * figure.get_figheight()  # type: ignore[union-attr]
        box = self.axes.get_position()
        left, right, top, bottom = (
            box.x0 * width,
            box.x1 * width,
            (1 - box.y1) * height,
            (1 - box.y0) * height,
        )
        to_axes = self.axes.transData + self.axes.transAxes.inverted()

        def to_svg_point(x: float, y: float) -> tuple[float, float]:
            across, up = to_axes.transform((x, y))
            return round(left + across * (right - left), 1), round(bottom - up * (bottom - top), 1)

        return {
            "box": [round(edge, 1) for edge in (left, top, right, bottom)],
            "near": self.near,
            "series": [
                [
                    [*to_svg_point(x, y), position, value]
                    for x, y, position, value in entry.points
                    if math.isfinite(x) and math.isfinite(y)
                ]
                for entry in self.series
            ],
        }
