"""Section on costs of rounds with devices: the score over virtual time, energy and bytes."""

import polars as pl

from fedge.console.palette import colour
from fedge.records.reading.costs import bytes_so_far, joules, virtual_seconds
from fedge.records.reading.reader import RunData
from fedge.report.html.page import PageSection, Panel
from fedge.report.html.svg import legend_below, new_figure
from fedge.report.html.tables import bytes_text, seconds_text, table, text_of


def cost_sections(run: RunData) -> list[PageSection]:
    """The section, for a run with devices in rounds; empty for others."""
    seconds = virtual_seconds(run)
    if seconds is None or not run.versions.is_empty():
        return []
    return [PageSection("What rounds cost", [_sentence(run, seconds)], [*_panels(run, seconds)])]


def _sentence(run: RunData, seconds: pl.Series) -> str:
    """Total costs in words."""
    energy = joules(run)
    energy_text = "" if energy is None else f", {text_of(float(energy[-1]))} J of the devices"
    bytes_moved = bytes_text(float(bytes_so_far(run.rounds)[-1]))
    return (
        f"With devices of the preset {run.config.get('devices.preset')}, the rounds would have taken "
        f"{seconds_text(float(seconds[-1]))}{energy_text}, and moved {bytes_moved} on all tiers. Evaluations "
        "are free."
    )


def _panels(run: RunData, seconds: pl.Series) -> list[Panel]:
    """The score over each of the costs."""
    energy, megabytes = joules(run), bytes_so_far(run.rounds) / 1e6
    panels = [_panel(run, "virtual time", "virtual s", seconds)]
    panels += [] if energy is None else [_panel(run, "energy", "J of the devices", energy)]
    return [*panels, _panel(run, "bytes", "MB so far, all tiers", megabytes)]


def _panel(run: RunData, over: str, unit: str, costs: pl.Series) -> Panel:
    """The score on seen and unseen users over one cost."""
    score_label, rounds = run.score.label, run.rounds
    columns = {f"test_{run.score.name}_mean": "seen users", f"unseen_{run.score.name}_mean": "unseen users"}
    available = {column: label for column, label in columns.items() if not rounds[column].is_null().all()}
    figure, axes = new_figure()
    for index, (column, label) in enumerate(available.items()):
        axes.plot(costs.to_numpy(), rounds[column].to_numpy(), color=colour(index), marker=".", label=label)
    axes.set_xlabel(unit)
    axes.set_ylabel(f"mean test {score_label}")
    legend_below(figure, axes)
    rows = zip(rounds["global_round"], costs, *(rounds[column] for column in available), strict=True)
    numbers = table(("round", unit, *available.values()), rows)
    return Panel(f"{score_label[:1].upper()}{score_label[1:]} over {over}", numbers, figure)
