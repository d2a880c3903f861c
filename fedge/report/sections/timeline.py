"""Workers' activity while the server waited, and latencies of messages.

The numbers are those of `fedge.timing.timeline`, as stored in the run folder.
"""

from collections.abc import Sequence

import numpy as np
import polars as pl
from matplotlib.axes import Axes

from fedge.console.palette import FAINT, PAPER, colour
from fedge.records.reading.reader import RunData
from fedge.report.html.page import Panel
from fedge.report.html.svg import legend_below, new_figure, stacked_over_rounds
from fedge.report.html.tables import NumberTable, percent, table, total
from fedge.timing.calls import PARTS
from fedge.timing.timeline import LEGS, PERCENTILES, TIMELINE_PARTS, cut_timelines
from hhar.quantity import quantity

_LABELS = {
    "train": "training",
    "evaluate": "evaluating",
    "load": "loading",
    "deserialise": "deserialising",
    "serialise": "serialising",
    "idle": "idle or transport",
}  # from bottom to top of a stack
_COLOURS = {part: colour(6 if part == "idle" else index) for index, part in enumerate(_LABELS)}
_MEANING = {
    "train": "SGD, SCAFFOLD's and privacy's arithmetic",
    "evaluate": "evaluate models",
    "load": "find windows, put the state into the network",
    "deserialise": "read the states of the message",
    "serialise": "keep c_i, make the reply",
    "idle": "no message, or one on its way",
    "queue": "pushed, until its worker was free",
    "dispatch": "until the client's code began",
    "run": "in the client's code",
    "return": "until the server had the reply",
}
_WORTH_NAMING = 0.005  # share of the time above which a part is named
_WORTH_SAYING = 0.05  # idle share of a worker above which the reason is given
_UNEVEN = 1.25  # multiple of an even share of work above which a client is large
_LANES_DRAWN = 24
_HEIGHT = 0.8  # of a timeline, in rows
_ONE_BY_ONE = 200  # number of messages up to which each is drawn
_MIN_VISIBLE = 0.001  # share of the figure's width above which a bar is visible
_MIN_LABELLED = 0.035  # and above which a bar has room for a label
_BINS = 240  # for more messages
_ROWS = 100  # messages in a table


def timeline_panels(run: RunData) -> list[Panel]:
    """All panels; empty if the workers' times are unknown."""
    if not has_timelines(run):
        return []
    return [timelines_panel(run), workers_panel(run), legs_panel(run), *gantt_panels(run)]


def has_timelines(run: RunData) -> bool:
    """Whether the workers' times of any round are known."""
    return "workers" in run.timing.columns and total(_timed_rounds(run), "wait") > 0


def _timed_rounds(run: RunData) -> pl.DataFrame:
    """Rows of timing.csv with known workers' times."""
    return run.timing.drop_nulls("workers")


# --- in words -------------------------------------------------------------------------------------------


def bound_sentence(run: RunData) -> str:
    """Sentence on the run's bottleneck: shares of its time, and why the idlest worker was idle."""
    timing = _timed_rounds(run)
    seconds, wait = total(timing, "total"), total(timing, "wait")
    timelines = {timeline: total(timing, f"timeline_{timeline}") for timeline in TIMELINE_PARTS}
    shares = {
        _LABELS[timeline]: wait / seconds * timelines[timeline] / sum(timelines.values())
        for timeline in TIMELINE_PARTS
    }
    shares["the server's own work"] = 1 - wait / seconds
    ordered = sorted(shares, key=lambda word: -round(shares[word], 4))
    large = [word for word in ordered if shares[word] >= _WORTH_NAMING]
    text = "What bound the run: " + ", ".join(f"{100 * shares[word]:.0f} % {word}" for word in large)
    reason = idle_reason(run)
    return text + (f"; {reason}." if reason else ".")


def idle_reason(run: RunData) -> str:
    """Reason why the idlest worker was idle, in words; empty if it was idle briefly, or is the only one."""
    per_worker = per_worker_of(run)
    if len(per_worker) < 2:  # 0 if the workers' table was truncated
        return ""
    idlest = per_worker.sort("idle_share", "worker", descending=[True, False]).row(0, named=True)
    if idlest["idle_share"] < _WORTH_SAYING:
        return ""
    text = f"worker {idlest['worker']} idle {100 * idlest['idle_share']:.0f} % of the wait because "
    workers = int(_timed_rounds(run)["workers"].max())  # type: ignore[arg-type]
    clients = run.clients["client"].n_unique()
    if clients < workers:
        return text + f"{quantity(workers, 'worker')} share {quantity(clients, 'client')}"
    if idlest["idle_at_end"] < idlest["idle"] / 2:
        return text + "messages were on their way"
    client, share = largest_client(run)
    if share >= _UNEVEN / clients:
        return text + f"client {client} holds {100 * share:.0f} % of the work"
    return text + f"{quantity(clients, 'client')} do not divide evenly among {quantity(workers, 'worker')}"


