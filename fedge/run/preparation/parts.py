"""Custom parts of a run: checks of all parts before anything starts, and hashes of their code."""

import importlib.metadata
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedge.callbacks.calls import refuse_other_columns
from fedge.clustering.likeness.updates import even_windows
from fedge.clustering.registry import method_named
from fedge.config.clock_tiers import clock_of_tiers, has_servers_above_leaves
from fedge.config.config import Config
from fedge.config.registers.failing import own_errors
from fedge.config.registers.groupings import GATES, GROUPINGS, SIGNALS
from fedge.config.registers.option import ConfigError, arguments_of, nearest, shown
from fedge.config.registers.parts import (
    ALGORITHMS,
    ASSOCIATIONS,
    AUGMENTATIONS,
    AVAILABILITY,
    CALLBACKS,
    CLIENT_SELECTIONS,
    CLIENT_UPLINKS,
    CLOUD,
    CLOUD_RULES,
    DATASETS,
    DEVICES,
    DURATIONS,
    LOSSES,
    METRICS,
    MOBILITIES,
    MODELS,
    OPTIMIZERS,
    PARTICIPATIONS,
    PARTITIONS,
    RULES,
    SCENARIOS,
    SCHEDULES,
    SELECTIONS,
    SERVER_RULES,
    SERVER_UPLINKS,
    SGD,
    TASKS,
    TRACKERS,
    callback_arguments,
    names_in,
    refuse_callback_without_methods,
    refuse_input_shape,
)
from fedge.config.registers.register import Register, code_facts, refuse_wrong_signature, source_sha256
from fedge.config.registers.traits import BATCH_NORM, BY_SHARES
from fedge.config.registers.typed_code import object_sha256
from fedge.config.sections.cluster import ClusterConfig
from fedge.config.sections.train import TrainConfig
from fedge.config.topology import leaf_numbers_below, leaf_of_clients
from fedge.data.prepared import DataShape
from fedge.native.library import UnavailableError, best_kernel
from fedge.privacy.account import noise_multiplier
from fedge.records.tables.round_tables import refuse_repeated_columns
from fedge.run.preparation.algorithms import refuse_algorithm, refuse_unread_settings
from fedge.run.preparation.examples import examples_of
from fedge.run.preparation.groupings import refuse_grouping_that_fails, tries_grouping
from fedge.tasks.configured import is_default_task, refuse_task_that_fails, task_of

if TYPE_CHECKING:
    from torch.nn import Module

    from hhar.windows.window_file import Windows

_MOST_TRIED = 2**28  # bytes of generated replies in a trial of a leaf rule


def own_parts(config: Config) -> dict[str, tuple[Register, str]]:
    """Option → register and name of every part in use from outside Fedge."""
    parts = {
        "train.model": (MODELS, config.train.model),
        "train.task": (TASKS, config.train.task),
        "train.loss": (LOSSES, config.train.loss),
        "train.optimizer": (OPTIMIZERS, config.train.optimizer),
        "train.schedule": (SCHEDULES, config.train.schedule),
        "train.algorithm": (ALGORITHMS, config.train.algorithm),
        "uplink.clients": (CLIENT_UPLINKS, config.uplink.clients),
        "uplink.servers": (SERVER_UPLINKS, config.uplink.servers),
        "leaf.strategy": (RULES, config.leaf.strategy),
        "hierarchy.association": (ASSOCIATIONS, config.hierarchy.association),
        "hierarchy.mobility": (MOBILITIES, config.hierarchy.mobility),
        "hierarchy.selection": (CLIENT_SELECTIONS, config.hierarchy.selection),
        "cloud.rule": (CLOUD, config.cloud.rule),
        "cluster.signal": (SIGNALS, config.cluster.signal),
        "cluster.method": (GROUPINGS, config.cluster.method),
        "gate.rule": (GATES, config.gate.rule),
        "partition.kind": (PARTITIONS, config.partition.kind),
        "scenario": (SCENARIOS, config.scenario),
        "tracker": (TRACKERS, config.tracker),
        "asynchrony.rule": (SERVER_RULES, config.asynchrony.rule),
        "asynchrony.cloud-rule": (CLOUD_RULES, config.asynchrony.cloud_rule),
        "devices.preset": (DEVICES, config.devices.preset),
        "devices.duration": (DURATIONS, config.devices.duration),
        "devices.availability": (AVAILABILITY, config.devices.availability),
        "devices.selection": (SELECTIONS, config.devices.selection),
    }
    if PARTICIPATIONS.is_code(config.hierarchy.participation):  # rather than numbers
        parts["hierarchy.participation"] = (PARTICIPATIONS, config.hierarchy.participation)
    if DATASETS.is_code(config.data.path):  # rather than a file
        parts["data.path"] = (DATASETS, config.data.path)
    for number, name in enumerate(names_in(config.train.metrics)):
        parts[f"train.metrics[{number}]"] = (METRICS, name)
    for number, name in enumerate(names_in(config.train.augment)):
        parts[f"train.augment[{number}]"] = (AUGMENTATIONS, name)
    for number, name in enumerate(names_in(config.callbacks)):
        parts[f"callbacks[{number}]"] = (CALLBACKS, name)
    return {option: (register, name) for option, (register, name) in parts.items() if register.is_own(name)}


