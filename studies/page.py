"""Makes docs/results.md, its figures and numbers, and the summary in docs/expect.md from studies/*.toml.

    python -m studies.page [--studies studies] [--docs docs]

The words of the first page are in studies/discussion.md; every number comes from the runs.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from fedge.report.comparison.sweep_page import Comparison
from studies import figures
from studies import result_tables as tables
from studies.measures import MissingRuns, Study, by_label, read_study
from studies.numbers import numbers

HERE = Path(__file__).parent
PAGE, SUMMARY, FIGURES, NUMBERS = "results.md", "expect.md", "results", "results/{}.csv"
BEGIN, END = "<!-- printed by `make results` -->", "<!-- end of results -->"
_MARK = "<!-- {} -->"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page; 2 with one line on stderr when runs are missing."""
    parser = argparse.ArgumentParser(description="Make docs/results.md from the runs of studies/*.toml.")
    parser.add_argument("--studies", type=Path, default=HERE, help="folder of the sweep files")
    parser.add_argument("--docs", type=Path, default=HERE.parent / "docs", help="folder to write into")
    options = parser.parse_args(arguments)
    try:
        studies = [read_study(path) for path in sorted(options.studies.glob("*.toml"))]
    except MissingRuns as missing:
        print(f"studies: {missing}", file=sys.stderr)
        return 2
    write_page(studies, (options.studies / "discussion.md").read_text(encoding="utf-8"), options.docs)
    numbers_path = options.docs / NUMBERS.format("studies")
    numbers_path.write_text(numbers(studies), encoding="utf-8")
    write_summary(studies, options.docs / SUMMARY)
    print(options.docs / PAGE, numbers_path, options.docs / SUMMARY, sep="\n")
    return 0


def write_page(studies: Sequence[Study], discussion: str, docs: Path) -> None:
    """Write page and figures.

    Args:
        studies: in the order of the page; the first is drawn.
        discussion: Markdown, in which a line ``<!-- NAME -->`` stands for a table: total, found, whole, both,
            published, control, cost, target, spread, figures.
        docs: folder to write into.
    """
    (docs / FIGURES).mkdir(parents=True, exist_ok=True)
    titled, planted, controls = _titled_comparisons(studies)
    first_title, first = titled[0]
    cells_by_name = {
        "published": tables.published_cells(planted + controls),
        "costs": tables.cost_cells(planted + controls),
        "spread": tables.spread_cells(first),
        "gains": tables.gain_cells(planted),
        "controls": tables.control_cells(controls),
    }
    for name, cells in cells_by_name.items():
        (docs / NUMBERS.format(name)).write_text(tables.as_csv(*cells), encoding="utf-8")
    parts = {
        "total": tables.total_line(studies),
        "found": tables.found_table(planted),
        "whole": tables.whole_table(controls),
        "both": tables.markdown(*tables.gain_cells(planted, tables.marked_points)),
        "published": tables.published_line(cells_by_name["published"]),
        "control": tables.markdown(*tables.control_cells(controls, tables.marked_points)),
        "cost": tables.cost_line(cells_by_name["costs"]),
        "target": tables.target_table(first),
        "spread": tables.spread_table(first),
        "figures": _draw_figures(first_title, first, docs / FIGURES),
    }
    for name, text in parts.items():
        discussion = discussion.replace(_MARK.format(name), text.rstrip("\n"))
    (docs / PAGE).write_text(discussion, encoding="utf-8")


def write_summary(studies: Sequence[Study], page: Path) -> None:
    """Put the summary between the two marks of a page."""
    _, planted, controls = _titled_comparisons(studies)
    put_between(tables.summary_table(planted + controls), page, BEGIN, END)


def put_between(text: str, page: Path, begin: str, end: str) -> None:
    """Put a text between two marks of a page; one without them, or none, stays as it is."""
    page_text = page.read_text(encoding="utf-8") if page.exists() else ""
    before, has_begin, rest = page_text.partition(begin)
    _, has_end, after = rest.partition(end)
    if has_begin and has_end:
        page.write_text(f"{before}{begin}\n\n{text}\n{end}{after}", encoding="utf-8")


Titled = list[tuple[str, Comparison]]


def _titled_comparisons(studies: Sequence[Study]) -> tuple[Titled, Titled, Titled]:
    """All comparisons with their titles, those with planted groups, and those without."""
    titled = [pair for study in studies for pair in titled_of(study)]
    planted = [(title, c) for title, c in titled if "oracle" in by_label(c)]
    controls = [(t, c) for t, c in titled if "hierfl" in by_label(c) and "oracle" not in by_label(c)]
    return titled, planted, controls


def titled_of(study: Study) -> Titled:
    """The comparisons of a study with their titles."""
    return [(_comparison_title(study, comparison), comparison) for comparison in study.comparisons]


def _comparison_title(study: Study, comparison: Comparison) -> str:
    """Data and number of leaves of a comparison, and its scenario, as "motionsense-6, rotate"."""
    config = comparison.groups[0].runs[0].config
    data = "+".join(Path(path.strip()).stem for path in str(config["data.path"]).split(","))
    return f"{data}-{config['hierarchy.num-servers']}, {comparison.title or study.sweep.name}"


def section(study: Study) -> str:
    """The accuracies of one study: its description, then a table per scenario."""
    lines = study.sweep.path.read_text(encoding="utf-8").splitlines()
    description = " ".join(line.removeprefix("# ") for line in lines[: lines.index("[sweep]")] if line)
    config = study.comparisons[0].groups[0].runs[0].config
    text = [f"### {study.sweep.name}", "", f"{description} {config['num-server-rounds']} rounds.", ""]
    for comparison in study.comparisons:
        text += [f"**{comparison.title}**", ""] if comparison.title else []
        text += [tables.accuracy_table(comparison)]
    return "\n".join(text)


def _draw_figures(title: str, comparison: Comparison, folder: Path) -> str:
    """Draw the figures of one comparison; returns Markdown with the figures."""
    figures.curves(comparison, "test_accuracy_mean", "accuracy, seen users", folder / "seen.svg")
    figures.curves(comparison, "unseen_accuracy_mean", "accuracy, unseen users", folder / "unseen.svg")
    figures.seen_and_unseen(comparison, folder / "both.svg")
    captions = {
        "seen": f"{title}: seen users by round, mean over seeds, band from lowest to highest",
        "unseen": f"{title}: unseen users by round",
        "both": f"{title}: models served to known clients (fine-tuned) and unseen ones; dots are seeds",
    }
    return "\n\n".join(f"![{name}]({FIGURES}/{name}.svg)\n\n*{text}*" for name, text in captions.items())


if __name__ == "__main__":
    sys.exit(main())
