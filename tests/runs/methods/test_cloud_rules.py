"""The cloud's rule in whole runs: resumed exactly, given as an object, refused where it cannot be."""

import copy
import io
import zlib

import numpy as np
import pytest
from flower_runs import comparable, flwr_run
from flwr.serverapp.strategy import FedAvg, FedAvgM
from small_runs import small_config

from fedge import simulate
from fedge.config.registers.option import ConfigError
from fedge.states.records import to_record

pytestmark = pytest.mark.whole_runs


def config_of(folder, **changes):
    return small_config(
        folder, scaffold__enabled=False, train__model="mlp-tiny", hierarchy__num_servers=3,
        gate__enabled=False, **changes,
    )  # fmt: skip


def carried_out(config, name, **parts):
    done = simulate({**config, "run-name": name}, terminal=io.StringIO(), **parts)
    assert done.status == "completed", done.reason
    return done


def model_of(done):
    return next(iter(done.models()))


@pytest.mark.parametrize("rule", ["fedavgm", "fedadam"])
def test_a_rule_with_a_state_goes_on_exactly(rule, tmp_path):
    """Two rounds and then two more are four in one go, by one group and by several."""
    for name, tau in (("one", -1.0), ("several", 0.99)):
        config = config_of(
            tmp_path, cloud__rule=rule, num_server_rounds=4, cluster__tau=tau, checkpoint__every=1
        )
        whole = carried_out(config, f"{name}-whole")
        begun = carried_out({**config, "num-server-rounds": 2}, f"{name}-begun")
        again = simulate({**config, "resume": str(begun.folder), "run-name": ""}, terminal=io.StringIO())
        assert again.status == "completed", again.reason
        assert comparable(again.folder) == comparable(whole.folder)


class Slows(FedAvg):
    """A user's: less of every round, by an array changed in place, a list and the record made before."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.kept, self.past, self.before = np.ones(2), [], None

    def aggregate_train(self, server_round, replies):
        made, metrics = super().aggregate_train(server_round, replies)
        self.kept *= 0.9
        self.past.append(len(self.past) / 10)
        old = made if self.before is None else self.before
        share = self.kept[0] / (1 + sum(self.past))
        pairs = {name: (array.numpy(), old[name].numpy()) for name, array in made.items()}
        self.before = to_record({n: (o + share * (a - o)).astype(a.dtype) for n, (a, o) in pairs.items()})
        return self.before, metrics


class Draws(Slows):
    """A user's, with a generator that no checkpoint holds."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.rng = np.random.default_rng(0)

    def aggregate_train(self, server_round, replies):
        self.rng.random()
        return super().aggregate_train(server_round, replies)


@pytest.mark.parametrize("place", ["rule", "cloud_rule"])
def test_a_rule_of_a_user_goes_on_exactly(place, tmp_path):
    config = config_of(tmp_path, num_server_rounds=4, checkpoint__every=1, cluster__enabled=False)
    whole = carried_out(config, "whole", **{place: Slows})
    begun = carried_out({**config, "num-server-rounds": 2}, "begun", **{place: Slows})
    resumed = {**config, "resume": str(begun.folder), "run-name": ""}
    again = simulate(resumed, terminal=io.StringIO(), **{place: Slows})
    assert again.status == "completed", again.reason
    assert comparable(again.folder) == comparable(whole.folder)


def entries(models):
    return {name: a * 0.5 for name, a in models.items()}


def vector(models):
    return np.concatenate([a.ravel() for a in models.values()])


FORMS = {
    "a table from nothing": (None, lambda v, m: entries(m)),
    "a table from an empty one": ({}, lambda v, m: entries(m)),
    "a vector": (None, lambda v, m: vector(m)),
    "a list of entries": ([], lambda v, m: list(m.values())),
    "lists and tables of numbers": ([], lambda v, m: [*v, {"n": len(v), "ends": [0.5, None]}]),
    "a number": (None, lambda v, m: (v or 0) + 1),
}
LOST = {
    "a table from a number": (0.0, lambda v, m: entries(m)),
    "a number from a flag": (False, lambda v, m: v + 1),
    "a growing window": (None, lambda v, m: vector(m)[None] if v is None else np.vstack([v, vector(m)])),
    "a list of vectors": ([], lambda v, m: [*v, vector(m)][-2:]),
    "pairs by number": ({}, lambda v, m: {**v, len(v): (1, 2)}),
}


class Remembers(FedAvg):
    """A user's, whose result depends on everything that it has kept."""

    form = ""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.kept = copy.copy((FORMS | LOST)[self.form][0])

    def aggregate_train(self, server_round, replies):
        made, metrics = super().aggregate_train(server_round, replies)
        models = {name: array.numpy() for name, array in made.items()}
        seen = zlib.crc32(repr(self.kept).encode()) / 2**40
        self.kept = (FORMS | LOST)[self.form][1](self.kept, models)
        return to_record({name: (a + seen).astype(a.dtype) for name, a in models.items()}), metrics


