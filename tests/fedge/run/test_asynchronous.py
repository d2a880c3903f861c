"""Whole runs on the virtual clock, in process: rounds and asynchrony meet, what is left behind, resuming."""

import hashlib
import io
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from small_runs import small_config

from fedge import compare, simulate
from fedge.callbacks import Callback
from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import TRACKERS
from fedge.records.tables.device_tables import ARRIVALS, DEVICE_TABLES
from fedge.report.comparison.targets import device_costs_to
from fedge.report.sections.devices import staleness_panel
from fedge.run.asynchronous import owners_of, population, shared_windows, traced_devices

FLAT = {
    "hierarchy.num-servers": 1,
    "scaffold.enabled": False,
    "cluster.enabled": False,
    "gate.enabled": False,
}
EQUAL = {
    **FLAT, "asynchrony.rule": "fedbuff", "asynchrony.rule-args": '{"buffer": 9}',
    "asynchrony.concurrency": 9, "devices.preset": "equal", "asynchrony.evaluate-every-s": 1.0,
}  # fmt: skip
BUFFERED = {
    **FLAT, "asynchrony.rule": "fedbuff", "asynchrony.rule-args": '{"buffer": 3}',
    "asynchrony.concurrency": 6, "clients": 18, "devices.pieces": 2, "devices.dropout": 0.1,
    "asynchrony.evaluate-every-s": 0.5, "num-server-rounds": 4, "partition.unseen-clients": 2,
    "train.model": "mlp-tiny",
}  # fmt: skip


def digests(folder):
    """The sha256 of everything that a run has computed."""
    names = ["checkpoints/final.safetensors", "partition.csv"]
    names += [f"devices/{name}.csv" for name in ("versions", "devices", "jobs", "staleness")]
    names += ["metrics/leaf_rounds.csv", "metrics/confusion.json"]
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return small_config(tmp_path_factory.mktemp("clock"))


@pytest.fixture(scope="module")
def buffered(base):
    return simulate({**base, **BUFFERED, "run-name": "buffered", "report": True}, workers=1)


@pytest.mark.parametrize("model", ["linear", "mlp-tiny"])
def test_without_delays_it_is_the_round_engine_bit_for_bit(base, model):
    """K = C = all, equal times, equal windows: models, and accuracy client by client, are those of FedAvg."""
    on_clock, in_rounds = (
        simulate({**base, **config, "train.model": model, "run-name": f"{name}-{model}"}, workers=2)
        for name, config in (("clock", EQUAL), ("rounds", FLAT))
    )
    assert on_clock.status == in_rounds.status == "completed"
    final = "checkpoints/final.safetensors"
    assert (on_clock.folder / final).read_bytes() == (in_rounds.folder / final).read_bytes()
    for column in ("test_accuracy", "test_loss", "train_loss", "macro_f1"):
        assert on_clock.clients[column].to_list() == in_rounds.clients[column].to_list()
    for column in ("uplink_bytes", "downlink_bytes"):
        assert on_clock.rounds[column][0] <= in_rounds.rounds[column][0]


def test_without_delays_leaves_and_cloud_are_the_round_engine_bit_for_bit(base):
    """The same over three leaves, whose cloud waits for all of them: hierarchical averaging."""
    leaves = {"hierarchy.num-servers": 3}
    clock = {
        "asynchrony.rule-args": '{"buffer": 3}', "asynchrony.cloud-rule": "fedavg",
        "asynchrony.cloud-delay-s": 0.0,
    }  # fmt: skip
    on_clock, in_rounds = (
        simulate({**base, **config, **leaves, "run-name": f"{name}-leaves"}, workers=2)
        for name, config in (("clock", {**EQUAL, **clock}), ("rounds", FLAT))
    )
    final = "checkpoints/final.safetensors"
    assert (on_clock.folder / final).read_bytes() == (in_rounds.folder / final).read_bytes()
    assert on_clock.clients["test_accuracy"].to_list() == in_rounds.clients["test_accuracy"].to_list()
    assert on_clock.versions["cloud_uplink_bytes"][-1] == in_rounds.rounds["cloud_uplink_bytes"].sum()


@pytest.mark.slow
def test_any_number_of_workers_gives_the_same_files(base, buffered):
    """Four here; two are those of `test_it_goes_on_where_it_was`."""
    again = simulate({**base, **BUFFERED, "run-name": "workers"}, workers=4)
    assert digests(again.folder) == digests(buffered.folder)


