"""Section on the gate: offers to leaves or regions, both models' validation scores, and the decisions."""

import polars as pl

from fedge.config.registers.groupings import GATES
from fedge.config.registers.option import ConfigError, arguments_of
from fedge.console.palette import INK, colour
from fedge.records.reading.reader import RunData
from fedge.report.html.page import PageSection, Panel
from fedge.report.html.svg import integer_ticks, legend_below, new_figure
from fedge.report.html.tables import frame_table, table
from fedge.report.sections.accuracy import MANY_LEAVES
from hhar.quantity import quantity

_MANY_PANELS = 4  # number of servers above which only the gain is drawn
_BY_GAIN = ("published", "after-round")  # rules deciding by gate.min-gain alone


def gate_section(run: RunData) -> PageSection:
    """The gate's decisions."""
    offers = _offers(run)
    tuned = personal_panels(run)
    if offers.is_empty():
        return PageSection("Gate", [_no_rows_sentence(run)], tuned)
    deciders = offers["decider"].unique(maintain_order=True).to_list()
    panels = [gain_panel(run, offers)]
    if len(deciders) <= _MANY_PANELS:
        last = run.rounds["global_round"][-1]
        panels += [
            decider_panel(run, offers.filter(pl.col("decider") == decider), last) for decider in deciders
        ]
    return PageSection("Gate", _sentences(run, offers), [*panels, *evidence_panels(run, offers), *tuned])


def _no_rows_sentence(run: RunData) -> str:
    """Sentence for a run in which no offer was compared next to the clients."""
    if not run.config.get("gate.enabled", True):
        return "The gate is off: every offer is taken."
    accepted, rejected = decisions(run)
    if not accepted + rejected:
        return "No leaf got an offer."
    return f"{_taken_sentence(accepted, rejected)} They were to servers above others: metrics/servers.csv."


def _taken_sentence(accepted: int, rejected: int) -> str:
    """Sentence on the number of accepted offers."""
    return (
        f"{accepted} of {quantity(accepted + rejected, 'offer')} {'was' if accepted == 1 else 'were'} taken."
    )


def decisions(run: RunData) -> tuple[int, int]:
    """Numbers of accepted and of rejected offers, those of regions included."""
    outcomes = run.servers["gate"] if _is_deep(run) else run.leaves["gate"]
    return int((outcomes == "accepted").sum()), int((outcomes == "rejected").sum())


def _is_deep(run: RunData) -> bool:
    """Whether there are servers between cloud and leaves."""
    return not run.servers.is_empty() and int(run.servers["tier"].max()) > 1  # type: ignore[arg-type]


def _offers(run: RunData) -> pl.DataFrame:
    """Rows of leaf_rounds.csv with both scores, one per `decider`, a leaf or region, numbered by `place`."""
    offers = run.leaves.drop_nulls(f"val_{run.score.name}_offered").sort("global_round", "leaf")
    deciders = _deciders(run.servers) if _is_deep(run) else {}
    places = [deciders.get(leaf, (f"leaf {leaf}", leaf)) for leaf in offers["leaf"]]
    offers = offers.with_columns(
        pl.Series("decider", [name for name, _ in places], pl.String),
        pl.Series("place", [place for _, place in places], pl.Int64),
    )
    return offers.unique(["global_round", "decider"], keep="first", maintain_order=True)


def _deciders(servers: pl.DataFrame) -> dict[int, tuple[str, int]]:
    """Leaf → name and place of the lowest server with a choice, from the leaf upwards."""
    gated = servers.drop_nulls("gate").unique("path", maintain_order=True)
    lowest = gated.filter(pl.col("tier") == pl.col("tier").max()).select("path", "name").rows()
    leaves = servers.filter(pl.col("tier") == servers["tier"].max())["path"].unique(maintain_order=True)
    deciders = {}
    for leaf, path in enumerate(leaves):
        for place, (server, name) in enumerate(lowest):
            if path == server or path.startswith(f"{server}/"):
                deciders[leaf] = (f"leaf {leaf}" if path == server else f"{name} {server[1:]}", place)
    return deciders


