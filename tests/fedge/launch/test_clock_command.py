"""`fedge clock` as it is typed."""

import csv

import pytest

from fedge.cli import main

SMALL = (
    'asynchrony.rule="fedbuff" asynchrony.rule-args.buffer=2 asynchrony.concurrency=4 num-server-rounds=3 '
    'asynchrony.evaluate-every-s=2.0 devices.preset="half-normal"'
)


def once(devices, seed):
    """No availability: it does not say until when."""
    return lambda device, now_us: True


def never(devices, seed):
    """An availability of devices that are never there."""
    return lambda device, now_us: (False, 2**62)


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
    assert "without training" in html


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--devices", "12"], "fedge clock needs a virtual clock; add -c 'asynchrony.rule=\"fedbuff\"'"),
        (["-c", SMALL], "clients must be the number of devices, but is auto; add --devices 1000"),
        (["-c", SMALL, "--devices", "12", "--windows", "0"], "--windows must be above 0"),
        (["-c", SMALL, "--devices", "12", "--csv", "nowhere/x.csv"], "nowhere/x.csv: No such file"),
        *(
            (["-c", f"{SMALL} {more}", "--devices", "12"], words)
            for more, words in (
                ("devices.preset-args.colour=1", "got an unexpected keyword argument 'colour'"),
                ("devices.availability-args.share=0.5", "got an unexpected keyword argument 'share'"),
                (f'devices.availability="{__name__}:once"', "devices.availability"),
                (
                    "asynchrony.timeout-s=0.0000001",
                    "asynchrony.timeout-s must leave the quickest device time",
                ),
                (f'devices.availability="{__name__}:never"', "must make a device available before the run"),
            )
        ),
    ],
)
def test_what_cannot_be_is_one_line(arguments, words, capsys):
    assert main(["clock", *arguments]) != 0
    assert words in capsys.readouterr().err


def test_what_has_no_effect_on_the_clock_is_said_as_a_run_says_it(capsys):
    """Not of options of what a clock leaves out, which may have an effect in the run."""
    more = "asynchrony.deadline-s=3.0 devices.dropout=0.5 gate.min-gain=0.1 cluster.method=spectral"
    assert main(["clock", "-c", f"{SMALL} {more}", "--devices", "12"]) == 0
    notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note: ")]
    assert [note.split("=")[0] for note in notes] == ["note: asynchrony.deadline-s"]


def test_a_clock_on_which_no_model_is_made_says_so(capsys):
    slow = SMALL + " devices.preset-args.seconds=1000000.0"
    assert main(["clock", "-c", slow, "--devices", "12"]) == 0
    assert "note: the model is still the initial one after 6 virtual s" in capsys.readouterr().out