REVIVED = (
    '{"buffer": 2, "freeze": 2, "warmup": 4, "s_max": 3, "teachers": 3, "steps": 2, "every": 3, '
    '"server_s": 0.01}'
)


@pytest.mark.slow
def test_fedrevive_gives_the_same_files_and_says_what_devices_give_away(base):
    config = {
        **base, **BUFFERED, "asynchrony.rule": "fedrevive", "asynchrony.rule-args": REVIVED,
        "num-server-rounds": 2,
    }  # fmt: skip
    one, four = (simulate({**config, "run-name": f"revived-{n}"}, workers=n) for n in (1, 4))
    assert digests(one.folder) == digests(four.folder)
    assert one.versions["server_busy"][-1] > 0
    assert any("knows the client's class shares" in line for line in one.manifest["remarks"])
    control = {"asynchrony.rule-args": REVIVED.replace("}", ', "distil": false}').replace("0.01", "0.0")}
    other = simulate({**config, **control, "run-name": "control"}, workers=2)
    assert digests(other.folder)["devices/versions.csv"] != digests(one.folder)["devices/versions.csv"]
    assert other.versions["server_busy"][-1] == 0


def test_a_deadline_that_nobody_meets_ends_it_before_anybody_trains(base):
    rounds = {"asynchrony.rule": "fedavg", "asynchrony.rule-args": "", "asynchrony.deadline-s": 1e-6}
    run = simulate({**base, **BUFFERED, **rounds, "run-name": "vain"})
    assert run.status == "failed"
    assert "must leave the quickest device time for a job" in run.reason
    assert len(run.versions) == 0


def test_a_run_says_what_to_expect_and_what_would_have_helped(base):
    terminal = io.StringIO()
    slow = {"devices.preset": "equal", "devices.preset-args": '{"seconds": 5.0}', "num-server-rounds": 1}
    run = simulate({**base, **BUFFERED, **slow, "run-name": "slow"}, terminal=terminal)
    assert "a global round every 0.5; jobs: about 1" in terminal.getvalue()
    assert any("still the initial one after 0.5 virtual s" in line for line in run.manifest["remarks"])


@pytest.mark.slow
def test_groups_of_leaves_are_served_models_of_their_own(base):
    leaves = {"hierarchy.num-servers": 2, "partition.unseen-clients": 1, "asynchrony.groups": "0,1"}
    run = simulate({**base, **BUFFERED, **leaves, "run-name": "groups"}, workers=2)
    assert run.status == "completed"
    assert run.leaves.filter(run.leaves["global_round"] == 4)["cluster"].to_list() == [0, 1]
    windows = np.random.default_rng(0).normal(size=(3, 2, 16)).astype(np.float32)
    first, second = (run.predict(windows, client=client) for client in (0, 17))
    assert not np.array_equal(first.probabilities, second.probabilities)


def test_what_a_run_leaves_behind(buffered):
    assert not (buffered.folder / ARRIVALS.path).exists()  # which only real arrivals leave
    for table in (table for table in DEVICE_TABLES if table is not ARRIVALS):
        first = (buffered.folder / table.path).read_text().splitlines()[0]
        assert first == ",".join(table.names)
    assert buffered.status == "completed"
    assert buffered.manifest["limits"]["workers"] == 1
    versions, devices = buffered.versions, buffered.devices
    assert versions["evaluation"].to_list() == [1, 2, 3, 4]
    assert versions["virtual_s"].to_list() == [0.5, 1.0, 1.5, 2.0]
    assert versions["updates"].is_sorted()
    assert versions["unseen_accuracy"].null_count() == 0
    assert versions["uplink_bytes"][-1] == buffered.rounds["uplink_bytes"].sum()
    assert devices["device"].to_list() == list(range(16))
    assert devices["updates"].sum() == versions["updates"][-1] == buffered.staleness["arrivals"].sum()
    assert devices["contribution"].sum() == pytest.approx(1)
    assert (devices["busy_s"] + devices["idle_s"]).to_list() == pytest.approx([2.0] * 16)
    assert set(buffered.jobs["device"]) <= {0, 2, 4, 6, 8, 10, 12, 14}
    assert buffered.jobs["ended_s"].is_sorted()
    assert buffered.rounds["unseen_accuracy_mean"].to_list() == versions["unseen_accuracy"].to_list()
    assert "devices/versions.csv" in buffered.manifest["outputs"]


