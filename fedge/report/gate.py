"""The section on the gate: what each leaf was offered, how both models did on validation, what it took."""

import polars as pl

from fedge.report.accuracy import MANY_LEAVES
from fedge.report.page import Panel, Section
from fedge.report.palette import INK, colour
from fedge.report.svg import legend_below, new_figure, whole_ticks
from fedge.report.tables import table
from fedge.run_reader import RunData

_MANY_PANELS = 4  # leaves above which only the gain is drawn


def gate_section(run: RunData) -> Section:
    """Return the gate's decisions."""
    offers = run.leaves.drop_nulls("val_accuracy_offered")
    if offers.is_empty():
        off = not run.config.get("gate.enabled", True)
        return Section("Gate", ["The gate is off: every offer is taken." if off else "No leaf got an offer."])
    leaves = offers["leaf"].unique().sort().to_list()
    panels = [gain_panel(run, offers)]
    if len(leaves) <= _MANY_PANELS:
        last = run.rounds["global_round"][-1]
        panels += [leaf_panel(offers.filter(pl.col("leaf") == leaf), leaf, last) for leaf in leaves]
    return Section("Gate", _sentences(run, offers), panels)


def _sentences(run: RunData, offers: pl.DataFrame) -> list[str]:
    """Say how many offers were taken and the rule."""
    taken = (offers["gate"] == "accepted").sum()
    gain = run.config.get("gate.min-gain", 0.0)
    if (offers["gate"] == "off").all():
        return [
            f"The gate is off: all {len(offers)} offers were taken. Accuracies are of validation windows."
        ]
    return [
        f"{taken} of {len(offers)} offers were taken. A leaf takes the cluster's model if that raises the "
        f"validation accuracy of its own clients by {gain:g} or more."
    ]


def gain_panel(run: RunData, offers: pl.DataFrame) -> Panel:
    """Return what each offer would have changed, and whether it was taken."""
    figure, axes = new_figure()
    num_leaves = int(offers["leaf"].max()) + 1  # type: ignore[arg-type]
    for (leaf,), own in offers.group_by("leaf", maintain_order=True):
        gain = (own["val_accuracy_offered"] - own["val_accuracy_own"]).to_numpy()
        few = num_leaves <= MANY_LEAVES
        shade = colour(int(leaf)) if few else colour(0)
        taken = (own["gate"] != "rejected").to_numpy()
        rounds = own["global_round"].to_numpy()
        axes.scatter(rounds[taken], gain[taken], s=18, color=shade)
        axes.scatter(rounds[~taken], gain[~taken], s=18, facecolors="none", edgecolors=shade, linewidths=1)
        if few:
            axes.scatter([], [], s=18, color=shade, label=f"leaf {leaf}")
    axes.axhline(
        run.config.get("gate.min-gain", 0.0), color=INK, linewidth=1, linestyle="dashed", label="needed"
    )
    axes.set_xlim(0.5, run.rounds["global_round"][-1] + 0.5)
    axes.set_xlabel("global round")
    axes.set_ylabel("offered − own")
    whole_ticks(axes)
    legend_below(figure, axes, columns=4)
    numbers = table(
        ("round", "leaf", "own", "offered", "decision"),
        offers.select("global_round", "leaf", "val_accuracy_own", "val_accuracy_offered", "gate").iter_rows(),
    )
    return Panel(
        "Gain of every offer", numbers, figure, "In validation accuracy. Filled: taken; hollow: turned down."
    )


def leaf_panel(own: pl.DataFrame, leaf: int, last_round: int) -> Panel:
    """Return both validation accuracies of one leaf."""
    figure, axes = new_figure(2.4)
    rounds = own["global_round"].to_numpy()
    taken = (own["gate"] != "rejected").to_numpy()
    offered = own["val_accuracy_offered"].to_numpy()
    axes.plot(rounds, own["val_accuracy_own"], color=colour(leaf), marker=".", label="own")
    axes.plot(rounds, offered, color=INK, linewidth=0.9, linestyle="dotted", label="offered")
    axes.scatter(rounds[taken], offered[taken], s=20, color=INK, label="taken", zorder=3)
    axes.scatter(
        rounds[~taken], offered[~taken], s=20, facecolors="none", edgecolors=INK, linewidths=0.9, zorder=3,
        label="turned down",
    )  # fmt: skip
    axes.set_xlabel("global round")
    axes.set_ylabel("validation accuracy")
    whole_ticks(axes)
    axes.set_xlim(0.5, last_round + 0.5)
    legend_below(figure, axes, columns=4)
    numbers = table(
        ("round", "own", "offered", "decision"),
        own.select("global_round", "val_accuracy_own", "val_accuracy_offered", "gate").iter_rows(),
    )
    return Panel(f"Leaf {leaf}: own and offered model", numbers, figure)