def refuse_parts_that_do_not_fit(config: Config) -> None:
    """Raise ConfigError for a part that cannot be imported or called with its arguments."""
    _refuse_invalid_grouping(config.cluster)
    _refuse_invalid_gate(config)
    kind, arguments = config.partition.kind, config.partition.arguments("kind")
    if PARTITIONS.is_own(kind):
        PARTITIONS.refuse_wrong_arguments(kind, arguments, "windows", "clients_per_leaf", "rng")
    SCENARIOS.refuse_wrong_arguments(
        config.scenario, config.arguments("scenario"), "groups", "channels", "classes", "rng"
    )
    TRACKERS.refuse_wrong_arguments(config.tracker, config.arguments("tracker"), "run")
    _refuse_data_arguments(config)
    _refuse_score_without_shares(config)
    _refuse_invalid_callbacks(config)
    _refuse_missing_kernel(config)
    _refuse_invalid_client_selection(config)
    _refuse_invalid_steps(config)
    if config.uplink.is_on:
        from fedge.compression.configured import refuse_compressors

        refuse_compressors(config)
    refuse_algorithm(config)
    if config.asynchrony.is_on:
        refuse_clock_parts_that_do_not_fit(config)
    elif config.devices.time_rounds:
        _refuse_invalid_timing(config)
    _refuse_invalid_cloud_rule(config)
    _refuse_invalid_leaf_strategy(config)


def _refuse_invalid_grouping(cluster: ClusterConfig) -> None:
    """Raise ConfigError for a signal or a grouping method with wrong arguments."""
    SIGNALS.refuse_wrong_arguments(cluster.signal, cluster.arguments("signal"), "evidence")
    if inspect.isclass(GROUPINGS.load(cluster.method)):
        method_named(cluster)
    else:
        arguments = cluster.arguments("method") if cluster.method_args else {}
        GROUPINGS.refuse_wrong_arguments(cluster.method, arguments, "evidence", "config", "before")


def _refuse_invalid_gate(config: Config) -> None:
    """Raise ConfigError for a gate with wrong arguments, or for a user's gate failing in a trial."""
    gate = config.gate
    GATES.refuse_wrong_arguments(gate.rule, gate.arguments("rule"), "pair", "config")
    if gate.enabled and GATES.is_own(gate.rule) and not TASKS.is_own(config.train.task):
        from fedge.serving.gate import refuse_gate_that_fails

        refuse_gate_that_fails(gate, task_of(config.train), 2)


def _refuse_invalid_timing(config: Config) -> None:
    """Raise ConfigError for a preset, or for tiers, by which rounds cannot be timed."""
    from fedge.devices.trial_calls import try_preset

    preset = config.devices.arguments("preset")
    DEVICES.refuse_wrong_arguments(config.devices.preset, preset, "owner", "rng")
    try_preset(config.devices.preset, preset)
    clock_of_tiers(config)


