"""A misspelt or misplaced name in a user's class is refused; helpers are not."""

import inspect
import sys
import types

import numpy as np
import pytest
import torch

from fedge.algorithm.algorithm import Algorithm
from fedge.algorithm.client import Client, Place
from fedge.algorithm.configured import algorithm_of
from fedge.algorithm.leaf_part import LeafContributions, LeafPart
from fedge.clustering.cloud_part import CloudPart
from fedge.clustering.registry import method_named
from fedge.compression.compressor import Compressor
from fedge.config.registers.groupings import GROUPINGS
from fedge.config.registers.hooks import TIERS, refuse_misspelt, refuse_misspelt_marks
from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import ALGORITHMS, refuse_callback_without_methods
from fedge.config.sections.cluster import ClusterConfig
from fedge.config.sections.train import TrainConfig
from fedge.tasks.task import Task
from fedge.training.settings import LocalTraining

HOOKS = {Algorithm: {"train", "start", "models", "unseen"}, LeafPart: {"start", "send", "combine"},
         CloudPart: {"ask", "group"}}  # fmt: skip


def derived(base, *names, **given):
    """A class with methods of these names that do nothing."""
    return type("Mine", (base,), {**{name: lambda self, *_: None for name in names}, **given})


def slips(name):
    """A letter left out, doubled, exchanged with the next or in upper case."""
    middle = len(name) // 2
    return {
        name[:-1], name + "s", name[:middle] + name[middle] + name[middle:], name.capitalize(),
        name[: middle - 1] + name[middle] + name[middle - 1] + name[middle + 1 :],
    } - {name}  # fmt: skip


@pytest.mark.parametrize(
    ("base", "hook", "slip"),
    [(base, hook, slip) for base, hooks in HOOKS.items() for hook in sorted(hooks)
     for slip in sorted(slips(hook)) if hook != "ask"],
)  # fmt: skip
def test_every_slip_in_a_name_is_refused(base, hook, slip):
    """Also beside other methods, of which one may be enough for the class to pass."""
    others = HOOKS[base] - {hook}
    with pytest.raises(
        ConfigError, match=f"^x has a method {slip}, which nothing calls; did you mean {hook}"
    ):
        refuse_misspelt(derived(base, slip, *others), base, "x")


@pytest.mark.parametrize("base", HOOKS)
def test_a_class_without_any_method_of_fedges_is_refused_for_its_own(base):
    with pytest.raises(ConfigError, match="aggregate, which nothing calls; did you mean one of"):
        refuse_misspelt(derived(base, "aggregate"), base, "x")
    refuse_misspelt(derived(base), base, "x")


@pytest.mark.parametrize("base", HOOKS)
def test_helpers_and_other_attributes_are_none(base):
    first, *_ = hooks = sorted(HOOKS[base])

    def calls(self, *_):
        return [self.trains(n) for n in self.models_of()]

    helpers = derived(base, "trains", "models_of", "_model", "distance", **{first: calls}, starts=3)
    refuse_misspelt(helpers, base, "x")
    refuse_misspelt(derived(helpers, *hooks), base, "x")


def test_a_run_refuses_them_in_each_of_its_parts():
    leaf = derived(LeafPart, "aggregate")
    named = {
        ALGORITHMS.given(derived(Algorithm, "train", "model"), 2): "a method model",
        ALGORITHMS.given(derived(Algorithm, "train", leaf=leaf), 3): "leaf of .* has a method aggregate",
    }
    for name, words in named.items():
        with pytest.raises(ConfigError, match=words):
            algorithm_of(TrainConfig(algorithm=name))
        ALGORITHMS.forget(name)
    name = GROUPINGS.given(derived(CloudPart, "group", "asks"), 2)
    with pytest.raises(ConfigError, match="a method asks"):
        method_named(ClusterConfig(method=name))
    GROUPINGS.forget(name)


def public(base):
    """The names that Fedge reads in a class, its methods and its attributes, without class methods."""
    given = {name: value for name, value in vars(base).items() if not name.startswith("_")}
    return {name for name, value in given.items() if not isinstance(value, classmethod)}


def test_the_names_of_each_tier_are_those_of_its_class():
    """`start` has all tiers but the cloud; every other name belongs to one."""
    assert {base.__name__: public(base) - {"start"} for base in HOOKS} == dict(TIERS)


ATTRIBUTES = [
    (base, name)
    for base in (*HOOKS, Compressor, Task)
    for name in sorted(public(base))
    if not inspect.isroutine(vars(base)[name])
]


@pytest.mark.parametrize(("base", "name"), ATTRIBUTES)
def test_every_slip_in_an_attribute_is_refused(base, name):
    for slip in slips(name) - public(base):
        with pytest.raises(ConfigError, match=f"^x has an attribute {slip}, which nothing reads"):
            refuse_misspelt(derived(base, *HOOKS.get(base, ()), **{slip: 3}), base, "x")


