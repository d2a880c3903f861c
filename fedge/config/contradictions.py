"""Contradictions between sections of a configuration: checks over all `fedge.config.run_options.RunOptions`.

A section alone is checked in `fedge.config.sections`; whether it fits the data is checked once the data are
known.
"""

import math
from collections.abc import Callable

from fedge.config.clock_tiers import clock_of_tiers, has_servers_above_leaves
from fedge.config.common_test import refuse_impossible_common_test
from fedge.config.effects import EFFECTS
from fedge.config.leaf_groups import static_groups
from fedge.config.mobility import refuse_association, refuse_mobility
from fedge.config.planted import refuse_impossible_groups
from fedge.config.registers import groupings, parts, traits
from fedge.config.registers.choices import BY_TEST
from fedge.config.registers.option import ConfigError, shown
from fedge.config.run_options import RunOptions
from fedge.config.sampling import refuse_participation
from fedge.config.tiers import refuse_tier_options
from fedge.config.uplinks import refuse_inexact_uplinks


def refuse_contradictions(config: RunOptions) -> None:
    """Raise ConfigError for the first pair of contradictory settings."""
    refuse_tier_options(config)
    _refuse_missing_groups(config)
    _refuse_scaffold_with_other_averages(config)
    _refuse_sgd_only_options(config)
    _refuse_too_many_clusters(config)
    _refuse_mixed_cloud_models(config)
    _refuse_ineffective_options(config)
    _refuse_vanishing_step_size(config)
    _refuse_models_after_last_round(config)
    _refuse_options_without_privacy(config)
    _refuse_missing_personal_layers(config)
    refuse_association(config)
    refuse_mobility(config)
    refuse_participation(config)
    refuse_inexact_uplinks(config)
    _refuse_synchronous_options(config)
    _refuse_unaccounted_privacy(config)
    _refuse_options_without_processes(config)
    refuse_impossible_common_test(config)


def _refuse_missing_groups(config: RunOptions) -> None:
    """Raise ConfigError for more planted groups than leaves, or a method that needs groups without any."""
    refuse_impossible_groups(config)
    needs_truth = config.cluster.enabled and groupings.GROUPINGS.has(config.cluster.method, traits.TRUTH)
    if needs_truth and config.scenario == "none":
        raise ConfigError(
            f"cluster.method {config.cluster.method} needs true groups, but scenario is 'none', which has "
            f'none; set for example scenario="rotate", or another cluster.method'
        )


def _refuse_scaffold_with_other_averages(config: RunOptions) -> None:
    """Raise ConfigError when models and control variates would be averaged differently."""
    if config.scaffold.enabled and not config.leaf.is_mean:
        raise ConfigError(
            f"scaffold.enabled needs leaf.strategy to be fedavg, because its control variates are "
            f"averages under the same weights as the model, but it is {config.leaf.strategy!r}; "
            f"add scaffold.enabled=false"
        )
    if config.scaffold.enabled and config.scaffold.levels > 1 and not config.cloud.is_mean:
        raise ConfigError(
            f"scaffold.levels {config.scaffold.levels} needs cloud.rule to be fedavg, because corrections "
            f"between leaves are averages under the same weights as the model, but it is "
            f"{config.cloud.rule}; set one of them otherwise"
        )


def _refuse_sgd_only_options(config: RunOptions) -> None:
    """Raise ConfigError for options that need plain SGD beside another optimiser or loss."""
    optimizer = config.train.optimizer
    if config.train.kernel == "native" and config.train.loss != parts.OF_THE_TASK:
        raise ConfigError(
            f"train.kernel native needs train.loss to be auto, cross entropy, which is all that the native "
            f"step knows, but it is {config.train.loss}; set train.kernel=torch"
        )
    if config.train.kernel == "native" and not parts.TASKS.has(config.train.task, traits.NATIVE):
        raise ConfigError(
            f"train.kernel native needs a train.task whose loss it knows, but it is {config.train.task}; set "
            f"train.kernel=torch"
        )
    if optimizer == parts.SGD:
        return
    if config.scaffold.enabled:
        raise ConfigError(
            f"scaffold.enabled needs train.optimizer to be sgd, because control variates are mean gradients, "
            f"read from how far a client has moved, but it is {optimizer!r}; add scaffold.enabled=false"
        )
    if config.train.kernel == "native":
        raise ConfigError(
            f"train.kernel native needs train.optimizer to be sgd, which is all that the native step does, "
            f"but it is {optimizer!r}; set train.kernel=torch"
        )


