"""Registers of signals for comparing leaves, methods for grouping them, and gates."""

from fedge.config.registers.methods import methods_of
from fedge.config.registers.option import option
from fedge.config.registers.register import Entry, Register
from fedge.config.registers.traits import (
    AFTER_ROUND,
    APART,
    BLIND,
    BY_SIGNAL,
    BY_THRESHOLD_ONLY,
    BY_TIME,
    FOUR_LEAVES,
    NEVER_BY_THRESHOLD,
    NO_MARGIN,
    NUMBERED,
    OFFERS,
    OWN_TEST,
    PLANTED,
    TESTED,
    TRUTH,
    traits_of,
)

_SIGNALS = "fedge.clustering.signals"
SIGNALS = Register(
    "cluster.signal",
    "fedge.signals",
    Entry(
        "weights",
        "absolute cosine of the last layers, as published",
        f"{_SIGNALS}:weights",
        told="the last layer's weights",
    ),
    Entry(
        "update",
        "cosine of the round's updates",
        f"{_SIGNALS}:update",
        told="the changes of all parameters in the round",
    ),
    Entry(
        "update-head",
        "the same of the last layers",
        f"{_SIGNALS}:update_head",
        told="the changes of the last layer's weights in the round",
    ),
    Entry(
        "cross-loss",
        "losses at each other's clients",
        f"{_SIGNALS}:cross_loss",
        told="losses at each other's clients",
    ),
    Entry(
        "cross-loss-rows",
        "correlation of two models' losses over all leaves",
        f"{_SIGNALS}:cross_loss_rows",
        told="patterns of losses at each other's clients",
    ),
    Entry(
        "affinity",
        "losses beyond the model's quality and the clients' difficulty",
        f"{_SIGNALS}:affinity",
        traits_of(FOUR_LEAVES, OWN_TEST),
        told="losses at each other's clients beyond what models and clients explain",
    ),
)

