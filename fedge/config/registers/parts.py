"""The parts of Fedge itself, one register per option for one.

To add a part: a file with its code, an entry here, a test. Facts needed before the part's code is loaded go
into its traits (read by `fedge.config.contradictions` and the sections).
"""

import difflib
import inspect
from typing import Any

from fedge.config.registers.groupings import GATES, GROUPINGS, SIGNALS
from fedge.config.registers.hooks import refuse_foreign_hooks
from fedge.config.registers.methods import methods_of
from fedge.config.registers.option import ConfigError, arguments_of, option, shown
from fedge.config.registers.register import Entry, Register
from fedge.config.registers.traits import (
    AFRESH,
    ANY_SHAPE,
    BATCH_NORM,
    BLIND_TO_DATA,
    BY_CLASS,
    BY_LOSS,
    CLIENTS_ONLY,
    DRAWN,
    FEEDBACK,
    FILES,
    FIXED,
    GIVES_UP,
    IMAGES,
    LABELS,
    MEAN,
    NATIVE,
    NOISED,
    OWNERS,
    PARTIAL,
    POOLS,
    ROUNDS,
    SMOOTHS,
    TELLS_CLASSES,
    TOPPED_UP,
    UNBIASED,
    WHOLE_USERS,
    WINDOWS,
    traits_of,
)

# --- registers ----------------------------------------------------------------------------------------

_NETS = "fedge.training.networks.models"
MODELS = Register(
    "train.model",
    "fedge.models",
    Entry(
        "cnn", "two Conv–BatchNorm–ReLU blocks, then a mean", f"{_NETS}:Cnn", traits_of(BATCH_NORM, WINDOWS)
    ),
    Entry(
        "cnn-pool",
        "two Conv–ReLU–MaxPool blocks, one hidden layer",
        f"{_NETS}:CnnPool",
        traits_of(WINDOWS, POOLS),
    ),
    Entry(
        "linear",
        "softmax regression on the flattened window or image",
        f"{_NETS}:SoftmaxRegression",
        traits_of(IMAGES, WINDOWS, ANY_SHAPE),
    ),
    Entry(
        "mlp-tiny",
        "a few hundred parameters, for trying out",
        f"{_NETS}:MlpTiny",
        traits_of(BATCH_NORM, WINDOWS),
    ),
    Entry(
        "cnn2d",
        "for images: Conv–ReLU–MaxPool twice, one hidden layer",
        f"{_NETS}:Cnn2d",
        traits_of(IMAGES, POOLS),
    ),
)


TASKS = Register(
    "train.task",
    "fedge.tasks",
    Entry(
        "classification",
        "a class per example: accuracy, macro-F1; cross entropy",
        "fedge.tasks.classification:Classification",
        traits_of(LABELS, NATIVE, SMOOTHS),
    ),
    Entry(
        "regression",
        "numbers per example: RMSE, MAE, R²; half the squared error",
        "fedge.tasks.regression:Regression",
    ),
    Entry(
        "multilabel",
        "any of the classes per example: F1, micro, macro, exact match; binary cross entropy",
        "fedge.tasks.multilabel:Multilabel",
    ),
    Entry(
        "sequence",
        "a class at every position: accuracy, perplexity; cross entropy",
        "fedge.tasks.sequence:Sequence",
        traits_of(SMOOTHS),
    ),
)

OF_THE_TASK = "auto"
LOSSES = Register("train.loss", "fedge.losses", Entry(OF_THE_TASK, "the task's own"))
METRICS = Register("train.metrics", "fedge.metrics")
_AUGMENT = "fedge.training.augmentation"
AUGMENTATIONS = Register(
    "train.augment",
    "fedge.augmentations",
    Entry("crop", "images shifted by up to pad pixels", f"{_AUGMENT}:crop"),
    Entry("flip", "half of the images mirrored left to right", f"{_AUGMENT}:flip"),
)