def _refuse_invalid_leaf_strategy(config: Config) -> None:
    """Raise ConfigError for a leaf strategy that cannot be made, or sends keys not read by clients."""
    is_own = RULES.is_own(config.leaf.strategy)
    if is_own or config.leaf.strategy_args:
        # slow import of Flower, after the cheap checks
        from fedge.leaf.strategies.rules import make_strategy

        make_strategy(config, 1)
    if is_own:
        refuse_unread_settings(config)


def _refuse_invalid_client_selection(config: Config) -> None:
    """Raise ConfigError for a selection, participation or mobility with wrong arguments or results."""
    hierarchy = config.hierarchy
    arguments = hierarchy.arguments("selection")
    CLIENT_SELECTIONS.refuse_wrong_arguments(hierarchy.selection, arguments, "clients", "turn")
    if CLIENT_SELECTIONS.is_own(hierarchy.selection) or arguments:
        from fedge.leaf.selection import try_client_selection

        try_client_selection(hierarchy)
    for option, args in (("association", hierarchy.association_args), ("mobility", hierarchy.mobility_args)):
        name = getattr(hierarchy, option)
        if args and name == getattr(type(hierarchy), option):
            raise ConfigError(
                f"hierarchy.{option}-args must be empty for hierarchy.{option} {name}, which takes none, but "
                f"is {args}; remove them, or choose another {option}"
            )
    if hierarchy.associates:
        arguments = hierarchy.arguments("association")
        ASSOCIATIONS.refuse_wrong_arguments(hierarchy.association, arguments, "clients", "places", "rng")
    if hierarchy.moves:
        arguments = hierarchy.arguments("mobility")
        MOBILITIES.refuse_wrong_arguments(hierarchy.mobility, arguments, "places", "turn")
        if not MOBILITIES.is_own(hierarchy.mobility) and not arguments:
            refuse_wrong_signature(
                MOBILITIES.load(hierarchy.mobility), f"hierarchy.mobility {hierarchy.mobility}",
                "hierarchy.mobility-args", arguments, ("places", "turn"),
            )  # fmt: skip
    if PARTICIPATIONS.is_code(hierarchy.participation):
        PARTICIPATIONS.refuse_wrong_arguments(
            hierarchy.participation, hierarchy.arguments("participation"), "global_round", "leaf", "clients"
        )
    elif hierarchy.participation_args:
        raise ConfigError(
            f"hierarchy.participation-args must be empty for hierarchy.participation "
            f"{shown(hierarchy.participation)}, which takes none, but is {hierarchy.participation_args}; "
            f"remove them"
        )


def _refuse_invalid_steps(config: Config) -> None:
    """Raise ConfigError for an optimiser whose step fails, or a schedule without valid step sizes."""
    train = config.train
    SCHEDULES.refuse_wrong_arguments(train.schedule, train.arguments("schedule"), "global_round")
    if train.schedule != SCHEDULES.names[0] or train.schedule_args:
        from fedge.training.step_sizes import refuse_schedule

        refuse_schedule(train, config.num_server_rounds)
    if train.optimizer != SGD or train.optimizer_args:
        from fedge.training.optimizers import refuse_optimizer  # slow import of PyTorch, rarely needed

        refuse_optimizer(train)


def _refuse_invalid_cloud_rule(config: Config) -> None:
    """Raise ConfigError for a cloud rule that cannot be constructed, or has too few models to combine."""
    if config.cloud.is_mean and not config.cloud.rule_args:
        return
    from fedge.leaf.strategies.quorum import needed_leaves
    from fedge.leaf.strategies.rules import make_cloud_rule

    make_cloud_rule(config.cloud)
    needed, (available, tier) = needed_leaves(config.cloud), _models_to_combine(config)
    if needed > available:
        hierarchy = config.hierarchy
        raise ConfigError(
            f"cloud.rule {config.cloud.rule} needs at least {needed} models to combine, but has {available} "
            f"under a {hierarchy.tier_names[tier]}; raise {hierarchy.children_option(tier)}, or use another "
            f"rule"
        )


