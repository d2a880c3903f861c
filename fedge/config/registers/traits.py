"""Traits of parts: facts needed before a part's code is loaded."""

BATCH_NORM = "has BatchNorm"  # a model: state entries affected by noise or personal layers
IMAGES = "takes images"  # a model: its input may be (C, H, W)
WINDOWS = "takes windows"  # a model: its input may be (C, T)
POOLS = "pools by 2 twice"  # a model: its input needs a size of at least 4 along each axis except channels
ANY_SHAPE = "takes any shape"  # a model: its input may be (C,), or have more axes than an image
TRUTH = "needs the truth"  # a grouping: needs a scenario with planted groups
BY_TIME = "groups by time"  # a grouping: chooses its own rounds
NUMBERED = "needs a number"  # a grouping: cluster.count must be a number
TESTED = "can be tested"  # a grouping: cluster.count may be "auto"
BY_THRESHOLD_ONLY = "cuts at tau"  # a grouping: cluster.count must be "threshold"
NEVER_BY_THRESHOLD = "needs a count"  # a grouping: cluster.count must not be "threshold"
BY_SIGNAL = "compares by a signal"  # a grouping: compares by cluster.signal
OFFERS = (
    "offers its own models"  # a grouping: leaves take one of several cloud models, not their cluster's mean
)
APART = "leaves all apart"  # a grouping: every leaf is a cluster
PLANTED = "takes the planted groups"  # a grouping
BLIND = "compares no leaves"  # a grouping: no two leaves are compared
BY_SHARES = "shares by scores"  # a grouping: weights of models are shares of their scores
OWN_TEST = "has a test of its own"  # a signal: tested by cluster.count "auto"; recent rounds are pooled
FOUR_LEAVES = "needs four leaves"  # a signal
NO_MARGIN = "tests equality"  # a gate: gate.min-gain must be 0
AFTER_ROUND = "trains before it decides"  # a gate: an offer is trained for a round before the decision

ROUNDS = "works in rounds"  # a server's rule: synchronous; called once all children have arrived
MEAN = "takes the mean"  # a server's rule: mean of its children's models, weighted by windows
CLIENTS_ONLY = "is told losses"  # a leaf's rule: needs the training reports of single clients
PARTIAL = "takes partial work"  # a server's rule: an update from fewer steps is weighted by their share
NOISED = "bears noise"  # a server's rule: releases a sum to which noise can be added
AFRESH = "draws afresh"  # a selection of clients: uniform in every round
BLIND_TO_DATA = "sees no data"  # a selection of clients: independent of losses and windows
BY_LOSS = "goes by losses"  # a selection: devices' losses decide who trains next
TELLS_CLASSES = "is told classes"  # a server's rule: children report their class shares

UNBIASED = "is right in the mean"  # a code of updates: stochastic rounding
FEEDBACK = "keeps feedback"  # a code of updates: the sender adds the remainder to its next update

OWNERS = "deals owners"  # a partition: deals windows by user
WHOLE_USERS = "deals whole users"  # a partition: all windows of a user go to one client
FILES = "made of files"  # a scenario: one window file per group, with its own users
FIXED = "decides who has what"  # a scenario: determines clients' windows, so groups cannot change
TOPPED_UP = "topped up"  # a partition: a client without windows gets one from its leaf's largest client
BY_CLASS = "goes by class"  # a partition or scenario: each window must have one class
DRAWN = "drawn again"  # a partition: redrawn until every client has windows

GIVES_UP = "gives up"  # a callback: may stop a run early

PROXIMAL = "has a proximal term"  # a client's algorithm: train.prox-mu is added to its own

LABELS = "learns a class per example"  # a task: windows can be dealt, renamed and counted by class
NATIVE = "has a native step"  # a task: its loss is known outside PyTorch
SMOOTHS = "smooths labels"  # a task: its loss supports train.label-smoothing


def traits_of(*traits: str) -> frozenset[str]:
    """Traits in the form of `fedge.config.registers.register.Entry`."""
    return frozenset(traits)
