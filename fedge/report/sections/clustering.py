"""Section on clusters: groups of the cloud's children over rounds, and similarities of their models."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from fedge.config.registers.groupings import GROUPINGS, SIGNALS
from fedge.config.registers.traits import BY_SIGNAL
from fedge.console.palette import INK, PAPER, colour
from fedge.console.tiers import plural_of
from fedge.records.reading.reader import RunData
from fedge.report.html.page import PageSection, Panel
from fedge.report.html.svg import integer_ticks, legend_below, new_figure, new_figures
from fedge.report.html.tables import NumberTable, minus, numbered, table, text_of
from fedge.report.sections.clients import annotate_cells
from hhar.quantity import quantity

_AGREEMENT = {  # column → name, line style: the lines often coincide
    "ari": ("adjusted Rand index", "solid"),
    "nmi": ("mutual information", "dashed"),
    "homogeneity": ("homogeneity", "dotted"),
    "completeness": ("completeness", "dashdot"),
}
_MANY_CHANGES = 12  # largest number described in words; the table lists all
_DEAL_TEST = (
    "Deal test: the share of ways to deal the same clients to leaves in which some leaves differ as "
    "clearly. It is carried out once for each common start; later rounds repeat its result."
)
_MANY_CELLS = 20  # number of children above which a similarity map is an image without numbers


class Children(NamedTuple):
    """Word for a child of the cloud, and for several: leaves in two tiers, else as in `hierarchy.names`."""

    one: str = "leaf"
    several: str = "leaves"


def children_of_cloud(run: RunData) -> Children:
    """Children of the cloud, which it compares in a run."""
    first = run.servers if run.servers.is_empty() else run.servers.filter(pl.col("tier") == 1)
    if first.is_empty():
        return Children()
    name = str(first["name"][0])
    return Children(name, plural_of(name))


def clustering_section(run: RunData) -> PageSection:
    """Clusters over rounds and similarities."""
    steps, children = run.clusters, children_of_cloud(run)
    if steps.is_empty():
        return PageSection("Clusters", [_no_comparison_sentence(run)])
    panels = [membership_panel(steps, children), *family_panels(run), *truth_panels(run)]
    compared = steps.drop_nulls("similarity")
    if not compared.is_empty() and len(compared["similarity"][0]) > 1:
        panels.append(similarity_range_panel(compared, children, by_tau=_joins_by_threshold(run)))
        panels += p_value_panels(compared, run.config)
        lowest = min(_pairs(s).min() for s in compared["similarity"])
        low = min(0.9, math.floor(10 * lowest) / 10)
        panels += [similarity_panel(compared, step, low, children) for step in chosen_steps(compared)]
    return PageSection("Clusters", _sentences(run, compared, children) + _truth_sentences(run), panels)


def _no_comparison_sentence(run: RunData) -> str:
    """Sentence on why no leaves were compared; on the virtual clock, the cloud may still have averaged."""
    if run.versions.is_empty():
        return "There was no cloud step yet."
    leaves = len(run.manifest.get("clients_per_leaf", ()))
    if leaves < 2:
        return "There is a single leaf, and no cloud above it."
    text = f"The cloud made {quantity(run.versions['version'][-1], 'version')} of what {leaves} leaves sent"
    if groups := run.config.get("asynchrony.groups"):
        return f"{text}; leaves share models as asynchrony.groups says: {groups}."
    if run.config.get("cluster.enabled"):
        return f"{text}, in one model so far: leaves have not been compared yet."
    return f"{text}, all in one model: clustering is off."


def _criteria_note(method: str) -> str:
    """Words about a method with other criteria than a similarity of leaves; empty for any other."""
    by_signal = GROUPINGS.has(method, BY_SIGNAL)
    return GROUPINGS.told(method) or ("" if by_signal else f"Groups are those of {method}")


def _joins_by_threshold(run: RunData) -> bool:
    """Whether children are joined by a threshold."""
    has_criteria = bool(_criteria_note(str(run.config.get("cluster.method", "components"))))
    return not has_criteria and bool(run.config.get("cluster.count", "threshold") == "threshold")


def _sentences(run: RunData, compared: pl.DataFrame, children: Children) -> list[str]:
    """Sentences on the number of clusters and the similarities."""
    steps, method = run.clusters, str(run.config.get("cluster.method"))
    if len(steps["labels"][0]) == 1 and steps["signal"][0] != "off":
        return [f"There is a single {children.one}, and nothing to compare it with."]
    if compared.is_empty() and (not _criteria_note(method) or steps["signal"][0] == "off"):
        if steps["signal"][0] == "off":
            return [f"Clustering is off: the cloud averages all {children.several} into one model."]
        return [
            f"{children.several.capitalize()} could not be compared in any cloud step; the remarks say why."
        ]
    counts = steps["labels"].list.n_unique().value_counts().sort("labels")
    counts_text = "; ".join(
        f"{quantity(c, 'cluster')} in {n} of {quantity(len(steps), 'cloud step')}" for c, n in counts.rows()
    )
    text = [f"{counts_text}. {_criteria_note(method) or _rule(run, compared, children)}."]
    if num_skipped := int((~steps["compared"]).sum()):
        text.append(
            f"A comparison was due in {len(steps) - num_skipped} of {quantity(len(steps), 'cloud step')}; in "
            "the others clusters stayed as they were."
        )
    pairs = np.concatenate([np.empty(0), *(_pairs(s) for s in compared["similarity"])])
    if pairs.size:
        text.append(
            f"Similarities between {children.several} lay between {text_of(pairs.min())} and "
            f"{text_of(pairs.max())}."
        )
    labels = steps["labels"].to_list()
    changed_rounds = [
        r for r, a, b in zip(steps["global_round"][1:], labels, labels[1:], strict=False) if a != b
    ]
    text.append(
        f"The groups changed in {numbered('round', changed_rounds)}."
        if changed_rounds
        else "The groups never changed."
    )
    changes = steps.select("global_round", "changes").explode("changes").drop_nulls()
    return text + [f"Round {r}: {change}." for r, change in changes.head(_MANY_CHANGES).iter_rows()]


def _rule(run: RunData, compared: pl.DataFrame, children: Children) -> str:
    """Sentence on how the cloud's children are compared and joined."""
    signal, tau = compared["signal"][0], compared["tau"][0]
    count = run.config.get("cluster.count")
    rule = {
        "threshold": f"{children.several} at least {tau:g} alike are joined",
        "auto": f"{children.several} are parted where a test finds groups and a trial finds them useful",
    }.get(str(count or "threshold"), f"there are to be {quantity(count or '?', 'cluster')}")
    compared_by = SIGNALS.told(signal) or signal
    if run.config.get("cluster.count") == "auto":
        compared_by = "clients' updates from one start, then losses of groups' models at each other's clients"
    return f"Compared are {compared_by}; {rule}"


