"""The points of a figure: the page's script shows their values in its key when one points at them.

One small script of our own and not a library: the figure that it is laid over is the SVG that prints, is
read aloud, follows light and dark and needs no script; a library would draw it a second time, on a canvas or
in its own way, with 50 kB (uPlot) to more than a megabyte (Plotly) on every page.
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
    """One entry of a figure's key.

    Attributes:
        label: its name.
        colour, dashes: as it is drawn.
        points: (x, y, words for x, words for the value), in the units of the axes; y may be NaN.
        shown: the words beside its name while nobody points anywhere.
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
    """The key of a figure and its data.

    Attributes:
        axes: that it was drawn in.
        series: one per entry.
        near: "x" shows every series at the place pointed at, "xy" the nearest point alone.
        shown: the words above the key while nobody points anywhere.
    """

    axes: Axes
    series: Sequence[Series]
    near: Literal["x", "xy"] = "x"
    shown: str = ""

    def as_json(self) -> dict[str, Any]:
        """The points in the units of the SVG; to be called after the figure has been drawn.

        Points that no drawing shows (NaN, outside the axes) are left out.
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

        def place(x: float, y: float) -> tuple[float, float]:
            across, up = to_axes.transform((x, y))
            return round(left + across * (right - left), 1), round(bottom - up * (bottom - top), 1)

        return {
            "box": [round(edge, 1) for edge in (left, top, right, bottom)],
            "near": self.near,
            "series": [
                [
                    [*place(x, y), at, value]
                    for x, y, at, value in one.points
                    if math.isfinite(x) and math.isfinite(y)
                ]
                for one in self.series
            ],
        }