_OPTIMIZERS, _TORCH = "fedge.training.optimizers", "torch.optim"
SGD = "sgd"
OPTIMIZERS = Register(
    "train.optimizer",
    "fedge.optimizers",
    Entry(SGD, "heavy-ball SGD", f"{_OPTIMIZERS}:HeavyBall", reads=("train.momentum",)),
    Entry("adam", "Adam (Kingma and Ba 2015)", f"{_OPTIMIZERS}:Adam"),
    Entry("adamw", "Adam with decoupled weight decay (Loshchilov and Hutter 2019)", f"{_TORCH}:AdamW"),
    Entry("rmsprop", "steps by the root of a mean square (Tieleman and Hinton 2012)", f"{_TORCH}:RMSprop"),
    Entry("adagrad", "steps by the root of a sum of squares (Duchi et al. 2011)", f"{_TORCH}:Adagrad"),
)
_STEP_SIZES = "fedge.training.step_sizes"
_WARMUP = {"warmup": option(0, "rounds over which the factor rises in equal steps; 0: none", minimum=0)}
SCHEDULES = Register(
    "train.schedule",
    "fedge.schedules",
    Entry(
        "exponential",
        "train.lr-decay per round",
        f"{_STEP_SIZES}:exponential",
        reads=("train.lr-decay",),
        arguments=_WARMUP,
    ),
    Entry("constant", "the same in all rounds", f"{_STEP_SIZES}:constant", arguments=_WARMUP),
    Entry(
        "cosine",
        "half a cosine over a number of rounds",
        f"{_STEP_SIZES}:cosine",
        arguments={"last": option(0.01, "factor of the last round, and after it", minimum=0.0), **_WARMUP},
    ),
    Entry(
        "steps",
        "a factor at given rounds",
        f"{_STEP_SIZES}:steps",
        arguments={"factor": option(0.1, "factor at each of these rounds", above=0.0), **_WARMUP},
    ),
)

ALGORITHMS = Register("train.algorithm", "fedge.algorithms", *methods_of("class"))

_FLWR, _PUBLISHED = "flwr.serverapp.strategy", "fedge.leaf.strategies.published"
_QUORUM = "fedge.leaf.strategies.quorum"
_MALICIOUS = {"num_malicious_nodes": option(0, "models assumed malicious", minimum=0)}
_STEP = {
    "eta": option(0.01, "step size of the server", above=0.0, maximum=1e6),
    "tau": option(0.001, "τ, added to the root of v, which begins with τ²", above=0.0),
}
_MOMENTS = {
    **_STEP,
    "beta_1": option(0.9, "decay of the mean of updates", minimum=0.0, maximum=0.999999),
    "beta_2": option(0.99, "decay of v", minimum=0.0, maximum=0.999999),
}
RULES = Register(
    "leaf.strategy",
    "fedge.rules",
    Entry(
        "fedavg",
        "mean weighted by windows (McMahan et al. 2017)",
        "fedge.leaf.strategies.rules:ExactFedAvg",
        traits_of(MEAN),
    ),
    Entry("fedmedian", "median entry by entry (Yin et al. 2018)", f"{_PUBLISHED}:Median"),
    Entry(
        "fedtrimmedavg",
        "mean without the extremes (Yin et al. 2018)",
        f"{_PUBLISHED}:TrimmedMean",
        arguments={"beta": option(0.34, "share cut off at each end", minimum=0.0, maximum=0.49)},
        quorum=f"{_QUORUM}:trimmed_mean_quorum",
    ),
    Entry(
        "krum",
        "the model closest to the others (Blanchard et al. 2017)",
        f"{_FLWR}:Krum",
        arguments=_MALICIOUS,
        quorum=f"{_QUORUM}:krum_quorum",
    ),
    Entry(
        "multikrum",
        "mean of those closest (Blanchard et al. 2017)",
        "fedge.leaf.strategies.rules:SelectiveMultiKrum",
        arguments={
            **_MALICIOUS,
            "num_nodes_to_select": option(0, "averaged models; 0: all but the malicious and two", minimum=0),
        },
        quorum=f"{_QUORUM}:multi_krum_quorum",
    ),
    Entry(
        "bulyan",
        "trimmed mean of those closest (El Mhamdi et al. 2018)",
        f"{_PUBLISHED}:Bulyan",
        arguments={
            "num_malicious_nodes": option(1, "models assumed malicious; with none a plain mean", minimum=1)
        },
        quorum=f"{_QUORUM}:bulyan_quorum",
    ),
    Entry(
        "fedavgm",
        "server momentum (Hsu et al. 2019)",
        f"{_FLWR}:FedAvgM",
        arguments={
            "server_momentum": option(0.9, "momentum of the server", minimum=0.0, maximum=0.999),
            "server_learning_rate": option(1.0, "step size of the server", above=0.0, maximum=1e6),
        },
    ),
    Entry(
        "fedadagrad",
        "Adagrad at the server (Reddi et al. 2021)",
        f"{_PUBLISHED}:Adagrad",
        arguments=_STEP,
    ),
    Entry(
        "fedadam",
        "Adam at the server (Reddi et al. 2021)",
        f"{_PUBLISHED}:ServerAdam",
        arguments=_MOMENTS,
    ),
    Entry("fedyogi", "Yogi at the server (Reddi et al. 2021)", f"{_PUBLISHED}:Yogi", arguments=_MOMENTS),
    Entry(
        "qfedavg",
        "fair to clients with a high loss while they train (after Li et al. 2020)",
        f"{_PUBLISHED}:FairMean",
        traits_of(CLIENTS_ONLY),
        arguments={
            "q": option(
                0.1,
                "0 is equal weights; losses are training means, in the paper of the received model",
                minimum=0.0,
            )
        },
    ),
)