def test_its_report_has_a_section_on_devices(buffered):
    html = (buffered.folder / "report.html").read_text()
    assert "<h2" in html
    for words in (
        "Flat federated learning (fedbuff on a virtual clock)", "Accuracy over virtual time",
        "Accuracy over bytes", "Accuracy over updates",
        "When devices were at work", "Staleness", "who contributed", "Limited by",
        "<dt>Virtual time</dt><dd>2.0 s</dd>", "Versions over virtual time", "There is a single leaf",
    ):  # fmt: skip
        assert words in html
    assert html.index('id="devices"') < html.index('id="accuracy-and-loss"')
    assert html.count('type="radio"') == 3
    assert "<dt>Gate</dt>" not in html
    assert "There was no cloud step yet" not in html


def test_trackers_get_the_numbers_of_the_clock(base, buffered):
    """As its callbacks are told: each row of versions.csv under devices/…"""
    told = []

    class Tracker:
        def log(self, rounds):
            told.extend(rounds)

        def finish(self, status, exit_code):
            pass

    name = TRACKERS.given(lambda run: Tracker())
    try:
        simulate({**base, **BUFFERED, "run-name": "tracked", "tracker": name})
    finally:
        TRACKERS.forget(name)
    assert len(told) == 4
    for (_, numbers), row in zip(told, buffered.versions.iter_rows(named=True), strict=True):
        for column in ("virtual_s", "version", "updates", "mean_staleness", "at_work"):
            assert numbers[f"devices/{column}"] == row[column]


@pytest.mark.slow
def test_two_levels_say_what_came_of_each(base):
    """Leaves' versions, and staleness at the cloud, stand on the page; nobody says that it did nothing."""
    leaves = {"hierarchy.num-servers": 2, "partition.unseen-clients": 1, "report": True}
    run = simulate({**base, **BUFFERED, **leaves, "run-name": "levels"}, workers=2)
    html, last = (run.folder / "report.html").read_text(), run.versions.row(-1, named=True)
    made = f"The cloud made {last['version']} versions of what 2 leaves sent, all in one model"
    assert last["version"] > 1
    assert made in html
    assert f"of the cloud; {last['leaf_versions']} of leaves" in html
    assert f"at the cloud {last['cloud_staleness']:.2f}" in html


@pytest.mark.slow
def test_runs_are_compared_by_virtual_time(base, buffered, tmp_path):
    """To an accuracy that both have at their first evaluation, and to one that none ever has."""
    rounds = {"asynchrony.rule": "fedavg", "asynchrony.rule-args": "", "asynchrony.over-selection": 1.2}
    other = simulate({**base, **BUFFERED, **rounds, "run-name": "in-rounds"})
    table = compare([buffered, other], page=tmp_path / "compare.html")
    found = table.filter(table["metric"].str.starts_with("virtual seconds to"))
    assert set(found["group"]) == {"buffered", "in-rounds"}
    assert set(found["mean"].drop_nulls()) <= {0.5, 1.0, 1.5, 2.0}
    assert "over virtual seconds" in (tmp_path / "compare.html").read_text()
    off_clock = simulate({**base, **FLAT, "num-server-rounds": 2, "run-name": "plain"})
    table = compare([buffered, other, off_clock], page=tmp_path / "mixed.html")
    page = (tmp_path / "mixed.html").read_text()
    assert "over virtual seconds" in page
    assert "plain is not on the virtual clock" in page
    read, _ = device_costs_to("test_accuracy_mean", 0.0).values()
    assert (read(buffered), read(other)) == (0.5, 0.5)
    read, _ = device_costs_to("test_accuracy_mean", 1.1).values()
    assert read(buffered) is None


@pytest.mark.slow
def test_it_goes_on_where_it_was(base, buffered):
    """With fewer evaluations, then more: the files are those of a run in one go."""
    config = {**base, **BUFFERED, "run-name": "longer"}
    short = simulate({**config, "num-server-rounds": 2}, workers=1)
    again = simulate({**config, "run-name": "", "resume": str(short.folder)}, workers=2)
    assert again.status == "completed"
    assert digests(again.folder) == digests(buffered.folder)


