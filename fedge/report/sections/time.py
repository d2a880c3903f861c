"""Section on time: seconds of every round by phase, and bytes."""

import polars as pl

from fedge.console.palette import colour
from fedge.records.reading.reader import RunData
from fedge.report.html.page import PageSection, Panel
from fedge.report.html.svg import integer_ticks, legend_below, new_figure, stacked_over_rounds
from fedge.report.html.tables import bytes_text, percent, seconds_text, table, total
from fedge.report.sections.timeline import bound_sentence, has_timelines, timeline_panels
from fedge.timing.laps import PHASES
from hhar.quantity import quantity

_DEEPER = 2  # tiers of servers below the root from which on "cloud" is ambiguous
_SMALL = 0.01  # phases with a smaller share of the time are drawn as one
_TRAFFIC = {
    "uplink_bytes": "client to leaf", "downlink_bytes": "leaf to client",
    "cloud_uplink_bytes": "leaf to cloud", "cloud_downlink_bytes": "cloud to leaf",
}  # fmt: skip
_MEANING = {
    "configure": "make messages",
    "push": "hand messages out",
    "wait": "clients train and evaluate",
    "check": "check replies",
    "aggregate": "average models",
    "cluster": "compare and group leaves",
    "gate": "decide on offers",
    "report": "compute the rows of the round, show the last one",
    "record": "write the last round",
    "checkpoint": "keep the state after the last round",
    "other": "everything else",
}


def time_section(run: RunData) -> PageSection:
    """Seconds per phase, the workers' activity during them, and bytes per round."""
    if run.timing.is_empty():
        return PageSection("Time", ["No round has ended."])
    panels = [phases_panel(run), *timeline_panels(run), traffic_panel(run)]
    return PageSection("Time", _time_sentences(run), panels)


def phases_of(run: RunData) -> list[str]:
    """The phases adding up to a round."""
    return [phase for phase in PHASES if phase in run.timing.columns]


def _time_sentences(run: RunData) -> list[str]:
    """Sentences on the run's time and waits."""
    seconds = total(run.timing, "total")
    share = total(run.timing, "wait") / seconds if "wait" in run.timing.columns and seconds else None
    text = f"{quantity(len(run.timing), 'round')} took {seconds_text(seconds)}"
    text += f"; {100 * share:.0f} % of it the server waited for clients." if share is not None else "."
    sentences = [text + " The phases of a round add up to its wall time."]
    return [*sentences, bound_sentence(run)] if has_timelines(run) else sentences


def phases_panel(run: RunData) -> Panel:
    """Seconds of every round, stacked by phase."""
    timing, seconds = run.timing, {phase: total(run.timing, phase) for phase in phases_of(run)}
    ordered = sorted(seconds, key=lambda phase: -seconds[phase])
    large = [phase for phase in ordered if seconds[phase] >= _SMALL * sum(seconds.values())]
    small = [phase for phase in ordered if phase not in large]
    shown = [(phase, timing[phase].to_numpy(), colour(index)) for index, phase in enumerate(large)]
    if small:
        rest = timing.select(pl.sum_horizontal(small)).to_series().to_numpy()
        shown.append(("all others", rest, colour(len(large))))
    figure = stacked_over_rounds(timing["global_round"].to_list(), shown, "seconds")
    numbers = table(
        ("phase", "what", "seconds", "share", "median per round", "longest"),
        (
            (p, _MEANING.get(p, ""), seconds[p], percent(seconds[p], sum(seconds.values())),
             timing[p].median(), timing[p].max())
            for p in ordered
        ),
    )  # fmt: skip
    return Panel(
        "Seconds per round by phase", numbers, figure, f"Phases under {100 * _SMALL:.0f} % are drawn as one."
    )


def traffic_panel(run: RunData) -> Panel:
    """Bytes up and down per round, by tier."""
    rounds, tiers = run.rounds, _traffic(run)
    figure, axes = new_figure()
    for index, (label, num_bytes) in enumerate(tiers.items()):
        axes.plot(
            rounds["global_round"], (num_bytes.cum_sum() / 1e6).to_numpy(), color=colour(index),
            label=label, linestyle="dashed" if index % 2 else "solid",
            marker="o" if len(rounds) == 1 else None,
        )  # fmt: skip
    axes.set_xlabel("global round")
    axes.set_ylabel("MB so far")
    axes.set_ylim(bottom=0)
    integer_ticks(axes)
    legend_below(figure, axes)
    up, down, cloud_up, cloud_down = (bytes_text(total(rounds, column)) for column in _TRAFFIC)
    above = "leaves and the cloud" if len(tiers) == len(_TRAFFIC) else "servers"
    numbers = table(
        ("round", *tiers, "seconds"),
        zip(rounds["global_round"], *tiers.values(), rounds["seconds"], strict=True),
    )
    return Panel(
        "Bytes by tier", numbers, figure,
        f"Arrays between clients and leaves: {up} up, {down} down; between {above}: "
        f"{cloud_up} up, {cloud_down} down.",
    )  # fmt: skip


def _traffic(run: RunData) -> dict[str, pl.Series]:
    """Bytes of every round between two tiers, (N,), by name; in a deeper tree from its servers' rows."""
    rounds, servers = run.rounds, run.servers
    columns = list(_TRAFFIC)
    series = {_TRAFFIC[column]: rounds[column] for column in columns[:2]}
    depth = max(servers["tier"].to_list(), default=0)
    if depth < _DEEPER:
        return series | {_TRAFFIC[column]: rounds[column] for column in columns[2:]}
    names = dict(servers.select("tier", "name").unique().iter_rows())
    for tier in range(depth, 0, -1):
        of_tier = servers.filter(pl.col("tier") == tier).group_by("global_round")
        sums = rounds.select("global_round").join(
            of_tier.agg(pl.col("uplink_bytes", "downlink_bytes").sum()), on="global_round", how="left"
        )
        series[f"{names[tier]} to {names[tier - 1]}"] = sums["uplink_bytes"].fill_null(0)
        series[f"{names[tier - 1]} to {names[tier]}"] = sums["downlink_bytes"].fill_null(0)
    return series
