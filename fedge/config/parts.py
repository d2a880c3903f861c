"""The parts that come with Fedge, one register per option that names one.

To add a part: a file with its code, an entry here, a test. What other options must know of a part before its
code is loaded stands in its traits (`fedge.config.contradictions` and the sections read them).
"""

import difflib
import inspect
import sys
from pathlib import Path
from typing import Any

from fedge.config.option import ConfigError, arguments_of, shown
from fedge.config.register import Entry, Register

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# --- traits -------------------------------------------------------------------------------------------

BATCH_NORM = "has BatchNorm"  # a model: entries of its state that noise or an own copy concern
IMAGES = "takes images"  # a model: its input may be (C, H, W)
WINDOWS = "takes windows"  # a model: its input may be (C, T)
ANY_SHAPE = "takes any shape"  # a model: its input may be (C,), or have more axes than an image
TRUTH = "needs the truth"  # a grouping: works only where a scenario has planted groups
BY_TIME = "groups by time"  # a grouping: decides by itself in which rounds it groups
NUMBERED = "needs a number"  # a grouping: cluster.count must be a number
TESTED = "can be tested"  # a grouping: cluster.count may be "auto"
BY_THRESHOLD_ONLY = "cuts at tau"  # a grouping: cluster.count must be "threshold"
NEVER_BY_THRESHOLD = "needs a count"  # a grouping: cluster.count must not be "threshold"
BY_SIGNAL = "compares by a signal"  # a grouping: cluster.signal says what is compared
OFFERS = (
    "offers its own models"  # a grouping: leaves take one of the cloud's models, not their cluster's mean
)
BLIND = "compares no leaves"  # a grouping: no two leaves are compared
FOUR_LEAVES = "needs four leaves"  # a signal
AFTER_ROUND = "trains before it decides"  # a gate: an offer is trained for a round first

ROUNDS = "works in rounds"  # a server's rule: children begin together, and it is told when all is there
CLIENTS_ONLY = "is told losses"  # a rule of a leaf: it needs what single clients say of their training
PARTIAL = "takes partial work"  # a server's rule: an update of a part of the steps counts by its share
NOISED = "bears noise"  # a server's rule: what it releases is a sum to which noise can be added
BY_LOSS = "goes by losses"  # a selection: what devices lose decides who is given work
TELLS_CLASSES = "is told classes"  # a server's rule: children tell it the shares of their classes

OWNERS = "deals owners"  # a partition: who made the windows decides who gets them
FILES = "made of files"  # a scenario: each group has the users of a window file of its own
FIXED = "decides who has what"  # a scenario: it says which windows clients have, so it cannot change in a run
TOPPED_UP = "topped up"  # a partition: a client without windows gets one of the largest of its leaf
BY_CLASS = "goes by class"  # a partition or scenario: each window must have one class
DRAWN = "drawn again"  # a partition: drawn anew while a client would be left without windows


def _with(*traits: str) -> frozenset[str]:
    return frozenset(traits)


# --- registers ----------------------------------------------------------------------------------------

_NETS = "fedge.training.models"
MODELS = Register(
    "train.model",
    "fedge.models",
    Entry("cnn", "two Conv–BatchNorm–ReLU blocks, then a mean", f"{_NETS}:Cnn", _with(BATCH_NORM, WINDOWS)),
    Entry("cnn-pool", "two Conv–ReLU–MaxPool blocks, one hidden layer", f"{_NETS}:CnnPool", _with(WINDOWS)),
    Entry(
        "linear",
        "softmax regression on the flattened window or image",
        f"{_NETS}:SoftmaxRegression",
        _with(IMAGES, WINDOWS, ANY_SHAPE),
    ),
    Entry(
        "mlp-tiny", "a few hundred parameters, for trying out", f"{_NETS}:MlpTiny", _with(BATCH_NORM, WINDOWS)
    ),
    Entry("cnn2d", "for images: Conv–ReLU–MaxPool twice, one hidden layer", f"{_NETS}:Cnn2d", _with(IMAGES)),
)

LABELS = "learns a class per example"  # a task: windows can be dealt, renamed and counted by class
NATIVE = "has a native step"  # a task: its loss is known where it does not run in PyTorch
SMOOTHS = "smooths labels"  # a task: its loss knows train.label-smoothing

