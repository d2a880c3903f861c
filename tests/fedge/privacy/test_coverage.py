"""Privacy of a run, as it reports it."""

from dataclasses import fields

import pytest

from fedge.clustering.registry import NEEDS, method_named, sent_quantities
from fedge.config.flat import from_run_config
from fedge.config.registers import groupings, parts
from fedge.config.registers.groupings import GROUPINGS
from fedge.config.registers.option import ConfigError
from fedge.config.registers.register import Register
from fedge.config.sections.cluster import ClusterConfig
from fedge.exchange.leaving import quantities
from fedge.privacy import coverage
from fedge.privacy.coverage import DECISIONS, Decision, SentQuantities, protection_of, refuse
from fedge.privacy.marks import ARRAYS_BESIDE, LOSSES, MODELS, SINGLE_MODELS, Mark, Quantity

LEAVES = SentQuantities(quantities())


def not_covered(config, leaves=LEAVES):
    return coverage.unprotected_quantities(config, leaves)


def at_start(config, library):
    return coverage.at_start(config, library, LEAVES)


def at_end(config, epsilon, releases):
    return coverage.spent_privacy_line(config, epsilon, releases, LEAVES)


CLOSED = {
    "privacy.kind": "server-fixed", "scaffold.enabled": False, "train.model": "linear",
    "data.normalize": False, "gate.enabled": False, "cluster.enabled": False,
}  # fmt: skip


def config(**changes):
    return from_run_config({**CLOSED, **changes})


def test_little_leaves_where_all_is_closed():
    weights, without_noise, left = not_covered(config())
    assert weights == "numbers of windows by which the cloud weighs leaves (hierarchy.num-servers)"
    assert without_noise == "who failed by which leaves keep their models without noise (guard.min-clients)"
    assert left.startswith("all else that clients tell: ")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"data.normalize": True}, "data.normalize"),
        ({"gate.enabled": True}, "gate.enabled"),
        ({"cluster.blend": "auto"}, "cluster.blend"),
        ({"personal.leaf-rounds": 1}, "personal.leaf-rounds"),
    ],
)
def test_each_leak_is_said_with_its_option(changes, said):
    told = not_covered(config(**changes))
    assert f"({said})" in told[0]
    assert told[-1].startswith("all else that clients tell: ")


@pytest.mark.parametrize("kind", ["server-fixed", "client-fixed", "local"])
@pytest.mark.parametrize("open_", [False, True])
def test_each_quantity_is_said_where_it_acts_or_at_the_end_never_twice(kind, open_):
    changes = {"data.normalize": True, "gate.enabled": True, "callbacks": "early-stopping"} if open_ else {}
    *acting, rest = not_covered(config(**{**changes, "privacy.kind": kind}))
    ways = {line.rpartition(" (")[0] for line in acting}
    named = {
        one.quantity.words
        for one in DECISIONS
        if " ".join(filter(None, (one.quantity.words, one.description))) in ways
    }
    assert len(named) >= (4 if open_ else 2)
    plain = [q.words for q in quantities() if q.mark(kind) is Mark.PLAIN and not q.refused]
    assert rest == f"all else that clients tell: {', '.join(q for q in plain if q not in named)}"


GROUPED = {"cluster.enabled": True, "cluster.method": "agglomerative", "cluster.count": "2"}


def test_what_clients_send_for_a_grouping_is_said_with_its_option():
    said = not_covered(config(**GROUPED), SentQuantities(grouping={"losses of anything": LOSSES}))
    assert "losses of anything, by which leaves are grouped (cluster.signal)" in said
    assert not any("grouped" in line for line in not_covered(config(**GROUPED)))


@pytest.mark.parametrize("name", list(GROUPINGS.names))
def test_a_method_that_asks_clients_for_something_is_said(name):
    """By needs and questions alone: methods that compare released models ask for nothing."""
    section = ClusterConfig.__new__(ClusterConfig)
    for field in fields(ClusterConfig):
        object.__setattr__(section, field.name, field.default)
    object.__setattr__(section, "method", name)
    method, sent = method_named(section), sent_quantities(section)
    of_needs = method.needs(section) & {"cross-losses", "pool", "updates", "description", "dispersion"}
    assert bool(sent) == bool(of_needs or method.ask)
    said = " ".join(not_covered(config(**GROUPED), SentQuantities(grouping=sent)))
    assert all(f"{what}, by which leaves are grouped" in said for what in sent)
    assert ("models that the method asks about" in said) == (method.ask is not None)