def _refuse_too_many_clusters(config: RunOptions) -> None:
    """Raise ConfigError when there are too few leaves for the cloud's options."""
    cluster, hierarchy = config.cluster, config.hierarchy
    if not cluster.enabled:
        return
    leaves, tier = hierarchy.fewest_and_tier(hierarchy.parse_tiers(cluster.tiers, "cluster.tiers"))
    children_option = hierarchy.children_option(tier)
    if cluster.fixed_count and cluster.fixed_count > leaves:
        raise ConfigError(
            f"cluster.count must be at most {children_option}, but is {cluster.fixed_count} for "
            f"{leaves}; change one of them"
        )
    if groupings.SIGNALS.has(cluster.signal, traits.FOUR_LEAVES) and cluster.count != BY_TEST and leaves < 4:
        raise ConfigError(
            f"cluster.signal {cluster.signal} needs {children_option} of at least 4, because among fewer "
            f"leaves everything is explained by models and clients, but it is {leaves}; use cross-loss"
        )


def _refuse_mixed_cloud_models(config: RunOptions) -> None:
    """Raise ConfigError when a leaf might not start from the cloud model into which its result is averaged.

    A method with several cloud models averages into each the results of the leaves that took it. With a gate,
    a leaf may start from its own model instead, with a blend from a mixture, so the average would be wrong.
    """
    method = config.cluster.method
    if not config.cluster.enabled or not groupings.GROUPINGS.has(method, traits.OFFERS):
        return
    if config.gate.enabled:
        raise ConfigError(
            f"cluster.method {method} needs the gate off, because each of the cloud's models is the mean of "
            f"what the leaves that took it made of it, but gate.enabled is true; add gate.enabled=false"
        )
    if config.cluster.blend != 1.0:
        raise ConfigError(
            f"cluster.method {method} needs cluster.blend to be 1, because each of the cloud's models is the "
            f"mean of what the leaves that took it made of it, but it is {shown(config.cluster.blend)}; set "
            f"cluster.blend=1.0"
        )
    if not config.cloud.is_mean:
        raise ConfigError(
            f"cluster.method {method} needs cloud.rule to be fedavg, because each of the cloud's models is "
            f"the mean of what the leaves that took it made of it, but it is {config.cloud.rule}; set one of "
            f"them otherwise"
        )


def _refuse_ineffective_options(config: RunOptions) -> None:
    """Raise ConfigError for options without effect, if they would make a run look like another one."""
    if config.scaffold.levels > 1 and not config.scaffold.enabled:
        raise ConfigError(
            f"scaffold.levels must be 1 without SCAFFOLD, but is {config.scaffold.levels} and "
            f"scaffold.enabled is false; set one of them otherwise"
        )
    cluster = config.cluster
    if cluster.probe_every and not EFFECTS["cluster.probe-every"].holds(config):
        setting = f"cluster.method {cluster.method}" if cluster.enabled else "cluster.enabled=false"
        raise ConfigError(
            f"cluster.probe-every must be 0 with {setting}, which compares no leaves, but is "
            f"{cluster.probe_every}; set cluster.probe-every=0"
        )


_LEAST_LR = 2.0**-126  # smallest normal float32: a smaller step moves no weight, and SCAFFOLD divides by it


def _refuse_models_after_last_round(config: RunOptions) -> None:
    """Raise ConfigError when `checkpoint.models` names a round after the last one."""
    last = max(config.checkpoint.rounds, default=0)
    if last > config.num_server_rounds:
        raise ConfigError(
            f"checkpoint.models must be of the {config.num_server_rounds} rounds of num-server-rounds, but "
            f"names round {last}; leave it out, or raise num-server-rounds"
        )


