"""Section on the gate: each leaf's offers, both models' validation scores, and the decisions."""

import polars as pl

from fedge.config.registers.groupings import GATES
from fedge.config.registers.option import ConfigError, arguments_of
from fedge.console.palette import INK, colour
from fedge.records.reading.reader import RunData
from fedge.report.html.page import PageSection, Panel
from fedge.report.html.svg import legend_below, new_figure, whole_ticks
from fedge.report.html.tables import frame_table, table
from fedge.report.sections.accuracy import MANY_LEAVES
from hhar.quantity import quantity

_MANY_PANELS = 4  # leaves above which only the gain is drawn


def gate_section(run: RunData) -> PageSection:
    """The gate's decisions."""
    offers = run.leaves.drop_nulls(f"val_{run.score.name}_offered")
    tuned = personal_panels(run)
    if offers.is_empty():
        off = not run.config.get("gate.enabled", True)
        said = "The gate is off: every offer is taken." if off else "No leaf got an offer."
        return PageSection("Gate", [said], tuned)
    leaves = offers["leaf"].unique().sort().to_list()
    panels = [gain_panel(run, offers)]
    if len(leaves) <= _MANY_PANELS:
        last = run.rounds["global_round"][-1]
        panels += [leaf_panel(run, offers.filter(pl.col("leaf") == leaf), leaf, last) for leaf in leaves]
    return PageSection("Gate", _sentences(run, offers), [*panels, *evidence_panels(offers), *tuned])


def _sentences(run: RunData, offers: pl.DataFrame) -> list[str]:
    """Sentences on the number of accepted offers and the rule."""
    taken = (offers["gate"] == "accepted").sum()
    if (offers["gate"] == "off").all():
        every = "the one offer was" if len(offers) == 1 else f"all {len(offers)} offers were"
        return [f"The gate is off: {every} taken. {_plural(run)} are of validation windows."]
    return [
        f"{taken} of {quantity(len(offers), 'offer')} {'was' if taken == 1 else 'were'} taken. {_rule(run)} "
        f"{_plural(run)} are of the validation windows of the leaf's own clients."
    ]


def _is_counted(run: RunData) -> bool:
    """Whether windows are scored as right or wrong."""
    return run.has_classes


def _plural(run: RunData) -> str:
    return "Accuracies" if _is_counted(run) else f"Scores ({run.score.said})"


def _better(run: RunData) -> str:
    return "more accurate" if _is_counted(run) else f"better in {run.score.said}"


def _test(run: RunData) -> str:
    return "McNemar's exact" if _is_counted(run) else "Student's paired"


def _level(run: RunData) -> float:
    """Level of the test of the gate `paired`; its default where what is recorded cannot be."""
    usual = GATES.arguments("paired", {})["level"]
    try:
        given = arguments_of(run.config.get("gate.rule-args", ""), "gate.rule-args")
        level = GATES.arguments("paired", given)["level"]
    except ConfigError:
        level = usual
    return float(level) if isinstance(level, int | float) else float(usual)


def _rule(run: RunData) -> str:
    """Sentence on when an offer is accepted."""
    gain, level = run.config.get("gate.min-gain", 0.0), _level(run)
    rules = {
        "after-round": f"An offer is trained for a global round beside the leaf's own model, and taken if it "
        f"is then {_better(run)} by {gain:g} or more; the row is of the round in which that is decided.",
        "one-standard-error": f"A leaf takes an offer unless it misses a gain of {gain:g} by more than one "
        f"standard error of the paired difference.",
        "paired": f"A leaf takes an offer unless {_test(run)} one-sided test says at level {level:g} that "
        f"it is worse.",
    }
    rule = str(run.config.get("gate.rule"))
    if GATES.is_own(rule):
        return f"A leaf takes an offer where the rule {rule} says so."
    published = f"A leaf takes an offer if it is {_better(run)} by {gain:g} or more."
    return rules.get(rule, published)


