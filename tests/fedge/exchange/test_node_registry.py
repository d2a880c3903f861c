"""Nodes that come, go and come back, and those that stay out."""

from dataclasses import replace

import pytest
from coming_nodes import deployment
from flwr.app import ArrayRecord, ConfigRecord, Error, Message

from fedge.data.own_windows import WindowsReport
from fedge.data.scaling import ChannelSums
from fedge.exchange.engine import RunError
from fedge.exchange.hello import HELLO, Hello, Question, hello_reply
from fedge.exchange.node_registry import WHOEVER, Among, NodeRegistry, refusal_reasons

TOLD = WindowsReport(
    "mine.npz", "f" * 64, False, "blocks", (1, 8), "float32", ("p", "q"), ("x",), {},
    {"train": (1, 1), "val": (1, 0), "test": (0, 1)}, ChannelSums(16, (0.0,), (1.0,)),  # 2 × 8
)  # fmt: skip


def enter_all(script, roll):
    roll.ask(script.get_node_ids())
    script.say_hello(*script.nodes)
    for node, reply in roll.answers():
        roll.enter(node, reply)


@pytest.fixture
def called():
    """(script, roll) after two nodes have said who they are."""
    script, engine = deployment(1, 0)
    roll = NodeRegistry(engine, Question("", 5))
    enter_all(script, roll)
    return script, roll


def come(script, roll, node, hello):
    """Let a node come, be asked and answer; returns what it was asked."""
    script.nodes[node] = hello
    roll.ask(script.get_node_ids())
    asked = script.asked(node, HELLO)
    script.say_hello(node)
    for who, reply in roll.answers():
        roll.readmit(who, reply)
    return asked


def test_each_node_is_asked_once(called):
    script, roll = called
    assert roll.is_complete()
    assert (roll.node_of, roll.partition(11), roll.missing()) == ({1: 11, 0: 12}, 1, "")
    roll.ask(script.get_node_ids())
    assert not script.pending


def test_who_is_missing_is_named():
    script, engine = deployment(2, 5, total=20)
    roll = NodeRegistry(engine, Question())
    enter_all(script, roll)
    assert not roll.is_complete()
    assert roll.missing() == "; missing: partition 0, 1, 3, 4, 6, 7, 8, 9, 10, 11, …"


def test_a_node_that_dies_before_its_first_answer_is_forgotten():
    script, engine = deployment(0, 1)
    roll = NodeRegistry(engine, Question())
    roll.ask(script.get_node_ids())
    script.go(11)
    script.say_hello(12)
    for node, reply in roll.answers():
        roll.enter(node, reply)
    assert roll.node_of == {1: 12}
    script.nodes[13] = Hello(0, 2)
    enter_all(script, roll)
    assert roll.node_of == {1: 12, 0: 13}


SECOND = "two clients say that they hold partition 0; it is that of the first"


def keyed(monkeypatch, engine, partitions):
    """Let nodes have keys of partitions: node id → partition."""
    monkeypatch.setattr(engine, "partition_of_key", partitions.get)


@pytest.mark.parametrize(
    ("hello", "message"), [(Hello(0, 2), SECOND), (Hello(2, 3), "says 3 and others say 2")]
)
def test_what_cannot_be_at_the_start_stays_out_and_the_run_goes_on(hello, message, caplog):
    script, engine = deployment(0, total=2)
    roll = NodeRegistry(engine, Question())
    enter_all(script, roll)
    script.nodes[12] = hello
    enter_all(script, roll)
    assert message in caplog.text
    assert roll.missing().startswith("; missing: partition 1; a node stays out: ")
    assert message in roll.missing()
    script.nodes[13] = Hello(1, 2)
    enter_all(script, roll)
    assert roll.is_complete()
    assert roll.node_of == {0: 11, 1: 13}


def test_in_a_simulation_it_ends_the_run(monkeypatch):
    """Its nodes are this program's own."""
    script, engine = deployment(0, 0)
    engine.nodes_come_back = False
    with pytest.raises(RunError, match=SECOND):
        enter_all(script, NodeRegistry(engine, Question()))


