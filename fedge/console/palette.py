"""Colours of all figures: Okabe and Ito's set, distinguishable for colour-blind people.

Figures are drawn in the light colours; `fedge.report.html.svg` turns each into a CSS variable, so one drawing
serves light and dark pages. Source: Okabe & Ito 2008, Color Universal Design (yellow is left out, as it is
invisible on white).
"""

# (name, on a light page, on a dark page)
SERIES = (
    ("blue", "#0072b2", "#4ba6e0"),
    ("vermillion", "#d55e00", "#f08a45"),
    ("green", "#009e73", "#2fc49a"),
    ("purple", "#cc79a7", "#e09cc3"),
    ("orange", "#e69f00", "#f2b632"),
    ("sky", "#56b4e9", "#8ccdf2"),
    ("grey", "#6e7681", "#9aa4af"),
)
INK = "#1b1f24"  # text and axes
FAINT = "#c9d1d9"  # grid
PAPER = "#fdfdfe"  # gaps between areas

_DARK = {INK: "#e6edf3", FAINT: "#3b434c", PAPER: "#14181d"}
_NAMES = {INK: "--ink", FAINT: "--faint", PAPER: "--paper"}
_DASHES = ("solid", "dashed", "dotted", "dashdot")


def colour(index: int) -> str:
    """Colour of leaf, cluster, class or group `index`, the same in every figure."""
    return SERIES[index % len(SERIES)][1]


def dashes(index: int) -> str:
    """Line style of leaf or group `index`, which differs between neighbours like the colour.

    Seven colours and four styles have no common divisor, so there are 28 distinct pairs.
    """
    return _DASHES[index % len(_DASHES)]


def css_name(hex_colour: str) -> str | None:
    """CSS variable of a colour above; None for any other."""
    if hex_colour in _NAMES:
        return _NAMES[hex_colour]
    return next((f"--{name}" for name, light, _ in SERIES if light == hex_colour), None)


def css_variables(dark: bool) -> dict[str, str]:
    """CSS variable → value, for a light or dark page."""
    variables = {f"--{name}": on_dark if dark else light for name, light, on_dark in SERIES}
    return variables | {variable: _DARK[c] if dark else c for c, variable in _NAMES.items()}