CLOUD = Register("cloud.rule", "fedge.rules", *[e for e in RULES if CLIENTS_ONLY not in e.traits])

_SPLIT_USERS = {
    "split_users": option(False, "with more clients than users (or devices), cut these by session")
}
_ALPHAS = {
    "alpha_leaves": option(
        0.5, "concentration of classes over leaves; small: skewed", above=0.0, maximum=1e6
    ),
    "alpha_clients": option(10.0, "the same for a leaf's classes over its clients", above=0.0, maximum=1e6),
    "test_deal": option(
        "matched",
        "test windows with the shares of training windows; or with shares of their own, as in public code, "
        "with classes unseen by the leaf",
        choices=("matched", "as-published"),
    ),
}
_OWNERS, _SHARES, _SKEW = "fedge.data.owners", "fedge.data.shares", "fedge.data.skew"
PARTITIONS = Register(
    "partition.kind",
    "fedge.partitions",
    Entry(
        "user",
        "whole users",
        f"{_OWNERS}:users",
        traits_of(OWNERS, WHOLE_USERS),
        arguments=_SPLIT_USERS,
    ),
    Entry("device", "whole devices", f"{_OWNERS}:devices", traits_of(OWNERS), arguments=_SPLIT_USERS),
    Entry(
        "dirichlet",
        "windows, classes skewed over leaves and clients",
        f"{_SHARES}:dirichlet_shares",
        traits_of(DRAWN, BY_CLASS),
        arguments=_ALPHAS,
    ),
    Entry("iid", "windows, at random", f"{_SHARES}:iid_shares"),
    Entry(
        "imbalance",
        "windows, more of them at leaf 0",
        f"{_SHARES}:imbalanced_shares",
        arguments={"imbalance": option(5.0, "windows of leaf 0 ÷ those of another leaf", above=0.0)},
    ),
    Entry(
        "classes",
        "windows of a few classes per client",
        f"{_SKEW}:class_shares",
        traits_of(BY_CLASS),
        arguments={"classes_per_client": option(2, "classes per client", minimum=1)},
    ),
    Entry(
        "quantity",
        "windows, in log-normal numbers",
        f"{_SKEW}:quantity_shares",
        traits_of(DRAWN),
        arguments={"sigma": option(1.0, "std of the log of clients' windows", minimum=0.0, maximum=10.0)},
    ),
    Entry(
        "two-level",
        "as dirichlet, but clients stay small: one without windows of a split gets one",
        f"{_SHARES}:dirichlet_shares",
        traits_of(TOPPED_UP, BY_CLASS),
        arguments=_ALPHAS,
    ),
)

