"""Hellos: whatever one says, it is refused in one line, or nothing that is done with it can fail."""

import json

import numpy as np
import pytest
from odd_json import ODD, changed, places

from fedge.edge.packets import orders
from fedge.edge.packets.hellos import check_hello, differences, reported_kernels
from fedge.link.admission import HELLO, LEAF, PROCESS
from fedge.link.frames import LinkError, Packet
from fedge.process.versions import versions

HONEST = {
    "versions": versions(), orders.KERNELS: "avx2 plain", orders.SUBTREE: "ab12", PROCESS: "cd34", LEAF: 1,
}  # fmt: skip


def judged(facts):
    """Whether a hello is accepted; what the cloud does with its facts is done."""
    hello = Packet(HELLO, facts)
    why = ""
    try:
        check_hello(hello)
    except LinkError as error:
        why = str(error)
    if why:
        assert why.isprintable()
        assert len(why) < 500
        return False
    hash((facts.get(orders.SUBTREE), facts.get(PROCESS)))
    assert differences(hello, "native avx2").isprintable()
    assert all(name.isprintable() for name in reported_kernels(hello) or ())
    return True


def test_an_honest_hello_is_accepted_with_all_or_some_of_its_facts():
    assert judged(HONEST)
    for name in HONEST:
        assert judged({key: value for key, value in HONEST.items() if key != name})


@pytest.mark.parametrize("name", [name for name in HONEST if name != LEAF])
def test_a_fact_of_another_form_is_refused(name):
    """The leaf that a hello names is checked with its certificate."""
    texts = {number for number, odd in enumerate(ODD) if isinstance(odd, str) and odd.isprintable()}
    for number, odd in enumerate(ODD):
        may = odd == {"": ""} or odd == {} if name == "versions" else number in texts and len(odd) <= 100
        assert judged({**HONEST, name: odd}) == may, odd


def test_whatever_a_hello_says_nothing_fails():
    rng = np.random.default_rng(5)
    found = [judged(facts) for _ in range(2000) if isinstance(facts := changed(HONEST, rng), dict)]
    assert {True, False} == set(found)
    deep = json.loads("[" * 900 + "]" * 900)
    assert not any(judged({**HONEST, name: deep}) for name in (*HONEST, "more") if name != LEAF)
    assert len(list(places(HONEST))) > 10


def test_a_hello_has_no_states_and_no_thousand_packages():
    for hello in (
        Packet(HELLO, HONEST, {"model": {}}),
        Packet(HELLO, {**HONEST, "versions": {str(number): "1" for number in range(1000)}}),
    ):
        with pytest.raises(LinkError):
            check_hello(hello)


@pytest.mark.parametrize(
    ("says", "kernel", "words"),
    [
        ({}, "native avx2", ""),
        ({"versions": versions()}, "native avx2", ""),
        ({"versions": versions() | {"ray": "1"}}, "", ""),
        ({"versions": {"numpy": "1.0"}}, "", f"it has numpy 1.0 (the cloud: {versions()['numpy']})"),
        ({"kernels": "avx2 plain"}, "native avx2_bf16", ""),
        ({"kernels": "plain"}, "torch", ""),
        ({"kernels": ""}, "", ""),
        ({"kernels": ""}, "native avx2", "it cannot use the run's kernel avx2, so PyTorch trains there"),
    ],
    ids=str,
)
def test_differences_that_change_bits_are_named(says, kernel, words):
    assert differences(Packet(HELLO, says), kernel) == words


@pytest.mark.parametrize(
    ("facts", "kernels"),
    [
        ({"kernels": "amx avx2"}, ("amx", "avx2")), ({"kernels": ""}, ()), ({}, None), ({"kernels": 3}, None),
        ({"kernels": "\x1b]0;x"}, ("\\x1b]0;x",)),
    ],
    ids=str,
)  # fmt: skip
def test_kernels_of_a_leaf_server(facts, kernels):
    assert reported_kernels(Packet(HELLO, facts)) == kernels
    assert reported_kernels(None) is None
