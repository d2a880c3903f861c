"""Validation of the cloud's orders at a leaf server, before any is executed.

A malicious cloud can spoil a leaf server's results, but it cannot execute code without the consent of the
leaf server's user (`fedge.run.preparation.foreign_parts`), write outside the leaf server's folder, or use
more memory than a run of this model needs. An invalid order is refused in one line.
"""

import errno
import logging
from collections.abc import Collection, Mapping
from typing import Any, get_args

from fedge.config.registers.failing import place_by_name, without_folders
from fedge.config.registers.option import ConfigError, shown
from fedge.config.sections.hierarchy import HierarchyConfig
from fedge.config.topology import leaf_numbers_below
from fedge.config.tree import dotted
from fedge.edge.answers import check_like
from fedge.edge.packets import orders
from fedge.edge.packets.bundles import PARTS, unbundled
from fedge.edge.packets.memories import check_ascending, check_memories, check_needed
from fedge.edge.packets.plain_json import (
    FactError,
    finite_number,
    mapping,
    only,
    refusing,
    rows,
    text,
    truth,
    values,
    whole_number,
)
from fedge.edge.packets.training_history import check_turns
from fedge.exchange.evaluate import SplitName
from fedge.exchange.failure import words_of
from fedge.exchange.round_context import Line
from fedge.leaf.algorithm import ALGORITHM
from fedge.leaf.leaf import Leaf
from fedge.link.frames import Packet
from fedge.process.escape import printable
from fedge.process.resources.room import remedy
from fedge.states.averaging import State
from fedge.states.files import StateFileError
from fedge.states.restore_checks import MOST
from fedge.timing.laps import PHASES

logger = logging.getLogger(__name__)

_LONGEST = 200  # characters of the reason for refusing an order
_LONGEST_FAILED = 300  # characters of the reason why an accepted order failed
_MOST_CLIENTS, _MOST_ROUNDS, _MOST_SEED = 10**6, 10**9, 2**64
_MOST_OPTIONS, _LONGEST_OPTION, _LONGEST_NAME = 1000, 10**5, 500
_LONGEST_DESCRIPTION = 2**20  # characters of one client's description of its windows
_MOST_CHANNELS = 10**5
_LONGEST_S = 1e9
_OF_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)


class OrderRefused(ValueError):
    """Refusal of an invalid order. One printable line."""

    def __init__(self, reason: str) -> None:
        super().__init__(printable(reason[:_LONGEST])[:_LONGEST])


def failed_order(kind: str, error: BaseException) -> Packet:
    """Answer to a failed order; the error is logged."""
    if isinstance(error, OrderRefused):
        logger.warning("an order is refused: %s", error)
        return Packet(orders.FAILED, {"words": f"invalid order: {error}"})
    logger.error("order %s failed", shown(kind), exc_info=error)
    message = without_folders(_words_for_user(error), error) or words_of(error)
    message = printable(message[:_LONGEST_FAILED])[:_LONGEST_FAILED]
    return Packet(orders.FAILED, {"words": message})


def _words_for_user(error: BaseException) -> str:
    """Message of an error of the options or of the disk, with the next step; empty for any other error."""
    fault = error.__cause__ if isinstance(error, StateFileError) else error
    if isinstance(fault, OSError) and fault.errno in _OF_DISK and not place_by_name(error):
        place = f"{fault.filename}: " if fault.filename else ""
        words = (
            f"a file could not be written ({place}{fault.strerror or fault})"
            if fault is error
            else str(error)
        )
        return f"{words}; {remedy(fault)}"
    return str(error) if isinstance(error, ConfigError) else ""


def check_run(facts: Mapping[str, Any], *, begins: bool) -> None:
    """Raise OrderRefused unless facts of a run have the right form; their content is checked elsewhere.

    Args:
        facts: facts sent by the cloud.
        begins: True to begin the run; False to ask clients about their windows.
    """
    with refusing(OrderRefused):
        required = {"config", "seed", "clients", "leaf", *(("run", "fingerprint") if begins else ())}
        optional = {"told", "scale", "local_steps", "kernel"} if begins else {orders.WAIT_S}
        only(facts, required, {"parts", *optional})
        clients = whole_number(facts["clients"], 1, _MOST_CLIENTS, "clients")
        whole_number(facts["seed"], 0, _MOST_SEED, "seed")
        whole_number(facts["leaf"], 0, _MOST_CLIENTS, "leaf")
        _check_options(mapping(facts["config"], "config"))
        for sha256 in mapping(facts.get("parts", {}), "parts").values():
            text(sha256, _LONGEST_NAME, "parts")
        finite_number(facts.get(orders.WAIT_S, 0.0), 0.0, _LONGEST_S, orders.WAIT_S)
        if not begins:
            return
        text(facts["run"], _LONGEST_NAME, "run")
        text(facts["fingerprint"], _LONGEST_NAME, "fingerprint")
        whole_number(facts.get("local_steps", 0), 0, _MOST_ROUNDS, "local_steps")
        text(facts.get("kernel", ""), _LONGEST_NAME, "kernel")
        if facts.get("scale") is not None:
            for numbers in rows([facts["scale"]], 2, 1, "scale")[0]:
                for (value,) in rows([[number] for number in numbers], 1, _MOST_CHANNELS, "scale"):
                    finite_number(value, -1e300, 1e300, "scale")
        for client, description in mapping(facts.get("told", {}), "told").items():
            if not client.isdecimal() or len(client) > 9 or int(client) >= clients:
                raise FactError("told", f"by client {shown(client)}")
            text(description, _LONGEST_DESCRIPTION, "told")