_SCENARIO = "fedge.data.scenario"
SCENARIOS = Register(
    "scenario",
    "fedge.scenarios",
    Entry("none", "no planted groups"),
    Entry("rotate", "sensors rotated", f"{_SCENARIO}:rotate"),
    Entry("flip", "axes of sensors mirrored", f"{_SCENARIO}:flip"),
    Entry("gain", "channels scaled", f"{_SCENARIO}:gain"),
    Entry("rate", "windows of another sampling rate", f"{_SCENARIO}:rate"),
    Entry("label-permutation", "classes renamed", f"{_SCENARIO}:permute_labels", traits_of(BY_CLASS)),
    Entry("label-skew", "classes missing", f"{_SCENARIO}:skew_labels", traits_of(FIXED, BY_CLASS)),
    Entry(
        "datasets",
        "leaves of other window files",
        f"{_SCENARIO}:other_files",
        traits_of(FILES, FIXED, BY_CLASS),
    ),
)

_EXAMPLES = "fedge.data.examples"
DATASETS = Register(
    "data.path",
    "fedge.datasets",
    Entry("auto", "data/hhar-windows.npz if it is there, else synthetic"),
    Entry("synthetic", "generated, in the form of HHAR", "hhar:synthetic_windows"),
    Entry("digits", "1,797 images of handwritten digits (scikit-learn's)", "fedge.data.digits:digits"),
    Entry("diabetes", "regression, 442 patients (scikit-learn's)", f"{_EXAMPLES}.diabetes:diabetes"),
    Entry("notes", "generated recordings of up to six notes", f"{_EXAMPLES}.notes:notes"),
    Entry("sonnets", "twelve of Shakespeare, to learn the next character", f"{_EXAMPLES}.sonnets:sonnets"),
)

_SERVERS = "fedge.devices.servers.rules"
SERVER_RULES = Register(
    "asynchrony.rule",
    "fedge.server_rules",
    Entry("off", "synchronous global rounds"),
    Entry(
        "fedavg",
        "rounds on the virtual clock (McMahan et al. 2017)",
        f"{_SERVERS}:fedavg",
        traits_of(ROUNDS, PARTIAL),
    ),
    Entry(
        "fedasync", "each arrival is mixed in (Xie et al. 2019)", f"{_SERVERS}:fedasync", traits_of(PARTIAL)
    ),
    Entry(
        "fedbuff",
        "the mean of every K updates is added (Nguyen et al. 2022)",
        f"{_SERVERS}:fedbuff",
        traits_of(PARTIAL, NOISED),
    ),
    Entry("ca2fl", "FedBuff, corrected by last updates (Wang et al. 2024)", f"{_SERVERS}:ca2fl"),
    Entry("fedfa", "mean of the last K models (Xu et al. 2024)", f"{_SERVERS}:fedfa"),
    Entry(
        "fedrevive",
        "stale updates give way to distilled ones (Askin et al. 2025)",
        "fedge.devices.fedrevive.revive:fedrevive",
        traits_of(TELLS_CLASSES),
    ),
)

CLOUD_RULES = Register("asynchrony.cloud-rule", "fedge.server_rules", *list(SERVER_RULES)[1:])

_PRESETS = "fedge.devices.population.presets"