def _refuse_vanishing_step_size(config: RunOptions) -> None:
    """Raise ConfigError when the step size decays to zero before the last round."""
    lr, decay, rounds = config.train.lr, config.train.lr_decay, config.num_server_rounds
    if config.train.schedule not in parts.SCHEDULES.reading("train.lr-decay"):
        decay = 1.0
    if lr < _LEAST_LR:
        raise ConfigError(
            f"train.lr must be at least {_LEAST_LR:.2g}, because with less no weight moves, but is {lr:g}; "
            f"raise it"
        )
    if lr * decay ** (rounds - 1) < _LEAST_LR:
        possible = 1 + int((math.log(_LEAST_LR) - math.log(lr)) / math.log(decay))
        raise ConfigError(
            f"train.lr-decay must leave a step size of at least {_LEAST_LR:.2g} in the last round, but "
            f"{lr:g} × {decay:g}^{rounds - 1} is less, from global round {possible + 1} on; raise "
            f"train.lr-decay, or lower num-server-rounds to {possible}"
        )


def _refuse_options_without_privacy(config: RunOptions) -> None:
    """Raise ConfigError for options that would send data without noise, or that noise would break."""
    kind = config.privacy.kind
    if kind == "off":
        return
    if config.scaffold.enabled:
        raise ConfigError(
            f"privacy.kind {kind} needs SCAFFOLD off, because control variates follow from updates "
            f"before clipping, but scaffold.enabled is true; add scaffold.enabled=false"
        )
    if config.gate.is_tentative:
        raise ConfigError(
            f"gate.rule {config.gate.rule} sends two models of every client per leaf round, of which the "
            f"noise covers one, but privacy.kind is {kind}; use another gate.rule"
        )
    if kind != "local" and not config.leaf.is_mean:
        raise ConfigError(
            f"privacy.kind {kind} needs leaf.strategy to be fedavg, for whose mean the noise is "
            f"measured, but it is {config.leaf.strategy!r}; set one of them otherwise"
        )
    if kind != "local" and config.guard.max_norm_factor:
        raise ConfigError(
            f"guard.max-norm-factor must be 0 with privacy.kind {kind}, because by it one client's update "
            f"decides whether others count, which the noise does not cover, but is "
            f"{config.guard.max_norm_factor:g}; set guard.max-norm-factor=0, clipping limits updates anyway"
        )
    if config.cluster.enabled and config.cluster.probe_every:
        raise ConfigError(
            f"cluster.probe-every must be 0 with privacy.kind {kind}, because probes would spend its "
            f"budget without being counted, but is {config.cluster.probe_every}; set cluster.probe-every=0"
        )
    if config.cluster.enabled and config.cluster.count == BY_TEST:
        raise ConfigError(
            f"cluster.count must not be auto with privacy.kind {kind}, because trials of new groups "
            f"would spend its budget without being counted; use a threshold or a number"
        )
    if parts.MODELS.has(config.train.model, traits.BATCH_NORM):
        alternatives = " or ".join(
            m for m in parts.MODELS.names if not parts.MODELS.has(m, traits.BATCH_NORM)
        )
        raise ConfigError(
            f"privacy.kind {kind} needs a model without BatchNorm, whose variances cannot bear noise, "
            f"but train.model is {config.train.model!r}; use {alternatives}"
        )


def _refuse_missing_personal_layers(config: RunOptions) -> None:
    """Raise ConfigError when leaves should keep their own BatchNorm layers but the model has none."""
    has_batch_norm = parts.MODELS.has(config.train.model, traits.BATCH_NORM)
    # a user's model is unknown here; `fedge.run.preparation.parts` checks it
    is_own = parts.MODELS.is_own(config.train.model)
    if "batch-norm" in config.personal.kept and not has_batch_norm and not is_own:
        alternatives = " or ".join(parts.MODELS.names_with(traits.BATCH_NORM))
        raise ConfigError(
            f"personal.layers {config.personal.layers} needs a model with BatchNorm, but train.model is "
            f'{config.train.model!r}; use {alternatives}, or personal.layers="head"'
        )


