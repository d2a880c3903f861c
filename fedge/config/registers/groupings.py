"""Registers of clustering: signals by which leaves are compared, methods that group them, gates at a leaf."""

from fedge.config.registers.methods import methods_of
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
    having,
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
        "cosine of what changed in the round",
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
        "whether models are bad at the same places",
        f"{_SIGNALS}:cross_loss_rows",
        told="patterns of losses at each other's clients",
    ),
    Entry(
        "affinity",
        "losses beyond what model and clients explain",
        f"{_SIGNALS}:affinity",
        having(FOUR_LEAVES, OWN_TEST),
        told="losses at each other's clients beyond what models and clients explain",
    ),
)

_METHODS, _BASELINES = "fedge.clustering.methods.hierarchical", "fedge.clustering.methods.baselines"
GROUPINGS = Register(
    "cluster.method",
    "fedge.groupings",
    Entry(
        "components",
        "join whoever is alike, and who is joined to them",
        f"{_METHODS}:components",
        having(BY_THRESHOLD_ONLY, BY_SIGNAL),
        reads=("cluster.regroup-every", "cluster.tau"),
    ),
    Entry(
        "agglomerative",
        "join the two most alike, and again",
        f"{_METHODS}:agglomerative",
        having(TESTED, BY_SIGNAL),
        reads=("cluster.regroup-every", "cluster.tau", "cluster.linkage", "cluster.count"),
    ),
    Entry(
        "spectral",
        "cut where little similarity is lost",
        f"{_METHODS}:spectral",
        having(TESTED, NEVER_BY_THRESHOLD, BY_SIGNAL),
        reads=("cluster.regroup-every", "cluster.count"),
    ),
    Entry(
        "alone",
        "every leaf for itself",
        f"{_BASELINES}:alone",
        having(BLIND, APART),
        told="Every leaf is left alone",
    ),
    Entry(
        "ifca",
        "leaves choose among k models (Ghosh et al. 2020)",
        "fedge.clustering.methods.ifca:ifca",
        having(NUMBERED, OFFERS, BLIND),
        reads=("cluster.count", "cluster.losses-on"),
        told="Every leaf takes that of the cloud's models with which its clients lose least",
    ),
    Entry(
        "clove",
        "leaves that lose alike on k models are one (Bhatia et al. 2025)",
        "fedge.clustering.methods.clove:clove",
        having(NUMBERED, OFFERS, BLIND),
        reads=("cluster.count", "cluster.losses-on"),
        told="Leaves that lose alike on the cloud's models are one cluster, which takes one of them",
    ),
    Entry(
        "feddrift",
        "who does worse gets an own model; as good models merge (Jothimurugesan et al. 2023)",
        "fedge.clustering.methods.feddrift:feddrift",
        having(NUMBERED, OFFERS, BLIND),
        reads=("cluster.count",),
        told="A leaf whose accuracy falls gets a model of its own; models that do as well are merged",
    ),
    Entry(
        "stocfl",
        "all begin alone, alike clusters are joined (Zeng et al. 2023)",
        "fedge.clustering.methods.stocfl:stocfl",
        having(BY_TIME),
        reads=("cluster.tau",),
        told="Every leaf begins alone; clusters with like first updates become one",
    ),
    Entry(
        "flux",
        "group once, by how windows look to one model (Fenoglio et al. 2025)",
        "fedge.clustering.methods.flux:flux",
        having(BY_TIME),
        reads=("cluster.split-round",),
        told="Leaves are grouped once, by how their clients' windows look to one model",
    ),
    Entry(
        "cfl",
        "cut in two what pulls apart (Sattler et al. 2020)",
        f"{_BASELINES}:cfl",
        having(BY_TIME),
        reads=("cluster.still-below", "cluster.pull-above"),
        told="A cluster is cut by the cosine of updates when its mean update is small and its largest is not",
    ),
    Entry(
        "flhc",
        "group once, bottom-up (Briggs et al. 2020)",
        f"{_BASELINES}:flhc",
        having(BY_TIME),
        reads=("cluster.tau", "cluster.split-round"),
        told="Leaves are grouped once, by the cosine of updates",
    ),
    Entry(
        "kmeans",
        "group once, by k-means",
        f"{_BASELINES}:kmeans",
        having(BY_TIME, NUMBERED),
        reads=("cluster.count", "cluster.split-round"),
        told="Leaves are grouped once, by the distance of updates",
    ),
    Entry(
        "oracle",
        "the groups that a scenario has planted",
        f"{_BASELINES}:oracle",
        having(TRUTH, BLIND, PLANTED),
        told="Leaves are in the planted groups",
    ),
    Entry(
        "random",
        "groups of their sizes, drawn",
        f"{_BASELINES}:random",
        having(TRUTH, BLIND),
        told="Leaves are in random groups of the planted ones' sizes",
    ),
    *methods_of("cloud", BY_TIME),
)

_GATES = "fedge.serving.gate"
GATES = Register(
    "gate.rule",
    "fedge.gates",
    Entry("published", "as accurate on validation data", f"{_GATES}:published"),
    Entry("after-round", "as accurate after a round of training", f"{_GATES}:published", having(AFTER_ROUND)),
    Entry("one-standard-error", "not worse by more than that", f"{_GATES}:one_standard_error"),
    Entry(
        "paired",
        "not worse by McNemar's test",
        f"{_GATES}:not_significantly_worse",
        having(NO_MARGIN),
        reads=("gate.level",),
    ),
)