def _check_options(config: Mapping[str, Any]) -> None:
    """Raise unless options have the form of Flower's run config: texts, numbers and bools by name."""
    if len(config) > _MOST_OPTIONS:
        raise FactError("config", f"{len(config)} options")
    for key, value in config.items():
        text(key, _LONGEST_NAME, "config")
        if type(value) not in (str, int, float, bool) or len(shown(value)) > _LONGEST_NAME:
            raise FactError("config", f"{key} is {shown(value)}")
        if isinstance(value, str) and len(value) > _LONGEST_OPTION:
            raise FactError("config", f"{key} has {len(value)} characters")


def leaves_named(packet: Packet, leaves: Collection[int]) -> list[int]:
    """Leaves of this process named in a region's order, ascending; OrderRefused for others."""
    with refusing(OrderRefused):
        numbers = [row[0] for row in rows(packet.facts["leaves"], 4, len(leaves), "leaves")]
        if not numbers or any(type(leaf) is not int or leaf not in leaves for leaf in numbers):
            raise FactError("leaves", "not those of this process")
    return sorted(numbers)


def orders_of(bundle: Packet, leaves: Collection[int]) -> dict[int, Packet]:
    """Leaf → its order in a bundle, in ascending order; OrderRefused unless all belong to one run.

    The leaf servers check the orders themselves.

    Args:
        bundle: bundle of orders.
        leaves: leaves of this process.
    """
    with refusing(OrderRefused):
        only(bundle.facts, {PARTS, "run"})
        packets = unbundled(bundle, leaves)
        if not packets or any(packet.kind not in CARRIED_OUT for packet in packets.values()):
            raise FactError(PARTS, "no orders, or of other kinds")
        if any(packet.facts.get("run") != bundle.facts["run"] for packet in packets.values()):
            raise FactError(PARTS, "of another run")
    return dict(sorted(packets.items()))


def check_region(packet: Packet, hierarchy: HierarchyConfig, leaves: Collection[int]) -> None:
    """Raise OrderRefused unless a region's order is valid; its leaves' orders are checked one by one.

    Args:
        packet: order to a region.
        hierarchy: hierarchy of the run.
        leaves: leaves of this process.
    """
    with refusing(OrderRefused):
        facts = packet.facts
        only(facts, {"path", "first", "last", "leaves", "run", "global_round"})
        path = tuple(whole_number(step, 0, _MOST_CLIENTS, "path") for step in values(facts["path"], "path"))
        numbers = [row[0] for row in rows(facts["leaves"], 4, len(leaves), "leaves")]
        if numbers != leaf_numbers_below(hierarchy).get(dotted(path)) or not set(numbers) <= set(leaves):
            raise FactError("leaves", "not those below the region in this process")
        period = hierarchy.leaf_rounds_of(len(path) - 1)
        first = whole_number(facts["first"], 1, _MOST_ROUNDS, "first")
        whole_number(facts["last"], first + period - 1, first + period - 1, "last")
        if (first - 1) % period:
            raise FactError("first", f"{first} begins no round")
        for _, leaf_facts, version, needed in facts["leaves"]:
            mapping(leaf_facts, "leaf")
            whole_number(version, 0, _MOST_ROUNDS, "version")
            check_ascending(needed, "needed")
        prefixes = tuple(f"{leaf}/" for leaf in numbers)
        unexpected = [
            name for name in packet.states if name != orders.MODEL and not name.startswith(prefixes)
        ]
        if unexpected or orders.MODEL not in packet.states:
            raise FactError("states", "not the model and those of its leaves")


def check_order(packet: Packet, leaf: Leaf) -> None:
    """Raise OrderRefused unless an order to clients is valid.

    Args:
        packet: order of a supported kind.
        leaf: the run's leaf, in its initial state.
    """
    with refusing(OrderRefused):
        _require_facts(packet.facts, "run", "global_round")
        whole_number(packet.facts["global_round"], 0, _MOST_ROUNDS, "global_round")
        _CHECKS[packet.kind](packet, leaf)