def _truth_sentences(run: RunData) -> list[str]:
    """Sentence on the planted groups and when they were found; empty without a scenario."""
    if run.truth is None:
        return []
    exact = run.rounds.filter(pl.col("ari") == 1)["global_round"].to_list()
    result = f"found exactly in {numbered('round', exact)}" if exact else "found exactly in no round"
    kind = run.config.get("scenario", "?")
    later = "".join(f"; from round {first} on {groups_text(groups)}" for first, groups in run.eras[1:])
    return [f"Planted groups ({kind}): {groups_text(run.truth)}{later}; {result}."]


def truth_panels(run: RunData) -> list[Panel]:
    """Agreement of clusters and planted groups over rounds; empty without a scenario."""
    if run.truth is None:
        return []
    figure, axes = new_figure()
    x = run.rounds["global_round"]
    for index, (column, (label, style)) in enumerate(_AGREEMENT.items()):
        y = run.rounds[column].cast(pl.Float64).fill_null(float("nan")).to_numpy()
        axes.plot(
            x, y, color=colour(index), linestyle=style, label=label,
            marker="o" if len(x) == 1 else None,
        )  # fmt: skip
    for first, _ in run.eras[1:]:
        axes.axvline(first - 0.5, color=INK, linestyle="dotted", linewidth=1)
    axes.set_xlabel("global round")
    axes.set_ylabel("agreement")
    integer_ticks(axes)
    legend_below(figure, axes, columns=2)
    numbers = table(
        ("round", *(label for label, _ in _AGREEMENT.values()), "churn"),
        run.rounds.select("global_round", *_AGREEMENT, "churn").iter_rows(),
    )
    caption = "1: the planted groups, exactly. Churn: share of pairs of leaves that were joined or parted."
    if run.eras[1:]:
        caption += " Dotted: the planted groups change. Each round is measured by its own."
    return [Panel("Clusters and planted groups", numbers, figure, caption)]


def _pairs(similarity: Sequence[Sequence[float]]) -> np.ndarray:
    """Similarity of every pair of children."""
    matrix = np.array([list(row) for row in similarity])
    return matrix[np.triu_indices(len(matrix), k=1)]