_JITTER, _NO_JITTER = (
    {"jitter": option(default, "std of the log of a job's training time", minimum=0.0, maximum=10.0)}
    for default in (0.2, 0.0)
)
DEVICES = Register(
    "devices.preset",
    "fedge.devices",
    Entry("lognormal", "speeds and bandwidths are log-normal", f"{_PRESETS}:lognormal", arguments=_JITTER),
    Entry(
        "half-normal", "durations are half-normal, as FedBuff's authors draw them", f"{_PRESETS}:half_normal"
    ),
    Entry(
        "fedrevive",
        "the devices of FedRevive's experiments",
        f"{_PRESETS}:fedrevive",
        arguments={"shifted": option(False, "their second schedule, of quicker devices")},
    ),
    Entry("hhar-phones", "four tiers: HHAR's phone models", f"{_PRESETS}:hhar_phones", arguments=_JITTER),
    Entry(
        "fedscale",
        "FedScale's formula, from its device capacities",
        f"{_PRESETS}:fedscale",
        arguments=_NO_JITTER,
    ),
    Entry("equal", "all alike, without chance", f"{_PRESETS}:equal"),
    Entry("hierfavg", "the devices of HierFAVG: time and energy of its paper", f"{_PRESETS}:hierfavg"),
    Entry(
        "gaussian",
        "types of devices, each with its means and deviations",
        "fedge.devices.population.gaussian:gaussian",
    ),
    Entry(
        "trace",
        "read from a file",
        "fedge.devices.population.trace:trace",
        arguments={
            "shuffle": option(True, "rows in random order; false: row i is device i"),
            **_NO_JITTER,
        },
    ),
)

_AVAILABILITY = "fedge.devices.population.availability"
AVAILABILITY = Register(
    "devices.availability",
    "fedge.availability",
    Entry("always", "at any time", f"{_AVAILABILITY}:always"),
    Entry("diurnal", "a part of every day, with a start per device", f"{_AVAILABILITY}:diurnal"),
    Entry("markov", "for exponential times on and off", f"{_AVAILABILITY}:markov"),
    Entry(
        "trace",
        "as listed in a file",
        "fedge.devices.population.attendance:trace",
        arguments={
            "shuffle": option(True, "devices in random order; false: that of the file"),
            "period_s": option(
                0.0, "virtual seconds after which the file repeats; 0: at its end", minimum=0.0
            ),
        },
    ),
)

UNCOMPRESSED = "none"
_CODES = (
    Entry(UNCOMPRESSED, "uncompressed"),
    Entry("float16", "half precision", "fedge.compression.rounding:Float16"),
    Entry(
        "int8",
        "stochastically rounded to levels (QSGD, Alistarh et al. 2017)",
        "fedge.compression.rounding:Int8",
        traits_of(UNBIASED),
    ),
    Entry(
        "top-k",
        "the largest entries, with error feedback (Stich et al. 2018)",
        "fedge.compression.sparse:TopK",
        traits_of(FEEDBACK),
    ),
    Entry(
        "sign",
        "signs and their mean size, with error feedback (Karimireddy et al. 2019)",
        "fedge.compression.signs:Sign",
        traits_of(FEEDBACK),
    ),
)
CLIENT_UPLINKS = Register("uplink.clients", "fedge.uplinks", *_CODES)
SERVER_UPLINKS = Register("uplink.servers", "fedge.uplinks", *_CODES)

OF_THE_PRESET = "preset"
DURATIONS = Register("devices.duration", "fedge.durations", Entry(OF_THE_PRESET, "as the preset says"))

_SELECTIONS = "fedge.devices.population.selection"
SELECTIONS = Register(
    "devices.selection",
    "fedge.selections",
    Entry("uniform", "any idle present device, equally likely", f"{_SELECTIONS}:uniform"),
    Entry("balanced", "one of those with the fewest jobs so far", f"{_SELECTIONS}:balanced"),
    Entry("without-reuse", "each a limited number of times", f"{_SELECTIONS}:without_reuse"),
    Entry(
        "oort",
        "high loss and speed, with some exploration (Lai et al. 2021)",
        f"{_SELECTIONS}:oort",
        traits_of(BY_LOSS),
    ),
)

