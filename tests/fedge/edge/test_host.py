"""Orders to a leaf server whose clients are threads of this process: answers, and what is no order."""

from dataclasses import replace
from itertools import pairwise

import pytest
from leaf_servers import host_of
from small_runs import small_config

from fedge.config.flat import from_run_config, to_run_config
from fedge.data.prepared import load_source
from fedge.edge.order_execution import LeafExecutor
from fedge.edge.packets import orders
from fedge.link.admission import HELLO
from fedge.link.frames import Packet
from fedge.link.gate import OVER


@pytest.fixture
def facts(tmp_path):
    """Facts from the cloud for leaf server 1 of a run of nine clients at three leaves."""
    config = from_run_config(small_config(tmp_path))
    return {
        "run": "a run", "leaf": 1, "clients": 9, "seed": 3, "config": to_run_config(config),
        "fingerprint": load_source(config, 9)[1].fingerprint,
    }  # fmt: skip


@pytest.fixture
def host(tmp_path):
    made = host_of(tmp_path, 1)
    yield made
    made.close()


def no_note(_):
    pass


def test_a_leaf_server_has_its_own_clients(host, facts):
    assert host.hello().kind == HELLO
    answer = host.answer(Packet(orders.BEGIN, facts), no_note)
    assert (answer.kind, answer.facts["clients"]) == (orders.DONE, [3, 4, 5])
    assert host.answer(Packet(OVER), no_note).kind == orders.DONE


def test_a_run_that_the_cloud_describes_otherwise_begins_anew(host, facts):
    """A cloud that was started again may have other time limits, or another kernel; else nothing is done."""
    changed = facts["config"] | {"guard.client-timeout": 7.0}
    began = []
    for number, now in enumerate((facts, facts, {**facts, "config": changed}, {**facts, "kernel": "torch"})):
        assert host.answer(Packet(orders.BEGIN, {**now, "number": str(number)}), no_note).kind == orders.DONE
        began.append(host._run[1])
    assert [one is other for one, other in pairwise(began)] == [True, False, False]
    assert began[2].site.task.config.guard.client_timeout == 7.0


def test_an_order_of_a_run_that_it_knows_nothing_of_is_sent_back(host, facts):
    order = Packet(orders.TRAIN, {"run": "another run", "global_round": 1})
    assert host.answer(order, no_note).kind == orders.UNKNOWN
    host.answer(Packet(orders.BEGIN, facts), no_note)
    assert host.answer(order, no_note).kind == orders.UNKNOWN


@pytest.mark.parametrize(
    ("changes", "telling"),
    [
        ({"leaf": 2}, "this is leaf server 1, but the cloud expects 2 here"),
        ({"fingerprint": "0"}, "data.path must be the cloud's data"),
        ({"config": {"train.modle": "cnn"}}, "did you mean train.model?"),
    ],
    ids=str,
)
def test_a_run_that_cannot_be_here_is_told_why(host, facts, changes, telling):
    answer = host.answer(Packet(orders.BEGIN, {**facts, **changes}), no_note)
    assert answer.kind == orders.FAILED
    assert telling in answer.facts["words"]


def test_a_run_whose_end_fails_here_keeps_out_no_later_one(host, facts):
    host.answer(Packet(orders.BEGIN, facts), no_note)
    site = host._run[1].site

    def close():
        site.close()
        raise OSError("\x1b[2J")

    host._run = host._run[0], LeafExecutor(replace(site, close=close))
    answer = host.answer(Packet(OVER), no_note)
    assert (answer.kind, answer.facts["words"].isprintable()) == (orders.FAILED, True)
    assert host.answer(Packet(orders.BEGIN, facts), no_note).kind == orders.DONE
    host.close()


def test_what_is_no_order_is_told_to_the_cloud(host, facts):
    host.answer(Packet(orders.BEGIN, facts), no_note)
    answer = host.answer(Packet("dance", {"run": "a run", "global_round": 1}), no_note)
    assert (answer.kind, answer.facts["words"]) == (orders.FAILED, "invalid order: kind: 'dance'")


CODE = "import pathlib\npathlib.Path('carried-out').touch()\n\ndef make(*shape):\n    raise SystemExit\n"


@pytest.mark.parametrize("model", ["subprocess:Popen", "os:system", "evil:make", "numpy:save"])
def test_a_cloud_cannot_have_code_carried_out_without_a_yes(host, facts, tmp_path, monkeypatch, model):
    """A module in the folder where the leaf server was started is imported after a yes alone."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text(CODE)
    config = {**facts["config"], "train.model": model}
    answer = host.answer(Packet(orders.BEGIN, {**facts, "config": config}), no_note)
    assert answer.kind == orders.FAILED
    assert "Python's own" in answer.facts["words"] or "--trust-code" in answer.facts["words"]
    assert not (tmp_path / "carried-out").exists()


def files_in(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_cloud_that_lies_writes_nothing_outside_the_folder(host, facts, tmp_path, caplog):
    """Names of runs, versions and models that are paths: one line each, and no file but the leaf server's."""
    host.answer(Packet(orders.BEGIN, facts), no_note)
    before = {path: data for path, data in files_in(tmp_path).items() if "leaf-1" not in path.parts}
    model = host._run[1].site.model
    states, kept = host._run[1].site.make_leaf(model).round_states()
    train = {
        "run": "a run", "global_round": 1, "leaf_round": 1, "line": "leaf", "fork": False, "without": [],
        "leaf": kept, "version": 0, "needed": [], "updates": False, "alone": True, "dispersion": False,
    }  # fmt: skip
    for changes in ({"version": "../../x"}, {"leaf_round": "../../x"}, {"needed": ["../small"]}):
        answer = host.answer(Packet(orders.TRAIN, {**train, **changes}, {"model": model, **states}), no_note)
        assert answer.kind == orders.FAILED
        assert answer.facts["words"].startswith("invalid order: ")
    for name in ("../controls/1", "../../../small.npz", "/etc/passwd", "x\0y", "."):
        facts_ = {"known": {"own": [orders.HERE, name]}, "unseen": {}, "phase": "", "splits": ["val"]}
        order = Packet(orders.EVALUATE, {**facts_, "run": "a run", "global_round": 1})
        assert host.answer(order, no_note).kind == orders.FAILED
    host.answer(Packet(orders.BEGIN, {**facts, "run": "../../../outside"}), no_note)
    after = {path: data for path, data in files_in(tmp_path).items() if "leaf-1" not in path.parts}
    assert after == before


@pytest.mark.parametrize("word", ["\x1b[2J", "a\nb"])
def test_what_a_cloud_says_reaches_no_log_as_it_is(host, facts, caplog, word):
    for packet in (
        Packet(word, {}), Packet(orders.BEGIN, {**facts, "run": word}), Packet(orders.BEGIN, {word: 1}),
        Packet(orders.BEGIN, {**facts, "config": {word: 1}}), Packet(orders.TRAIN, {"run": word}),
    ):  # fmt: skip
        host.welcome(Packet("welcome", {word: word}))
        said = host.answer(packet, no_note).facts.get("words", "")
        assert said.isprintable()
    assert all(record.getMessage().isprintable() for record in caplog.records)
    assert not any(record.exc_info for record in caplog.records)
