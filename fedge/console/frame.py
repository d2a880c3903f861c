"""One frame of the live view: progress of the run, a row per leaf, and clients in training.

Pure functions from state to text, which depend on the terminal only through its size.

    round 37/100  ━━━━━━━━━━━━━━━━━━━━━╸━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━  0:52  left 1:28

    leaf  cluster  accuracy  trend         worst      gate     clients
       0  ■ 0         0.912  ▁▂▃▅▆▆▇▇▇███  0.861 c2   ✓ taken  ●●○
       1  ■ 1         0.935  ▂▃▄▅▆▇▇▇████  0.901 c5   ✗ kept   ●○○
     all  2           0.923  ▁▂▄▅▆▇▇▇████  0.861 c2
    training: 3 of 6 clients back, waiting for 2 4 5
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len
from rich.text import Text

from fedge.console.lines import minutes
from fedge.console.palette import colour
from fedge.exchange.clients import ExchangeProgress
from fedge.exchange.evaluate import EVALUATE
from fedge.exchange.joint import JOINT
from fedge.exchange.train import TRAIN
from fedge.rounds.measurements.results import LeafResult, RoundResult
from hhar.quantity import quantity

_WIDEST = 120  # a longer bar is not easier to read
_TREND = 12  # rounds of the trend; more if there is room
_LONGEST_TREND = 40
_MIN_LEAVES = 3  # leaves shown even if little room remains above the frame
_MOST_DOTS = 12  # clients of a leaf shown as dots; more are counted


@dataclass(frozen=True)
class Marks:
    """Symbols of a frame.

    Attributes:
        levels: symbols of the trend, lowest first; empty for no trend.
    """

    done: str = "━"
    half: str = "╸"
    open: str = "━"
    cluster: str = "■"
    taken: str = "✓"
    kept: str = "✗"
    back: str = "●"
    out: str = "○"
    failed: str = "✗"
    levels: str = "▁▂▃▄▅▆▇█"
    to: str = "→"


FANCY = Marks()
ASCII = Marks("#", "#", "-", "#", "+", "-", "*", ".", "x", "", "->")


def marks_for(encoding: str) -> Marks:
    """Symbols for a terminal with this encoding."""
    try:
        "".join(vars(FANCY).values()).encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return FANCY


@dataclass
class Board:
    """Content of a frame.

    Attributes:
        num_rounds: planned global rounds.
        done: global rounds done.
        elapsed_s, left_s: seconds elapsed, and seconds left; the latter is None while unknown.
        phase: phase of the run between exchanges.
        leaves: clients of every leaf.
        leaf_rounds: leaf rounds per global round.
        leaf_round: leaf round within the current global round.
        standing: current or last exchange.
        result: result of the last global round.
        trends: finite test scores of the last rounds, per leaf; the last entry is over all.
    """

    num_rounds: int
    done: int = 0
    elapsed_s: float = 0.0
    left_s: float | None = None
    phase: str = ""
    leaves: Sequence[Sequence[int]] = ()
    leaf_rounds: int = 1
    leaf_round: int = 0
    standing: ExchangeProgress | None = None
    result: RoundResult | None = None
    trends: list[deque[float]] = field(default_factory=list)

    def begin(self, leaves: Sequence[Sequence[int]], leaf_rounds: int, done: int) -> None:
        """Set the clients of the tree, before the first round."""
        self.leaves, self.leaf_rounds, self.done = leaves, leaf_rounds, done
        self.trends = [deque(maxlen=_LONGEST_TREND) for _ in range(len(leaves) + 1)]

    def take(self, result: RoundResult) -> None:
        """Add a global round."""
        self.result, self.done, self.leaf_round = result, result.global_round, 0
        for trend, leaf in zip(self.trends, result.leaves, strict=False):
            if leaf.test_score is not None and math.isfinite(leaf.test_score):
                trend.append(leaf.test_score)
        spread = result.over_clients("test_score")
        if self.trends and spread and math.isfinite(spread.mean):
            self.trends[-1].append(spread.mean)


def frame(board: Board, width: int, height: int, marks: Marks = FANCY) -> list[Text]:
    """Lines of a frame, each narrower than `width`, fewer than `height`."""
    room = min(width, _WIDEST) - 1
    lines = [Text(), _bar(board, room, marks)]
    if board.leaves:
        lines += [Text(), *_table(board, room, min(height - 7, max(_MIN_LEAVES, height // 2)), marks)]
    status = _status(board)
    if status:
        lines.append(Text(status, style="dim"))
    for line in lines:
        line.truncate(room, overflow="ellipsis" if marks.levels else "crop")
    return lines[: height - 1]


def _bar(board: Board, width: int, marks: Marks) -> Text:
    """Line with the bar of rounds."""
    head = f"round {board.done}/{board.num_rounds}"
    tail = minutes(board.elapsed_s)
    if board.left_s is not None:
        tail += f"  left {minutes(board.left_s)}"
    cells = max(0, width - len(head) - len(tail) - 4)
    halves = int(2 * cells * board.done / board.num_rounds)
    done = marks.done * (halves // 2) + marks.half * (halves % 2)
    return Text.assemble(
        (head, "bold"), "  ", (done, colour(0)), (marks.open * (cells - len(done)), "bright_black"), "  ",
        tail,
    )  # fmt: skip


# --- the table ------------------------------------------------------------------------------------------

_Row = dict[str, Text]
# Columns of tables, richest first; the first that fits is shown.
_LAYOUTS = (
    ("leaf", "cluster", "score", "trend", "worst", "decision", "clients"),
    ("leaf", "cluster", "score", "trend", "worst", "gate", "clients"),
    ("leaf", "cluster", "score", "worst", "gate", "clients"),
    ("leaf", "cluster", "score", "gate", "clients"),
    ("leaf", "cluster", "score", "gate"),
    ("leaf", "score"),
)
_RIGHT = ("leaf", "score")


def _table(board: Board, width: int, height: int, marks: Marks) -> list[Text]:
    """Table of the leaves: header, at most `height` rows, and the row of all clients."""
    num_leaves = len(board.leaves)
    shown = num_leaves if num_leaves <= height else max(0, height - 1)
    rows = [_leaf_row(board, leaf, marks) for leaf in range(shown)]
    rows.append(_total_row(board))
    header = {name: Text(name, style="dim") for name in (*_LAYOUTS[0], "gate")}
    if board.result is not None:
        header["score"] = Text(board.result.learned.scores[0].label, style="dim")
    header["decision"] = Text(f"gate     own {marks.to} offered", style="dim")
    widths, spare = _fit_columns([header, *rows], width, with_trend=bool(marks.levels))
    if "trend" in widths:
        widths["trend"] = min(_TREND + spare, _LONGEST_TREND)
        header["trend"] = Text(_trend_title(board.trends, widths["trend"]), style="dim")
        for row, trend in zip(rows, [*board.trends[:shown], board.trends[-1]], strict=True):
            row["trend"] = _sparkline(trend, board.trends, widths["trend"], marks.levels)
    lines = [_join_cells(row, widths) for row in (header, *rows)]
    if shown < num_leaves:
        lines.insert(-1, Text(f"  and {quantity(num_leaves - shown, 'leaf')} more", style="dim"))
    return lines


def _fit_columns(rows: Sequence[_Row], width: int, with_trend: bool) -> tuple[dict[str, int], int]:
    """Columns of the richest fitting table, with their widths, and the remaining width."""
    for layout in _LAYOUTS:
        widths = {
            name: max(cell_len(row[name].plain) for row in rows if name in row)
            for name in layout
            if name != "trend" or with_trend
        }
        if "trend" in widths:
            widths["trend"] = _TREND
        spare = width - sum(widths.values()) - 2 * (len(widths) - 1)
        if spare >= 0:
            break
    return widths, spare


def _join_cells(row: _Row, widths: dict[str, int]) -> Text:
    """Cells of a row in their columns."""
    line = Text()
    for name, width in widths.items():
        cell = row.get(name, Text())
        gap = width - cell_len(cell.plain)
        left_pad, right_pad = (gap, 0) if name in _RIGHT else (0, gap)
        line.append(" " * left_pad).append_text(cell).append(" " * (right_pad + 2))
    line.rstrip()
    return line


def _leaf_row(board: Board, leaf: int, marks: Marks) -> _Row:
    """Cells of one leaf, without its trend."""
    row = {"leaf": Text(str(leaf)), "clients": _clients(board, board.leaves[leaf], marks)}
    if board.result is None:
        return row
    result = board.result.leaves[leaf]
    short, long = _gate(result, marks)
    return row | {
        "cluster": Text.assemble((marks.cluster, colour(result.cluster)), f" {result.cluster}"),
        "score": Text(_score(result.test_score), style="bold"),
        "worst": _worst_text(board.result, leaf),
        "gate": short,
        "decision": long,
    }


def _total_row(board: Board) -> _Row:
    """Cells of the row below the leaves."""
    row = {"leaf": Text("all")}
    if board.result is None:
        return row
    spread = board.result.over_clients("test_score")
    return row | {
        "cluster": Text(str(len({leaf.cluster for leaf in board.result.leaves}))),
        "score": Text(_score(spread.mean if spread else None), style="bold"),
        "worst": _worst_text(board.result, None),
    }


def _score(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _worst_text(result: RoundResult, leaf: int | None) -> Text:
    """Score and number of the worst client of a leaf, or of all."""
    scores = [
        (client.test_score, client.client)
        for client in result.clients
        if client.test_score is not None and not client.unseen_client and leaf in (None, client.leaf)
    ]
    if not scores:
        return Text("-")
    merit = result.learned.scores[0].merit
    value, client = min(scores, key=lambda pair: (merit(pair[0]), pair[1]))
    return Text.assemble(_score(value), (f" c{client}", "dim"))


def _gate(leaf: LeafResult, marks: Marks) -> tuple[Text, Text]:
    """Decision of a leaf's gate, without and with the compared validation scores."""
    gate = leaf.gate
    if gate.score_offered is None:
        return Text("-", style="dim"), Text("-", style="dim")
    sign, word, style = (
        (marks.taken, "taken", "green") if gate.serves_offer else (marks.kept, "kept", "yellow")
    )
    short = Text.assemble((sign, style), f" {word}")
    values = f"{gate.score_own:.3f} {marks.to} {gate.score_offered:.3f}"
    return short, Text.assemble((sign, style), f" {word:<5}  ", (values, "dim"))


