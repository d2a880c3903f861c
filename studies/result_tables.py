"""The tables of docs/results.md, in Markdown. Accuracies are in percent, differences in points."""

import csv
import io
import textwrap
from collections.abc import Callable, Iterable, Sequence

from fedge.records.reading.reader import RunData
from fedge.report.comparison.groups import Group
from fedge.report.comparison.statistics import Estimate
from fedge.report.comparison.sweep_page import Comparison
from fedge.report.comparison.targets import BYTES, SHARE, megabytes
from studies import measures
from studies.measures import Study, by_label, clustering_cost, difference, over_seeds

NAMES = {
    "hierfl": "one model",
    "local": "leaves alone",
    "oracle": "oracle",
    "random": "random groups",
    "fedge": "**fedge**",
    "published": "as published",
    "fedprox": "FedProx",
    "scaffold": "SCAFFOLD",
    "mtgc": "MTGC",
    "ifca": "IFCA",
    "clove": "CLoVE",
    "cfl": "CFL",
    "flhc": "FL+HC",
    "kmeans": "k-means",
    "stocfl": "StoCFL",
    "feddrift": "FedDrift",
    "flux": "FLUX",
    "clove-unknown": "CLoVE, number unknown",
    "ifca-told": "IFCA, number given",
    "kmeans-told": "k-means, number given",
    "clove-told": "CLoVE, number given",
    "no-gate": "no gate",
    "gate-published": "gate as published",
    "gate-one-standard-error": "gate, one standard error",
    "gate-paired": "gate, McNemar's test",
    "gate-after-round": "gate after a round",
    "blend-0.5": "half the mean of all leaves",
    "blend-auto": "best blend, gate after a round",
    "own-batch-norm": "own BatchNorm (FedBN)",
    "own-head": "own head",
    "fine-tuned": "fine-tuned at the end",
}
REFERENCE = "hierfl"
Cells = tuple[list[str], list[list[str]]]  # headers and rows of a table
_NOTHING = "–"
_WIDTH = 110  # of a line of prose