def membership_panel(steps: pl.DataFrame, children: Children) -> Panel:
    """Cluster of each child in each cloud step."""
    labels = np.array(steps["labels"].to_list())
    num_steps, count = labels.shape
    figure, axes = new_figure(min(0.9 + 0.3 * max(count, 2), 6.0))
    rounds = steps["global_round"].to_list()
    for cluster in range(int(labels.max()) + 1):
        for child in range(count):
            spans = _spans(labels[:, child] == cluster)
            bars = [(rounds[a] - 0.5, rounds[b - 1] - rounds[a] + 1) for a, b in spans]
            axes.broken_barh(bars, (child - 0.4, 0.8), facecolors=colour(cluster), edgecolor=PAPER)
    for child in range(count if count <= _MANY_CELLS else 0):
        for a, b in _spans(np.ones(num_steps, bool), np.diff(labels[:, child]) != 0):
            middle = (rounds[a] + rounds[b - 1]) / 2
            axes.text(
                middle, child, str(labels[a, child]), ha="center", va="center", fontsize=9, color="#000000"
            )
    axes.set_xlim(rounds[0] - 0.5, rounds[-1] + 0.5)
    axes.set_ylim(count - 0.5, -0.5)
    if count <= _MANY_CELLS:
        axes.set_yticks(range(count), [f"{children.one} {child}" for child in range(count)])
    else:
        axes.set_ylabel(children.one)
    axes.set_xlabel("global round")
    axes.grid(False)
    integer_ticks(axes)
    return Panel(
        f"Cluster of each {children.one}",
        _moves_table(steps, children),
        figure,
        "Equal numbers and colours in a column are one cluster; the table lists who moved when.",
    )


def family_panels(run: RunData) -> list[Panel]:
    """Shares of each model in each leaf's offer; empty without mixtures."""
    if run.memberships.is_empty():
        return []
    shares = run.memberships.sort("leaf", "global_round", "model")
    leaves = shares["leaf"].unique().sort().to_list()[:_MANY_CELLS]
    figure, all_axes = new_figures(len(leaves), min(0.9 + 0.6 * max(len(leaves), 2), 9.0))
    for leaf, axes in zip(leaves, all_axes, strict=True):
        leaf_shares = shares.filter(pl.col("leaf") == leaf)
        rounds = leaf_shares["global_round"].unique().sort().to_list()
        bottom = np.zeros(len(rounds))
        for model in range(int(leaf_shares["models"].max())):  # type: ignore[arg-type]
            membership = dict(
                leaf_shares.filter(pl.col("model") == model).select("global_round", "membership").iter_rows()
            )
            heights = np.array([membership.get(round_, 0.0) for round_ in rounds])
            axes.bar(rounds, heights, 1.0, bottom, color=colour(model), edgecolor=PAPER, linewidth=0.3)
            bottom += heights
        axes.set_ylim(0, 1)
        axes.set_yticks([0.5], [f"leaf {leaf}"])
        axes.grid(False)
    all_axes[-1].set_xlabel("global round")
    integer_ticks(all_axes[-1])
    last = shares.filter(pl.col("global_round") == shares["global_round"].max())
    rows = []
    for (leaf,), memberships in last.group_by("leaf", maintain_order=True):
        memberships_text = "  ".join(text_of(share) for share in memberships["membership"])
        rows.append((leaf, memberships["models"][0], memberships["entropy"][0], memberships_text))
    numbers = table(("leaf", "models", "entropy, nats", "memberships in the last round"), rows)
    caption = (
        "Each bar is what a leaf was offered in a round, a colour per model; models are numbered afresh "
    )
    caption += "when their number changes. The cluster of a leaf is its largest membership."
    return [Panel("Memberships of the leaves", numbers, figure, caption)]


def _spans(holds: np.ndarray, cuts: np.ndarray | None = None) -> list[tuple[int, int]]:
    """Half-open index ranges where `holds`, cut where `cuts` (shorter by one) is true."""
    spans, start = [], None
    for index in range(len(holds) + 1):
        is_end = index == len(holds) or not holds[index] or (cuts is not None and index and cuts[index - 1])
        if start is not None and is_end:
            spans.append((start, index))
            start = None
        if index < len(holds) and holds[index] and start is None:
            start = index
    return spans


def groups_text(labels: Sequence[int]) -> str:
    """Grouping of children as "{0 2}  {1}"."""
    groups = [[leaf for leaf, label in enumerate(labels) if label == k] for k in sorted(set(labels))]
    return "  ".join("{" + " ".join(map(str, group)) + "}" for group in groups)


def _moves_table(steps: pl.DataFrame, children: Children) -> NumberTable:
    """Table with a row per change: first round, groups, moved children."""
    rows: list[tuple[str, str, str]] = []
    previous: list[int] | None = None
    for global_round, labels in steps.select("global_round", "labels").iter_rows():
        if labels == previous:
            continue
        moved = [] if previous is None else [n for n, old in enumerate(previous) if old != labels[n]]
        rows.append(
            (
                str(global_round),
                groups_text(labels),
                ", ".join(map(str, moved)) or "–",
            )
        )
        previous = labels
    return table(("from round", f"{children.several} by cluster", "changed number"), rows)