def test_spreads_of_client_models_are_noised_where_the_models_are():
    """A leaf works them out from its clients' models before it adds its own noise."""
    leaves = SentQuantities(grouping=NEEDS["dispersion"].sent)
    assert any("lie apart, by which leaves" in line for line in not_covered(config(**GROUPED), leaves))
    local = not_covered(config(**{**GROUPED, "privacy.kind": "local"}), leaves)
    assert not any("lie apart" in line for line in local)


def test_a_method_of_a_user_is_asked_as_any_other():
    def own(evidence, config, before):
        return [0] * len(evidence.models)

    own.needs = {"description"}
    name = GROUPINGS.given(own)
    try:
        cluster = config(**{"cluster.enabled": True, "cluster.method": name}).cluster
        assert sent_quantities(cluster).keys() == {"class-wise means and deviations of features"}
    finally:
        GROUPINGS.forget(name)


def test_what_decides_by_plain_numbers_is_said():
    for groups in ({}, GROUPED):  # without groups the cloud averages all leaves
        assert any("(hierarchy.num-servers)" in line for line in not_covered(config(**groups)))
    assert any("(guard.min-clients)" in line for line in not_covered(config(**{"guard.min-clients": 2})))
    assert any("(callbacks)" in line for line in not_covered(config(callbacks="early-stopping")))
    local = {"privacy.kind": "local", "leaf.strategy": "qfedavg"}
    assert any("(leaf.strategy)" in line for line in not_covered(config(**local)))


DECIDED_UNDER = {
    "cluster.method": "grouping", "cluster.signal": "grouping", "gate.rule": "gate.enabled",
    "cloud.rule": "hierarchy.num-servers", "asynchrony.cloud-rule": "hierarchy.num-servers",
    "devices.duration": "asynchrony.rule",
}  # fmt: skip
REFUSED = {"hierarchy.selection"}  # tests/fedge/config/test_sampling.py
OF_NO_CLIENT = {
    "train.model", "train.task", "train.loss", "train.metrics", "train.augment", "train.optimizer",
    "train.schedule", "partition.kind", "scenario", "data.path", "devices.preset", "devices.availability",
    "uplink.clients", "uplink.servers", "hierarchy.participation", "tracker",
}  # fmt: skip
"""Registers of parts that are told nothing of clients, work at a client, or say what clients are."""


def test_every_register_of_parts_is_decided_by_something_that_is_said():
    """A new kind of part is looked at: what clients tell it, it decides by."""
    there = {
        each.option for module in (parts, groupings) for each in vars(module).values()
        if isinstance(each, Register)
    }  # fmt: skip
    said = {decision.option for decision in DECISIONS}
    assert set(DECIDED_UNDER.values()) - {"grouping"} <= said
    assert there == (said & there) | DECIDED_UNDER.keys() | REFUSED | OF_NO_CLIENT
    assert not said & (REFUSED | OF_NO_CLIENT)


@pytest.mark.parametrize("name", [*parts.ASSOCIATIONS.names[1:], "mine:stand"])
def test_who_stands_where_by_classes_is_said(name):
    said = "numbers of windows of each class by which clients are assigned to leaves (hierarchy.association)"
    assert said in not_covered(config(**{"hierarchy.association": name}))


def test_regions_weigh_what_is_below_them_where_the_cloud_groups_nothing():
    deep = not_covered(config(**{"hierarchy.tree": "2x2x2"}))
    assert "numbers of windows by which regions weigh those below them (hierarchy.tree)" in deep


def test_moves_and_rules_of_a_user_that_are_told_windows_are_said():
    def is_said(option, **changes):
        return any(
            f"({option})" in line for line in not_covered(config(**{"privacy.kind": "local", **changes}))
        )

    assert is_said("hierarchy.mobility", **{"hierarchy.mobility": "mine:move"})
    assert not is_said("hierarchy.mobility", **{"hierarchy.mobility": "markov"})
    clock = {"asynchrony.rule": "fedbuff", "asynchrony.cloud-rule": "mine:rule"}
    assert is_said("hierarchy.num-servers", **clock)