_ROUNDS_ONLY: tuple[tuple[str, str, Callable[[RunOptions], bool]], ...] = (
    ("scaffold.enabled=false", "control variates are averages over clients of one round",
     lambda config: config.scaffold.enabled),
    ("cluster.blend=1.0", "a leaf continues from its group's model",
     lambda config: config.cluster.enabled and config.cluster.blend != 1.0),
    ("cluster.enabled=false", "a single leaf cannot be compared with others",
     lambda config: config.cluster.enabled and config.hierarchy.num_servers == 1),
    ('cluster.enabled=false or asynchrony.groups=""', "groups are either given or found",
     lambda config: config.cluster.enabled and bool(config.asynchrony.groups)),
    ("evaluate.every=1", "asynchrony.evaluate-every-s says when models are evaluated",
     lambda config: config.evaluate.every != 1),
    ("gate.enabled=false", "a gate compares what a whole round has made",
     lambda config: config.gate.enabled),
    ("personal.leaf-rounds=0", "fine-tuning takes whole leaf rounds",
     lambda config: config.personal.leaf_rounds > 0),
    ('personal.layers="none"', "a leaf keeps layers of its own when it takes an offer: there are none",
     lambda config: config.personal.layers != "none"),
    ('leaf.strategy="fedavg"', "asynchrony.rule says what a server does",
     lambda config: not config.leaf.is_mean),
    ('cloud.rule="fedavg"', "asynchrony.cloud-rule says what the cloud does",
     lambda config: not config.cloud.is_mean),
    ("hierarchy.leaf-rounds=1", "leaves have no rounds of their own",
     lambda config: config.hierarchy.leaf_rounds != 1),
    ('hierarchy.region-rounds="1"', "asynchrony.tiers says when regions send",
     lambda config: any(n > 1 for n in config.hierarchy.rounds_of_tiers)),
    ("hierarchy.fraction-train=1.0", "asynchrony.concurrency says how many train",
     lambda config: config.hierarchy.fraction_train != 1.0),
    ('hierarchy.participation="auto"', "asynchrony.concurrency says how many train",
     lambda config: config.hierarchy.participation != "auto"),
    ('hierarchy.selection="uniform"', "devices.selection says who trains",
     lambda config: config.hierarchy.selection != type(config.hierarchy).selection),
    ("guard.min-clients=1", "there is no leaf round that could have too few replies",
     lambda config: config.guard.min_clients != 1),
    ("guard.max-norm-factor=0", "updates from different models are not compared by their size",
     lambda config: config.guard.max_norm_factor != 0),
)  # fmt: skip


def _refuse_unaccounted_privacy(config: RunOptions) -> None:
    """Raise ConfigError when the noise would not cover everything a server on the virtual clock releases."""
    kind, rule = config.privacy.kind, config.asynchrony.rule
    if kind == "off" or not config.asynchrony.is_on:
        return
    if config.privacy.is_adaptive:
        raise ConfigError(
            f"privacy.kind {kind} needs rounds, because its norm follows the share of a round's updates that "
            f'are within it, but asynchrony.rule is {rule}; set privacy.kind="{kind.split("-")[0]}-fixed"'
        )
    cloud_rules = [tier.cloud_rule for tier in clock_of_tiers(config)] * has_servers_above_leaves(
        config.hierarchy
    )
    for rule_name, register in (
        (rule, parts.SERVER_RULES),
        *((name, parts.CLOUD_RULES) for name in cloud_rules),
    ):
        if register.has(rule_name, traits.TELLS_CLASSES):
            raise ConfigError(
                f"privacy.kind {kind} needs another {register.option} than {rule_name}, which learns the "
                f"shares of classes without noise; use fedbuff"
            )
    if kind != "local" and not parts.SERVER_RULES.has(rule, traits.NOISED):
        raise ConfigError(
            f"privacy.kind {kind} needs an asynchrony.rule that releases sums to which noise can be added "
            f"({', '.join(parts.SERVER_RULES.names_with(traits.NOISED))}), but it is {rule}; use that, or "
            f'privacy.kind="local"'
        )


