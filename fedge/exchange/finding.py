"""Finding the clients of a run: wait for all nodes, and ask each once for its partition (contract C4).

In a deployment, a run may start without some nodes (`guard.start-clients`): those not connected in time, and
those whose first reply is refused or inconsistent with most clients'.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping

from fedge.data.outliers import incompatible_owners
from fedge.data.own_windows import WindowsReport
from fedge.exchange.clients import Clients
from fedge.exchange.engine import Engine, RunError
from fedge.exchange.hello import PLAIN, Question
from fedge.exchange.node_registry import ALL, Among, NodeRegistry, Quorum
from fedge.states.challenge import answer_to
from hhar.quantity import quantity

logger = logging.getLogger(__name__)

_WAIT_FOR_NODES_S = 0.05


def find_clients(
    engine: Engine,
    timeout_s: float,
    question: Question = PLAIN,
    tick: Callable[[], None] = lambda: None,
    among: Among | None = None,
    expected: int = 0,
    quorum: Quorum = ALL,
) -> Clients:
    """Wait at most `timeout_s` seconds for all nodes, and ask each once for its partition.

    Args:
        engine: engine that runs the clients.
        timeout_s: seconds to wait.
        question: first question to each node.
        tick: called repeatedly while waiting.
        among: the clients to find; by default all.
        expected: their number; by default the one reported by most nodes.
        quorum: the clients needed once the time is over; by default all.

    Raises:
        RunError: clients are missing, or their replies are inconsistent.
    """
    deadline = time.monotonic() + timeout_s
    roll = NodeRegistry(engine, question, among, expected, quorum)
    while time.monotonic() < deadline:
        roll.ask(engine.get_node_ids())
        for node, reply in roll.answers():
            roll.enter(node, reply)
        if roll.has_all_answers and (roll.is_complete() or roll.is_settled()):
            break
        engine.refuse_stopped()
        tick()
        engine.wait(_WAIT_FOR_NODES_S)
    _exclude_outliers(roll, quorum)
    count = len(roll.hellos)
    if roll.is_complete() or (roll.is_agreed and quorum.is_met(count)):
        roll.expect_absent()
        return _clients(engine, roll)
    hint = f", or begin without it by guard.start-clients={count}" if quorum.is_possible and count else ""
    wanted = len(roll.wanted)  # a leaf server's own, not all of the run
    answered = f"{count} of {quantity(wanted, 'client')}" if wanted else "no client"
    raise RunError(
        f"guard.start-timeout: {answered} answered within {round(timeout_s, 1):g} s{roll.missing()}; "
        f"{engine.startup_hint} or raise guard.start-timeout{hint}"
    )


def _exclude_outliers(roll: NodeRegistry, quorum: Quorum) -> None:
    """Refuse owners whose windows do not fit those of the others, if enough clients remain."""
    reports = {partition: hello.report for partition, hello in roll.hellos.items()}
    outliers = incompatible_owners(reports, quorum.reports) if quorum.spares else {}
    if outliers and quorum.is_met(len(roll.hellos) - len(outliers)):
        roll.leave_out(outliers)


def find_again(
    engine: Engine, timeout_s: float, question: Question, among: Among, reports: Mapping[int, WindowsReport]
) -> Clients:
    """Find the clients of a resumed run, whose windows are known.

    A node absent after `timeout_s` seconds counts as gone, and may return. A node with unknown windows is
    refused, because the run started without them.

    Args:
        engine: engine that runs the clients.
        timeout_s: seconds to wait.
        question: first question to each node.
        among: which clients these are.
        reports: partition id → the client's description of its windows.
    """
    deadline = time.monotonic() + timeout_s
    roll = NodeRegistry(engine, question, among)
    roll.expect(reports)
    roll.expect_absent()
    while reports.keys() & set(roll.away()) and time.monotonic() < deadline:
        connected = set(engine.get_node_ids())
        roll.ask(connected)
        for node, reply in roll.answers():
            roll.readmit(node, reply)
        roll.rebind(connected, logger.info)
        engine.refuse_stopped()
        engine.wait(_WAIT_FOR_NODES_S)
    return _clients(engine, roll)


def _clients(engine: Engine, roll: NodeRegistry) -> Clients:
    """All clients; RunError if some own their data and others do not."""
    hellos = dict(sorted(roll.hellos.items()))
    reports = {partition: hello.report for partition, hello in hellos.items() if hello.report is not None}
    if reports and len(reports) < len(hellos):
        raise RunError(
            f"either all SuperNodes name windows of their own or none does, but partition {min(reports)} "
            f"does and partition {min(hellos.keys() - reports.keys())} does not; add data-folder, own-data "
            f"or data to its --node-config"
        )
    expected_answer = answer_to(roll.challenge)
    sharing = {
        roll.node_of[partition]
        for partition, hello in hellos.items()
        if expected_answer and hello.seen == expected_answer
    }
    sharing_nodes = () if engine.spans_machines() else sharing
    devices = Counter(hello.device for hello in hellos.values() if hello.device)
    kernels = Counter(hello.kernels for hello in hellos.values() if hello.kernels is not None)
    return Clients(
        engine, dict(sorted(roll.node_of.items())), sharing_nodes, reports or None, roll, devices, kernels
    )
