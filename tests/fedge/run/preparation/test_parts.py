"""Parts of the user's own: refused before a start where they do not fit; known again by their code."""

import sys
from contextlib import nullcontext

import numpy as np
import pytest

from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError
from fedge.data.prepared import DataShape
from fedge.run.preparation.parts import (
    changed_parts,
    described_parts,
    own_parts,
    refuse_last_batch_of_one,
    refuse_model_that_does_not_fit,
    refuse_parts_that_do_not_fit,
    refuse_rule_that_fails,
)
from hhar.windows.window_file import Windows

CODE = """
import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import FedAvg
import torch
from torch import nn

from fedge.callbacks import Callback

class Rule(FedAvg):
    def __init__(self, share=0.5, how="", **kwargs):
        super().__init__(**kwargs)
        self.how = how

    def aggregate_train(self, server_round, replies):
        arrays, metrics = super().aggregate_train(server_round, replies)
        if self.how == "raises":
            raise KeyError("train_metrics")
        if self.how == "nan":
            return ArrayRecord({n: Array(a.numpy() * float("nan")) for n, a in arrays.items()}), metrics
        if self.how == "other":
            return ArrayRecord({"other": Array(np.zeros(1))}), metrics
        return {"table": {}, "nothing": (None, None)}.get(self.how, (arrays, metrics))

class Watch:
    def end_round(self):
        return None

class Earlier(FedAvg):
    def aggregate_fit(self, server_round, results, failures):
        return None

class Silent(Callback):
    def on_round_end(self, round_): ...

class Misspelt(Callback):
    def begin_run(self, run): ...
    def end_rounds(self, round_): ...

class Told:
    @staticmethod
    def end_round(told): ...
    @classmethod
    def begin_round(cls, told): ...
    def end_run(self, *told): ...

class Net(nn.Module):
    def __init__(self, input_shape, classes, width=4):
        super().__init__()
        size = input_shape[0] * input_shape[1]
        first = nn.Linear(size, width) if width else nn.LazyLinear(3)
        self.layers = nn.Sequential(nn.Flatten(), first, nn.BatchNorm1d(width), nn.Linear(width, classes))
    def forward(self, x):
        return self.layers(x)

class Instances(nn.Module):
    def __init__(self, input_shape, classes):
        super().__init__()
        self.norm = nn.InstanceNorm1d(input_shape[0], track_running_stats=True)
        self.head = nn.Linear(input_shape[0] * input_shape[1], classes)
    def forward(self, x):
        return self.head(self.norm(x).flatten(1))

class Frozen(nn.Module):
    def __init__(self, input_shape, classes):
        super().__init__()
        self.base = nn.Linear(input_shape[0] * input_shape[1], 3).requires_grad_(False)
        self.head = nn.Linear(3, classes)
    def forward(self, x):
        return self.head(self.base(x.flatten(1)))

class Positions(nn.Module):
    def __init__(self, input_shape, classes, saved=True):
        super().__init__()
        self.register_buffer("table", torch.linspace(0, 1, input_shape[1]), persistent=saved)
        self.head = nn.Linear(input_shape[0] * input_shape[1], classes)
    def forward(self, x):
        return self.head((x + self.table).flatten(1))

def gate(pair, config, slack=0.0):
    return True

def losing(pair, config):
    return pair.loss_offered <= pair.loss_own

def unsure(pair, config):
    return None

def of_windows(pair, config):
    return pair.only_own < pair.only_offered

def of_scores(pair, config):
    return pair.merit_own <= pair.merit_offered

def function(evidence, config, before, size=2):
    return None
"""
NAMES = {"train.model": "my_parts:Net", "leaf.strategy": "my_parts:Rule", "scaffold.enabled": False}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Work in a folder with a module `my_parts`, as a user does."""
    (tmp_path / "my_parts.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("my_parts", None)


def windows(*shape):
    count = 8
    return Windows(
        np.zeros((count, *shape), np.float32), np.arange(count) % 2, np.array(["a", "b"] * 4), None, None,
        ("x", "y"), tuple(f"c{n}" for n in range(shape[0])),
    )  # fmt: skip


def test_own_parts_are_those_that_do_not_come_with_fedge():
    assert own_parts(from_run_config({})) == {}
    assert set(own_parts(from_run_config(NAMES))) == {"train.model", "leaf.strategy"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"leaf.strategy-args.share": 0.1}, ""),
        (
            {"leaf.strategy-args.shares": 0.1},
            "my_parts:Rule cannot be made: TypeError.*'shares'",
        ),
        (
            {"cluster.method": "phefl", "train.task": "regression", "train.model": "linear"},
            "cluster.method phefl weighs models by .* of train.task regression must .* but is RMSE;",
        ),
        ({"cluster.method": "phefl", "train.task": "multilabel", "train.model": "linear"}, ""),
        ({"leaf.strategy": "my_parts:Net"}, "leaf.strategy my_parts:Net cannot be made: TypeError"),
        ({"leaf.strategy": "my_parts:print"}, "my_parts has no print"),
        (
            {"leaf.strategy": "collections:Counter"},
            "must be a subclass of flwr.*Counter makes",
        ),
        ({"gate.rule": "my_parts:gate", "gate.rule-args.slack": 0.1}, ""),
        (
            {"gate.rule": "my_parts:gate", "gate.rule-args.slak": 0.1},
            "gate.rule my_parts:gate.*mean slack",
        ),
        (
            {"gate.rule": "my_parts:losing"},
            r"my_parts:losing failed: AttributeError: .*loss_offered.*my_parts\.py, line",
        ),
        ({"gate.rule": "my_parts:losing", "gate.enabled": False}, ""),
        ({"gate.rule": "my_parts:unsure"}, "must return True or False, but returned None"),
        ({"gate.rule": "my_parts:of_windows"}, ""),
        ({"gate.rule": "my_parts:of_scores"}, ""),
        ({"gate.rule": "my_parts:of_scores", "train.task": "multilabel"}, ""),
        ({"gate.rule": "my_parts:of_windows", "train.task": "multilabel"}, "my_parts:of_windows failed"),
        ({"gate.rule-args.slak": 0.1}, "gate.rule published.*unexpected keyword argument 'slak'"),
        ({"cluster.method": "my_parts:function"}, ""),
        ({"cluster.signal": "my_parts:function"}, "must be given "),
        ({"scenario": "my_parts:gate"}, r"must take \(groups, channels, classes, rng\)"),
        ({"tracker": "nowhere:open_run"}, "tracker nowhere:open_run cannot be imported"),
        ({"callbacks": "my_parts:Watch"}, r"must take one argument in end_round.*end_round\(self\) does not"),
        ({"callbacks": "my_parts:Told"}, ""),
        ({"callbacks": "my_parts:Silent"}, "must have one of .*, but .*Silent.* has none; derive it from"),
        (
            {"callbacks": "my_parts:Misspelt"},
            "method end_rounds, which is never called; did you mean end_round?",
        ),
        ({"leaf.strategy": "my_parts:Earlier"}, "a method aggregate_fit, .* write it as aggregate_train"),
        ({"data.path-args.users": 3}, "data.path-args must be empty for data.path auto"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_starts(changes, message):
    config = from_run_config({**NAMES, **changes})
    if not message:
        refuse_parts_that_do_not_fit(config)
        return
    with pytest.raises(ConfigError, match=message) as caught:
        refuse_parts_that_do_not_fit(config)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "shape", "message"),
    [
        ({}, (2, 8), ""),
        ({"train.model-args.width": 0}, (2, 8), "is lazy"),
        ({"train.model-args.depth": 3}, (2, 8), "cannot be made for .*unexpected keyword argument 'depth'"),
        ({}, (2, 8, 8), "cannot take inputs of shape"),
        ({"privacy.kind": "local"}, (2, 8), "without running variances.* has layers.2.running_var; use"),
        (
            {"privacy.kind": "server-fixed", "train.model": "my_parts:Instances"},
            (2, 8),
            "without running variances.* has norm.running_var; use",
        ),
        (
            {"privacy.kind": "local", "train.model": "my_parts:Frozen"},
            (2, 8),
            "but base.weight of train.model my_parts:Frozen is frozen .*set train.exchange=",
        ),
        (
            {"privacy.kind": "client-fixed", "train.model": "my_parts:Frozen"},
            (2, 8),
            "adds noise to all entries that are sent, but base.weight",
        ),
        (
            {"privacy.kind": "server-fixed", "train.model": "my_parts:Positions"},
            (2, 8),
            "but table of train.model my_parts:Positions is a constant buffer .*persistent=False",
        ),
        (
            {
                "privacy.kind": "server-fixed",
                "privacy.noise-multiplier": 0.0,
                "train.model": "my_parts:Positions",
            },
            (2, 8),
            "",
        ),
        (
            {
                "privacy.kind": "server-fixed",
                "train.model": "my_parts:Positions",
                "train.model-args.saved": False,
            },
            (2, 8),
            "",
        ),
        (
            {
                "privacy.kind": "server-fixed",
                "train.model": "my_parts:Frozen",
                "train.exchange": "trainable",
            },
            (2, 8),
            "",
        ),
        ({"train.model": "my_parts:Frozen"}, (2, 8), ""),
        ({"personal.layers": "both"}, (2, 8), ""),
        ({"train.model": "linear", "personal.layers": "head"}, (2, 8, 8), ""),
        (
            {"train.model": "cnn"},
            (2, 8, 8),
            r"of shape \(2, 8, 8\), but cnn does not; use linear or cnn2d",
        ),
        ({"train.model": "cnn2d"}, (2, 8), "but cnn2d does not"),
        ({"train.model": "cnn2d", "train.model-args.width": 4}, (2, 8, 8), ""),
        (
            {"train.model": "cnn2d", "train.model-args.wdth": 4},
            (2, 8, 8),
            "unexpected keyword .*'wdth'",
        ),
    ],
)
def test_a_model_that_does_not_fit_the_data_is_refused(changes, shape, message):
    config = from_run_config({**NAMES, "leaf.strategy": "fedavg", **changes})
    if not message:
        refuse_model_that_does_not_fit(config, DataShape(shape, 2))
        return
    with pytest.raises(ConfigError, match=message) as caught:
        refuse_model_that_does_not_fit(config, DataShape(shape, 2))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("", ""),
        ("nothing", ""),
        ("raises", "KeyError: 'train_metrics' .*my_parts.py, line"),
        ("nan", "FloatingPointError: entry 'layers.1.weight' of what it makes of 2 replies is not finite"),
        ("other", "ValueError: Rule returned 'other', which is not an entry of the model"),
        ("table", "ValueError: aggregate_train of Rule must return a pair"),
    ],
)
def test_a_leaf_rule_that_cannot_combine_replies_is_refused(how, message):
    config = from_run_config({**NAMES, "leaf.strategy-args.how": how})
    if not message:
        refuse_rule_that_fails(config, DataShape((2, 8), 2), [3, 2])
        return
    with pytest.raises(ConfigError, match=f"^leaf.strategy my_parts:Rule failed: {message}") as caught:
        refuse_rule_that_fails(config, DataShape((2, 8), 2), [3, 2])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("rule", ["FedAvg", "FedMedian", "Krum", "FedAdam", "FedProx"])
def test_flowers_strategies_pass_the_trial_with_a_single_client(rule):
    config = from_run_config(
        {
            "leaf.strategy": f"flwr.serverapp.strategy:{rule}",
            "scaffold.enabled": False,
            "train.model": "linear",
        }
    )
    refuse_rule_that_fails(config, DataShape((2, 8), 2), [1])


def test_code_that_changed_is_said(here):
    config = from_run_config(NAMES)
    before = described_parts(config)
    assert set(before) == {"train.model", "leaf.strategy"}
    assert changed_parts(before, described_parts(config)) == []
    (here / "my_parts.py").write_text(CODE + "\n# better\n")
    assert changed_parts(before, described_parts(config)) == [
        f"the code of {option} {NAMES[option]} has changed since the run began"
        for option in ("train.model", "leaf.strategy")
    ]


@pytest.mark.parametrize(("gate", "words"), [("of_scores", ""), ("of_windows", "my_parts:of_windows failed")])
def test_a_gate_is_tried_with_the_users_own_task(here, gate, words):
    """Whether windows are right or wrong is known once the task is made."""
    task = "from fedge.tasks.regression import Regression\n\n\nclass Task(Regression): ...\n"
    (here / "my_parts.py").write_text(CODE + task)
    options = {"gate.rule": f"my_parts:{gate}", "train.task": "my_parts:Task", "train.model": "linear"}
    config = from_run_config({**options, "scaffold.enabled": False})
    refuse_parts_that_do_not_fit(config)
    shape = DataShape((2, 8), 1, y_dtype="float32")
    with pytest.raises(ConfigError, match=words) if words else nullcontext():
        refuse_model_that_does_not_fit(config, shape)


COMPARING = {
    "train.model": "mlp-tiny", "train.batch-size": 79, "cluster.signal": "affinity", "cluster.count": "auto",
    "cluster.method": "agglomerative", "cluster.patience": 2,
}  # fmt: skip
SIZES = [42, 210, 48, 156, 162, 198, 78, 258]  # compared on 80 windows: a batch of 79, and one more


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "client 1 trains on 80 for comparing leaves"),
        ({"asynchrony.rule": "fedbuff", "gate.enabled": False, "scaffold.enabled": False}, "trains on 80"),
        ({"hierarchy.tree": "2x2x2", "cluster.tiers": "1", "train.batch-size": 50}, "client 1 trains on 51"),
        ({"hierarchy.tree": "2x2x2", "cluster.tiers": "1", "train.batch-size": 89}, "client 4 trains on 90"),
        ({"hierarchy.tree": "2x2x2", "cluster.tiers": "1"}, ""),
        ({"train.batch-size": 78}, ""),
        ({"cluster.enabled": False}, ""),
        ({"cluster.signal": "weights", "cluster.count": "threshold"}, ""),
        ({"train.model": "cnn"}, ""),
    ],
)
def test_a_last_batch_of_one_window_in_a_comparison_of_leaves_is_refused(options, words):
    """Clients of several sizes are compared on as many windows: most of them would fail there."""
    leaves = {} if "hierarchy.tree" in options else {"hierarchy.num-servers": 4}
    config = from_run_config({**COMPARING, **leaves, **options})
    trained = dict(enumerate(SIZES))
    with pytest.raises(ConfigError, match=words) if words else nullcontext():
        refuse_last_batch_of_one(config, DataShape((3, 8), 4), trained, [2, 2, 2, 2])