def gain_panel(run: RunData, offers: pl.DataFrame) -> Panel:
    """Validation gain of each offer, and whether it was accepted."""
    figure, axes = new_figure()
    num_leaves = int(offers["leaf"].max()) + 1  # type: ignore[arg-type]
    for (leaf,), own in offers.group_by("leaf", maintain_order=True):
        gain = (own[f"val_{run.score.name}_offered"] - own[f"val_{run.score.name}_own"]).to_numpy()
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
        offers.select(
            "global_round", "leaf", f"val_{run.score.name}_own", f"val_{run.score.name}_offered", "gate"
        ).iter_rows(),
    )
    return Panel(
        "Gain of every offer",
        numbers,
        figure,
        f"In validation {run.score.said}. Filled: taken; hollow: turned down.",
    )


def evidence_panels(offers: pl.DataFrame) -> list[Panel]:
    """Evidence for each decision, if recorded."""
    headers = {
        "global_round": "round", "leaf": "leaf", "blend": "λ", "val_windows": "windows",
        "val_only_own": "only own right", "val_only_offered": "only offered right",
        "val_standard_error": "standard error", "val_p_value": "p, offer is worse", "gate": "decision",
    }  # fmt: skip
    if "val_windows" not in offers.columns:
        return []
    counts = pl.col("val_windows", "val_only_own", "val_only_offered").cast(pl.Int64)
    numbers = frame_table(offers.with_columns(counts), **headers)
    return [
        Panel(
            "What each decision rests on",
            numbers,
            caption="Windows that only one of the two models has right; the standard error is that of "
            "offered − own; p is McNemar's. Both take windows for independent.",
            is_wide=True,
        )
    ]


def personal_panels(run: RunData) -> list[Panel]:
    """Effect of fine-tuning on the known clients; empty without it."""
    if f"val_{run.score.name}_personal" not in run.leaves.columns:
        return []
    tuned = run.leaves.drop_nulls(f"val_{run.score.name}_personal")
    if tuned.is_empty():
        return []
    headers = {
        "global_round": "round", "leaf": "leaf", f"val_{run.score.name}_before": "before",
        f"val_{run.score.name}_personal": "personal", "serves": "served",
    }  # fmt: skip
    rounds = run.config.get("personal.leaf-rounds", "?")
    said = f"Validation {run.score.said}"
    caption = f"{said} before and after {quantity(rounds, 'leaf round')} for the clients that a leaf knows."
    return [Panel("Personal models", frame_table(tuned, **headers), caption=caption)]


def leaf_panel(run: RunData, own: pl.DataFrame, leaf: int, last_round: int) -> Panel:
    """Both validation scores of one leaf."""
    figure, axes = new_figure(2.4)
    rounds = own["global_round"].to_numpy()
    taken = (own["gate"] != "rejected").to_numpy()
    offered = own[f"val_{run.score.name}_offered"].to_numpy()
    axes.plot(rounds, own[f"val_{run.score.name}_own"], color=colour(leaf), marker=".", label="own")
    axes.plot(rounds, offered, color=INK, linewidth=0.9, linestyle="dotted", label="offered")
    axes.scatter(rounds[taken], offered[taken], s=20, color=INK, label="taken", zorder=3)
    axes.scatter(
        rounds[~taken], offered[~taken], s=20, facecolors="none", edgecolors=INK, linewidths=0.9, zorder=3,
        label="turned down",
    )  # fmt: skip
    axes.set_xlabel("global round")
    axes.set_ylabel(f"validation {run.score.said}")
    whole_ticks(axes)
    axes.set_xlim(0.5, last_round + 0.5)
    legend_below(figure, axes, columns=4)
    numbers = table(
        ("round", "own", "offered", "decision"),
        own.select(
            "global_round", f"val_{run.score.name}_own", f"val_{run.score.name}_offered", "gate"
        ).iter_rows(),
    )
    return Panel(f"Leaf {leaf}: own and offered model", numbers, figure)