_CLIENT_SELECTION = "fedge.leaf.selection"
CLIENT_SELECTIONS = Register(
    "hierarchy.selection",
    "fedge.client_selections",
    Entry(
        "uniform", "each set equally likely", f"{_CLIENT_SELECTION}:uniform", traits_of(AFRESH, BLIND_TO_DATA)
    ),
    Entry("by-size", "with probability by windows (Li et al. 2020)", f"{_CLIENT_SELECTION}:by_size"),
    Entry("round-robin", "in turns, by number", f"{_CLIENT_SELECTION}:round_robin", traits_of(BLIND_TO_DATA)),
    Entry(
        "without-reuse",
        "drawn; none again until all have trained",
        f"{_CLIENT_SELECTION}:without_reuse",
        traits_of(BLIND_TO_DATA),
    ),
    Entry(
        "power-of-choice",
        "the highest losses among drawn candidates (Cho et al. 2020)",
        f"{_CLIENT_SELECTION}:power_of_choice",
        traits_of(BY_LOSS),
    ),
)
PARTICIPATIONS = Register(
    "hierarchy.participation", "fedge.participations", Entry("auto", "hierarchy.fraction-train of each leaf")
)

_ASSOCIATION = "fedge.data.association"
ASSOCIATIONS = Register(
    "hierarchy.association",
    "fedge.associations",
    Entry("none", "clients stay at the leaf they were dealt to"),
    Entry(
        "label-balance",
        "leaves with similar class shares (Mhaisen et al. 2022)",
        f"{_ASSOCIATION}:label_balance",
    ),
    Entry("share", "short delays and similar class shares (Deng et al. 2021)", f"{_ASSOCIATION}:share"),
)

_MOBILITY = "fedge.rounds.mobility"
MOBILITIES = Register(
    "hierarchy.mobility",
    "fedge.mobilities",
    Entry("none", "clients stay under their leaf"),
    Entry("schedule", "listed moves", f"{_MOBILITY}:schedule"),
    Entry("markov", "a Markov chain for each client", f"{_MOBILITY}:markov"),
    Entry("trace", "moves from a file: round, client, leaf", f"{_MOBILITY}:trace"),
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
    Entry("early-stopping", "no further improvement", f"{_STOPPING}:EarlyStopping"),
    Entry("byte-budget", "a number of bytes is used up", f"{_STOPPING}:ByteBudget"),
    Entry("time-budget", "a number of seconds is used up", f"{_STOPPING}:TimeBudget"),
    Entry("budget", "the sum of a column of global_rounds.csv reaches a limit", f"{_STOPPING}:Budget"),
    Entry(
        "floor",
        "the validation score is below the floor of a round",
        f"{_STOPPING}:Floor",
        traits_of(GIVES_UP),
    ),
)