def _models_to_combine(config: Config) -> tuple[int, int]:
    """Smallest number of children of any server combining models by the cloud's rule, and its tier."""
    hierarchy = config.hierarchy
    return hierarchy.fewest_and_tier(hierarchy.parse_tiers(config.cloud.rule_tiers, "cloud.rule-tiers"))


def _refuse_missing_kernel(config: Config) -> None:
    """Raise ConfigError if the native step is requested but unavailable on this machine."""
    if config.train.kernel != "native":
        return
    try:
        best_kernel()
    except UnavailableError as error:
        raise ConfigError(
            f'train.kernel native needs the native step, but {error}; or set train.kernel="auto"'
        ) from error


def refuse_clock_parts_that_do_not_fit(config: Config) -> None:
    """Raise ConfigError for a part of the clock with wrong arguments or results.

    Each part is tried on two devices and one parameter, because many arguments are checked only on use.
    """
    asynchrony, devices = config.asynchrony, config.devices
    preset, availability = devices.arguments("preset"), devices.arguments("availability")
    rule = asynchrony.arguments("rule")
    SERVER_RULES.refuse_wrong_arguments(asynchrony.rule, rule, "model", "memory", "arrival")
    DEVICES.refuse_wrong_arguments(devices.preset, preset, "owner", "rng")
    AVAILABILITY.refuse_wrong_arguments(devices.availability, availability, "devices", "seed")
    selection = devices.arguments("selection")
    SELECTIONS.refuse_wrong_arguments(devices.selection, selection, "there", "history", "turn")
    duration = devices.arguments("duration")
    if DURATIONS.is_own(devices.duration):
        DURATIONS.refuse_wrong_arguments(devices.duration, duration, "work")
    from fedge.devices.timeline.real_arrivals import refuse_simulated_times
    from fedge.devices.trial_calls import (
        refuse_partial_work,
        try_availability,
        try_device_selection,
        try_duration,
        try_preset,
        try_rule,
    )

    refuse_simulated_times(config)
    try_rule(asynchrony.rule, rule)
    refuse_partial_work(devices, asynchrony.rule)
    if has_servers_above_leaves(config.hierarchy):
        for tier in clock_of_tiers(config):
            cloud = tier.arguments("cloud_rule")
            CLOUD_RULES.refuse_wrong_arguments(tier.cloud_rule, cloud, "model", "memory", "arrival")
            try_rule(tier.cloud_rule, cloud, CLOUD_RULES)
        if config.cluster.enabled:
            from fedge.devices.tiers.groups import refuse_methods_of_rounds

            refuse_methods_of_rounds(config.cluster)
    from fedge.devices.population.fleet import with_power
    from fedge.devices.predictions import refuse_unknown_power

    fleet = try_preset(devices.preset, preset)
    refuse_unknown_power(with_power(fleet, devices.train_watts, devices.radio_watts), config)
    try_availability(devices.availability, availability)
    try_device_selection(devices.selection, selection)
    try_duration(devices.duration, duration)


def _refuse_data_arguments(config: Config) -> None:
    """Raise ConfigError for `data.path-args` of a data set that takes none."""
    data = config.data
    if data.path_args and data.path in ("auto", "synthetic"):
        raise ConfigError(
            f"data.path-args must be empty for data.path {data.path}, which has its own options, but is "
            f"{data.path_args}; remove them"
        )


def _refuse_score_without_shares(config: Config) -> None:
    """Raise ConfigError for a grouping by shares of scores whose scores may be negative, as errors count."""
    method, task = config.cluster.method, config.train.task
    score = task_of(config.train).scores[0]
    has_shares = score.higher_is_better and (score.unit == "share" or score.lowest >= 0)
    if config.cluster.enabled and GROUPINGS.has(method, BY_SHARES) and not has_shares:
        raise ConfigError(
            f"cluster.method {method} weighs models by shares of their scores, so that of train.task {task} "
            f"must be at least 0, and larger be better, but is {score.label}; use another of the two"
        )