def _clients(board: Board, clients: Sequence[int], marks: Marks) -> Text:
    """A dot per client of a leaf, or their number if there are many."""
    standing = board.standing
    if standing is None:
        return Text()
    asked = [client for client in clients if client in standing.asked]
    if len(clients) > _MOST_DOTS:
        failed = sum(client in standing.failed for client in asked)
        text = Text(f"{sum(client in standing.back for client in asked)}/{len(asked)}")
        return text.append(f" {marks.failed}{failed}", style="red") if failed else text
    text = Text()
    for client in asked:
        if client in standing.failed:
            text.append(marks.failed, style="red")
        elif client in standing.back:
            text.append(marks.back, style="green")
        else:
            text.append(marks.out, style="dim")
    return text


def _range(rows: Sequence[Sequence[float]], width: int) -> tuple[float, float]:
    """Smallest and largest of the last `width` values of all rows; (0, 0) without any."""
    shown = [value for row in rows for value in list(row)[-width:]]
    return (min(shown), max(shown)) if shown else (0.0, 0.0)


def _trend_title(rows: Sequence[Sequence[float]], width: int) -> str:
    """Title of the trends, with their scale if there is room."""
    low, high = _range(rows, width)
    title = f"trend, {low:.2f} to {high:.2f}"
    return title if len(title) <= width and high > low else "trend"