def _check_train(packet: Packet, leaf: Leaf) -> None:
    facts, states = packet.facts, packet.states
    flags = ("fork", "updates", "alone", "dispersion")
    names = {"leaf_round", "line", "without", "leaf", "version", "needed", *flags}
    names |= {"memories"} if leaf.algorithm is not None else set()
    only(facts, names | {"run", "global_round"})
    _check_round(facts)
    for name in flags:
        truth(facts[name], name)
    without = values(facts["without"], "without")
    if any(type(number) is not int or number not in leaf.clients for number in without):
        raise FactError("without", f"{shown(without)} are not clients of this leaf")
    whole_number(facts["version"], 0, _MOST_ROUNDS, "version")
    check_ascending(facts["needed"], "needed")
    leaf_facts, controls = mapping(facts["leaf"], "leaf"), {name for name in states if name in _CONTROLS}
    has_drift = leaf.drift is not None and not facts["fork"]
    optional = {"turns": leaf.turns, ALGORITHM: leaf.algorithm, "drift": leaf.drift if has_drift else None}
    only(leaf_facts, {"norms", "strategy"} | {name for name, state in optional.items() if state is not None})
    if leaf.turns is not None:
        check_turns(leaf_facts["turns"], leaf.clients)
    if leaf.algorithm is not None:
        check_memories(leaf_facts[ALGORITHM], leaf, any_round=True)
        check_needed(facts["memories"], leaf)
    for norm in values(leaf_facts["norms"], "norms", leaf.norms.norms.maxlen):
        finite_number(norm, 0.0, 1.7e308, "norms")
    if has_drift:
        finite_number(leaf_facts["drift"], 0.0, 1.7e308, "drift")
    remaining = {name for name in states if not name.startswith(orders.STRATEGY)} - controls
    remaining -= _check_leaf_part(states, leaf)
    expected = [set(_CONTROLS)] if leaf.control is not None else [set()]
    if remaining != {orders.MODEL} or controls not in ([*expected, set()] if facts["fork"] else expected):
        raise FactError("states", ", ".join(sorted(map(shown, states))[:5]))
    check_like(states[orders.MODEL], leaf.model)
    for name in controls:
        assert leaf.control is not None
        check_like(states[name], leaf.control)
    leaf.refuse_other_strategy(states, leaf_facts)


def _check_leaf_part(states: Mapping[str, State], leaf: Leaf) -> set[str]:
    """Name of the state with a leaf part's memory, if the leaf needs one; its form is checked."""
    expected = {} if leaf.algorithm is None else leaf.algorithm.states()
    for name, like in expected.items():
        check_like(states[name], like)
    return set(expected)


def _check_algorithm(packet: Packet, leaf: Leaf) -> set[str]:
    """Name of the fact with versions of clients' memories in an order, if any; it is checked."""
    if leaf.algorithm is None or ALGORITHM not in packet.facts:
        return set()
    check_memories(packet.facts[ALGORITHM], leaf, any_round=True)
    return {ALGORITHM}


def _check_probe(packet: Packet, leaf: Leaf) -> None:
    algorithm = _check_algorithm(packet, leaf)
    only(packet.facts, {"leaf_round", "line", "updates", "run", "global_round"} | algorithm, {"most_windows"})
    whole_number(packet.facts.get("most_windows", 0), 0, MOST - 1, "most_windows")
    _check_round(packet.facts)
    truth(packet.facts["updates"], "updates")
    if packet.states.keys() != {orders.MODEL} | _check_leaf_part(packet.states, leaf):
        raise FactError("states", "not the model alone")
    check_like(packet.states[orders.MODEL], leaf.model)


def _check_evaluate(packet: Packet, leaf: Leaf) -> None:
    facts, sent = packet.facts, set()
    algorithm = _check_algorithm(packet, leaf)
    only(facts, {"known", "unseen", "phase", "splits", "run", "global_round"} | algorithm)
    for group in ("known", "unseen"):
        for role, reference in mapping(facts[group], group).items():
            text(role, _LONGEST_NAME, group)
            place, name = rows([reference], 2, 1, group)[0]
            text(name, _LONGEST_NAME, group)
            if place not in (orders.HERE, orders.SENT):
                raise FactError(group, shown(place))
            sent |= {name} if place == orders.SENT else set()
    splits = values(facts["splits"], "splits")
    if not splits or len(set(splits)) != len(splits) or not set(splits) <= set(get_args(SplitName)):
        raise FactError("splits", shown(splits))
    if facts["phase"] not in ("", *PHASES):
        raise FactError("phase", shown(facts["phase"]))
    if packet.states.keys() != sent:
        raise FactError("states", "not the models that are named")
    for model in packet.states.values():
        check_like(model, leaf.model)


_CONTROLS = ("control", "told")
_CHECKS = {orders.TRAIN: _check_train, orders.PROBE: _check_probe, orders.EVALUATE: _check_evaluate}
CARRIED_OUT = tuple(_CHECKS)  # kinds of orders to one leaf server and its clients


def most_bytes(model: int, leaves: int) -> tuple[int, int]:
    """Limits in bytes of an order's arrays and of its head.

    Args:
        model: bytes of a model of the run.
        leaves: number of leaves of the run; an order to report losses contains all their models.
    """
    return (64 + 2 * leaves) * (2 * model + 2**16), 2**26


def _check_round(facts: Mapping[str, Any]) -> None:
    whole_number(facts["leaf_round"], 0, _MOST_ROUNDS, "leaf_round")
    if facts["line"] not in get_args(Line):
        raise FactError("line", shown(facts["line"]))


def _require_facts(facts: Mapping[str, Any], *names: str) -> None:
    missing = [name for name in names if name not in facts]
    if missing:
        raise FactError("facts", f"{missing[0]} is missing")