def _refuse_invalid_callbacks(config: Config) -> None:
    """Raise ConfigError for a callback with wrong arguments; custom callbacks are not constructed yet."""
    names = names_in(config.callbacks)
    if len(set(names)) < len(names):
        raise ConfigError(f"callbacks must differ, but are {shown(config.callbacks)}; name each only once")
    for name in names:
        arguments = callback_arguments(name, config.callbacks_args)
        code = CALLBACKS.load(name)
        refuse_wrong_signature(code, f"callbacks {name}", f"callbacks-args.{name}", arguments, ())
        if inspect.isclass(code) or hasattr(code, "part"):
            refuse_callback_without_methods(getattr(code, "part", code), name)
        if not CALLBACKS.is_own(name):
            refuse_other_columns(code(**arguments), config)
    all_arguments = arguments_of(config.callbacks_args, "callbacks-args")
    heads = set(names) | {name.split(".")[0] for name in names}
    unknown = next((key for key in all_arguments if key not in heads), None)
    if unknown is not None:
        raise ConfigError(
            f"callbacks-args must belong to the callbacks named, but {shown(unknown)} is not in callbacks"
            f"{nearest(unknown, names) or '; add it, or remove its arguments'}"
        )


def refuse_model_that_does_not_fit(
    config: Config, shape: DataShape, windows: "Windows | None" = None
) -> None:
    """Raise ConfigError if the model cannot be trained on the windows; a custom model is tried.

    Args:
        config: the run's configuration.
        shape: sizes of the data.
        windows: the run's windows, a few of which are used for the trial; None if clients own them.
    """
    refuse_input_shape(config.train.model, shape.input_shape)
    _refuse_task_of_other_data(config, shape, windows)
    if config.train.augment:
        from fedge.training.augmentation import refuse_augmentation

        refuse_augmentation(config.train, examples_of(shape, windows, config.train)[0])
    if not _fits_any_data(config.train, shape):
        _refuse_network(config, shape, windows)


def _refuse_task_of_other_data(config: Config, shape: DataShape, windows: "Windows | None") -> None:
    """Raise ConfigError if the task, or the user's gate on the user's task, fails on the data's targets."""
    train, gate = config.train, config.gate
    if not is_default_task(train):
        is_of_classes = shape.y_dtype == "int64" and not shape.y_shape
        examples = () if is_of_classes else (examples_of(shape, windows, train)[1],)
        refuse_task_that_fails(train, shape.classes, *examples)
        refuse_repeated_columns(task_of(train))
    if gate.enabled and GATES.is_own(gate.rule) and TASKS.is_own(train.task):
        from fedge.serving.gate import refuse_gate_that_fails

        refuse_gate_that_fails(gate, task_of(train), shape.classes)


def _fits_any_data(train: TrainConfig, shape: DataShape) -> bool:
    """Whether a network needs no trial: a built-in one with defaults, for classes, drawn, and sent whole."""
    is_built_in = not MODELS.is_own(train.model) and not train.model_args
    is_drawn = not train.start and train.exchange == "all"
    return is_built_in and is_drawn and is_default_task(train) and not shape.tokens


def _refuse_network(config: Config, shape: DataShape, windows: "Windows | None") -> None:
    """Raise ConfigError if the network cannot be made, trained, or kept and sent as the options say."""
    from torch import Generator, from_numpy  # slow import of PyTorch, rarely needed

    from fedge.run.preparation.starts import refuse_start
    from fedge.training.networks.fitting import fit_of
    from fedge.training.networks.models import build_model, layer_names, variance_names
    from fedge.training.networks.own_models import refuse_a_step_that_fails, refuse_unseeded_weights

    train, name = config.train, config.train.model
    fit = fit_of(train, shape.classes, shape.y_shape, tokens=shape.tokens)

    def build() -> "Module":
        return build_model(name, shape.input_shape, shape.classes, Generator(), train.arguments("model"), fit)

    try:
        model = build()
        own_norms = layer_names(model, ("batch-norm",))
        layer_names(model, config.personal.kept)
        if MODELS.is_own(name):
            refuse_unseeded_weights(name, model, build)
            refuse_a_step_that_fails(name, model, from_numpy(examples_of(shape, windows, train)[0][:2]))
    except (TypeError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"train.model {name}: {error}; change train.model-args") from error
    refuse_start(train, model)
    if "batch-norm" in config.personal.kept and not own_norms:
        raise ConfigError(
            f"personal.layers {config.personal.layers} needs a model with BatchNorm, but {name} has none; "
            'set personal.layers="head"'
        )
    unfit = [*variance_names(model, shape.input_shape, shape.tokens), *own_norms]
    if config.privacy.kind != "off" and unfit:
        raise ConfigError(
            f"privacy.kind {config.privacy.kind} needs a model without running variances, such as "
            f"BatchNorm's, which do not tolerate noise, but {name} has {unfit[0]}; use LayerNorm or GroupNorm"
        )
    if noise_multiplier(config.privacy):
        _refuse_noise_on_constants(config, model, examples_of(shape, windows, train)[0])