def names_in(text: str) -> tuple[str, ...]:
    """Names in an option's comma-separated list, such as "early-stopping,my:Watch"."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


HOOKS = ("begin_run", "begin_round", "begin_leaf_round", "end_leaf_round", "end_round", "end_run")


def refuse_callback_without_methods(callback: Any, name: str) -> None:
    """Raise ConfigError for a callback, or a class of callbacks, without any method called by a run."""
    if not any(hasattr(callback, hook) and not _is_empty(callback, hook) for hook in HOOKS):
        raise ConfigError(
            f"callbacks {name} must have one of {', '.join(HOOKS)}, but {shown(callback)} has none; derive "
            f"it from fedge.callbacks.Callback, and write one of them"
        )
    public = (word for word in dir(callback) if not word.startswith("_") and word not in HOOKS)
    for word in public:
        matches = difflib.get_close_matches(word, HOOKS, n=1, cutoff=0.8)
        if matches and callable(getattr(callback, word, None)):
            raise ConfigError(
                f"callbacks {name} has a method {word}, which is never called; did you mean {matches[0]}?"
            )
    refuse_foreign_hooks(
        callback if inspect.isclass(callback) else type(callback), HOOKS, f"callbacks {name}"
    )
    for hook in HOOKS:
        _refuse_wrong_signature(callback, name, hook)


def _is_empty(callback: Any, hook: str) -> bool:
    """Whether a hook is missing, or is the empty one of `fedge.callbacks.Callback`."""
    method = getattr(callback, hook)
    return getattr(method, "__module__", "") == "fedge.callbacks.callback"


def _refuse_wrong_signature(callback: Any, name: str, hook: str) -> None:
    """Raise ConfigError for a callback's hook that cannot be called with one argument."""
    method = getattr(callback, hook, None)
    is_unbound = inspect.isclass(callback) and inspect.isfunction(
        inspect.getattr_static(callback, hook, None)
    )
    try:
        signature = inspect.signature(method)  # type: ignore[arg-type]
    except (TypeError, ValueError):  # missing or unreadable
        return
    try:
        signature.bind(*[None] * (2 if is_unbound else 1))
    except TypeError as error:
        raise ConfigError(
            f"callbacks {name} must take one argument in {hook}, but {hook}{signature} does "
            f"not: {error}; see docs/extend.md"
        ) from error


def callback_arguments(name: str, text: str) -> dict[str, Any]:
    """The keyword arguments of one callback, from the table of all callbacks.

    ``{"early-stopping": {"min-delta": 0.01}}`` → ``{"min_delta": 0.01}``.

    Args:
        name: of the callback; dots in it separate nested tables, as in every key.
        text: the table, as JSON.

    Raises:
        ConfigError: the callback's entry is not a table.
    """
    arguments: Any = arguments_of(text, f"{CALLBACKS.option}-args")
    for word in [name] if name in arguments else name.split("."):
        arguments = arguments.get(word, {}) if isinstance(arguments, dict) else arguments
    if not isinstance(arguments, dict):
        raise ConfigError(
            f"callbacks-args.{name} must be a table of keyword arguments, but is {shown(arguments)}; set for "
            f"example callbacks-args.early-stopping.patience=5"
        )
    return {key.replace("-", "_"): value for key, value in arguments.items()}


def refuse_input_shape(model: str, input_shape: tuple[int, ...]) -> None:
    """Raise ConfigError when a built-in model does not accept an input shape: (C, T), (C, H, W), other."""
    kinds = {2: (WINDOWS, "windows (C, T)"), 3: (IMAGES, "images (C, H, W)")}
    trait, description = kinds.get(len(input_shape), (ANY_SHAPE, "inputs of any shape"))
    if not MODELS.is_own(model) and not MODELS.has(model, trait):
        raise ConfigError(
            f"train.model must take {description}, as the data are of shape {input_shape}, but {model} does "
            f"not; use {' or '.join(MODELS.names_with(trait))}"
        )
    least = 4 if MODELS.has(model, POOLS) else 1
    if min(input_shape[1:], default=least) < least:
        alternatives = [name for name in MODELS.names_with(trait) if not MODELS.has(name, POOLS)]
        raise ConfigError(
            f"train.model {model} takes inputs of at least {least} along each axis after the channels, "
            f"because it pools by 2 twice, but the data are of shape {input_shape}; use "
            f"{' or '.join(alternatives)}"
        )


REGISTERS = (
    MODELS,
    ALGORITHMS,
    TASKS,
    LOSSES,
    METRICS,
    AUGMENTATIONS,
    RULES,
    CLOUD,
    SIGNALS,
    GROUPINGS,
    GATES,
    PARTITIONS,
    SCENARIOS,
    DATASETS,
    TRACKERS,
    CALLBACKS,
    SERVER_RULES,
    CLOUD_RULES,
    DEVICES,
    AVAILABILITY,
    DURATIONS,
    SELECTIONS,
    CLIENT_SELECTIONS,
    PARTICIPATIONS,
    MOBILITIES,
    ASSOCIATIONS,
)