TASKS = Register(
    "train.task",
    "fedge.tasks",
    Entry(
        "classification", "a class per example: accuracy, macro-F1; cross entropy",
        "fedge.tasks.classification:Classification", _with(LABELS, NATIVE, SMOOTHS),
    ),
    Entry(
        "regression", "numbers per example: RMSE, MAE, R²; half the squared error",
        "fedge.tasks.regression:Regression",
    ),
    Entry(
        "multilabel", "any of the classes per example: F1, micro, macro, exact match; binary cross entropy",
        "fedge.tasks.multilabel:Multilabel",
    ),
    Entry(
        "sequence", "a class at every position: accuracy, perplexity; cross entropy",
        "fedge.tasks.sequence:Sequence", _with(SMOOTHS),
    ),
)  # fmt: skip

OF_THE_TASK = "auto"
LOSSES = Register("train.loss", "fedge.losses", Entry(OF_THE_TASK, "the task's own"))
METRICS = Register("train.metrics", "fedge.metrics")


def _methods(tier: str, *traits: str) -> list[Entry]:
    """The methods of `fedge.methods` with a part on a tier, "class" or "cloud"; it lists them itself."""
    file = Path(__file__).parents[1] / "methods" / "methods.toml"
    listed = tomllib.loads(file.read_text(encoding="utf-8"))
    return [
        Entry(name, method["doc"], method[tier], _with(*traits, *method.get("traits", ())))
        for name, method in listed.items()
        if tier in method
    ]


ALGORITHMS = Register("train.algorithm", "fedge.algorithms", *_methods("class"))

_FLWR = "flwr.serverapp.strategy"
RULES = Register(
    "leaf.strategy",
    "fedge.rules",
    Entry("fedavg", "mean weighted by windows (McMahan et al. 2017)", "fedge.leaf.rules:ExactFedAvg"),
    Entry("fedmedian", "median entry by entry (Yin et al. 2018)", f"{_FLWR}:FedMedian"),
    Entry("fedtrimmedavg", "mean without the extremes (Yin et al. 2018)", f"{_FLWR}:FedTrimmedAvg"),
    Entry("krum", "the model closest to the others (Blanchard et al. 2017)", f"{_FLWR}:Krum"),
    Entry(
        "multikrum", "mean of those closest (Blanchard et al. 2017)", "fedge.leaf.rules:SelectiveMultiKrum"
    ),
    Entry("bulyan", "trimmed mean of those closest (El Mhamdi et al. 2018)", f"{_FLWR}:Bulyan"),
    Entry("fedavgm", "server momentum (Hsu et al. 2019)", f"{_FLWR}:FedAvgM"),
    Entry("fedadagrad", "Adagrad at the server (Reddi et al. 2021)", f"{_FLWR}:FedAdagrad"),
    Entry("fedadam", "Adam at the server (Reddi et al. 2021)", f"{_FLWR}:FedAdam"),
    Entry("fedyogi", "Yogi at the server (Reddi et al. 2021)", f"{_FLWR}:FedYogi"),
    Entry(
        "qfedavg",
        "fair to clients with a high loss (Li et al. 2020)",
        f"{_FLWR}:QFedAvg",
        _with(CLIENTS_ONLY),
    ),
)

CLOUD = Register("cloud.rule", "fedge.rules", *[e for e in RULES if CLIENTS_ONLY not in e.traits])

_SIGNALS = "fedge.clustering.signals"
SIGNALS = Register(
    "cluster.signal",
    "fedge.signals",
    Entry("weights", "absolute cosine of the last layers, as published", f"{_SIGNALS}:weights"),
    Entry("update", "cosine of what changed in the round", f"{_SIGNALS}:update"),
    Entry("update-head", "the same of the last layers", f"{_SIGNALS}:update_head"),
    Entry("cross-loss", "losses at each other's clients", f"{_SIGNALS}:cross_loss"),
    Entry("cross-loss-rows", "whether models are bad at the same places", f"{_SIGNALS}:cross_loss_rows"),
    Entry(
        "affinity", "losses beyond what model and clients explain", f"{_SIGNALS}:affinity", _with(FOUR_LEAVES)
    ),
)

