"""Codes by name: Fedge's, one's own, and those that cannot be."""

import json
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from fedge.compression.compressor import Compressor
from fedge.compression.configured import (
    keeps_feedback,
    refuse_compressors,
    uplink_of_clients,
    uplink_of_servers,
)
from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import CLIENT_UPLINKS, SERVER_UPLINKS
from fedge.config.registers.traits import FEEDBACK, UNBIASED

PLAIN = {"scaffold.enabled": False, "gate.enabled": False, "cluster.enabled": False}


def uplink(name, arguments=None, **options):
    """The section, with a code at clients."""
    given = {"uplink.clients": name, "uplink.clients-args": json.dumps(arguments or {})}
    return from_run_config({**PLAIN, **given, **options})


class Halves(Compressor):
    """Half of every entry."""

    keeps_feedback = True

    def __init__(self, share=0.5):
        self.share = share

    def sent(self, update, rng):
        return self.share * update

    def bits(self, count):
        return 32 * count


class Shorter(Halves):
    """One entry too few."""

    def sent(self, update, rng):
        return update[1:]


class Endless(Halves):
    """Numbers without end."""

    def sent(self, update, rng):
        return update / 0.0 * np.inf


class Fractions(Halves):
    """Bits that are no whole number."""

    def bits(self, count):
        return count / 3


class Fails(Halves):
    """Nothing."""

    def sent(self, update, rng):
        raise KeyError("no table")


class Writes(Halves):
    """The received values, written over the update: nothing would remain for the next one."""

    def sent(self, update, rng):
        update *= self.share
        return update


class Forgetful(Halves):
    """No feedback."""

    keeps_feedback = False


@pytest.fixture(autouse=True)
def mine(monkeypatch):
    """Module of a user's own."""
    module = types.ModuleType("my_codes")
    for part in (Halves, Shorter, Endless, Fractions, Fails, Forgetful, Writes):
        setattr(module, part.__name__, part)
    module.number = 7
    monkeypatch.setitem(sys.modules, "my_codes", module)


@pytest.mark.parametrize("register", [CLIENT_UPLINKS, SERVER_UPLINKS])
def test_traits_are_what_the_code_says(register):
    for entry in list(register)[1:]:
        code = register.load(entry.name)
        assert code.unbiased == (UNBIASED in entry.traits), entry.name
        assert code.keeps_feedback == (FEEDBACK in entry.traits), entry.name
    assert register.names[0] == "none"


def test_none_is_no_uplink():
    config = uplink("none").uplink
    assert (uplink_of_clients(config, ["w"]), uplink_of_servers(config, ["w"])) == (None, None)
    assert not keeps_feedback(config)


def test_arguments_reach_the_code():
    update = {"w": np.arange(10, dtype=np.float32)}
    up = uplink_of_clients(uplink("top-k", {"share": 0.3}).uplink, ["w"])
    found = up.upload({"w": np.zeros(10, np.float32)}, update, {}, 3, 1).state
    assert found["w"].tolist() == [0, 0, 0, 0, 0, 0, 0, 7, 8, 9]
    of_servers = from_run_config({**PLAIN, "uplink.servers": "sign"}).uplink
    assert uplink_of_servers(of_servers, ["w"]).sent_bytes(update) == 6


def test_code_of_ones_own():
    config = uplink("my_codes:Halves", {"share": 0.25})
    refuse_compressors(config)
    assert keeps_feedback(config.uplink)
    given, made = {"w": np.zeros(1, np.float32)}, {"w": np.ones(1, np.float32)}
    assert uplink_of_clients(config.uplink, ["w"]).upload(given, made, {}, 3, 1).state["w"].tolist() == [0.25]


def test_in_a_run_no_code_can_write_to_an_update():
    """Only sizes of the trial are tried."""
    given, made = {"w": np.zeros(3, np.float32)}, {"w": np.ones(3, np.float32)}
    with pytest.raises(ValueError, match="read-only"):
        uplink_of_clients(uplink("my_codes:Writes").uplink, ["w"]).upload(given, made, {}, 3, 1)


REFUSED = {
    "no code": ("my_codes:number", {}, "must be a class derived from fedge.compression.Compressor, but is 7"),
    "missing": ("my_codes:Halve", {}, "my_codes has no Halve; did you mean Halves"),
    "argument": ("top-k", {"shares": 0.1}, r"did you mean .?share"),
    "value": ("top-k", {"share": 2.0}, "cannot be made: ValueError: share must be above 0 and at most 1"),
    "shape": ("my_codes:Shorter", {}, "must send 1 finite numbers for as many"),
    "infinite": ("my_codes:Endless", {}, "must send 1 finite numbers for as many"),
    "bits": ("my_codes:Fractions", {}, "must say a whole number of bits, but says 0.333"),
    "writes": ("my_codes:Writes", {}, "failed: ValueError: output array is read-only"),
    "raises": ("my_codes:Fails", {}, "failed: KeyError: 'no table'"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_codes_that_cannot_be_are_refused_in_a_line(case):
    name, arguments, words = REFUSED[case]
    with pytest.raises(ConfigError, match=words) as refused:
        refuse_compressors(uplink(name, arguments))
    assert "\n" not in str(refused.value)


def test_a_code_of_ones_own_without_feedback_is_refused_beside_scaffold():
    refuse_compressors(uplink("my_codes:Halves", **{"scaffold.enabled": True}))
    with pytest.raises(
        ConfigError, match=r"needs scaffold\.enabled=false, because control variates are sums"
    ):
        refuse_compressors(uplink("my_codes:Forgetful", **{"scaffold.enabled": True}))


def test_the_code_of_the_examples_is_right_in_the_mean():
    """A fifth of the entries times five; its mean within six deviations at a fixed seed."""
    code = (Path(__file__).parents[3] / "examples" / "my_codes.py").read_text()
    exec(code, vars(sys.modules["my_codes"]))
    config = uplink("my_codes:RandomK", {"share": 0.2})
    refuse_compressors(config)
    compressor, update = sys.modules["my_codes"].RandomK(0.2), np.linspace(-1, 1, 50)
    rng = np.random.default_rng(4)
    mean = np.mean([compressor.sent(update, rng) for _ in range(4000)], axis=0)
    assert np.abs(mean - update).max() <= 6 * np.sqrt(4 / 4000)  # variance of an entry: at most (1/0.2 − 1)
    assert compressor.bits(50) == 10 * (32 + 6)