def fails_first(script, roll, node):
    """Let a node's first answer be an error."""
    (question,) = script.asked(node, HELLO)
    script.answer(
        question, Message(Error(2, "ConfigError: partition 0, data=…: gone; mend it"), reply_to=question)
    )
    ((found, reply),) = roll.answers()
    roll.enter(found, reply)


@pytest.mark.parametrize("of_key", [None, 7])
def test_a_client_that_fails_at_its_first_call_is_named_and_done_without(monkeypatch, of_key):
    """It may be anybody's, who has no key, or has that of a partition which there is none of."""
    script, engine = deployment(0, total=2)
    keyed(monkeypatch, engine, {11: of_key})
    roll = NodeRegistry(engine, Question(), expected=2)
    roll.ask(script.get_node_ids())
    fails_first(script, roll, 11)
    said = "; missing: partition 0, 1; a node stays out: a client failed at its first call: "
    assert roll.missing() == f"{said}ConfigError: partition 0, data=…: gone; mend it"


def test_one_with_the_key_of_a_partition_that_is_waited_for_ends_the_run_in_its_words(monkeypatch):
    """Nobody else can hold that partition: there is nothing to wait for."""
    script, engine = deployment(0, total=2)
    keyed(monkeypatch, engine, {11: 0})
    roll = NodeRegistry(engine, Question(), expected=2)
    roll.ask(script.get_node_ids())
    with pytest.raises(RunError, match=r"a client failed at its first call: .*partition 0, data"):
        fails_first(script, roll, 11)


@pytest.mark.parametrize("keys", [{11: 0, 12: 1}, {12: 1}])
def test_a_run_that_may_begin_without_some_begins_without_a_refused_node(monkeypatch, keys):
    """At once where it has the key of the missing partition; without one, the partition may still come."""
    script, engine = deployment(0, 1)
    keyed(monkeypatch, engine, keys)
    roll = NodeRegistry(engine, Question(), expected=2, quorum=WHOEVER)
    roll.ask(script.get_node_ids())
    fails_first(script, roll, 11)
    assert not roll.is_settled()  # partition 1 has not answered
    script.say_hello(12)
    for node, reply in roll.answers():
        roll.enter(node, reply)
    assert (roll.node_of, roll.is_settled()) == ({1: 12}, 11 in keys)
    assert refusal_reasons(roll.out).startswith("; a node stays out: a client failed at its first call: ")
    roll.expect_absent()
    assert roll.away() == [0]


def test_a_node_holds_the_partition_of_its_key_and_no_other(monkeypatch, caplog):
    """In any order of arrival; a key of a partition that this run lacks does not even end it."""
    script, engine = deployment(1, 0, total=2)
    keyed(monkeypatch, engine, {11: 5, 12: 0, 13: 1})
    roll = NodeRegistry(engine, Question(), expected=2)
    enter_all(script, roll)
    assert "says that it holds partition 1, but its key is that of partition 5" in caplog.text
    script.nodes[13] = Hello(1, 2)
    enter_all(script, roll)
    assert roll.node_of == {0: 12, 1: 13}
    script.go(13)
    assert roll.rebind(script.get_node_ids(), print) == {}


def test_a_node_with_the_key_of_a_partition_gets_it_from_who_has_none(monkeypatch):
    script, engine = deployment(0, total=2)
    roll = NodeRegistry(engine, Question(), expected=2)
    enter_all(script, roll)
    keyed(monkeypatch, engine, {12: 0})
    script.nodes[12] = Hello(0, 2)
    enter_all(script, roll)
    assert roll.node_of == {0: 12}