def markdown(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; the first column is text, the others are numbers."""
    lines = [headers, ["---", *["---:"] * (len(headers) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def joined(rows: Iterable[Sequence[str]]) -> list[list[str]]:
    """Rows, those with the same numbers as one under all their names."""
    names_by_numbers: dict[tuple[str, ...], list[str]] = {}
    for name, *numbers in rows:
        names_by_numbers.setdefault(tuple(numbers), []).append(name)
    return [[", ".join(names), *numbers] for numbers, names in names_by_numbers.items()]


def as_csv(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with all its columns, for a file beside the page."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([[cell.strip("*") for cell in line] for line in (headers, *rows)])
    return text.getvalue()


def name_of(group: Group) -> str:
    """How a method is called on the page."""
    return NAMES.get(group.label, group.label)


def percent(value: Estimate | None) -> str:
    """A mean share as "83.1"."""
    return _NOTHING if value is None else _signed(value.mean, plus=False)


def points(value: Estimate | None) -> str:
    """A mean difference and its interval as "+2.4 (0.4 to 4.4)"."""
    return _NOTHING if value is None else _signed(value.mean) + _interval(value)


def marked_points(value: Estimate | None) -> str:
    """A mean difference as "+2.4", in bold where its interval, as shown, leaves out 0."""
    text = _NOTHING if value is None else _signed(value.mean)
    ends = (None, None) if value is None else (value.low, value.high)
    low, high = (None if end is None else float(f"{100 * end:.1f}") for end in ends)
    return f"**{text}**" if low is not None and high is not None and (low > 0 or high < 0) else text


def _interval(value: Estimate) -> str:
    if value.low is None or value.high is None:
        return ""
    return f" ({_signed(value.low, plus=False)} to {_signed(value.high, plus=False)})"


def _signed(value: float, plus: bool = True) -> str:
    """A share as points with one digit after the point."""
    text = f"{100 * value:+.1f}" if plus else f"{100 * value:.1f}"
    return _minus("0.0" if float(text) == 0 else text)


def _minus(text: str) -> str:
    return text.replace("-", "−")


# --- accuracy -----------------------------------------------------------------------------------------


def accuracy_table(comparison: Comparison) -> str:
    """Accuracy of each method on seen and on unseen users, and against the first."""
    reference = comparison.groups[0]
    difference_header = f"minus {name_of(reference).split(' (')[0]}"
    with_unseen = over_seeds(reference, measures.unseen) is not None
    with_tuned = any(over_seeds(group, measures.tuned) for group in comparison.groups)
    columns: dict[str, Callable[[Group], str]] = {
        "": name_of,
        "seen users": lambda g: percent(over_seeds(g, measures.seen)),
        difference_header: lambda g: _versus(g, reference, measures.seen),
    }
    if with_tuned:
        columns["fine-tuned"] = lambda g: percent(over_seeds(g, measures.tuned))
    if with_unseen:
        columns["unseen users"] = lambda g: percent(over_seeds(g, measures.unseen))
        columns[f"{difference_header} "] = lambda g: _versus(g, reference, measures.unseen)
    columns["clusters"] = clusters
    return markdown([*columns], [[cell(group) for cell in columns.values()] for group in comparison.groups])


def spread_cells(comparison: Comparison) -> Cells:
    """Spread of the served accuracy over clients: worst, lowest tenth, fairness, share worse off."""
    columns: dict[str, Callable[[Group], str]] = {
        "": name_of,
        "macro-F1": lambda g: percent(over_seeds(g, measures.last("macro_f1_mean"))),
        "std": lambda g: percent(over_seeds(g, measures.last("test_accuracy_std"))),
        "worst": lambda g: percent(over_seeds(g, measures.last("test_accuracy_worst"))),
        "10th percentile": lambda g: percent(over_seeds(g, measures.last("test_accuracy_p10"))),
        "Jain": lambda g: _decimal(over_seeds(g, measures.last("test_accuracy_jain"))),
        "worse off than alone": lambda g: percent(measures.worse_off(comparison, g, unseen_clients=False)),
        "unseen: worst": lambda g: percent(over_seeds(g, measures.last("unseen_accuracy_worst"))),
        "unseen: worse off than alone": lambda g: percent(
            measures.worse_off(comparison, g, unseen_clients=True)
        ),
    }
    return [*columns], [[cell(group) for cell in columns.values()] for group in comparison.groups]


def spread_table(comparison: Comparison) -> str:
    """The columns of `spread_cells` on the worst clients."""
    headers, rows = spread_cells(comparison)
    shown = [n for n, header in enumerate(headers) if header not in ("macro-F1", "std", "Jain")]
    return markdown([headers[n] for n in shown], joined([row[n] for n in shown] for row in rows))


def _versus(group: Group, reference: Group, read: measures.Read) -> str:
    return _NOTHING if group is reference else points(difference(group, reference, read))


def clusters(group: Group) -> str:
    """Numbers of clusters in the last round, as "1 or 2"."""
    numbers = sorted(set(measures.values(group, measures.clusters_at_end).values()))
    return " or ".join(f"{value:.0f}" for value in numbers)


def _decimal(value: Estimate | None) -> str:
    return _NOTHING if value is None else f"{value.mean:.3f}"


# --- groups -------------------------------------------------------------------------------------------


def found_table(planted: Sequence[tuple[str, Comparison]]) -> str:
    """Number of seeds in which each method had the planted groups after the last round."""
    return _by_method(planted, lambda _, group: str(_num_right(group)))


def whole_table(controls: Sequence[tuple[str, Comparison]]) -> str:
    """Number of seeds in which each method kept all leaves in one cluster in every round."""
    return _by_method(controls, lambda _, group: str(sum(map(measures.is_whole, group.runs))))


def _num_right(group: Group) -> int:
    rounds = min(len(run.rounds) for run in group.runs)
    return sum(measures.is_right(run, rounds) for run in group.runs)


def by_methods(titled: Sequence[tuple[str, Comparison]]) -> list[list[tuple[str, Comparison]]]:
    """Comparisons by their clustering methods, in order."""
    comparisons: dict[tuple[str, ...], list[tuple[str, Comparison]]] = {}
    for title, comparison in titled:
        comparisons.setdefault(tuple(_clustering_labels([comparison])), []).append((title, comparison))
    return list(comparisons.values())


def _clustering_labels(compared: Iterable[Comparison]) -> list[str]:
    """Labels of the clustering methods, in order."""
    labels = dict.fromkeys(group.label for comparison in compared for group in comparison.groups)
    return [label for label in labels if label not in _NEVER_CLUSTER]


def _by_method(titled: Sequence[tuple[str, Comparison]], cell: Callable[[Comparison, Group], str]) -> str:
    """A table of scenarios (down) and clustering methods (across)."""
    clustering = _clustering_labels(comparison for _, comparison in titled)
    rows = []
    for title, comparison in titled:
        groups = by_label(comparison)
        cells = (cell(comparison, groups[x]) if x in groups else _NOTHING for x in clustering)
        rows.append([title, *cells])
    return markdown(["", *(NAMES.get(label, label) for label in clustering)], rows)


_NEVER_CLUSTER = ("hierfl", "fedprox", "scaffold", "mtgc", "local", "oracle")


# --- both at once -------------------------------------------------------------------------------------


def gain_cells(
    planted: Sequence[tuple[str, Comparison]], shown: Callable[[Estimate | None], str] = points
) -> Cells:
    """Fedge against leaves alone on known clients, and against the oracle on unseen clients."""
    rows = []
    for title, comparison in planted:
        groups = by_label(comparison)
        known_gain = difference(groups["fedge"], groups["local"], measures.served, measures.seen)
        tuned_gain = difference(groups["fedge"], groups["local"], measures.served, measures.tuned)
        unseen_gain = difference(groups["fedge"], groups["oracle"], measures.unseen)
        if unseen_gain is not None:
            rows.append([title, shown(known_gain), shown(tuned_gain), shown(unseen_gain)])
    headers = [
        "",
        "known: minus leaves alone",
        "minus leaves alone, fine-tuned too",
        "unseen clients: minus oracle",
    ]
    return headers, rows


def newcomers_table(planted: Sequence[tuple[str, Comparison]]) -> str:
    """The means of `newcomers_cells`; methods that equal one model throughout share its column."""
    headers, rows = newcomers_cells(planted, marked_points)
    _, full = newcomers_cells(planted)
    reference = headers.index(NAMES[REFERENCE])
    equal = [
        n
        for n in range(len(headers))
        if n == reference or (full and all(row[n] == row[reference] for row in full))
    ]
    headers[reference] = ", ".join(headers[n] for n in equal)
    kept = [n for n in range(len(headers)) if n == reference or n not in equal]
    return markdown([headers[n] for n in kept], [[row[n] for n in kept] for row in rows])


def newcomers_cells(
    planted: Sequence[tuple[str, Comparison]], shown: Callable[[Estimate | None], str] = points
) -> Cells:
    """Accuracy of fedge's models for unseen clients, against true groups, one model, leaves alone, others."""
    first = ("oracle", "hierfl", "local")
    labels = dict.fromkeys(group.label for _, comparison in planted for group in comparison.groups)
    others = (*first, *(label for label in labels if label not in (*first, "fedge", "random")))
    rows = []
    for title, comparison in planted:
        groups = by_label(comparison)
        differences = [
            difference(groups["fedge"], groups[method], measures.unseen) if method in groups else None
            for method in others
        ]
        if any(differences):
            rows.append([title, *map(shown, differences)])
    return ["", *(NAMES[label] for label in others)], rows


def control_cells(
    controls: Sequence[tuple[str, Comparison]], shown: Callable[[Estimate | None], str] = points
) -> Cells:
    """Accuracy of fedge where no groups are planted, against one model and against leaves alone."""
    rows = []
    for title, comparison in controls:
        groups = by_label(comparison)
        fedge, reference, local = groups["fedge"], groups[REFERENCE], groups["local"]
        rows.append([
            title,
            *(shown(difference(fedge, reference, read)) for read in (measures.seen, measures.unseen)),
            shown(difference(fedge, local, measures.served, measures.seen)),
            shown(difference(fedge, local, measures.unseen)),
        ])  # fmt: skip
    headers = [
        "",
        "seen: minus one model",
        "unseen",
        "known, as served: minus leaves alone",
        "unseen clients",
    ]
    return headers, rows


def published_cells(titled: Sequence[tuple[str, Comparison]]) -> Cells:
    """Course of the published rule: similarities, clusters, offers taken at the gate."""
    rows = []
    for title, comparison in titled:
        group = by_label(comparison).get("published")
        if group is None:
            continue
        similarities = [value for run in group.runs for value in measures.similarities(run)]
        num_whole = sum(map(measures.is_whole, group.runs))
        offers = [measures.offers_taken(run) for run in group.runs]
        accepted, offered = sum(o[0] for o in offers), sum(o[1] for o in offers)
        rows.append([
            title, f"{min(similarities):.2f} to {max(similarities):.2f}", f"{num_whole} of {len(group.runs)}",
            f"{accepted / offered:.0%}" if offered else _NOTHING,
        ])  # fmt: skip
    return ["", "similarities", "runs with one cluster throughout", "offers taken"], rows


def published_line(cells: Cells) -> str:
    """The rows of `published_cells` in one sentence."""
    rows = cells[1]
    if not rows:
        return "No runs."
    ends = sorted(float(end) for row in rows for end in row[1].split(" to "))
    num_whole, num_runs = (sum(int(row[2].split(" of ")[n]) for row in rows) for n in (0, 1))
    accepted = sorted((row[3] for row in rows if row[3] != _NOTHING), key=lambda cell: int(cell.strip("%")))
    offers = f"{accepted[0]} to {accepted[-1]}" if accepted else "none"
    line = (
        f"Similarities were {ends[0]:.2f} to {ends[-1]:.2f}, all leaves one cluster throughout in "
        f"{num_whole} of {num_runs} runs, offers taken {offers}."
    )
    return textwrap.fill(line, _WIDTH)


def summary_table(titled: Sequence[tuple[str, Comparison]]) -> str:
    """Served accuracy, seen · unseen, of one model, leaves alone, fedge and the oracle."""
    labels = ("hierfl", "local", "fedge", "oracle")

    def cell(comparison: Comparison, label: str) -> str:
        group = by_label(comparison).get(label)
        if group is None:
            return _NOTHING
        read = measures.served if label == "fedge" else measures.seen
        scores = [over_seeds(group, read), over_seeds(group, measures.unseen)]
        return " · ".join(percent(score) for score in scores if score is not None)

    rows = [[title, *(cell(comparison, label) for label in labels)] for title, comparison in titled]
    return markdown(("seen · unseen", *(NAMES[label] for label in labels)), rows)


# --- costs --------------------------------------------------------------------------------------------


def cost_cells(titled: Sequence[tuple[str, Comparison]]) -> Cells:
    """Cost of comparing leaves for fedge."""
    rows = []
    for title, comparison in titled:
        costs = [clustering_cost(run) for run in by_label(comparison)["fedge"].runs]
        known_costs = [cost for cost in costs if cost is not None]
        if known_costs:
            rows.append([
                title,
                f"{_mean([c.comparisons for c in known_costs]):.1f}",
                f"{_mean([c.time_share for c in known_costs]):.1%}",
                f"{_mean([c.bytes_each for c in known_costs]):.1f}",
                f"{_mean([c.bytes_ratio for c in known_costs]):.2f}",
            ])  # fmt: skip
    return ["", "comparisons in a run", "of the time", "bytes of one", "bytes of all"], rows


def cost_line(cells: Cells) -> str:
    """From where to where the rows of `cost_cells` go."""
    ends = []
    for column in zip(*(row[1:] for row in cells[1]), strict=True):
        values = sorted(column, key=lambda cell: float(cell.strip("%")))
        ends.append(values[0] if values[0] == values[-1] else f"{values[0]} to {values[-1]}")
    if not ends:
        return "No comparisons."
    count, time, per_comparison, all_bytes = ends
    line = (
        f"A run has {count} comparisons, which take {time} of the time; one sends {per_comparison} models "
        f"to each client, all of them {all_bytes} times the bytes of all other models."
    )
    return textwrap.fill(line, _WIDTH)


def target_table(comparison: Comparison) -> str:
    """Rounds and megabytes until 95 % of the oracle's final accuracy is reached."""
    rows = []
    goals = {}
    for clients, column in (("seen", "test_accuracy_mean"), ("unseen", "unseen_accuracy_mean")):
        final = over_seeds(
            by_label(comparison)["oracle"], measures.seen if clients == "seen" else measures.unseen
        )
        if final is not None:
            goals[clients] = (column, SHARE * final.mean)
    for group in comparison.groups:
        cells = []
        for column, goal in goals.values():
            costs = [_cost(run, column, goal) for run in group.runs]
            known = [cost for cost in costs if cost is not None]
            count_text = f" ({len(known)} of {len(costs)})" if len(known) < len(costs) else ""
            cells += (
                [f"{_mean([c[0] for c in known]):.0f}{count_text}", f"{_mean([c[1] for c in known]):.0f}"]
                if known else ["never", _NOTHING]
            )  # fmt: skip
        rows.append([name_of(group), *cells])
    headers = [
        f"{word} to {100 * goal:.1f} ({clients})"
        for clients, (_, goal) in goals.items()
        for word in ("rounds", "MB")
    ]
    return markdown(["", *headers], joined(rows))


def _cost(run: RunData, column: str, goal: float) -> tuple[float, float] | None:
    """Rounds and megabytes, both tiers, up to the first round that reaches `goal`.

    The last round is left out: its served models may be fine-tuned.
    """
    scores = list(run.rounds[column])[:-1]
    first = next((n for n, score in enumerate(scores, 1) if score is not None and score >= goal), None)
    return None if first is None else (first, megabytes(run.rounds.head(first), BYTES))


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)


def total_line(studies: Sequence[Study]) -> str:
    """How many runs there were and how long they took together."""
    runs = [run for study in studies for run in study.runs]
    hours = sum(float(run.rounds["seconds"].sum()) for run in runs) / 3600
    return f"{len(runs)} runs, {hours:.1f} hours of rounds"
