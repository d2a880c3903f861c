"""The section on mobile clients, of folders by hand."""

from dataclasses import replace

import pytest
from run_folders import round_result, write_run

from fedge.records.reading.reader import load_run
from fedge.report.html.svg import figure_style
from fedge.report.sections.mobility import mobility_sections

MARKOV = {
    "hierarchy.mobility": "markov", "hierarchy.num-servers": 2, "scaffold.enabled": False,
}  # fmt: skip


def moved(number, rights, places, came_from):
    """A round in which clients are at these leaves; client → its former leaf, if it moved."""
    result = round_result(number, rights)
    clients = [
        replace(client, leaf=leaf, came_from=came_from.get(client.client))
        for client, leaf in zip(result.clients, places, strict=True)
    ]
    return replace(result, clients=clients)


def section(folder, rounds, config=MARKOV):
    with figure_style():
        return mobility_sections(load_run(write_run(folder, rounds, config=config)))


def test_who_moved_and_when(tmp_path):
    """Client 0 goes to leaf 1 and back; in round 2 client 1 goes along, and leaf 0 is empty."""
    rounds = [
        moved(1, [5] * 4, (0, 0, 1, 1), {}),
        moved(2, [7, 7, 5, 5], (1, 1, 1, 1), {0: 0, 1: 0}),
        moved(3, [7, 5, 5, 5], (0, 1, 1, 1), {0: 1}),
    ]
    (found,) = section(tmp_path / "run", rounds)
    assert found.text == [
        "markov: 3 moves of 2 clients, of 4 that train, in 2 global rounds of 3.",
        "Mean test accuracy in the round of a move 0.7000, in all others 0.5000.",
    ]
    over_rounds, of_clients = (panel.table for panel in found.panels)
    assert [tuple(row) for row in over_rounds.rows] == [("1", "0", ""), ("2", "2", "0"), ("3", "1", "")]
    assert [tuple(row) for row in of_clients.rows] == [
        ("0", "2", "0, 1 from round 2, 0 from round 3"),
        ("1", "1", "0, 1 from round 2"),
    ]


def test_rounds_without_scores_have_moves_all_the_same(tmp_path):
    (found,) = section(tmp_path / "run", [moved(1, [None] * 4, (1, 0, 1, 1), {0: 0})])
    assert found.text == ["markov: 1 move of 1 client, of 4 that train, in 1 global round of 1."]


@pytest.mark.parametrize("config", [MARKOV, {}])
def test_without_moves_there_is_a_sentence_or_nothing(tmp_path, config):
    found = section(tmp_path / "run", [round_result(1, [5] * 4)], config)
    assert [each.text for each in found] == ([["markov: no client has moved so far."]] if config else [])