def _refuse_noise_on_constants(config: Config, model: "Module", x: np.ndarray) -> None:
    """Raise ConfigError if noise would change sent entries unchanged by training; x (N, …) are examples."""
    from torch import from_numpy

    from fedge.training.networks.constants import constant_entries
    from fedge.training.networks.frozen import frozen_names
    from fedge.training.networks.models import layer_names

    name = config.train.model
    unsent = {*frozen_names(model, config.train), *layer_names(model, config.personal.kept)}
    constant = [entry for entry in constant_entries(model, from_numpy(x)) if entry not in unsent]
    if not constant:
        return
    is_parameter = constant[0] in dict(model.named_parameters())
    remedy = 'set train.exchange="trainable"'
    if not is_parameter:
        remedy = f"register it with persistent=False, or make it a parameter without gradient and {remedy}"
    raise ConfigError(
        f"privacy.kind {config.privacy.kind} adds noise to all entries that are sent, but {constant[0]} of "
        f"train.model {name} is {'frozen' if is_parameter else 'a constant buffer'} and would not stay as it "
        f"is; {remedy}"
    )


def refuse_last_batch_of_one(
    config: Config, shape: DataShape, trained: Mapping[int, int], sizes: Sequence[int]
) -> None:
    """Raise ConfigError if a client's last batch is one window, and the model cannot train on it.

    BatchNorm with a single value per channel cannot, nor can code dropping the window axis.

    Args:
        config: the run's configuration.
        shape: sizes of the data.
        trained: client → number of its training windows.
        sizes: number of clients of each leaf, in order.
    """
    name, size = config.train.model, config.train.batch_size
    counts = [*trained.items(), *_windows_compared(config, trained, sizes)]
    affected = [(client, count) for client, count in counts if count % size == 1 % size]
    if not affected or not (MODELS.is_own(name) or MODELS.has(name, BATCH_NORM)):
        return
    from torch import Generator, int64, no_grad, zeros

    from fedge.training.networks.fitting import fit_of
    from fedge.training.networks.models import build_model

    arguments = config.train.arguments("model")
    fit = fit_of(config.train, shape.classes, shape.y_shape, tokens=shape.tokens)
    model = build_model(name, shape.input_shape, shape.classes, Generator(), arguments, fit)
    try:
        with no_grad():
            model.train()(zeros(1, *shape.input_shape, dtype=int64 if shape.tokens else None))
    except own_errors() as error:
        client, count = affected[0]
        words = f"has {count}" if count == trained[client] else f"trains on {count} for comparing leaves"
        raise ConfigError(
            f"train.batch-size must leave no last batch of one window, on which train.model {name} "
            f"cannot be trained, "
            f"but is {size} and client {client} {words} ({type(error).__name__}: "
            f"{' '.join(str(error).split())[:120]}); set another, or use LayerNorm"
        ) from error


