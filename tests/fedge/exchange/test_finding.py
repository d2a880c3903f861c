"""Clients that are waited for, and runs that begin without some of them."""

import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from coming_nodes import deployment
from flwr.app import Message, MetricRecord, RecordDict

from fedge.data.own_windows import WindowsReport
from fedge.data.scaling import ChannelSums
from fedge.engine.flower_engine import FlowerEngine
from fedge.exchange import finding, returning_nodes
from fedge.exchange.engine import RunError
from fedge.exchange.failure import NODE_GONE
from fedge.exchange.finding import find_again, find_clients
from fedge.exchange.hello import Hello, Question
from fedge.exchange.node_registry import WHOEVER, Among, Quorum
from fedge.exchange.round_context import RoundContext

CONTEXT = RoundContext(0, 1, 1, "", "", "elsewhere", 60.0)
TOLD = WindowsReport(
    "mine.npz", "f" * 64, False, "blocks", (1, 8), "float32", ("p", "q"), ("x",), {},
    {"train": (1, 1), "val": (1, 0), "test": (0, 1)}, ChannelSums(16, (0.0,), (1.0,)),  # 2 × 8
)  # fmt: skip
TWO = Quorum(2, is_possible=True)


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Time goes on with waits alone, so that nobody is late on a busy machine."""
    now = SimpleNamespace(seconds=0.0)

    def wait(_, timeout_s):
        now.seconds += timeout_s
        time.sleep(0.001)  # for threads that answer

    monkeypatch.setattr(finding, "time", SimpleNamespace(monotonic=lambda: now.seconds))
    monkeypatch.setattr(FlowerEngine, "wait", wait)


def greeted(*partitions, total):
    """A deployment whose nodes say hello whenever they are looked for."""
    script, engine = deployment(*partitions, total=total)
    there = script.get_node_ids

    def get_node_ids():
        script.say_hello(*list(script.nodes))
        return there()

    script.get_node_ids = get_node_ids
    return script, engine


def own(script, **windows):
    """Let nodes tell of windows of their own, of which some are others."""
    for node, hello in script.nodes.items():
        script.nodes[node] = replace(hello, report=windows.get(f"of_{hello.partition_id}", TOLD))


@pytest.mark.parametrize("come_back", [False, True])
@pytest.mark.parametrize("expected", [0, 3])
def test_whoever_waited_in_vain_is_told_what_to_start(come_back, expected):
    """Of nodes that are machines none has answered: fewer at once are no help."""
    script, _ = deployment(total=3)
    engine = FlowerEngine(script, nodes_come_back=come_back)
    answered = "0 of 3 clients" if expected else "no client"
    fix = "start every client's fedge node" if come_back else "start fewer at once, .*FEDGE_KEEP_RAY_LOGS=1"
    with pytest.raises(RunError, match=rf"^guard.start-timeout: {answered} answered .*; {fix}.* or raise"):
        find_clients(engine, 0.05, expected=expected)


def test_a_run_waits_for_all_by_default_and_says_how_to_begin_without():
    _, engine = greeted(0, 2, total=3)
    with pytest.raises(RunError, match=r"2 of 3 clients .* missing: partition 1; .* guard.start-clients=2$"):
        find_clients(engine, 0.3, quorum=Quorum(0, is_possible=True))
    with pytest.raises(RunError, match=r"missing: partition 1; .* raise guard.start-timeout$"):
        find_clients(engine, 0.3, quorum=Quorum(2))  # a simulation's nodes are all there, or it is broken


def test_enough_of_them_are_enough_when_the_time_is_over():
    _, engine = greeted(0, 2, total=3)
    clients = find_clients(engine, 0.3, quorum=TWO)
    assert (len(clients), clients.away, clients.unknown) == (3, [1], frozenset())
    with pytest.raises(RunError, match="2 of 3 clients"):
        find_clients(engine, 0.3, quorum=Quorum(3, is_possible=True))


def asked(clients, partitions):
    messages = [
        Message(RecordDict({"config": CONTEXT.to_record()}), clients.node(p), "train") for p in partitions
    ]
    return clients.exchange(messages, 20.0)


def train(script, node):
    """Let a node answer a training."""
    for question in script.asked(node, "train"):
        content = RecordDict({"metrics": MetricRecord({"version": 1})})
        script.answer(question, Message(content, reply_to=question))


def test_who_is_away_costs_no_time_and_is_asked_once_it_is_there(monkeypatch):
    monkeypatch.setattr(returning_nodes, "_LOOK_S", 0.02)
    script, engine = greeted(0, 2, total=3)
    clients = find_clients(engine, 0.3, quorum=TWO)
    clients.wait_for_gone(600.0)
    done = threading.Event()

    def work():
        while not done.wait(0.01):
            for node in list(script.nodes):
                train(script, node)

    at_work = threading.Thread(target=work)
    at_work.start()
    try:
        first = asked(clients, (0, 1, 2))
        assert list(first.replies) == [0, 2]
        assert {client: failure.kind for client, failure in first.failures.items()} == {1: NODE_GONE}
        script.nodes[15] = Hello(1, 3)
        for _ in range(100):
            if (later := asked(clients, (0, 1, 2))).replies.keys() == {0, 1, 2}:
                break
        assert list(later.replies) == [0, 1, 2]
    finally:
        done.set()
        at_work.join()


def test_owners_of_whom_nothing_is_known_stay_out(caplog):
    script, engine = greeted(0, 2, total=3)
    own(script)
    clients = find_clients(engine, 0.3, quorum=TWO)
    assert (clients.away, clients.unknown, sorted(clients.reports)) == ([1], {1}, [0, 2])
    roll = clients._roll
    script.nodes[15] = Hello(1, 3, report=TOLD)
    roll.ask([15])
    script.say_hello(15)
    for node, reply in roll.answers():
        roll.readmit(node, reply)
    assert "the run has begun without its windows" in caplog.text
    assert not roll.rebind(script.nodes, str)


OTHER = replace(TOLD, classes=("p", "r"))


@pytest.mark.parametrize(
    ("least", "without"), [(2, [1]), (3, [])], ids=["enough are left", "too few would be left"]
)
def test_an_owner_whose_windows_do_not_fit_is_left_out_if_enough_are_left(caplog, least, without):
    """At once; with too few left, the fault is said where windows are looked at."""
    script, engine = greeted(0, 1, 2, total=3)
    own(script, of_1=OTHER)
    clients = find_clients(engine, 60.0, quorum=Quorum(least, is_possible=True))
    assert (clients.away, sorted(clients.unknown)) == (without, without)
    words = "a node stays out: partition 1 has other classes than most clients: ('p', 'r')"
    assert (words in caplog.text) == bool(without)
    assert clients.refused == (f"; {words}" if without else "")


def test_an_owner_with_other_windows_than_at_the_start_is_away():
    """A resumed run: it may come back with those."""
    script, engine = greeted(0, 1, 2, total=3)
    own(script, of_1=replace(TOLD, fingerprint="0" * 64))
    known = dict.fromkeys(range(3), TOLD)
    clients = find_clients(engine, 60.0, quorum=Quorum(2, True, known))
    assert (clients.away, clients.unknown, clients.reports) == ([1], frozenset(), known)


def test_without_a_quorum_all_have_to_fit():
    script, engine = greeted(0, 1, 2, total=3)
    own(script, of_1=OTHER)
    assert find_clients(engine, 60.0).away == []


def test_a_run_that_goes_on_knows_the_windows_of_those_that_are_away():
    script, engine = greeted(0, 2, total=3)
    own(script)
    known = dict.fromkeys(range(3), TOLD)
    clients = find_clients(engine, 0.3, quorum=Quorum(2, True, known))
    assert (clients.away, clients.unknown, clients.reports) == ([1], frozenset(), known)


def test_a_run_that_goes_on_keeps_out_whom_it_began_without(caplog):
    script, engine = greeted(0, 1, 2, total=3)
    own(script)
    clients = find_clients(engine, 5.0, quorum=Quorum(0, True, {0: TOLD, 2: TOLD}))
    assert (clients.away, clients.unknown) == ([1], {1})
    assert "partition 1 stays out: the run has begun without its windows" in caplog.text


def test_clients_of_a_run_that_goes_on_are_found_again():
    script, engine = greeted(0, 2, total=3)
    own(script)
    known = dict.fromkeys(range(3), TOLD)
    clients = find_again(engine, 0.3, Question(), Among(range(3), 3), known)
    assert (len(clients), clients.away, clients.reports) == (3, [1], known)


def test_whoever_has_come_is_enough_where_another_knows_how_many_are():
    _, engine = greeted(2, total=3)
    assert find_clients(engine, 0.3, among=Among((1, 2), 3), quorum=WHOEVER).away == [1]
    _, nobody = deployment(total=3)
    found = find_clients(nobody, 0.1, among=Among((1, 2), 3), quorum=WHOEVER)
    assert (found.away, found.reports) == ([1, 2], None)


def test_clients_found_again_without_those_that_the_run_began_without(caplog):
    """They are away for good, and nobody waits for them."""
    script, engine = greeted(0, 1, total=3)
    own(script)
    clients = find_again(engine, 60.0, Question(), Among(range(3), 3), {0: TOLD})
    assert (clients.away, clients.unknown, clients.reports) == ([1, 2], {1, 2}, {0: TOLD})
    roll = clients._roll
    for node, reply in roll.answers():
        roll.readmit(node, reply)
    assert not roll.rebind(script.nodes, str)
    assert clients.node(1) not in script.nodes


# --- the number of partitions, where no option says it --------------------------------------------------


class InOrder:
    """An engine whose nodes come and answer one after another, each after the last one's answer counted."""

    def __init__(self, hellos):
        self.script, self.engine = deployment()
        self._left, self._get = dict(enumerate(hellos, 11)), self.script.get_node_ids
        self.script.get_node_ids = self.come

    def come(self):
        if not self.script.pending and not self.script.replies and self._left:
            node = min(self._left)
            self.script.nodes[node] = self._left.pop(node)
        there = self._get()
        self.script.say_hello(*there)
        return there