def _sentences(run: RunData, offers: pl.DataFrame) -> list[str]:
    """Sentences on the number of accepted offers and the rule."""
    if _is_off(offers):
        compared = f"{quantity(len(offers), 'offer')} {'was' if len(offers) == 1 else 'were'} compared"
        return [
            f"The gate is off: every offer is taken. {compared}. {_scores_noun(run)} are of validation "
            "windows."
        ]
    accepted, rejected = decisions(run)
    noun = _decider_noun(offers)
    summary = (
        f"{_taken_sentence(accepted, rejected)} {_rule(run, noun)} "
        f"{_scores_noun(run)} are of the validation windows of the {noun}'s own clients."
    )
    return [summary, *([] if accepted + rejected == len(offers) else [_SCOPE_NOTE])]


_SCOPE_NOTE = (
    "Figures and tables have the gates next to the clients; metrics/servers.csv has those above, too."
)


def _is_off(offers: pl.DataFrame) -> bool:
    """Whether offers were compared, but no server had a choice."""
    return bool((offers["gate"] == "off").all())


def _decider_noun(offers: pl.DataFrame) -> str:
    """Word for a server with a choice."""
    return str(offers["decider"][0]).rpartition(" ")[0]


def _has_accuracy(run: RunData) -> bool:
    """Whether windows are scored as right or wrong."""
    return run.has_classes


def _scores_noun(run: RunData) -> str:
    return "Accuracies" if _has_accuracy(run) else f"Scores ({run.score.label})"


def _better_phrase(run: RunData) -> str:
    return "more accurate" if _has_accuracy(run) else f"better in {run.score.label}"


def _test_name(run: RunData) -> str:
    return "McNemar's exact" if _has_accuracy(run) else "Student's paired"


def _level(run: RunData) -> float:
    """Level of the test of the gate `paired`; its default if the recorded one is impossible."""
    default = GATES.arguments("paired", {})["level"]
    try:
        arguments = arguments_of(run.config.get("gate.rule-args", ""), "gate.rule-args")
        level = GATES.arguments("paired", arguments)["level"]
    except ConfigError:
        level = default
    return float(level) if isinstance(level, int | float) else float(default)


def _rule(run: RunData, noun: str) -> str:
    """Sentence on when an offer is accepted."""
    gain, level = run.config.get("gate.min-gain", 0.0), _level(run)
    rules = {
        "after-round": f"An offer is trained for a global round beside the {noun}'s own model, and taken if "
        f"it is then {_better_phrase(run)} by {gain:g} or more; the row is of the round in which that is "
        "decided.",
        "one-standard-error": f"A {noun} takes an offer unless it misses a gain of {gain:g} by more than one "
        f"standard error of the paired difference.",
        "paired": f"A {noun} takes an offer unless {_test_name(run)} one-sided test says at level {level:g} "
        f"that it is worse.",
    }
    rule = str(run.config.get("gate.rule"))
    if GATES.is_own(rule):
        return f"A {noun} takes an offer if the rule {rule} says so."
    published = f"A {noun} takes an offer if it is {_better_phrase(run)} by {gain:g} or more."
    return rules.get(rule, published)


def gain_panel(run: RunData, offers: pl.DataFrame) -> Panel:
    """Validation gain of each offer, positive for a better model, and whether it was accepted."""
    figure, axes = new_figure()
    has_few = int(offers["place"].max()) + 1 <= MANY_LEAVES  # type: ignore[arg-type]
    sign = 1 if run.score.higher_is_better else -1
    for (name, place), group in offers.group_by("decider", "place", maintain_order=True):
        gain = sign * (group[f"val_{run.score.name}_offered"] - group[f"val_{run.score.name}_own"]).to_numpy()
        shade = colour(int(place)) if has_few else colour(0)
        accepted = (group["gate"] != "rejected").to_numpy()
        rounds = group["global_round"].to_numpy()
        axes.scatter(rounds[accepted], gain[accepted], s=18, color=shade)
        axes.scatter(
            rounds[~accepted], gain[~accepted], s=18, facecolors="none", edgecolors=shade, linewidths=1
        )
        if has_few:
            axes.scatter([], [], s=18, color=shade, label=str(name))
    height, label = _reference_line(run, offers)
    axes.axhline(height, color=INK, linewidth=1, linestyle="dashed", label=label)
    axes.set_xlim(0.5, run.rounds["global_round"][-1] + 0.5)
    axes.set_xlabel("global round")
    axes.set_ylabel("offered − own" if sign > 0 else "own − offered")
    integer_ticks(axes)
    legend_below(figure, axes, columns=4)
    scores = (f"val_{run.score.name}_own", f"val_{run.score.name}_offered")
    rows = offers.with_columns(who=_decider_number(offers)).select("global_round", "who", *scores, "gate")
    numbers = table(("round", _decider_noun(offers), "own", "offered", "decision"), rows.iter_rows())
    lower = "" if sign > 0 else " A lower one is better: above 0 the offer is."
    caption = f"In validation {run.score.label}.{lower} Filled: taken; hollow: turned down."
    return Panel("Gain of every offer", numbers, figure, caption)