def _refuse_synchronous_options(config: RunOptions) -> None:
    """Raise ConfigError for options that need synchronous rounds."""
    if not config.asynchrony.is_on:
        return
    if config.devices.partial_work and config.asynchrony.leaf_link_megabytes_s:
        raise ConfigError(
            "devices.partial-work must be false beside asynchrony.leaf-link-megabytes-s, because when "
            "an upload over a shared link ends is not known, nor with which step to stop; set one of them off"
        )
    if config.checkpoint.keeps_best:
        raise ConfigError(
            "checkpoint.models must name evaluations, not best, on the virtual clock, where clients do not "
            'evaluate on validation windows; set for example checkpoint.models="1"'
        )
    conflicts = [(remedy, why) for remedy, why, is_set in _ROUNDS_ONLY if is_set(config)]
    if conflicts:
        concurrency, rule = config.asynchrony.concurrency, config.asynchrony.rule
        remedies = [remedy for remedy, _ in conflicts]
        if isinstance(config.clients, int) and config.clients < concurrency:
            remedies.append(f"asynchrony.concurrency={config.clients}")
        raise ConfigError(
            f"asynchrony.rule {rule} needs {', '.join(remedies)}, because "
            f"{'; '.join(w for _, w in conflicts)} (asynchrony.concurrency, {concurrency}, must be at most "
            f"the devices that train); add -c "
            f"'{' '.join(dict.fromkeys(remedy.split(' or ')[0] for remedy in remedies))}'"
        )
    _refuse_oversized_buffers(config)


def _refuse_oversized_buffers(config: RunOptions) -> None:
    """Raise ConfigError when a server's buffer is larger than its number of children."""
    hierarchy = config.hierarchy
    labels = static_groups(config.asynchrony.groups, hierarchy.branches)
    for tier, options in enumerate(clock_of_tiers(config)):
        children = hierarchy.fewest_children([tier])
        fewest = children if tier else 1 if config.cluster.enabled else min(map(labels.count, labels))
        buffer = options.arguments("cloud_rule").get("buffer", 1)
        if not has_servers_above_leaves(hierarchy) or type(buffer) is not int or buffer <= fewest:
            continue
        limit = "the smallest group" if fewest < children else hierarchy.children_option(tier)
        key = f"tiers.{hierarchy.tier_names[tier]}" if tier else "cloud"
        raise ConfigError(
            f"asynchrony.{key}{'.' if tier else '-'}rule-args.buffer must be at most {limit}, because a "
            f"{hierarchy.tier_names[tier + 1]} sends nothing while it waits, but is {buffer} for {fewest}; "
            f"lower it"
        )


def _refuse_options_without_processes(config: RunOptions) -> None:
    """Raise ConfigError for options not supported by several processes per client (`fedge.parallel`)."""
    train = config.train
    if train.processes == 1:
        return
    if train.loss != parts.OF_THE_TASK:
        raise ConfigError(
            f"train.loss {train.loss} needs train.processes to be 1, because several processes know cross "
            f"entropy alone, but it is {train.processes}; set train.processes=1"
        )
    if not parts.TASKS.has(train.task, traits.NATIVE):
        raise ConfigError(
            f"train.task {train.task} needs train.processes to be 1, because several processes know cross "
            f"entropy alone, but it is {train.processes}; set train.processes=1"
        )
    if train.kernel == "native":
        raise ConfigError(
            f"train.kernel native needs train.processes to be 1, because the native step exchanges no "
            f"gradients, but it is {train.processes}; set train.kernel=torch"
        )
    if train.batch_size < train.processes:
        raise ConfigError(
            f"train.batch-size must be at least train.processes, so that each has a window of a batch, but "
            f"is {train.batch_size} for {train.processes}; change one of them"
        )