def test_who_failed_on_the_clock_is_said_unless_it_counts_as_an_update_of_zero():
    words = "who failed by which servers wait for others (asynchrony.rule)"
    for kind, is_said in (("local", True), ("server-fixed", False), ("client-fixed", False)):
        said = not_covered(config(**{"privacy.kind": kind, "asynchrony.rule": "fedbuff"}))
        assert (words in said) == is_said


def test_single_updates_that_clients_have_noised_themselves_are_not_said():
    """Under local privacy; the losses that come with them are."""
    section = config(**{**GROUPED, "cluster.signal": "update"}).cluster
    leaves = SentQuantities(quantities(), {"updates of single clients": SINGLE_MODELS, "losses": LOSSES})
    assert section.enabled
    central = not_covered(config(**GROUPED), leaves)
    local = not_covered(config(**{**GROUPED, "privacy.kind": "local"}), leaves)
    assert any(line.startswith("updates of single clients") for line in central)
    assert not any(line.startswith("updates of single clients") for line in local)
    assert any(line.startswith("losses, by which leaves are grouped") for line in local)


def test_a_quantity_that_is_made_up_is_listed_and_so_is_what_it_decides(monkeypatch):
    """A further quantity sent by clients is listed for every private run, without more ado."""
    mood = Quantity("moods of clients")
    recorded = not_covered(config(), SentQuantities([*quantities(), mood]))[-1]
    assert recorded.endswith(", moods of clients")
    decision = Decision(mood, "by which lessons are held", "a.mood", lambda config: True)
    monkeypatch.setattr(coverage, "DECISIONS", (*DECISIONS, decision))
    assert "moods of clients by which lessons are held (a.mood)" in not_covered(config())
    covered = Quantity("moods of clients", noised=frozenset({"server-fixed"}))
    assert "moods" not in str(not_covered(config(), SentQuantities([*quantities(), covered]))[-1])


def test_what_decides_by_a_plain_quantity_that_none_may_is_refused():
    private, what = config(), "train.algorithm mine:Method"
    refuse(private, what, {"arrays": MODELS})
    with pytest.raises(ConfigError, match=r"clips and noises the model alone, but .*Method also sends moods"):
        refuse(private, what, {"moods": ARRAYS_BESIDE})
    with pytest.raises(
        ConfigError, match=r"noise to the leaf's mean, but .* from single replies; use another"
    ):
        refuse(private, what, {"arrays": SINGLE_MODELS})
    refuse(config(**{"privacy.kind": "local"}), what, {"arrays": SINGLE_MODELS})
    refuse(config(**{"privacy.kind": "off"}), what, {"moods": ARRAYS_BESIDE})


def test_weights_that_a_method_chooses_are_said_where_they_weigh():
    own = {"train.algorithm": "fedprox"}
    local = not_covered(config(**{**own, "privacy.kind": "local"}))
    assert "weights that clients give themselves in leaves' means (train.algorithm)" in local
    assert not any("(train.algorithm)" in line for line in not_covered(config(**own)))


def test_one_leaf_has_no_cloud_that_could_learn():
    alone = {"hierarchy.num-servers": 1, "gate.enabled": True, "cluster.blend": "auto"}
    told, open_ = not_covered(config(**alone)), not_covered(config())
    assert told[:-1] == open_[1:-1]
    assert "numbers of windows, " in told[-1]  # by which nobody weighs anything
    assert "numbers of windows, " not in open_[-1]


def test_what_is_said():
    start = at_start(config(), "dp-accounting 0.6.0")
    assert (
        start
        == f"privacy is {protection_of('server-fixed')}; not covered: {'; '.join(not_covered(config()))}"
    )
    assert protection_of("local").startswith("local: ")
    assert at_start(config(), None) == (
        f"{start}; epsilon will not be added up, because dp-accounting is not installed "
        "(pip install 'fedge[privacy]')"
    )
    assert at_end(config(), 3.14159, 8) == (
        f"privacy: epsilon 3.142 at delta 1e-05 was spent in 8 leaf rounds; {start}"
    )
    assert at_end(config(), None, 1).startswith(
        "privacy: epsilon of 1 leaf round was not added up, because dp-accounting is not installed "
        "(pip install 'fedge[privacy]'); "
    )
    quiet = config(**{"privacy.noise-multiplier": 0.0})
    assert at_end(quiet, None, 3) == at_start(quiet, None)
    assert "nothing is promised" in at_start(quiet, None)