def found_by(hellos, timeout_s=1.0, **more):
    return find_clients(InOrder(hellos).engine, timeout_s, **more)


HONEST = [Hello(at, 5) for at in (1, 2, 3, 4)]
ODD = [Hello(0, 1), Hello(0, 2), Hello(0, 4), Hello(0, 6), Hello(0, 10**6), Hello(7, 9)]


@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize("odd", ODD, ids=lambda hello: str(hello.num_partitions))
def test_one_odd_number_of_partitions_is_nobody_s_but_its_teller_s(odd, place, caplog):
    """Whenever it comes: the others are those of a run that it never came to."""
    clients = found_by([*HONEST[:place], odd, *HONEST[place:]], quorum=TWO)
    assert (len(clients), clients.away) == (5, [0])
    assert "clients must agree on num-partitions" in clients.refused or "at least guard" in clients.refused
    assert all(line.isprintable() for line in caplog.messages)


@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize("odd", ODD[2:], ids=lambda hello: str(hello.num_partitions))
def test_where_all_have_to_be_there_it_ends_the_run_in_one_line(odd, place):
    told = [*HONEST[:place], odd, *HONEST[place:]]
    with pytest.raises(RunError, match="must agree on num-partitions, but partition") as caught:
        found_by(told)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("place", range(5))
