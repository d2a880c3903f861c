"""Traits of parts: facts that other options need before a part's code is loaded."""

BATCH_NORM = "has BatchNorm"  # a model: entries of its state affected by noise or a personal copy
IMAGES = "takes images"  # a model: its input may be (C, H, W)
WINDOWS = "takes windows"  # a model: its input may be (C, T)
POOLS = "pools by 2 twice"  # a model: its input must be of at least 4 along each axis but the channels
ANY_SHAPE = "takes any shape"  # a model: its input may be (C,), or have more axes than an image
TRUTH = "needs the truth"  # a grouping: works only where a scenario has planted groups
BY_TIME = "groups by time"  # a grouping: chooses its own rounds
NUMBERED = "needs a number"  # a grouping: cluster.count must be a number
TESTED = "can be tested"  # a grouping: cluster.count may be "auto"
BY_THRESHOLD_ONLY = "cuts at tau"  # a grouping: cluster.count must be "threshold"
NEVER_BY_THRESHOLD = "needs a count"  # a grouping: cluster.count must not be "threshold"
BY_SIGNAL = "compares by a signal"  # a grouping: compares by cluster.signal
OFFERS = (
    "offers its own models"  # a grouping: leaves take one of the cloud's models, not their cluster's mean
)
APART = "leaves all apart"  # a grouping: every leaf is a cluster
PLANTED = "takes the planted groups"  # a grouping
BLIND = "compares no leaves"  # a grouping: no two leaves are compared
BY_SHARES = "shares by scores"  # a grouping: weights of models are shares of their scores
OWN_TEST = "has a test of its own"  # a signal: tested by cluster.count "auto"; recent rounds are pooled
FOUR_LEAVES = "needs four leaves"  # a signal
NO_MARGIN = "tests equality"  # a gate: gate.min-gain must be 0
AFTER_ROUND = "trains before it decides"  # a gate: an offer is trained for a round first

ROUNDS = "works in rounds"  # a server's rule: children begin together, with a call when all have arrived
MEAN = "takes the mean"  # a rule of a server: its children's models, weighted by windows
CLIENTS_ONLY = "is told losses"  # a rule of a leaf: needs single clients' reports of their training
PARTIAL = "takes partial work"  # a server's rule: an update of a part of the steps counts by its share
NOISED = "bears noise"  # a server's rule: releases a sum to which noise can be added
AFRESH = "draws afresh"  # a selection of clients: each set of so many is as likely, in every round
BLIND_TO_DATA = "sees no data"  # a selection of clients: losses and windows decide nothing
BY_LOSS = "goes by losses"  # a selection: devices' losses decide on the next job
TELLS_CLASSES = "is told classes"  # a server's rule: children tell it the shares of their classes

UNBIASED = "is right in the mean"  # a code of updates: stochastic rounding
FEEDBACK = "keeps feedback"  # a code of updates: the sender adds the unsent remainder to the next

OWNERS = "deals owners"  # a partition: deals windows by their users
WHOLE_USERS = "deals whole users"  # a partition: all windows of a user go to one client
FILES = "made of files"  # a scenario: each group has the users of a window file of its own
FIXED = "decides who has what"  # a scenario: determines clients' windows, so no change within a run
TOPPED_UP = "topped up"  # a partition: a client without windows gets one of the largest of its leaf
BY_CLASS = "goes by class"  # a partition or scenario: each window must have one class
DRAWN = "drawn again"  # a partition: drawn anew while a client would be left without windows

GIVES_UP = "gives up"  # a callback: ends runs that are not worth the rounds left

LABELS = "learns a class per example"  # a task: windows can be dealt, renamed and counted by class
NATIVE = "has a native step"  # a task: its loss is known outside PyTorch
SMOOTHS = "smooths labels"  # a task: its loss knows train.label-smoothing


def having(*traits: str) -> frozenset[str]:
    """Traits as `fedge.config.registers.register.Entry` holds them."""
    return frozenset(traits)