class Told(Callback):
    """Notes what it is told, and ends the run after the second evaluation."""

    def __init__(self, stop_at=2):
        self.stop_at, self.calls = stop_at, []

    def begin_run(self, run):
        self.calls.append(f"begin_run {run.rounds_done}")

    def begin_round(self, round_):
        self.calls.append(f"begin_round {round_.global_round}")

    def end_leaf_round(self, leaf_round):
        self.calls.append("end_leaf_round")

    def end_round(self, round_):
        assert round_.on_clock["virtual_s"] == round_.global_round / 2
        assert round_.numbers["test_accuracy_mean"] == round_.on_clock["seen_accuracy"]
        self.calls.append(f"end_round {round_.global_round}")
        return "enough" if round_.global_round == self.stop_at else None

    def end_run(self, run):
        self.calls.append(f"end_run {run.status} {run.global_round} {run.reason}".strip())


@pytest.mark.slow
def test_callbacks_are_told_of_evaluations_and_end_the_run(base, buffered):
    """A global round is the time to an evaluation. It goes on without the callback as if nothing had been."""
    told = Told()
    config = {**base, **BUFFERED, "run-name": "ended"}
    ended = simulate(config, callbacks=[told], workers=2)
    assert told.calls == ["begin_run 0", "begin_round 1", "end_round 1", "begin_round 2", "end_round 2",
                          "end_run completed 2 enough"]  # fmt: skip
    assert ended.manifest["stopped"]["reason"] == "enough"
    assert len(ended.versions) == 2
    assert ended.devices["updates"].sum() == ended.versions["updates"][-1]
    again = simulate({**config, "run-name": "", "resume": str(ended.folder)}, workers=1)
    assert again.status == "completed"
    assert digests(again.folder) == digests(buffered.folder)


def test_early_stopping_and_budgets_go_by_evaluations(base, buffered):
    most = buffered.rounds["uplink_bytes"][0] + buffered.rounds["downlink_bytes"][0] + 1
    stops = {
        "callbacks": "byte-budget,early-stopping",
        "callbacks-args": f'{{"byte-budget": {{"most": {most}}}}}',
    }
    run = simulate({**base, **BUFFERED, **stops, "run-name": "budget"})
    assert len(run.versions) == 2
    assert run.manifest["stopped"]["by"] == "byte-budget"


def test_other_seeds_are_other_runs(base, buffered):
    other = simulate({**base, **BUFFERED, "seed": 4, "num-server-rounds": 1, "run-name": "seed"})
    assert len(other.jobs) > 0
    assert other.jobs["ended_s"].to_list() != buffered.jobs["ended_s"].to_list()[: len(other.jobs)]


@pytest.mark.slow
def test_a_rule_of_ones_own(base):
    def newest(model, memory, arrival, share=0.5):
        memory.arrays["arrivals"] = memory.arrays.get("arrivals", np.zeros(1)) + 1
        return (1 - share) * model.astype(np.float64) + share * arrival.end

    from fedge.config.registers.parts import SERVER_RULES

    name = SERVER_RULES.given(newest)
    try:
        config = {**base, **BUFFERED, "asynchrony.rule": name, "asynchrony.rule-args": '{"share": 0.25}'}
        run = simulate({**config, "run-name": "own"})
    finally:
        SERVER_RULES.forget(name)
    assert run.status == "completed"
    assert run.versions["version"][-1] == run.versions["updates"][-1] > 0
    assert run.manifest["parts"]["asynchrony.rule"]["name"] == name


