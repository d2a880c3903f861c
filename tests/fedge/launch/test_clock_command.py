"""`fedge clock` as it is typed."""

import csv

import pytest

from fedge.cli import main

SMALL = (
    'asynchrony.rule="fedbuff" asynchrony.rule-args.buffer=2 asynchrony.concurrency=4 num-server-rounds=3 '
    'asynchrony.evaluate-every-s=2.0 devices.preset="half-normal"'
)


def test_it_prints_and_writes_what_a_run_would_come_to(tmp_path, capsys):
    """On the options of a clone, which have SCAFFOLD, clusters and gates: none of them takes virtual time."""
    page, table = tmp_path / "clock.html", tmp_path / "clock.csv"
    assert main(["clock", "-c", SMALL, "--devices", "12", "-o", str(page), "--csv", str(table)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["2.0", "4.0", "6.0"]
    assert lines[3].startswith("fedbuff: 12 devices, 4 at work under 3 leaves, seed 42; ")
    rows = list(csv.DictReader(table.open()))
    assert [float(row["virtual s"]) for row in rows] == [2.0, 4.0, 6.0]
    assert int(rows[-1]["versions"]) > 0
    html = page.read_text()
    assert html.count("<figure") == 4
    assert "nobody trained" in html


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--devices", "12"], "fedge clock needs a virtual clock; add -c 'asynchrony.rule=\"fedbuff\"'"),
        (["-c", SMALL], "clients must be a number of devices, but is auto; add --devices 1000"),
        (["-c", SMALL, "--devices", "12", "--windows", "0"], "--windows must be above 0"),
        (["-c", SMALL, "--devices", "12", "--csv", "nowhere/x.csv"], "nowhere/x.csv: No such file"),
    ],
)
def test_what_cannot_be_is_one_line(arguments, words, capsys):
    assert main(["clock", *arguments]) != 0
    assert words in capsys.readouterr().err