def test_it_ends_the_run_at_once_where_its_key_is_a_needed_one_s_and_never_for_another_s(place, monkeypatch):
    told = [*HONEST[:place], Hello(0, 3), *HONEST[place:]]
    made = InOrder(told)
    keys = {node: hello.partition_id for node, hello in enumerate(told, 11)}
    monkeypatch.setattr(made.engine, "partition_of_key", keys.get)
    with pytest.raises(RunError, match="but partition 0 says 3 and others say 5"):
        find_clients(made.engine, 60.0)


def test_as_many_who_say_one_number_as_another_begin_no_run():
    with pytest.raises(RunError, match=r"partition 1 says 5 and others say 3; .* or set clients"):
        found_by([Hello(0, 3), Hello(1, 5)], 0.5, quorum=Quorum(1, is_possible=True))
    assert found_by([Hello(0, 3), Hello(1, 5)], 0.5, expected=5, quorum=Quorum(1, True)).away == [0, 2, 3, 4]


def test_whoever_is_connected_is_heard_before_a_number_counts():
    """The first to answer says that it is alone; four others are asked and have not answered."""
    script, engine = deployment(0, 1, 2, 3, 4)
    script.nodes[11] = Hello(0, 1)
    late = iter(range(30))

    def come():
        if next(late, None) is None:
            script.say_hello(12, 13, 14, 15)
        script.say_hello(11)
        return list(script.nodes)

    script.get_node_ids = come
    assert find_clients(engine, 5.0, quorum=Quorum(1, is_possible=True)).away == [0]


def test_a_fault_of_a_node_that_came_first_is_kept_when_most_say_another_number():
    """Its partition is another's by key, whatever the number."""
    made = InOrder([Hello(0, 9), Hello(1, 5), Hello(1, 5), *HONEST[1:]])
    clients = find_clients(made.engine, 1.0, quorum=TWO)
    assert clients.away == [0]
    assert "two clients say that they hold partition 1" in clients.refused
    assert clients.node(1) == 12
