import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.console.frame import ASCII, FANCY, Board, frame, marks_for
from fedge.exchange.clients import ExchangeProgress


def board_of(make_result, rounds=1, **changes):
    """A board of clients 0 and 1 under leaf 0 and client 2 under leaf 1, after some rounds of 8."""
    board = Board(8)
    board.begin([(0, 1), (2,)], 2, 0)
    for number in range(1, rounds + 1):
        board.take(make_result(global_round=number))
    board.elapsed_s, board.left_s, board.leaf_round = 65.0, 130.4, 1
    board.standing = ExchangeProgress("train", frozenset({0, 1, 2}), frozenset({1}), frozenset({2}))
    return dataclasses.replace(board, **changes)


def text_of(lines):
    return [line.plain for line in lines]


def test_a_frame_by_hand(make_result):
    """Two of eight rounds are 10.75 of the bar's 71 - 9 - 15 - 4 = 43 cells; leaf 1 was not evaluated."""
    lines = text_of(frame(board_of(make_result, 2), 72, 24))
    bar = "━" * 10 + "╸" + "━" * 32
    assert lines == [
        "",
        f"round 2/8  {bar}  1:05  left 2:10",
        "",
        "leaf  cluster  accuracy  trend               worst     gate     clients",
        "   0  ■ 0         0.750  ▁▁                  0.500 c0  ✓ taken  ○●",
        "   1  ■ 1             -                      -         ✗ kept   ✗",
        " all  2           0.750  ▁▁                  0.500 c0",
        "training, leaf round 1 of 2: 1 of 3 clients back, failed 2, waiting fo…",
    ]


def test_a_wide_frame_has_the_gates_accuracies(make_result):
    lines = text_of(frame(board_of(make_result), 120, 24))
    assert "gate     own → offered" in lines[3]
    assert "✓ taken  0.500 → 0.750" in lines[4]
    assert len(lines[1]) == 119


def test_a_frame_in_plain_signs(make_result):
    lines = text_of(frame(board_of(make_result), 80, 24, ASCII))
    assert all(line.isascii() for line in lines)
    assert "trend" not in lines[3]
    assert "+ taken" in lines[4]
    assert lines[4].endswith(".*")


def test_before_the_clients_are_there():
    """No leaves yet: the bar and what is waited for."""
    assert text_of(frame(Board(5, phase="waiting for clients"), 60, 24))[2:] == ["waiting for clients"]


def test_of_many_clients_numbers(make_result):
    board = Board(9)
    board.begin([tuple(range(40))], 1, 0)
    standing = ExchangeProgress("evaluate", frozenset(range(40)), frozenset(range(30)), frozenset({30, 31}))
    lines = text_of(frame(dataclasses.replace(board, standing=standing), 100, 24))
    assert lines[4].endswith("30/40 ✗2")
    assert lines[-1] == "evaluating: 30 of 40 clients back, failed 30 31, waiting for 32 33 34 35 36 37 38 39"


def test_clients_that_were_not_asked_have_no_dot(make_result):
    standing = ExchangeProgress("train", frozenset({1}), frozenset(), frozenset())
    lines = text_of(frame(board_of(make_result, standing=standing), 80, 24))
    assert lines[4].endswith("○")
    assert lines[4].count("○") == 1
    assert lines[5].endswith("kept")


def test_a_trend_has_one_scale_for_all_leaves(make_result):
    """0.55 is half of the way from 0.2 to 0.9, 0.375 a quarter, out of seven steps."""
    board = board_of(make_result, 0)
    for trend, values in zip(board.trends, ([0.2, 0.9], [0.55, 0.9], [0.375, 0.9]), strict=True):
        trend.extend(values)
    lines = text_of(frame(board, 90, 24))
    assert "trend, 0.20 to 0.90" in lines[3]
    assert [next(c for c in line if c in FANCY.levels) for line in lines[4:7]] == ["▁", "▅", "▃"]


@pytest.mark.parametrize("score", [float("inf"), float("-inf"), float("nan"), 1e308, -1e308, 5e-324])
def test_scores_of_any_size_leave_the_frame_in_place(make_result, score):
    board = board_of(make_result)
    for value in (score, -score, 0.5):
        result = make_result(global_round=2)
        leaves = [dataclasses.replace(result.leaves[0], test_score=value), *result.leaves[1:]]
        clients = [dataclasses.replace(client, test_score=value) for client in result.clients]
        board.take(dataclasses.replace(result, leaves=leaves, clients=clients))
    lines = text_of(frame(board, 120, 24))
    assert "0.500" in lines[4]
    assert "trend" in lines[3]
    board.trends[0] = type(board.trends[0])([0.0, 5e-324])
    board.trends[-1].clear()
    assert "▁█" in text_of(frame(board, 120, 24))[4]


@given(
    st.integers(40, 250), st.integers(10, 70), st.integers(1, 40), st.integers(1, 30), st.integers(0, 60),
    st.booleans(),
)  # fmt: skip
def test_a_frame_fits_its_terminal(make_result, width, height, leaves, clients, rounds, fancy):
    result = make_result(global_round=max(rounds, 1))
    result = dataclasses.replace(
        result, leaves=[dataclasses.replace(result.leaves[0], leaf=i, cluster=i) for i in range(leaves)]
    )
    board = Board(60)
    board.begin([tuple(range(i * clients, (i + 1) * clients)) for i in range(leaves)], 1, 0)
    for _ in range(rounds):
        board.take(result)
    everyone = frozenset(range(leaves * clients))
    board.standing = ExchangeProgress(
        "train", everyone, frozenset(range(0, leaves * clients, 2)), frozenset()
    )
    lines = frame(board, width, height, FANCY if fancy else ASCII)
    assert len(lines) < height
    assert all(line.cell_len < width for line in lines)
    assert lines[1].plain.startswith(f"round {board.done}/60")
    assert any(line.plain.startswith(" all") for line in lines)
    assert lines[-1].plain.startswith("training")
    rows = [line.plain for line in lines[4:] if re.match(r" *\d+( |$)", line.plain)]
    hidden = [int(found[1]) for line in lines if (found := re.match(r" *and (\d+) leaves more", line.plain))]
    assert len(rows) + sum(hidden) == leaves


@pytest.mark.parametrize(
    ("encoding", "marks"), [("utf-8", FANCY), ("ascii", ASCII), ("latin-1", ASCII), ("no such", ASCII)]
)
def test_signs_are_those_that_the_terminal_has(encoding, marks):
    assert marks_for(encoding) is marks