@pytest.mark.parametrize("place", ["rule", "cloud_rule"])
@pytest.mark.parametrize("form", [*FORMS, *LOST])
def test_a_rule_goes_on_exactly_or_is_refused_before_the_run(form, place, tmp_path, monkeypatch):
    """Whatever it keeps: no run ends with checkpoints from which none goes on."""
    monkeypatch.setattr(Remembers, "form", form)
    config = config_of(tmp_path, num_server_rounds=3, checkpoint__every=1, cluster__enabled=False)
    config["train.model"], parts = "linear", {place: Remembers}
    if form in LOST:
        with pytest.raises(ConfigError, match=r"Remembers must (remember|keep attributes) .*'kept\W"):
            carried_out(config, "whole", **parts)
        assert not (tmp_path / "runs").exists()
        return
    whole = carried_out(config, "whole", **parts)
    begun = carried_out({**config, "num-server-rounds": 1}, "begun", **parts)
    again = simulate({**config, "resume": str(begun.folder)}, terminal=io.StringIO(), **parts)
    assert again.status == "completed", again.reason
    assert comparable(again.folder) == comparable(whole.folder)


@pytest.mark.parametrize("place", ["rule", "cloud_rule"])
def test_a_rule_that_no_checkpoint_holds_is_refused(place, tmp_path):
    with pytest.raises(ConfigError, match=r"Draws must remember .* but 'rng'.* is of type Generator"):
        simulate(config_of(tmp_path), terminal=io.StringIO(), **{place: Draws})


def test_momentum_makes_another_model_and_the_mean_does_not(tmp_path):
    """Without momentum it is the mean up to rounding; an object is what it is by name."""
    base = config_of(tmp_path, num_server_rounds=3, cluster__enabled=False)
    mean = model_of(carried_out(base, "mean"))
    named = {**base, "cloud.rule": "fedavgm", "cloud.rule-args": '{"server_momentum": 0.9}'}
    moved = model_of(carried_out(named, "named"))
    given = model_of(carried_out(base, "given", cloud_rule=FedAvgM(server_momentum=0.9)))
    flat = model_of(
        carried_out({**base, "cloud.rule": "fedavgm", "cloud.rule-args.server-momentum": 0.0}, "flat")
    )
    assert any(not np.allclose(moved[name], mean[name], atol=1e-4) for name in mean)
    for name, array in mean.items():
        assert np.array_equal(given[name], moved[name])
        np.testing.assert_allclose(flat[name], array, atol=1e-5)


def test_a_strategy_given_as_an_object_is_one_of_each_leaf(tmp_path):
    """Momentum at three leaves by one object: as by name, and the object is as it was."""
    base = config_of(tmp_path, num_server_rounds=2)
    given = FedAvgM(server_momentum=0.5)
    by_object = carried_out(base, "object", rule=given)
    by_name = carried_out(
        {**base, "leaf.strategy": "fedavgm", "leaf.strategy-args.server-momentum": 0.5}, "name"
    )
    assert given.momentum_vector is None
    for one, other in zip(by_object.models(), by_name.models(), strict=True):
        assert all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    ("cloud", "changes", "words"),
    [
        ({"rule": "qfedavg"}, {}, r"^cloud\.rule must be one of"),
        ({"rule": "krum", "rule_args": '{"num_malicious_nodes": 1}'}, {}, "needs at least 5 models"),
        ({"rule": "fedavgm", "rule_args": '{"momentum": 1}'}, {}, "^cloud.rule fedavgm cannot be made"),
        ({"rule": "fedavgm"}, {"cluster__method": "ifca", "cluster__count": "2"}, "needs cloud.rule to be"),
        ({"rule": "fedavgm"}, {"asynchrony__rule": "fedasync", "cluster__enabled": False},
         'needs cloud.rule="fedavg"'),
        ({"rule": "fedavgm"}, {"scaffold__enabled": True, "scaffold__levels": 2}, "needs cloud.rule to be"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_one_line(cloud, changes, words, tmp_path):
    usual = {"scaffold__enabled": False, "gate__enabled": False}
    named = {f"cloud__{name}": value for name, value in cloud.items()}
    config = small_config(tmp_path, **{**usual, **named, **changes})
    with pytest.raises(ConfigError, match=words) as refused:
        simulate(config, terminal=io.StringIO())
    assert "\n" not in str(refused.value)


@pytest.mark.extended
def test_ray_gives_the_same_bits(tmp_path):
    """Adam at the cloud by Flower on Ray, and in process."""
    config = config_of(tmp_path, cloud__rule="fedadam", num_server_rounds=3)
    whole = carried_out(config, "whole")
    done = flwr_run(tmp_path, {**config, "run-name": "ray"}, seed="3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert comparable(tmp_path / "runs" / "ray") == comparable(whole.folder)