def largest_client(run: RunData) -> tuple[int, float]:
    """Client with the longest training over the run, and its share of all clients' training seconds."""
    work = run.clients.group_by("client").agg(pl.col("train_seconds").sum()).sort("train_seconds", "client")
    return int(work["client"][-1]), float(work["train_seconds"][-1]) / (total(work, "train_seconds") or 1.0)


def per_worker_of(run: RunData) -> pl.DataFrame:
    """A row per worker: rounds, messages, seconds of the wait and of its parts, share of idle time."""
    wait = pl.sum_horizontal(TIMELINE_PARTS)
    return (
        run.workers.group_by("worker", maintain_order=True)
        .agg(
            pl.len().alias("rounds"),
            pl.col("messages").sum(),
            wait.sum().alias("wait"),
            pl.col(*TIMELINE_PARTS, "idle_at_end").sum(),
        )
        .with_columns(idle_share=pl.when(wait > 0).then(pl.col("idle") / wait).otherwise(0.0))
        .sort("worker")
    )


# --- figures --------------------------------------------------------------------------------------------


def timelines_panel(run: RunData) -> Panel:
    """Activity of all workers during the wait of every round, stacked."""
    timing = _timed_rounds(run)
    seconds = {part: total(timing, f"timeline_{part}") for part in _LABELS}
    shown = [(_LABELS[p], timing[f"timeline_{p}"].to_numpy(), _COLOURS[p]) for p in _LABELS if seconds[p]]
    figure = stacked_over_rounds(timing["global_round"].to_list(), shown, "seconds, all workers")
    numbers = table(
        ("part", "what", "seconds", "share"),
        ((_LABELS[p], _MEANING[p], seconds[p], percent(seconds[p], sum(seconds.values()))) for p in _LABELS),
    )
    return Panel(
        "Workers while the server waits", numbers, figure, "The parts of a round add up to workers × wait."
    )


def workers_panel(run: RunData) -> Panel:
    """Table of each worker's activity."""
    rows = [
        (r["worker"], r["rounds"], r["messages"], r["wait"],
         *(percent(r[part], r["wait"]) for part in _LABELS), percent(r["idle_at_end"], r["wait"]))
        for r in per_worker_of(run).iter_rows(named=True)
    ]  # fmt: skip
    headers = ("worker", "rounds", "messages", "wait, s", *_LABELS.values(), "idle at the end")
    return Panel(
        "What each worker did", table(headers, rows), is_open=len(rows) <= _LANES_DRAWN, is_wide=True,
        caption="Shares of the wait. Idle at the end: others were still at work on an exchange.",
    )  # fmt: skip


def legs_panel(run: RunData) -> Panel:
    """Latencies of messages, as percentiles."""
    timing = _timed_rounds(run)
    rows = [
        (
            leg,
            *(timing[f"{leg}_{p}"].median() for p in PERCENTILES),
            timing[f"{leg}_max"].max(),
            _MEANING[leg],
        )
        for leg in LEGS
    ]
    headers = ("leg", *PERCENTILES, "longest", "what")
    return Panel(
        "How long messages take", table(headers, rows), is_open=True, is_wide=True,
        caption="Seconds: percentiles over the messages of a round, of which the median over rounds is "
        "shown; and the longest of all. Messages overlap, so these do not add up.",
    )  # fmt: skip


def gantt_panels(run: RunData) -> list[Panel]:
    """Workers' activity in the first, the slowest and the newest round whose messages were kept."""
    rounds = run.messages["global_round"].unique().sort().to_list()
    if not rounds:
        return []
    slowest = run.timing.sort("total", "global_round", descending=[True, False])["global_round"][0]
    special = {
        "first": run.timing["global_round"][0],
        "slowest": slowest,
        "last": run.timing["global_round"][-1],
    }
    return [
        gantt_panel(run, number, [name for name, special_round in special.items() if special_round == number])
        for number in rounds
    ]