def p_value_panels(compared: pl.DataFrame, config: Mapping[str, Any]) -> list[Panel]:
    """Lowest p-values of the tests for groups over rounds; empty without tests.

    Args:
        compared: cloud steps with a comparison.
        config: the run's options; `cluster.level` is the level of tests without a recorded one.
    """
    tested = compared.drop_nulls("lowest_p")
    if tested.is_empty():
        return []
    rounds, p = tested["global_round"].to_list(), tested["lowest_p"].to_list()
    figure, axes = new_figure()
    axes.semilogy(rounds, p, color=colour(0), marker="o", markersize=3, label="lowest p of the step")
    levels = tested["level"].drop_nulls()
    level = float(levels[0]) if len(levels) else float(config.get("cluster.level", 0))
    axes.axhline(level, color=INK, linestyle="dashed", linewidth=1, label=f"level {level:g}")
    axes.set_xlabel("global round")
    axes.set_ylabel("p")
    axes.yaxis.set_major_formatter(
        "{x:g}"
    )  # plain text: powers would be set in TeX, which a page does not render
    axes.yaxis.set_minor_formatter("")
    integer_ticks(axes)
    legend_below(figure, axes)
    numbers = table(("round", "lowest p"), zip(rounds, p, strict=True))
    return [Panel("Are there groups?", numbers, figure, _DEAL_TEST)]


def similarity_range_panel(compared: pl.DataFrame, children: Children, by_tau: bool = True) -> Panel:
    """Range of the similarities over rounds, with the threshold if there is one."""
    rounds = compared["global_round"].to_list()
    pairs = [_pairs(s) for s in compared["similarity"]]
    low, middle, high = ([float(f(p)) for p in pairs] for f in (np.min, np.median, np.max))
    figure, axes = new_figure()
    axes.fill_between(rounds, low, high, color=colour(0), alpha=0.18, linewidth=0, label="all pairs")
    axes.plot(rounds, middle, color=colour(0), marker="o" if len(rounds) == 1 else None, label="median pair")
    if by_tau:
        axes.plot(rounds, compared["tau"], color=INK, linestyle="dashed", linewidth=1, label="tau")
    axes.set_xlabel("global round")
    axes.set_ylabel("similarity")
    integer_ticks(axes)
    legend_below(figure, axes)
    numbers = table(
        ("round", "lowest", "median", "highest", "tau", "clusters", "one start"),
        zip(
            rounds, low, middle, high, compared["tau"], compared["labels"].list.n_unique(),
            ("yes" if same else "no" for same in compared["common_start"]), strict=True,
        ),
    )  # fmt: skip
    caption = "Pairs above tau are joined. " if by_tau else ""
    caption += f"One start: all {children.several} began the round, or a probe, from one model."
    return Panel(f"Similarity between {children.several}", numbers, figure, caption)


def chosen_steps(compared: pl.DataFrame) -> list[int]:
    """Cloud steps whose matrices are shown: first, first change (or middle), last."""
    labels = compared["labels"].to_list()
    changes = [step for step in range(1, len(labels)) if labels[step] != labels[step - 1]]
    middle = changes[0] if changes else len(labels) // 2
    return sorted({0, middle, len(labels) - 1})


def similarity_panel(compared: pl.DataFrame, step: int, low: float, children: Children) -> Panel:
    """Similarity matrix of one cloud step; colours span `low` to 1 in all steps."""
    row = compared.row(step, named=True)
    matrix = np.array(row["similarity"])
    size = len(matrix)
    figure, axes = new_figure(3.2)
    if size <= _MANY_CELLS:
        axes.pcolormesh(matrix, cmap="cividis", vmin=low, vmax=1)
        if size <= 8:
            annotate_cells(axes, matrix, lambda value: minus(f"{value:.2f}"), low)
        axes.set_xticks(np.arange(size) + 0.5, [str(child) for child in range(size)])
        axes.set_yticks(np.arange(size) + 0.5, [str(child) for child in range(size)])
    else:
        axes.imshow(matrix, cmap="cividis", vmin=low, vmax=1, extent=(0, size, size, 0), aspect="auto")
    axes.set_ylim(size, 0)
    axes.set_xlabel(children.one)
    axes.set_ylabel(children.one)
    axes.grid(False)
    axes.tick_params(length=0)
    numbers = table(
        (children.one, "cluster", *map(str, range(size))),
        ((child, row["labels"][child], *map(float, matrix[child])) for child in range(size)),
    )
    return Panel(
        f"Similarity in round {row['global_round']}",
        numbers,
        figure,
        f"Yellow is 1, dark blue {minus(f'{low:g}')}.",
    )