def test_a_claim_to_another_s_partition_ends_a_run_only_where_the_claimant_s_own_is_missing(monkeypatch):
    """Also where it came before anybody had said how many partitions there are."""
    script, engine = deployment(0, 1, total=2)
    keyed(monkeypatch, engine, {11: 1, 12: 0, 13: 0})
    roll = NodeRegistry(engine, Question())
    roll.ask([11])
    script.say_hello(11)
    ((node, reply),) = roll.answers()
    roll.enter(node, reply)
    assert roll.node_of == {}
    script.nodes[13] = Hello(0, 2)
    roll.ask([13])
    script.say_hello(13)
    ((node, reply),) = roll.answers()
    with pytest.raises(RunError, match="its key is that of partition 1"):
        roll.enter(node, reply)


def test_nobody_takes_a_partition_from_a_key_nor_a_second_one_for_itself(monkeypatch, caplog):
    script, engine = deployment(1, 0)
    roll = NodeRegistry(engine, Question())
    enter_all(script, roll)
    keyed(monkeypatch, engine, {11: 1})
    come(script, roll, 21, Hello(1, 2))  # without a key
    assert "that has a key, and this node has none of it" in caplog.text
    script.nodes[12] = Hello(1, 2)  # it held partition 0 until now
    roll.ask_again(12)
    script.say_hello(12)
    for who, reply in roll.answers():
        roll.readmit(who, reply)
    assert "it held partition 0 before" in caplog.text
    script.go(11)
    assert roll.rebind(script.get_node_ids(), print) == {}


def test_the_second_claimant_of_the_start_has_its_turn_when_the_first_is_gone():
    """A node without a key that was started again has another id."""
    script, engine = deployment(0, 1, 0, total=2)
    roll = NodeRegistry(engine, Question())
    enter_all(script, roll)
    assert roll.node_of == {0: 11, 1: 12}
    script.go(11)
    assert roll.rebind(script.get_node_ids(), lambda line: None) == {0: 11}
    assert roll.node_of == {0: 13, 1: 12}


def test_a_partition_goes_to_who_comes_back_once_the_node_before_is_gone(called):
    """And not before: nobody takes a partition from a node that is there."""
    script, roll = called
    said = []
    come(script, roll, 21, Hello(1, 2))
    assert roll.rebind(script.get_node_ids(), said.append) == {}
    assert roll.node_of[1] == 11
    script.go(11)
    assert roll.rebind(script.get_node_ids(), said.append) == {1: 11}
    assert roll.node_of == {1: 21, 0: 12}
    assert (roll.partition(11), roll.partition(21)) == (1, 1)  # late replies still belong to it
    assert said == ["partition 1 is back, on another node"]
    assert roll.rebind(script.get_node_ids(), said.append) == {}


@pytest.mark.parametrize(
    ("hello", "words"),
    [
        (Hello(2, 3), "it counts 3 partitions, this run has 2"),
        (Hello(1, 2, report=replace(TOLD, fingerprint="0" * 64)), "its windows are not those of the start"),
        (Hello(1, 2), "only one has windows of its own"),
    ],
)
def test_who_does_not_fit_stays_out(caplog, hello, words):
    script, engine = deployment(1, 0)
    script.nodes = {node: replace(hello, report=TOLD) for node, hello in script.nodes.items()}
    roll = NodeRegistry(engine, Question())
    enter_all(script, roll)
    come(script, roll, 21, hello)
    script.go(11)
    assert roll.rebind(script.get_node_ids(), print) == {}
    assert words in caplog.text
    come(script, roll, 22, Hello(1, 2, report=TOLD))
    assert roll.rebind(script.get_node_ids(), lambda line: None) == {1: 11}


def test_who_fails_or_goes_again_stays_out(called, caplog):
    script, roll = called
    script.nodes[21] = Hello(1, 2)
    roll.ask(script.get_node_ids())
    script.go(21)
    for node, reply in roll.answers():
        roll.readmit(node, reply)
    assert "stays out" in caplog.text
    come(script, roll, 22, Hello(1, 2))
    script.go(11)
    script.go(22)
    assert roll.rebind(script.get_node_ids(), print) == {}