def _decider_number(offers: pl.DataFrame) -> pl.Expr:
    """Number, or path, of the server with a choice."""
    return pl.col("decider").str.strip_prefix(f"{_decider_noun(offers)} ")


def _reference_line(run: RunData, offers: pl.DataFrame) -> tuple[float, str]:
    """Position and name of the line in the figure of gains: the gain needed, for rules of a gain alone."""
    if str(run.config.get("gate.rule", "published")) in _BY_GAIN and not _is_off(offers):
        return float(run.config.get("gate.min-gain", 0.0)), "needed"
    return 0.0, "equally good"


def evidence_panels(run: RunData, offers: pl.DataFrame) -> list[Panel]:
    """Evidence for each decision, if recorded."""
    if "val_windows" not in offers.columns:
        return []
    exclusive = {"val_only_own": "only own right", "val_only_offered": "only offered right"}
    headers = {
        "global_round": "round", "who": _decider_noun(offers), "blend": "λ", "val_windows": "windows",
        **(exclusive if _has_accuracy(run) else {}),
        "val_standard_error": "standard error", "val_p_value": "p, offer is worse", "gate": "decision",
    }  # fmt: skip
    counts = pl.col("val_windows", *exclusive).cast(pl.Int64)
    numbers = frame_table(offers.with_columns(counts, who=_decider_number(offers)), **headers)
    prefix = "Windows that only one of the two models has right; the" if _has_accuracy(run) else "The"
    caption = (
        f"{prefix} standard error is that of offered − own {run.score.label}; p is that of {_test_name(run)} "
        "one-sided test. Both treat windows as independent."
    )
    title = "How both models compare" if _is_off(offers) else "What each decision rests on"
    return [Panel(title, numbers, caption=caption, is_wide=True)]


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
    label = f"Validation {run.score.label}"
    caption = f"{label} before and after {quantity(rounds, 'leaf round')} for the clients that a leaf knows."
    return [Panel("Personal models", frame_table(tuned, **headers), caption=caption)]


def decider_panel(run: RunData, offers: pl.DataFrame, last_round: int) -> Panel:
    """Both validation scores of one leaf or region."""
    name, shade = str(offers["decider"][0]), colour(int(offers["place"][0]))
    figure, axes = new_figure(2.4)
    rounds = offers["global_round"].to_numpy()
    accepted = (offers["gate"] != "rejected").to_numpy()
    offered = offers[f"val_{run.score.name}_offered"].to_numpy()
    axes.plot(rounds, offers[f"val_{run.score.name}_own"], color=shade, marker=".", label="own")
    axes.plot(rounds, offered, color=INK, linewidth=0.9, linestyle="dotted", label="offered")
    axes.scatter(rounds[accepted], offered[accepted], s=20, color=INK, label="taken", zorder=3)
    axes.scatter(
        rounds[~accepted], offered[~accepted], s=20, facecolors="none", edgecolors=INK, linewidths=0.9,
        zorder=3, label="turned down",
    )  # fmt: skip
    axes.set_xlabel("global round")
    axes.set_ylabel(f"validation {run.score.label}")
    integer_ticks(axes)
    axes.set_xlim(0.5, last_round + 0.5)
    legend_below(figure, axes, columns=4)
    numbers = table(
        ("round", "own", "offered", "decision"),
        offers.select(
            "global_round", f"val_{run.score.name}_own", f"val_{run.score.name}_offered", "gate"
        ).iter_rows(),
    )
    return Panel(f"{name[:1].upper()}{name[1:]}: own and offered model", numbers, figure)
