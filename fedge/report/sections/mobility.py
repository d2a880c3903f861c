"""Section on mobility: clients' moves between leaves, and their rounds."""

import polars as pl

from fedge.config.sections.hierarchy import HierarchyConfig
from fedge.console.palette import colour
from fedge.records.reading.reader import RunData
from fedge.report.html.page import PageSection, Panel
from fedge.report.html.svg import integer_ticks, new_figure
from fedge.report.html.tables import table, text_of
from hhar.quantity import quantity

_OFF = HierarchyConfig.mobility


def mobility_sections(run: RunData) -> list[PageSection]:
    """The section, for a run with mobile clients; empty for others."""
    kind = run.config.get("hierarchy.mobility", _OFF)
    if kind == _OFF:
        return []
    moves = run.clients.drop_nulls("came_from").sort("client", "global_round")
    if moves.is_empty():
        return [PageSection("Mobility", [f"{kind}: no client has moved so far."])]
    return [
        PageSection("Mobility", _sentences(run, moves), [_moves_panel(run, moves), _clients_panel(moves)])
    ]


def _sentences(run: RunData, moves: pl.DataFrame) -> list[str]:
    """Number of moves, and scores of clients just moved beside those of others."""
    column, known = f"test_{run.score.name}", run.known_clients
    text = [
        f"{run.config['hierarchy.mobility']}: {quantity(len(moves), 'move')} of "
        f"{quantity(moves['client'].n_unique(), 'client')}, of {known['client'].n_unique()} that train, in "
        f"{quantity(moves['global_round'].n_unique(), 'global round')} of {len(run.rounds)}."
    ]
    moved_mean, other_mean = moves[column].mean(), known.filter(pl.col("came_from").is_null())[column].mean()
    if moved_mean is not None and other_mean is not None:
        text.append(
            f"Mean test {run.score.label} in the round of a move {text_of(moved_mean)}, in all others "
            f"{text_of(other_mean)}."
        )
    return text


def _moves_panel(run: RunData, moves: pl.DataFrame) -> Panel:
    """Number of moves before each global round, and the leaves then without clients."""
    clients, leaves = run.known_clients, run.leaves.select("global_round", "leaf")
    empty = leaves.join(clients, on=["global_round", "leaf"], how="anti").group_by("global_round").agg("leaf")
    rows = (
        run.rounds.select("global_round")
        .join(moves.group_by("global_round").agg(pl.len().alias("moves")), on="global_round", how="left")
        .join(empty, on="global_round", how="left")
        .sort("global_round")
        .with_columns(pl.col("moves").fill_null(0))
    )
    figure, axes = new_figure()
    axes.bar(rows["global_round"], rows["moves"], color=colour(0))
    axes.set_xlabel("global round")
    axes.set_ylabel("clients that moved")
    integer_ticks(axes)
    cells = (
        (r, n, " ".join(map(str, sorted(empty_leaves or ())))) for r, n, empty_leaves in rows.iter_rows()
    )
    numbers = table(("round", "clients that moved", "leaves without clients"), cells)
    return Panel("Moves over rounds", numbers, figure, "Clients move before the round.")


def _clients_panel(moves: pl.DataFrame) -> Panel:
    """Leaves of every moving client, in order."""
    rows = [
        (client, len(trips), f"{trips['came_from'][0]}, " + ", ".join(
            f"{leaf} from round {number}" for number, leaf in trips.select("global_round", "leaf").iter_rows()
        ))
        for (client,), trips in moves.group_by("client", maintain_order=True)
    ]  # fmt: skip
    caption = "Leaves in the order of visits. metrics/clients.csv has every client's leaf in every round."
    return Panel(
        "Leaves of clients that moved", table(("client", "moves", "leaves"), rows), None, caption, True, True
    )
