"""A misspelt method of a user's class is refused; helpers are not."""

import pytest

from fedge.algorithm.algorithm import Algorithm
from fedge.algorithm.leaf_part import LeafPart
from fedge.algorithm.making import algorithm_of
from fedge.clustering.cloud_part import CloudPart
from fedge.clustering.registry import method_named
from fedge.config.registers.groupings import GROUPINGS
from fedge.config.registers.hooks import refuse_misspelt
from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import ALGORITHMS
from fedge.config.sections.cluster import ClusterConfig
from fedge.config.sections.train import TrainConfig

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