def gantt_panel(run: RunData, global_round: int, special: Sequence[str]) -> Panel:
    """Each worker's activity over time in one round; `special` gives the reasons for showing that round."""
    messages = run.messages.filter(pl.col("global_round") == global_round)
    all_workers = messages["worker"].unique().sort().to_list()
    workers = all_workers[:_LANES_DRAWN]
    messages = messages.filter(pl.col("worker").is_in(workers))
    duration = run.timing.filter(pl.col("global_round") == global_round)["total"].sum()
    end = max(float(duration), float(messages["received"].to_numpy().max()))
    figure, axes = new_figure(1.3 + 0.3 * max(len(workers), 2))
    for _, exchange in messages.group_by("exchange"):
        axes.axvspan(*_span(exchange), color=FAINT, alpha=0.5, linewidth=0)
    rows = np.array([workers.index(worker) for worker in messages["worker"]])
    if len(messages) <= _ONE_BY_ONE:
        _draw_calls(axes, messages, rows, end)
    else:
        _draw_shares(axes, messages, rows, end)
    axes.set_xlim(0, end)
    axes.set_ylim(len(workers) - 0.4, -0.6)
    axes.set_yticks(range(len(workers)), [f"worker {worker}" for worker in workers])
    axes.set_xlabel("seconds since the round began")
    axes.grid(False, axis="y")
    legend_below(figure, axes)
    name = f", the {' and the '.join(special)}" if special else ""
    return Panel(
        f"Workers in round {global_round}{name}", _messages_table(messages), figure,
        _gantt_caption(len(messages), len(all_workers)),
    )  # fmt: skip


def _gantt_caption(messages: int, workers: int) -> str:
    """Caption of a round's figure."""
    text = "Grey: messages are under way; white: the server is at work."
    if messages <= _ONE_BY_ONE:
        text += " Bars are labelled with the client."
    if workers > _LANES_DRAWN:
        text += f" The first {_LANES_DRAWN} of {workers} workers."
    if messages > _ROWS:
        text += f" The table has the {_ROWS} longest of {messages} messages."
    return text


def _span(exchange: pl.DataFrame) -> tuple[float, float]:
    """Beginning and end of an exchange."""
    return float(exchange["pushed"].to_numpy().min()), float(exchange["received"].to_numpy().max())


def _edges(messages: pl.DataFrame) -> np.ndarray:
    """(M, parts + 1) times at which a call began and at which each of its parts ended."""
    return np.cumsum(messages.select("began", *PARTS).to_numpy(), axis=1)


def _draw_calls(axes: Axes, messages: pl.DataFrame, rows: np.ndarray, end: float) -> None:
    """Draw every call as a bar of its parts, labelled with its client if there is room."""
    edges = _edges(messages)
    for part in _LABELS:
        if part == "idle":
            continue
        index = PARTS.index(part)
        durations = edges[:, index + 1] - edges[:, index]
        visible = durations >= _MIN_VISIBLE * end
        if visible.any():
            axes.barh(
                rows[visible], durations[visible], left=edges[visible, index], height=_HEIGHT,
                color=_COLOURS[part], label=_LABELS[part],
            )  # fmt: skip
    for client, row, began, ended in zip(messages["client"], rows, edges[:, 0], edges[:, -1], strict=True):
        if ended - began >= _MIN_LABELLED * end:
            middle = (began + ended) / 2
            axes.text(middle, row, str(client), color=PAPER, ha="center", va="center", fontsize=9)


def _draw_shares(axes: Axes, messages: pl.DataFrame, rows: np.ndarray, end: float) -> None:
    """Draw the timelines in bins, with each part's share of a bin as height."""
    ticks = np.linspace(0, end, _BINS + 1)
    count = int(rows.max()) + 1
    windows = zip(ticks[:-1].tolist(), ticks[1:].tolist(), strict=True)
    edges = _edges(messages)
    seconds = np.stack([cut_timelines(edges, rows, count, [window]) for window in windows])
    heights = _HEIGHT * seconds / (end / _BINS)
    bottom = np.broadcast_to(np.arange(count) + _HEIGHT / 2, (_BINS, count))
    for part in _LABELS:
        height = heights[:, :, TIMELINE_PARTS.index(part)]
        if part == "idle" or not height.any():
            continue
        for row in range(count):
            axes.stairs(
                (bottom - height)[:, row], ticks, baseline=bottom[:, row], fill=True, color=_COLOURS[part],
                label=None if row else _LABELS[part],
            )  # fmt: skip
        bottom = bottom - height


def _messages_table(messages: pl.DataFrame) -> NumberTable:
    """Messages of a round in the order of their start; the longest if there are many."""
    ended = pl.sum_horizontal("began", *PARTS)
    shown = messages.with_columns(ended=ended, lasted=ended - pl.col("began")).top_k(_ROWS, by="lasted")
    columns = ("exchange", "client", "worker", "pushed", "began", *PARTS, "ended", "received")
    return table(columns, shown.sort("began").select(columns).iter_rows())