def _sparkline(values: Sequence[float], rows: Sequence[Sequence[float]], width: int, levels: str) -> Text:
    """The last `width` values as a line of blocks, on the common scale of all rows."""
    low, high = _range(rows, width)
    spread = high - low if 0 < high - low < math.inf else 0.0
    shares = [(value - low) / spread if spread else 0.0 for value in list(values)[-width:]]
    line = "".join(levels[round(share * (len(levels) - 1))] for share in shares)
    return Text(line, style=colour(0))


# --- the status -----------------------------------------------------------------------------------------

_PHASE_NAMES = {TRAIN: "training", EVALUATE: "evaluating", JOINT: "evaluating, then training"}


def _status(board: Board) -> str:
    """Status of the run, in one line."""
    standing = board.standing
    if standing is None:
        return board.phase
    waiting = sorted(standing.asked - standing.back - standing.failed)
    status = _PHASE_NAMES.get(standing.kind, standing.kind)
    if standing.kind == TRAIN and board.leaf_rounds > 1:
        status += f", leaf round {board.leaf_round} of {board.leaf_rounds}"
    status += f": {len(standing.back)} of {quantity(len(standing.asked), 'client')} back"
    if standing.failed:
        status += f", failed {_numbers(sorted(standing.failed))}"
    return f"{status}, waiting for {_numbers(waiting)}" if waiting else status


def _numbers(clients: Sequence[int]) -> str:
    """Numbers of clients; if there are many, only the first ones."""
    suffix = f" and {len(clients) - 8} more" if len(clients) > 8 else ""
    return " ".join(map(str, clients[:8])) + suffix