def test_its_model_can_be_used_and_says_whom_it_serves(buffered):
    """Every client is served one model."""
    served = buffered.opened_models().card.served
    assert sorted(client for leaf in served.values() for client in leaf.clients) == list(range(18))
    found = [buffered.predict(np.ones((3, 2, 16), np.float32), client=client) for client in (0, 17)]
    assert np.array_equal(found[0].probabilities, found[1].probabilities)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"scaffold.enabled": True}, "needs scaffold.enabled=false, because control variates"),
        ({"gate.enabled": True}, "needs gate.enabled=false"),
        (
            {"scaffold.enabled": True, "gate.enabled": True, "guard.min-clients": 2},
            r"needs scaffold\.enabled=false, gate\.enabled=false, guard\.min-clients=1, because .* "
            r"add -c 'scaffold\.enabled=false gate\.enabled=false guard\.min-clients=1'",
        ),
        ({"personal.leaf-rounds": 1}, "needs personal.leaf-rounds=0"),
        ({"privacy.kind": "server-adaptive", "train.model": "linear"}, 'needs rounds.*"server-fixed"'),
        (
            {"privacy.kind": "client-fixed", "train.model": "linear", "asynchrony.rule": "ca2fl"},
            r"releases sums to which noise can be added \(fedbuff\), but it is ca2fl",
        ),
        (
            {"privacy.kind": "local", "train.model": "linear", "asynchrony.rule": "fedrevive"},
            "another asynchrony.rule than fedrevive, which learns the shares of classes",
        ),
        ({"asynchrony.concurrency": 17}, "gives leaf 0 work for 17 and it has 16"),
        ({"asynchrony.rule-args": '{"bufer": 3}'}, "did you mean buffer"),
        ({"asynchrony.rule-args": '{"buffer": 0}'}, "buffer of a rule"),
        ({"asynchrony.rule": "fedbuf"}, "did you mean fedbuff"),
        ({"devices.preset": "trace", "devices.preset-args": '{"path": "none.csv"}'}, "No such file"),
        ({"clients": 8, "asynchrony.concurrency": 2}, "leaves 6 for 7 users"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(base, changes, words):
    with pytest.raises(ConfigError, match=words):
        simulate({**base, **BUFFERED, **changes})


def test_a_client_that_fails_makes_the_run_partial(base, buffered, monkeypatch):
    from fedge import client_app

    train = client_app.train

    def failing(model, x, y, *args, **kwargs):
        if len(y) == failing.windows:
            raise RuntimeError("broken device")
        return train(model, x, y, *args, **kwargs)

    failing.windows = buffered.devices.filter(buffered.devices["updates"] > 0)["train_samples"][0]
    monkeypatch.setattr(client_app, "train", failing)
    run = simulate({**base, **BUFFERED, "run-name": "partial", "guard.retries": 0})
    assert run.status == "partial"
    assert run.devices["failed"].sum() > 0
    assert any("broken device" in line for line in run.manifest["remarks"])


def test_who_is_there():
    parts = [(np.arange(3), np.arange(0), np.arange(2)), (np.arange(5), np.arange(0), np.arange(1))]
    dealt = SimpleNamespace(clients=parts, unseen_clients=frozenset({1}), scenario=None)
    who = population(dealt, [1, 1])
    assert (who.leaf_of, who.windows, who.leaves, who.truth) == ({0: 0, 1: 1}, {0: 3}, 2, None)


def test_whose_device_a_client_is():
    windows = SimpleNamespace(user=np.array(["b", "a", "c"]))
    nothing = np.arange(0)
    clients = [
        (np.array([2]), nothing, nothing),
        (nothing, nothing, np.array([0])),
        (np.array([1]), nothing, nothing),
    ]
    deal = SimpleNamespace(windows=windows, partition=SimpleNamespace(clients=clients))
    assert owners_of(deal).tolist() == [2, 1, 0]


def test_a_fleet_that_holds_windows_more_than_once_says_so():
    """Devices of windows {0, 1}, {1, 2} and an unseen one: four are held, three differ."""

    def deal(*trains):
        clients = [(np.array(train, np.int64), np.arange(0), np.arange(0)) for train in trains]
        return SimpleNamespace(partition=SimpleNamespace(clients=clients))

    found = shared_windows(deal([0, 1], [1, 2], []))
    assert found.startswith("devices share training windows: they hold 4 in total, of which 3 differ")
    assert "1.3 times" in found
    assert shared_windows(deal([0, 1], [2, 3], [])) is None


@pytest.mark.slow
def test_a_run_says_that_its_devices_share_windows(base):
    run = simulate({**base, **BUFFERED, "devices.least-windows": 40, "run-name": "shared"})
    assert any("devices share training windows" in line for line in run.manifest["remarks"])


def test_the_histogram_of_staleness_has_ticks_at_whole_versions(base):
    """Few updates, all of staleness 0: half versions would have ticks."""
    run = simulate({**base, **BUFFERED, "asynchrony.end-updates": 3, "run-name": "stale"})
    (axes,) = staleness_panel(run).figure.axes
    assert len(run.staleness) <= 4
    assert all(tick == int(tick) for tick in axes.get_xticks())


def test_traced_devices():
    assert traced_devices([3, 4, 5], 8) == {3, 4, 5}
    assert traced_devices([3, 4, 5], 0) == frozenset()
    assert json.dumps(sorted(traced_devices(range(100), 4))) == "[0, 25, 50, 75]"


def test_a_replaced_configuration_is_checked():
    from fedge.config.sections.devices import AsynchronyConfig

    with pytest.raises(ConfigError, match="over-selection must be at least"):
        replace(AsynchronyConfig(), over_selection=0.5)
