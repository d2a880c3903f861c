"""Whole runs whose updates are compressed: same bits anywhere, exact after a stop, bytes, bad replies."""

import io

import pytest
from flower_runs import comparable, flwr_run
from small_runs import carry_out, small_config

from fedge import simulate
from fedge.client_app import app as client_app
from fedge.engine.inprocess import InProcessGrid
from fedge.exchange.algorithm import KEPT
from fedge.run.run import run

pytestmark = pytest.mark.whole_runs
PLAIN = {"gate.enabled": False, "cluster.enabled": False, "scaffold.enabled": False}
CASES = {
    "float16": {**PLAIN, "uplink.clients": "float16", "uplink.servers": "float16"},
    "int8": {**PLAIN, "uplink.clients": "int8", "uplink.servers": "int8"},
    "top-k": {**PLAIN, "uplink.clients": "top-k", "uplink.clients-args": '{"share": 0.1}'},
    "sign": {
        **PLAIN, "uplink.clients": "sign", "uplink.servers": "sign", "hierarchy.tree": "((3,3),(3))",
        "hierarchy.region-rounds": "2", "train.model": "mlp-tiny",
    },
    "scaffold": {
        "uplink.clients": "top-k", "uplink.clients-args": '{"share": 0.5}', "hierarchy.fraction-train": 0.67,
    },
    "method": {**PLAIN, "uplink.clients": "sign", "train.algorithm": "ditto", "hierarchy.leaf-rounds": 2},
    "private": {**PLAIN, "uplink.clients": "sign", "privacy.kind": "local", "privacy.clip-norm": 0.1},
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_run_goes_on_exactly_after_a_stop(case, tmp_path):
    """Memories of clients and servers are those of the checkpoint; two rounds and two are four."""
    config = {**small_config(tmp_path, num_server_rounds=4, checkpoint__every=1), **CASES[case]}
    whole = carry_out(config, "whole")
    begun = simulate({**config, "num-server-rounds": 2, "run-name": "begun"}, terminal=io.StringIO())
    again = simulate({**config, "resume": str(begun.folder), "run-name": ""}, terminal=io.StringIO())
    assert again.status == "completed", again.reason
    found = comparable(again.folder)
    assert [key for key in found if key != "clusters" and found[key] != whole[key]] == []
    exact = {key: value for key, value in config.items() if not key.startswith("uplink.")}
    assert carry_out(exact, "exact")["models"] != whole["models"]


@pytest.mark.extended
@pytest.mark.parametrize("case", CASES)
def test_ray_gives_the_same_bits(case, tmp_path):
    config = {**small_config(tmp_path), **CASES[case]}
    whole = carry_out(config, "whole")
    done = flwr_run(tmp_path, {**config, "run-name": "ray"}, seed="3")
    assert done.returncode == 0, done.stderr
    found = comparable(tmp_path / "runs" / "ray")
    assert [key for key in found if key != "clusters" and found[key] != whole[key]] == []


def test_bytes_are_of_what_would_be_sent(tmp_path):
    """64 weights, 2 biases: int8 64 + 4 and 2 + 4 bytes, sign 8 + 4 and 1 + 4; 9 clients, 3 leaves."""
    config = {**small_config(tmp_path), **PLAIN, "uplink.clients": "int8", "uplink.servers": "sign"}
    done = simulate({**config, "run-name": "bytes"}, terminal=io.StringIO())
    assert done.rounds["uplink_bytes"].to_list() == [9 * 74] * 2
    assert done.rounds["cloud_uplink_bytes"].to_list() == [3 * 17] * 2
    assert done.rounds["cloud_downlink_bytes"].to_list() == [3 * 264] * 2


def test_each_client_keeps_what_it_could_not_send(tmp_path):
    """A file each; with a share of 1 nothing is lost but a rounding."""
    config = {**small_config(tmp_path, num_server_rounds=1), **CASES["top-k"]}
    one = simulate({**config, "run-name": "one"}, terminal=io.StringIO())
    memory = list((one.folder / "memory").glob("client-*/round-*.safetensors"))
    assert len(memory) == 9
    config = {**config, "uplink.clients-args": '{"share": 1.0}'}
    every = carry_out(config, "every")
    exact = carry_out({**config, "uplink.clients": "none", "uplink.clients-args": ""}, "exact")
    assert every["clients"] == exact["clients"]  # the same models to a rounding or two


def _short(reply):
    record = reply.content[KEPT]
    record["checksum"] = "short"


SPOILS = {
    "no memory": lambda reply: reply.content.pop(KEPT),
    "other memory": _short,
    "no number": lambda reply: reply.content["metrics"].update({"train-loss": float("nan")}),
}


def test_a_client_that_lies_loses_only_itself(tmp_path):
    """Others' models are as if it had failed; it goes on from its last memory that counted."""
    config = {**small_config(tmp_path, guard__retries=0, num_server_rounds=3), **CASES["top-k"]}

    def outcome(name, spoil):
        def app(message, context):
            is_lying = message.metadata.message_type == "train" and context.node_config["partition-id"] == 1
            if is_lying and spoil is None:
                raise RuntimeError("gone")
            reply = client_app(message, context)
            if is_lying:
                spoil(reply)
            return reply

        given = {**config, "run-name": name}
        with InProcessGrid(app, 9, given, 1) as grid:
            done = run(grid, given, "inprocess", {}, lambda _: io.StringIO())
        assert done.status == "partial", (name, done.reason)
        return comparable(done.folder)["models"]

    wanted = outcome("gone", None)
    for number, (lie, spoil) in enumerate(SPOILS.items()):
        assert outcome(f"lied-{number}", spoil) == wanted, lie