_LOSSES_ON = option(
    "val",
    "windows on which the cloud's models are evaluated; the authors take train",
    choices=("val", "train"),
)
_SPLIT_ROUND = option(5, "global round of the only grouping; one cluster before", minimum=1)
_METHODS, _BASELINES = "fedge.clustering.methods.hierarchical", "fedge.clustering.methods.baselines"
GROUPINGS = Register(
    "cluster.method",
    "fedge.groupings",
    Entry(
        "components",
        "join all leaves linked by similar pairs",
        f"{_METHODS}:components",
        traits_of(BY_THRESHOLD_ONLY, BY_SIGNAL),
        reads=("cluster.regroup-every", "cluster.tau"),
    ),
    Entry(
        "agglomerative",
        "join the two most alike, and again",
        f"{_METHODS}:agglomerative",
        traits_of(TESTED, BY_SIGNAL),
        reads=("cluster.regroup-every", "cluster.tau", "cluster.count"),
        arguments={
            "linkage": option(
                "average",
                "similarity of two clusters: of the mean or the worst pair",
                choices=("average", "complete"),
            )
        },
    ),
    Entry(
        "spectral",
        "cut where little similarity is lost",
        f"{_METHODS}:spectral",
        traits_of(TESTED, NEVER_BY_THRESHOLD, BY_SIGNAL),
        reads=("cluster.regroup-every", "cluster.count"),
    ),
    Entry(
        "alone",
        "every leaf for itself",
        f"{_BASELINES}:alone",
        traits_of(BLIND, APART),
        told="Every leaf is left alone",
    ),
    Entry(
        "ifca",
        "leaves choose among k models (Ghosh et al. 2020)",
        "fedge.clustering.methods.ifca:ifca",
        traits_of(NUMBERED, OFFERS, BLIND),
        reads=("cluster.count",),
        arguments={"losses_on": _LOSSES_ON},
        told="Every leaf takes the cloud's model with the lowest loss at its clients",
    ),
    Entry(
        "clove",
        "leaves with similar losses on k models are a cluster (Bhatia et al. 2025)",
        "fedge.clustering.methods.clove:clove",
        traits_of(NUMBERED, OFFERS, BLIND),
        reads=("cluster.count",),
        arguments={
            "losses_on": _LOSSES_ON,
            "unknown": option(False, "cluster.count is only the largest number of clusters"),
            "first": option(
                "random",
                "models of leaves before round 1: drawn, or already by losses",
                choices=("random", "losses"),
            ),
            "stable": option(
                0,
                "rounds without a change of models after which none changes; 0: never",
                minimum=0,
            ),
        },
        told="Leaves with similar losses on the cloud's models are one cluster, which takes one of them",
    ),
    Entry(
        "feddrift",
        "a leaf that gets worse gets its own model; equally good ones merge (Jothimurugesan et al. 2023)",
        "fedge.clustering.methods.feddrift:feddrift",
        traits_of(NUMBERED, OFFERS, BLIND),
        reads=("cluster.count",),
        arguments={
            "delta": option(0.1, "fall in accuracy (0..1) that is drift", minimum=0.0),
            "merge": option(0.0, "loss in accuracy up to which models merge; 0: delta", minimum=0.0),
            "isolation": option(1, "time steps that a drifted leaf trains alone", minimum=0),
            "step": option(1, "cloud steps in a time step", minimum=1),
        },
        told="A leaf whose accuracy falls gets a model of its own; models that do as well are merged",
    ),
    Entry(
        "stocfl",
        "all begin alone, similar clusters are joined (Zeng et al. 2023)",
        "fedge.clustering.methods.stocfl:stocfl",
        traits_of(BY_TIME),
        reads=("cluster.tau",),
        told="Every leaf begins alone; clusters with similar first updates become one",
    ),
    Entry(
        "flux",
        "group once, by features of windows in one model (Fenoglio et al. 2025)",
        "fedge.clustering.methods.flux:flux",
        traits_of(BY_TIME),
        arguments={
            "split_round": _SPLIT_ROUND,
            "scale": option(1.0, "factor on the radius within which leaves are one cluster", minimum=0.0),
        },
        told="Leaves are grouped once, by the features of their clients' windows in one model",
    ),
    Entry(
        "cfl",
        "split clusters by opposed updates (Sattler et al. 2020)",
        f"{_BASELINES}:cfl",
        traits_of(BY_TIME),
        arguments={
            "still_below": option(
                0.4,
                "a cluster may split if its mean update's norm is below this (eps1); see docs/baselines.md",
                minimum=0.0,
                words=("auto",),
            ),
            "pull_above": option(
                1.6,
                "and the largest norm of a leaf's update is above this (eps2)",
                minimum=0.0,
                words=("auto",),
            ),
        },
        told="A cluster is cut by the cosine of updates when its mean update is small and its largest is not",
    ),
    Entry(
        "flhc",
        "group once, bottom-up (Briggs et al. 2020)",
        f"{_BASELINES}:flhc",
        traits_of(BY_TIME),
        reads=("cluster.tau",),
        arguments={
            "split_round": _SPLIT_ROUND,
            "cut": option(
                "tau", "where joining ends: at cluster.tau or the widest gap", choices=("tau", "gap")
            ),
        },
        told="Leaves are grouped once, by the cosine of updates",
    ),
    Entry(
        "kmeans",
        "group once, by k-means",
        f"{_BASELINES}:kmeans",
        traits_of(BY_TIME, NUMBERED),
        reads=("cluster.count",),
        arguments={"split_round": _SPLIT_ROUND},
        told="Leaves are grouped once, by the distance of updates",
    ),
    Entry(
        "oracle",
        "the groups that a scenario has planted",
        f"{_BASELINES}:oracle",
        traits_of(TRUTH, BLIND, PLANTED),
        told="Leaves are in the planted groups",
    ),
    Entry(
        "random",
        "random groups of the planted sizes",
        f"{_BASELINES}:random",
        traits_of(TRUTH, BLIND),
        told="Leaves are in random groups of the planted ones' sizes",
    ),
    *methods_of("cloud", BY_TIME),
)

_GATES = "fedge.serving.gate"
GATES = Register(
    "gate.rule",
    "fedge.gates",
    Entry("published", "as accurate on validation data", f"{_GATES}:published"),
    Entry(
        "after-round", "as accurate after a round of training", f"{_GATES}:published", traits_of(AFTER_ROUND)
    ),
    Entry("one-standard-error", "not worse by more than that", f"{_GATES}:one_standard_error"),
    Entry(
        "paired",
        "not worse by McNemar's test",
        f"{_GATES}:not_significantly_worse",
        traits_of(NO_MARGIN),
        arguments={
            "level": option(0.05, "level of the test; smaller takes more offers", above=0.0, maximum=0.5)
        },
    ),
)
