import dataclasses
import io

import pytest

from fedge.console.lines import Console, final_table, minutes, round_line
from fedge.rounds.measurements.moment import VersionRow
from fedge.rounds.measurements.results import ModelResult


def test_a_round_by_hand(make_result):
    """Accuracies 0.5 and 1.0; two leaves in clusters 0 and 1; one offer taken, one not; 125 s are 2:05."""
    assert round_line(make_result(), 100, 3.14159, 125.0) == (
        "round   1/100  accuracy 0.750 worst 0.500  clusters 2  gate 1 taken 1 kept  3.1 s  left 2:05"
    )


MOMENT = VersionRow(1, 12.0, 340, 0, 0, None, None, 0, 0, 0, 0, 3.1, 1.0, 0.0, 0.0, 0, at_work=10, places=10)


def test_a_round_of_the_virtual_clock_says_how_far_it_is(make_result):
    """Virtual time first; no gates, which that clock does not have; clusters where leaves form some."""
    result = dataclasses.replace(make_result(), moment=MOMENT)
    told = (
        "round 1/9  12.0 s virtual, 340 versions, staleness 3.1, 10 of 10 at work  accuracy 0.750 worst 0.500"
    )
    assert round_line(result, 9, 1.0, None) == f"{told}  clusters 2  1.0 s"
    one = dataclasses.replace(result, leaves=[dataclasses.replace(leaf, cluster=0) for leaf in result.leaves])
    assert round_line(one, 9, 1.0, None) == f"{told}  1.0 s"


def test_a_round_with_failures_a_closed_gate_and_nobody_evaluated(make_result):
    result = make_result(decisions=("off", "off"), failures={0: "a", 2: "b"})
    gates = [dataclasses.replace(leaf.gate, serves_offer=True) for leaf in result.leaves]
    leaves = [dataclasses.replace(leaf, gate=gate) for leaf, gate in zip(result.leaves, gates, strict=True)]
    result = dataclasses.replace(result, clients=result.clients[2:], leaves=leaves)
    assert round_line(result, 9, 0.0, 0.0) == (
        "round 1/9  accuracy -  clusters 2  gate off  0.0 s  left 0:00  FAILED 2 clients"
    )


def test_a_round_without_offers_says_so(make_result):
    """A gate that is on, with every leaf alone in its cluster, was said to be off."""
    told = round_line(make_result(decisions=("off", "off")), 9, 0.0, None)
    assert told == "round 1/9  accuracy 0.750 worst 0.500  clusters 2  no offers  0.0 s"


def test_all_clients_are_all_with_a_score(make_result):
    """Of devices that share a person's windows one alone has those to test on; who failed has no score."""
    result = make_result()
    assert final_table(result)[-1].startswith("the 2 evaluated of 3 clients: test accuracy 0.7500 mean")
    both = dataclasses.replace(result, leaves=result.leaves[:1])
    assert final_table(both)[-1].startswith("all 2 clients: test accuracy 0.7500 mean")


def test_time_left_is_the_mean_of_the_last_ten_rounds(make_result):
    """Rounds 1 and 2 took 100 s, the next ten 2 s each: after round 12 of 15, 3 · 2 s are left."""
    stream = io.StringIO()
    console = Console(stream, 15)
    for round_ in range(1, 13):
        console.round(make_result(global_round=round_), 100.0 if round_ <= 2 else 2.0)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 12
    assert lines[0].endswith("100.0 s  left 23:20")
    assert lines[-1].endswith("2.0 s  left 0:06")
    assert lines[-1].startswith("round 12/15 ")


def test_times_by_hand():
    assert [minutes(s) for s in (0, 59.9, 60, 3599, 3600, 36061)] == [
        "0:00", "0:59", "1:00", "59:59", "1:00:00", "10:01:01",
    ]  # fmt: skip


def test_the_final_table_by_hand(make_result):
    assert final_table(make_result()) == [
        "leaf  cluster  clients  train windows  accuracy       worst client  macro-F1",
        "   0        0        2             40    0.7500  0.5000 (client 0)    0.7000",
        "   1        1        1             20         -                  -         -",
        "the 2 evaluated of 3 clients: test accuracy 0.7500 mean, 0.2500 std, 0.5000 worst",
    ]


