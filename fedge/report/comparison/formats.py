"""Final numbers as tables for papers and pages: Markdown, and LaTeX with booktabs."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from fedge.process.escape import printable
from fedge.report.comparison.finals import Final
from fedge.report.comparison.targets import VIRTUAL
from fedge.report.html.tables import NOTHING, text_of

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{",
    "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "−": "$-$", "–": "--", "±": r"$\pm$",
    "∞": r"$\infty$",
}  # fmt: skip
_MARKDOWN = re.compile(r"([\\|*_`<\[])")


def headlines(rows: Sequence[Final]) -> list[str]:
    """Metrics of a summary for which any group has a number."""
    ranks = {row.metric: row.headline for row in rows if row.over_seeds}
    times = [metric for metric in ranks if metric.startswith(VIRTUAL)]
    ranked = {metric: rank for metric, rank in ranks.items() if rank}
    return [*sorted(ranked, key=ranked.__getitem__), *times] or [rows[0].metric]


def value_text(row: Final) -> str:
    """Mean and interval, if any, e.g. "0.9123 (0.9011 to 0.9235)"."""
    result = row.over_seeds
    if result is None:
        return NOTHING
    interval = "" if result.low is None else f" ({text_of(result.low)} to {text_of(result.high)})"
    return text_of(result.mean) + interval


def as_markdown(rows: Sequence[Final]) -> str:
    """Summary as a Markdown table, one group per line, the best in bold."""
    metrics = headlines(rows)
    heads = [_MARKDOWN.sub(r"\\\1", printable(metric)) for metric in metrics]  # tasks name their scores
    lines = ["| " + " | ".join(("group", "n", *heads)) + " |", "|---|---:|" + "---|" * len(metrics)]
    for group, n, cells in _groups(rows, metrics):
        texts = [f"**{value_text(row)}**" if row.is_best else value_text(row) for row in cells]
        lines.append("| " + " | ".join((_MARKDOWN.sub(r"\\\1", group), str(n), *texts)) + " |")
    return "\n".join(lines)


def as_latex(rows: Sequence[Final]) -> str:
    """Summary as a LaTeX table (package booktabs), the best in bold."""
    metrics = headlines(rows)
    lines = [
        "% mean over seeds (95 % t-interval); \\usepackage{booktabs}",
        f"\\begin{{tabular}}{{lr{'l' * len(metrics)}}}",
        "\\toprule",
        " & ".join(["group", "$n$", *map(_latex, metrics)]) + r" \\",
        "\\midrule",
    ]
    for group, n, cells in _groups(rows, metrics):
        texts = [
            f"\\textbf{{{_latex(value_text(r))}}}" if r.is_best else _latex(value_text(r)) for r in cells
        ]
        name = _latex(group)
        is_argument = name.startswith("[")  # of the line break before it
        lines.append(" & ".join(["{}" * is_argument + name, str(n), *texts]) + r" \\")
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}"])


def _groups(rows: Sequence[Final], metrics: Sequence[str]) -> Iterator[tuple[str, int, list[Final]]]:
    """Each group with its number of finished seeds and its rows of some metrics."""
    row_of = {(row.group, row.metric): row for row in rows}
    for group in dict.fromkeys(row.group for row in rows):
        cells = [row_of[group, metric] for metric in metrics]
        yield printable(group), max(row.over_seeds.n if row.over_seeds else 0 for row in cells), cells


def _latex(text: str) -> str:
    """Text escaped for LaTeX."""
    return "".join(_LATEX.get(letter, letter) for letter in text)


FORMATS: Mapping[str, tuple[str, Callable[[Sequence[Final]], str]]] = {
    "markdown": ("Markdown", as_markdown),
    "latex": ("LaTeX", as_latex),
}
"""Formats of `fedge compare --format`: name in words, and writer."""
