"""Section on privacy: the guarantee, its cost over rounds, quantities not covered."""

from fedge.console.palette import colour
from fedge.records.reading.reader import RunData
from fedge.report.html.page import PageSection, Panel
from fedge.report.html.svg import integer_ticks, new_figure
from fedge.report.html.tables import frame_table, text_of


def privacy_sections(run: RunData) -> list[PageSection]:
    """The section, for a run with privacy; empty for others."""
    kind = run.config.get("privacy.kind", "off")
    if kind == "off":
        return []
    facts = run.manifest.get("privacy", {})
    promise = str(facts.get("promise", "see docs/privacy.md"))
    prefix = "" if promise.startswith(f"{kind}:") else f"{kind}: "
    text = [f"{prefix}{promise}. Unit: a client with all its windows."]
    if run.config.get("privacy.noise-multiplier") == 0 and kind != "local":
        text = ["Updates were clipped, but no noise was added: nothing is promised."]
    if facts.get("not_covered"):
        text.append(f"Not covered: {'; '.join(facts['not_covered'])}.")
    spent = run.rounds["epsilon_spent"].drop_nulls()
    if not len(spent):
        return [PageSection("Privacy", [*text, "The privacy spent was not accounted for."])]
    delta = run.config.get("privacy.delta", 0.0)
    text.append(f"Spent by the last round: ε = {text_of(spent[-1])} at δ = {delta:g}.")
    return [PageSection("Privacy", text, [epsilon_panel(run)])]


def epsilon_panel(run: RunData) -> Panel:
    """ε over rounds."""
    rows = run.rounds.select("global_round", "epsilon_spent").drop_nulls()
    figure, axes = new_figure()
    axes.plot(rows["global_round"], rows["epsilon_spent"], color=colour(0), marker=".")
    axes.set_xlabel("global round")
    axes.set_ylabel("ε spent")
    axes.set_ylim(bottom=0)
    integer_ticks(axes)
    numbers = frame_table(rows, global_round="round", epsilon_spent="ε spent")
    accountant = run.manifest.get("privacy", {}).get("accountant")
    return Panel("Privacy spent", numbers, figure, f"Added up by {accountant}." if accountant else "")