_METHODS, _BASELINES = "fedge.clustering.hierarchical", "fedge.clustering.baselines"
GROUPINGS = Register(
    "cluster.method", "fedge.groupings",
    Entry(
        "components", "join whoever is alike, and who is joined to them", f"{_METHODS}:components",
        _with(BY_THRESHOLD_ONLY, BY_SIGNAL),
    ),
    Entry(
        "agglomerative", "join the two most alike, and again", f"{_METHODS}:agglomerative",
        _with(TESTED, BY_SIGNAL),
    ),
    Entry(
        "spectral", "cut where little similarity is lost", f"{_METHODS}:spectral",
        _with(TESTED, NEVER_BY_THRESHOLD, BY_SIGNAL),
    ),
    Entry("alone", "every leaf for itself", f"{_BASELINES}:alone", _with(BLIND)),
    Entry(
        "ifca", "leaves choose among k models (Ghosh et al. 2020)", "fedge.clustering.ifca:ifca",
        _with(NUMBERED, OFFERS, BLIND),
    ),
    Entry(
        "clove", "leaves that lose alike on k models are one (Bhatia et al. 2025)",
        "fedge.clustering.clove:clove", _with(NUMBERED, OFFERS, BLIND),
    ),
    Entry(
        "feddrift", "who does worse gets an own model; as good models merge (Jothimurugesan et al. 2023)",
        "fedge.clustering.feddrift:feddrift", _with(NUMBERED, OFFERS, BLIND),
    ),
    Entry(
        "stocfl", "all begin alone, alike clusters are joined (Zeng et al. 2023)",
        "fedge.clustering.stocfl:stocfl", _with(BY_TIME),
    ),
    Entry(
        "flux", "group once, by how windows look to one model (Fenoglio et al. 2025)",
        "fedge.clustering.flux:flux", _with(BY_TIME),
    ),
    Entry("cfl", "cut in two what pulls apart (Sattler et al. 2020)", f"{_BASELINES}:cfl", _with(BY_TIME)),
    Entry("flhc", "group once, bottom-up (Briggs et al. 2020)", f"{_BASELINES}:flhc", _with(BY_TIME)),
    Entry("kmeans", "group once, by k-means", f"{_BASELINES}:kmeans", _with(BY_TIME, NUMBERED)),
    Entry("oracle", "the groups that a scenario has planted", f"{_BASELINES}:oracle", _with(TRUTH, BLIND)),
    Entry("random", "groups of their sizes, drawn", f"{_BASELINES}:random", _with(TRUTH, BLIND)),
    *_methods("cloud", BY_TIME),
)  # fmt: skip

_GATES = "fedge.serving.gate"
GATES = Register(
    "gate.rule",
    "fedge.gates",
    Entry("published", "as accurate on validation data", f"{_GATES}:published"),
    Entry("after-round", "as accurate after a round of training", f"{_GATES}:published", _with(AFTER_ROUND)),
    Entry("one-standard-error", "not worse by more than that", f"{_GATES}:one_standard_error"),
    Entry("paired", "not worse by McNemar's test", f"{_GATES}:not_significantly_worse"),
)

_OWNERS, _SHARES, _SKEW = "fedge.data.owners", "fedge.data.shares", "fedge.data.skew"
PARTITIONS = Register(
    "partition.kind",
    "fedge.partitions",
    Entry("user", "whole users", f"{_OWNERS}:users", _with(OWNERS)),
    Entry("device", "whole devices", f"{_OWNERS}:devices", _with(OWNERS)),
    Entry(
        "dirichlet",
        "windows, classes skewed over leaves and clients",
        f"{_SHARES}:dirichlet_shares",
        _with(DRAWN, BY_CLASS),
    ),
    Entry("iid", "windows, all alike", f"{_SHARES}:iid_shares"),
    Entry("imbalance", "windows, more of them at leaf 0", f"{_SHARES}:imbalanced_shares"),
    Entry("classes", "windows, of some classes at each client", f"{_SKEW}:class_shares", _with(BY_CLASS)),
    Entry("quantity", "windows, log-normal numbers of them", f"{_SKEW}:quantity_shares", _with(DRAWN)),
    Entry(
        "two-level",
        "as dirichlet, but small clients stay small: without windows of a split they get one",
        f"{_SHARES}:dirichlet_shares",
        _with(TOPPED_UP, BY_CLASS),
    ),
)

_SHIFTS = "fedge.data.scenario"
SCENARIOS = Register(
    "scenario",
    "fedge.scenarios",
    Entry("none", "no planted groups"),
    Entry("rotate", "sensors turned", f"{_SHIFTS}:rotate"),
    Entry("flip", "axes of sensors mirrored", f"{_SHIFTS}:flip"),
    Entry("gain", "channels scaled", f"{_SHIFTS}:gain"),
    Entry("rate", "windows of other length", f"{_SHIFTS}:rate"),
    Entry("label-permutation", "classes renamed", f"{_SHIFTS}:permute_labels", _with(BY_CLASS)),
    Entry("label-skew", "classes missing", f"{_SHIFTS}:skew_labels", _with(FIXED, BY_CLASS)),
    Entry(
        "datasets", "leaves of other window files", f"{_SHIFTS}:other_files", _with(FILES, FIXED, BY_CLASS)
    ),
)