def test_unseen_clients_stand_apart(make_result):
    """Client 1 of leaf 0 as an unseen one: neither in the mean of the known nor the worst of its leaf."""
    result = make_result()
    result.clients[1] = dataclasses.replace(result.clients[1], unseen_client=True, test_score=0.25)
    result.leaves[0] = dataclasses.replace(
        result.leaves[0], num_clients=1, unseen_score=0.25, unseen_clients=1
    )
    assert "  accuracy 0.500 worst 0.500  unseen 0.250  clusters 2  " in round_line(result, 9, 1.0, 1.0)
    assert final_table(result) == [
        "leaf  cluster  clients  train windows  accuracy       worst client  macro-F1  "
        "unseen clients  accuracy",
        "   0        0        1             40    0.7500  0.5000 (client 0)    0.7000  "
        "             1    0.2500",
        "   1        1        1             20         -                  -         -  "
        "             0         -",
        "the 1 evaluated of 2 clients: test accuracy 0.5000 mean, 0.0000 std, 0.5000 worst",
        "the one client on users unseen in training: test accuracy 0.2500 mean, 0.0000 std, 0.2500 worst",
    ]


def test_own_models_of_clients_have_lines_of_their_own(make_result):
    """Two clients with scores .5 and 1: mean .75, std .25; an unseen client's with .25 alone."""
    models = [
        ModelResult(0, 0, "personal", 10, 0.5, 1.0), ModelResult(1, 0, "personal", 10, 1.0, 1.0),
        ModelResult(2, 1, "personal", 10, 0.25, 1.0, unseen_client=True),
    ]  # fmt: skip
    lines = final_table(dataclasses.replace(make_result(), models=models))
    assert lines[3:] == [
        "the 2 evaluated of 3 clients: test accuracy 0.7500 mean, 0.2500 std, 0.5000 worst",
        "the 2 evaluated of 3 clients, own models (personal): "
        "test accuracy 0.7500 mean, 0.2500 std, 0.5000 worst",
        "the one client on users unseen in training, own models (personal): "
        "test accuracy 0.2500 mean, 0.0000 std, 0.2500 worst",
    ]


def test_an_accuracy_of_zero_is_the_worst(make_result):
    result = make_result()
    result.clients[1] = dataclasses.replace(result.clients[1], test_score=0.0)
    assert "0.0000 (client 1)" in final_table(result)[1]


def test_a_line_that_must_be_short_loses_its_least_important_parts(make_result):
    result = make_result(failures={0: "a"})
    whole = "round 1/9  accuracy 0.750 worst 0.500  clusters 2  gate 1 taken 1 kept  2.0 s  FAILED 1 client"
    assert round_line(result, 9, 2.0, None) == whole
    assert round_line(result, 9, 2.0, None, len(whole)) == whole
    assert round_line(result, 9, 2.0, None, len(whole) - 1) == whole.replace("  2.0 s", "")
    assert round_line(result, 9, 2.0, None, 10) == "round 1/9  accuracy 0.750 worst 0.500  FAILED 1 client"


def test_what_a_stream_cannot_show_is_escaped():
    buffer = io.BytesIO()
    console = Console(io.TextIOWrapper(buffer, encoding="ascii"), 1)
    console.say("run folder: Läufe/1")
    assert buffer.getvalue() == b"run folder: L\\xe4ufe/1\n"


def test_nothing_that_is_said_moves_a_terminal():
    """Text of a file, a client or a leaf server may stand in any line; lines stay lines."""
    stream = io.StringIO()
    Console(stream, 1).say("note: ray was \x1b[2J\r\u202e, is 2.9\nsecond line")
    assert stream.getvalue() == "note: ray was \\x1b[2J\\r\\u202e, is 2.9\nsecond line\n"


def test_the_last_words_pass_the_stream_s_own_buffer(tmp_path):
    with (tmp_path / "out").open("w") as stream:
        Console(stream, 1).last_words(["fedge: interrupted", "resume with: fedge resume x"])
        assert (tmp_path / "out").read_text() == "fedge: interrupted\nresume with: fedge resume x\n"
    Console(io.StringIO(), 1).last_words(["a stream without a descriptor"])


def test_without_any_evaluation_there_is_no_last_line(make_result):
    result = make_result()
    assert len(final_table(dataclasses.replace(result, clients=[]))) == 3


class Gone(io.StringIO):
    """A terminal that takes a few lines, and then none."""

    def __init__(self, lines, error):
        super().__init__()
        self.left, self.error = lines, error

    def write(self, text):
        if self.getvalue().count("\n") >= self.left:
            raise self.error
        return super().write(text)


@pytest.mark.parametrize(
    "error",
    [BrokenPipeError(32, "Broken pipe"), OSError(28, "No space left on device"), ValueError("closed file")],
)
def test_a_terminal_that_is_gone_is_not_the_end(make_result, caplog, error):
    stream = Gone(1, error)
    console = Console(stream, 3)
    console.say("first")
    for round_ in (1, 2):
        console.round(make_result(global_round=round_), 1.0)
    console.last_words(["interrupted"])
    console.close()
    assert stream.getvalue() == "first\n"
    assert [record.message for record in caplog.records] == [f"the terminal is gone: {error}"]