def _windows_compared(
    config: Config, trained: Mapping[int, int], sizes: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """Client and number of its windows in a comparison of updates, for clients with more than these.

    Clients of several sizes are compared on equally many windows (`fedge.clustering.likeness.updates`).
    """
    cluster, hierarchy = config.cluster, config.hierarchy
    if not cluster.enabled or "updates" not in method_named(cluster).needs(cluster):
        return
    tiers = {0} if config.asynchrony.is_on else hierarchy.parse_tiers(cluster.tiers, "cluster.tiers")
    compared = [list(range(len(sizes)))] if 0 in tiers else []
    below = leaf_numbers_below(hierarchy).items()
    compared += [leaves for path, leaves in below if 1 + path.count(".") in tiers]
    leaf_of = leaf_of_clients(sizes)
    for leaves in compared:
        counts = {client: count for client, count in trained.items() if leaf_of[client] in leaves}
        limit = even_windows(list(counts.values()))
        yield from ((client, limit) for client, count in counts.items() if 0 < limit < count)


def refuse_rule_that_fails(config: Config, shape: DataShape, trained: Sequence[int]) -> None:
    """Raise ConfigError if a custom rule, of leaves or cloud, or a grouping fails on generated models.

    Args:
        config: the run's configuration.
        shape: sizes of the data.
        trained: training clients per leaf.
    """
    at_leaves = RULES.is_own(config.leaf.strategy) and config.privacy.kind in ("off", "local")
    at_cloud = CLOUD.is_own(config.cloud.rule)
    groups = tries_grouping(config)
    if not at_leaves and not at_cloud and not groups:
        return
    from torch import Generator

    from fedge.leaf.strategies.rules import make_cloud_rule, make_strategy, refuse_strategy_that_fails
    from fedge.training.networks.fitting import fit_of
    from fedge.training.networks.models import build_model, parameter_names
    from fedge.training.networks.module_state import get_state

    arguments = config.train.arguments("model")
    fit = fit_of(config.train, shape.classes, shape.y_shape, tokens=shape.tokens)
    model = build_model(config.train.model, shape.input_shape, shape.classes, Generator(), arguments, fit)
    state, names, branches = get_state(model), parameter_names(model), _models_to_combine(config)[0]
    size = sum(array.nbytes for array in state.values())
    if at_leaves and size * min(trained) <= _MOST_TRIED:
        rule = make_strategy(config, min(trained))
        refuse_strategy_that_fails(RULES, config.leaf.strategy, rule, state, names, min(trained))
    if at_cloud and size * branches <= _MOST_TRIED:
        cloud_rule = make_cloud_rule(config.cloud)
        refuse_strategy_that_fails(CLOUD, config.cloud.rule, cloud_rule, state, names, branches)
    if groups and size * len(trained) <= _MOST_TRIED:
        refuse_grouping_that_fails(config, state, names, trained, shape.classes)


def described_parts(config: Config) -> dict[str, Any]:
    """Option → name, package, version and sha256 of the code of every custom part, for the manifest.

    Code of a script or notebook also has the sha256 of the object, which its file does not identify.
    """
    return {option: _describe_part(*part) for option, part in own_parts(config).items()}


def code_of_parts(config: Config) -> dict[str, str]:
    """Facts of the code of every custom part with a file, compared on other machines (`code_facts`)."""
    facts: dict[str, str] = {}
    for option, (register, name) in own_parts(config).items():
        code = register.load(name)
        facts |= code_facts(option, getattr(code, "part", code))
    return facts


def _describe_part(register: Register, name: str) -> dict[str, Any]:
    """Name, package, version and sha256 of a part's current code."""
    code, origin = register.load(name), register.entry(name).origin
    code = getattr(code, "part", code)  # the user's object
    version = importlib.metadata.version(origin) if origin else ""
    typed = object_sha256(code)
    described = {"name": name, "package": origin, "version": version, "sha256": source_sha256(code)}
    return {**described, "object": typed} if typed else described


def changed_parts(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """A line per part whose code has changed since the run began."""
    lines = []
    for option, part in now.items():
        was = before.get(option)
        if (
            was
            and was["name"] == part["name"]
            and (was["version"], was["sha256"]) != (part["version"], part["sha256"])
        ):
            versions = f" ({was['version']} → {part['version']})" if was["version"] != part["version"] else ""
            lines.append(f"the code of {option} {part['name']} has changed since the run began{versions}")
    return lines