DATASETS = Register(
    "data.path",
    "fedge.datasets",
    Entry("auto", "data/hhar-windows.npz if it is there, else synthetic"),
    Entry("synthetic", "made up in the form of HHAR", "hhar:synthetic_windows"),
    Entry("digits", "1,797 images of handwritten digits (scikit-learn's)", "fedge.data.digits:digits"),
)

_SERVERS = "fedge.devices.rules"
SERVER_RULES = Register(
    "asynchrony.rule",
    "fedge.server_rules",
    Entry("off", "global rounds in which all wait for each other"),
    Entry(
        "fedavg", "rounds on the virtual clock (McMahan et al. 2017)", f"{_SERVERS}:fedavg",
        _with(ROUNDS, PARTIAL),
    ),
    Entry("fedasync", "each arrival is mixed in (Xie et al. 2019)", f"{_SERVERS}:fedasync", _with(PARTIAL)),
    Entry(
        "fedbuff", "the mean of every K updates is added (Nguyen et al. 2022)", f"{_SERVERS}:fedbuff",
        _with(PARTIAL, NOISED),
    ),
    Entry("ca2fl", "FedBuff, corrected by last updates (Wang et al. 2024)", f"{_SERVERS}:ca2fl"),
    Entry("fedfa", "mean of the last K models (Xu et al. 2024)", f"{_SERVERS}:fedfa"),
    Entry(
        "fedrevive",
        "stale updates give way to distilled ones (Askin et al. 2025)",
        "fedge.devices.revive:fedrevive",
        _with(TELLS_CLASSES),
    ),
)  # fmt: skip

CLOUD_RULES = Register("asynchrony.cloud-rule", "fedge.server_rules", *list(SERVER_RULES)[1:])

_PRESETS = "fedge.devices.presets"
DEVICES = Register(
    "devices.preset",
    "fedge.devices",
    Entry("lognormal", "speeds and bandwidths are log-normal", f"{_PRESETS}:lognormal"),
    Entry(
        "half-normal", "durations are half-normal, as FedBuff's authors draw them", f"{_PRESETS}:half_normal"
    ),
    Entry("fedrevive", "the devices of FedRevive's experiments", f"{_PRESETS}:fedrevive"),
    Entry("hhar-phones", "four tiers: HHAR's phone models", f"{_PRESETS}:hhar_phones"),
    Entry("fedscale", "FedScale's formula, from its device capacities", f"{_PRESETS}:fedscale"),
    Entry("equal", "all alike, without chance", f"{_PRESETS}:equal"),
    Entry(
        "gaussian",
        "types of devices, each with means and deviations of its own",
        "fedge.devices.gaussian:gaussian",
    ),
    Entry("trace", "read from a CSV file", "fedge.devices.trace:trace"),
)

_TIMES = "fedge.devices.availability"
AVAILABILITY = Register(
    "devices.availability",
    "fedge.availability",
    Entry("always", "at any time", f"{_TIMES}:always"),
    Entry("diurnal", "a part of every day, each its own", f"{_TIMES}:diurnal"),
    Entry("markov", "for exponential times on and off", f"{_TIMES}:markov"),
    Entry("trace", "when a CSV file says", "fedge.devices.attendance:trace"),
)

OF_THE_PRESET = "preset"
DURATIONS = Register("devices.duration", "fedge.durations", Entry(OF_THE_PRESET, "as the preset says"))

_SELECTIONS = "fedge.devices.selection"
SELECTIONS = Register(
    "devices.selection",
    "fedge.selections",
    Entry("uniform", "each that is idle and there is as likely", f"{_SELECTIONS}:uniform"),
    Entry("balanced", "who has had the fewest jobs", f"{_SELECTIONS}:balanced"),
    Entry("without-reuse", "each a limited number of times", f"{_SELECTIONS}:without_reuse"),
    Entry(
        "oort",
        "who loses most and is quick, and now and then somebody new (Lai et al. 2021)",
        f"{_SELECTIONS}:oort",
        _with(BY_LOSS),
    ),
)

_TRACKERS = "fedge.trackers"
TRACKERS = Register(
    "tracker",
    "fedge.trackers",
    Entry("none", "the run folder alone"),
    Entry("tensorboard", "event files", f"{_TRACKERS}.to_tensorboard:open_run", package="tensorboard"),
    Entry("wandb", "Weights & Biases", f"{_TRACKERS}.to_wandb:open_run", package="wandb"),
    Entry("mlflow", "MLflow", f"{_TRACKERS}.to_mlflow:open_run", package="mlflow"),
)