@pytest.mark.parametrize(
    ("base", "name"),
    [(base, name) for base in HOOKS for tier in HOOKS for name in sorted(TIERS[tier.__name__])
     if tier is not base],
)  # fmt: skip
def test_a_name_of_another_tier_is_refused(base, name):
    """Such as `combine` beside `train`: nothing would call it, and the leaf would take the mean."""
    for value in (lambda self, *_: None, 3):
        with pytest.raises(ConfigError, match=f"x has .* {name}, which nothing"):
            refuse_misspelt(derived(base, *HOOKS[base], **{name: value}), base, "x")


@pytest.mark.parametrize("part", [LeafPart, CloudPart])
@pytest.mark.parametrize("name", ["cloud", "leaf_part", "Server"])
def test_a_part_that_nothing_uses_is_refused(part, name):
    code = derived(Algorithm, "train", **{name: derived(part)})
    with pytest.raises(ConfigError, match=f"x has an attribute {name}, a {part.__name__}, which nothing"):
        refuse_misspelt(code, Algorithm, "x")


@pytest.mark.parametrize(
    ("base", "taken"), [(Algorithm, "client"), (LeafPart, "leaf"), (LeafPart, "memory"), (CloudPart, "cloud")]
)
def test_a_method_that_takes_what_hooks_take_is_refused_unless_the_class_may_call_it(base, taken):
    method, names = eval(f"lambda self, {taken}: None"), HOOKS[base]
    with pytest.raises(ConfigError, match=rf"x has a method evaluate\({taken}\), which nothing calls"):
        refuse_misspelt(derived(base, *names, evaluate=method), base, "x")

    def finds(self, *_):
        return getattr(self, "evaluate")  # noqa: B009  as a method that looks it up by a text

    refuse_misspelt(derived(base, *names, evaluate=method, _find=finds), base, "x")


def test_a_method_that_its_module_calls_is_a_helper():
    """As a function beside the class does, to which a run's callback or a script hands it."""
    space = {"__name__": "my_helpers", "Algorithm": Algorithm}
    text = "class Mine(Algorithm):\n    def personal_score(self, client):\n        return 1\n"
    module = types.ModuleType("my_helpers")
    exec(text, space)
    module.__dict__.update(space)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "my_helpers", module)
        with pytest.raises(ConfigError, match=r"a method personal_score\(client\), which nothing calls"):
            refuse_misspelt(derived(module.Mine, *HOOKS[Algorithm]), Algorithm, "x")
        exec("def best(mine, clients):\n    return max(map(mine.personal_score, clients))\n", module.__dict__)
        refuse_misspelt(derived(module.Mine, *HOOKS[Algorithm]), Algorithm, "x")


def test_a_part_given_in_an_object_is_refused():
    def begin(self):
        self.leaf = LeafPart

    name = ALGORITHMS.given(derived(Algorithm, "train", __init__=begin), 2)
    with pytest.raises(ConfigError, match="must name its leaf part in the class"):
        algorithm_of(TrainConfig(algorithm=name))
    ALGORITHMS.forget(name)


def test_one_class_may_be_the_part_of_two_tiers():
    code = type("Both", (Algorithm, CloudPart), {"train": lambda *_: None, "group": lambda *_: None})
    refuse_misspelt(code, Algorithm, "x")
    refuse_misspelt(code, CloudPart, "x")


@pytest.mark.parametrize("name", ["on_round_end", "after_round", "before_train"])
def test_hooks_of_other_libraries_are_refused_in_a_callback(name):
    code = type("Watch", (), {"end_round": lambda self, round_: None, name: lambda self, *_: None})
    for callback in (code, code()):
        with pytest.raises(ConfigError, match=f"callbacks x has a method {name}, which nothing calls"):
            refuse_callback_without_methods(callback, "x")


def test_a_slip_in_a_mark_of_a_function_is_refused():
    def group(evidence, config, before):
        return before

    group.by_times = True
    with pytest.raises(ConfigError, match=r"x has an attribute by_times, .* did you mean by_time"):
        refuse_misspelt_marks(group, ("needs", "by_time"), "x")
    group.by_time, group.source = True, "a paper"
    refuse_misspelt_marks(group, ("needs", "by_time"), "x")


def lent_objects():
    one = {"w": np.zeros((1, 1), np.float32)}
    network = torch.nn.Linear(1, 1)
    x, y = torch.zeros(1, 1), torch.zeros(1, dtype=torch.long)
    yield Client(one, x, y, network, LocalTraining(), Place(0, (1, 0)), lambda *_: None)
    yield LeafContributions(one, one, {}, [], {}, ["w"], 1, 0.1)


@pytest.mark.parametrize("lent", [*lent_objects()], ids=lambda lent: type(lent).__name__)
def test_an_attribute_that_nothing_would_read_cannot_be_set(lent):
    """As `client.weight = 3` or `leaf.memmory = …`, which would change nothing, in silence."""
    with pytest.raises(AttributeError, match="has no weights that anything would read; keep values in"):
        lent.weights = 3.0
    with pytest.raises(AttributeError, match=r"has no memmory that .* did you mean memory\?"):
        lent.memmory = {}
    lent.memory = {"own": 1.0}
    lent._helper = 3