@pytest.mark.parametrize("at_start", [False, True])
@pytest.mark.parametrize(
    "said",
    [
        {"told": "no JSON"}, {"told": "[" * 100_000}, {"partition_id": float("inf")}, {"partition_id": 1.0},
        {"partition_id": [1, 1]}, {"partition_id": -1}, {"partition_id": 10**400}, {"num_partitions": 1},
        {"num_partitions": "\x1b[2J"}, {"num_partitions": 10**400, "partition_id": 10**399}, {}, None,
    ],
    ids=lambda said: repr(said)[:40],
)  # fmt: skip
def test_what_is_no_hello_is_one_line(called, caplog, said, at_start):
    """And of who comes later, that line in the log is all that there is of it."""
    script, roll = called
    script.nodes[21] = Hello(1, 2)
    roll.ask(script.get_node_ids())
    (question,) = script.asked(21, HELLO)
    reply = hello_reply(Hello(1, 2), question)
    if said:
        reply.content["config"].update(said)
    else:
        del reply.content["config"]
        reply.content["config"] = ConfigRecord() if said is None else ArrayRecord()
    script.answer(question, reply)
    ((node, answer),) = roll.answers()
    if at_start:
        roll.enter(node, answer)
    else:
        roll.readmit(node, answer)
    (text,) = caplog.messages
    assert "stays out" in text
    if not at_start:
        script.go(11)
        assert roll.rebind(script.get_node_ids(), print) == {}
    assert text.isprintable()
    assert len(text) < 500


def test_a_leaf_server_looks_for_its_own_clients_among_all():
    script, engine = deployment(3, 4, total=9)
    roll = NodeRegistry(engine, Question(), Among([3, 4], 9))
    assert roll.missing() == "; missing: partition 3, 4"
    enter_all(script, roll)
    assert roll.is_complete()


@pytest.mark.parametrize(
    ("partition", "total", "telling"),
    [
        (1, 9, "a node holds partition 1, which is of another leaf"),
        (3, 8, "partition 3 says 8 and this run has 9"),
    ],
    ids=["another leaf's", "another total"],
)
def test_a_node_that_is_not_of_this_leaf_is_named(partition, total, telling):
    script, engine = deployment(partition, total=total)
    roll = NodeRegistry(engine, Question(), Among([3, 4], 9))
    enter_all(script, roll)
    assert telling in roll.missing()
    assert roll.node_of == {}


def test_partitions_of_a_run_that_goes_on_wait_for_their_nodes():
    """One node is there, with the windows that are known; the other is away, and another's are refused."""
    script, engine = deployment(4, total=9)
    script.nodes[11] = replace(script.nodes[11], report=TOLD)
    roll = NodeRegistry(engine, Question(), Among([3, 4], 9))
    roll.expect({3: TOLD, 4: TOLD})
    come(script, roll, 11, script.nodes[11])
    come(script, roll, 12, Hello(3, 9, report=replace(TOLD, fingerprint="e" * 64)))
    roll.rebind(script.get_node_ids(), lambda _: None)
    assert (roll.away(), roll.node_of[4]) == ([3], 11)


def test_a_node_that_goes_before_its_first_answer_is_asked_again_under_its_id():
    """Its key gives it the same id when it is back; before the run begins, and while it goes on."""
    script, engine = deployment(0, 1)
    roll = NodeRegistry(engine, Question())
    roll.ask(script.get_node_ids())
    script.go(11)
    script.say_hello(12)
    for node, reply in roll.answers():
        roll.enter(node, reply)
    script.nodes[11] = Hello(0, 2)
    enter_all(script, roll)
    assert roll.node_of == {1: 12, 0: 11}

    script.nodes[21] = Hello(1, 2)
    roll.ask(script.get_node_ids())
    script.go(21)
    for node, reply in roll.answers():
        roll.readmit(node, reply)
    assert len(come(script, roll, 21, Hello(1, 2))) == 1
    script.go(12)
    assert roll.rebind(script.get_node_ids(), lambda line: None) == {1: 12}