_STOPPING = "fedge.callbacks.stopping"
CALLBACKS = Register(
    "callbacks",
    "fedge.callbacks",
    Entry("early-stopping", "nothing gets better any more", f"{_STOPPING}:EarlyStopping"),
    Entry("byte-budget", "so many bytes have passed", f"{_STOPPING}:ByteBudget"),
    Entry("time-budget", "so many seconds have passed", f"{_STOPPING}:TimeBudget"),
    Entry("budget", "a column of global_rounds.csv adds up to so much", f"{_STOPPING}:Budget"),
)


def names_in(text: str) -> tuple[str, ...]:
    """The names in a list of names, as options hold it: "early-stopping,my:Watch"."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


HOOKS = ("begin_run", "begin_round", "begin_leaf_round", "end_leaf_round", "end_round", "end_run")


def refuse_uncalled(callback: Any, name: str) -> None:
    """Raise ConfigError for an object, or a class of them, of which a run would call nothing."""
    if not any(hasattr(callback, hook) and not _is_empty(callback, hook) for hook in HOOKS):
        raise ConfigError(
            f"callbacks {name} must have one of {', '.join(HOOKS)}, but {shown(callback)} has none; derive "
            f"it from fedge.callbacks.Callback, and write one of them"
        )
    public = (word for word in dir(callback) if not word.startswith("_") and word not in HOOKS)
    for word in public:
        near = difflib.get_close_matches(word, HOOKS, n=1, cutoff=0.8)
        if near and callable(getattr(callback, word, None)):
            raise ConfigError(
                f"callbacks {name} has a method {word}, which nobody calls; did you mean {near[0]}?"
            )
    for hook in HOOKS:
        _refuse_other_call(callback, name, hook)


def _is_empty(callback: Any, hook: str) -> bool:
    """Whether a method is that of `fedge.callbacks.Callback`, which does nothing."""
    method = getattr(callback, hook)
    return getattr(method, "__module__", "") == "fedge.callbacks.callback"


def _refuse_other_call(callback: Any, name: str, hook: str) -> None:
    """Raise ConfigError for a method of a callback, or of a class of them, that does not take one thing."""
    method = getattr(callback, hook, None)
    is_unbound = inspect.isclass(callback) and inspect.isfunction(
        inspect.getattr_static(callback, hook, None)
    )
    try:
        signature = inspect.signature(method)  # type: ignore[arg-type]
    except (TypeError, ValueError):  # there is none, or it cannot be looked at
        return
    try:
        signature.bind(*[None] * (2 if is_unbound else 1))
    except TypeError as error:
        raise ConfigError(
            f"callbacks {name} must take in {hook} one thing, which it is told, but {hook}{signature} does "
            f"not: {error}; see docs/extend.md"
        ) from error


def callback_arguments(name: str, text: str) -> dict[str, Any]:
    """The keyword arguments of one callback in the table of all.

    ``{"early-stopping": {"min-delta": 0.01}}`` → ``{"min_delta": 0.01}``.

    Args:
        name: of the callback; its dots part tables, as in every key.
        text: the table, as JSON.

    Raises:
        ConfigError: there is something else in its place.
    """
    found: Any = arguments_of(text, f"{CALLBACKS.option}-args")
    for word in [name] if name in found else name.split("."):
        found = found.get(word, {}) if isinstance(found, dict) else found
    if not isinstance(found, dict):
        raise ConfigError(
            f"callbacks-args.{name} must be a table of keyword arguments, but is {shown(found)}; set for "
            f"example callbacks-args.early-stopping.patience=5"
        )
    return {key.replace("-", "_"): value for key, value in found.items()}


def refuse_input_shape(model: str, input_shape: tuple[int, ...]) -> None:
    """Raise ConfigError when a model of Fedge's does not take inputs of a shape: (C, T), (C, H, W), other."""
    kinds = {2: (WINDOWS, "windows (C, T)"), 3: (IMAGES, "images (C, H, W)")}
    trait, what = kinds.get(len(input_shape), (ANY_SHAPE, "inputs of any shape"))
    if not MODELS.is_own(model) and not MODELS.has(model, trait):
        raise ConfigError(
            f"train.model must take {what}, as the data are of shape {input_shape}, but {model} does not; "
            f"use {' or '.join(MODELS.having(trait))}"
        )


REGISTERS = (
    MODELS, ALGORITHMS, TASKS, LOSSES, METRICS, RULES, CLOUD, SIGNALS, GROUPINGS, GATES, PARTITIONS,
    SCENARIOS,
    DATASETS, TRACKERS, CALLBACKS, SERVER_RULES, CLOUD_RULES, DEVICES, AVAILABILITY, DURATIONS, SELECTIONS,
)  # fmt: skip
