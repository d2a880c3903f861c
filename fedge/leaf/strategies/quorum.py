"""Number of replies needed by a leaf to change its model, and whether its clients can supply them.

Krum and Multi-Krum tolerate f malicious clients of n >= 2f + 3 (Blanchard et al. 2017), Bulyan of n >= 4f + 3
(El Mhamdi et al. 2018). Multi-Krum averaging m clients needs n >= m + f + 2, or it would include clients it
should leave out; a trimmed mean needs a client to cut at each end. With fewer replies the guarantee is void,
so the leaf keeps its model.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from fedge.config.config import Config
from fedge.config.participation import Number, Participation
from fedge.config.registers.determinism import call_again, call_checked
from fedge.config.registers.option import ConfigError, shown
from fedge.config.registers.parts import CLOUD, PARTICIPATIONS, RULES
from fedge.config.sections.hierarchy import CloudConfig, HierarchyConfig

_MOST_TRIED_ROUNDS = 1000  # for which a user's participation is checked before a run
_MALICIOUS, _SELECTED, _CUT = "num_malicious_nodes", "num_nodes_to_select", "beta"  # arguments of rules


def needed_replies(config: Config, held_out: int = 0) -> int:
    """Minimum number of replies for a leaf to change its model in a leaf round.

    Args:
        config: configuration, of which `leaf` and `guard` are read.
        held_out: clients excluded from a fork's training, whose replies the guard cannot demand.
    """
    leaf = config.leaf
    guarded = max(1, config.guard.min_clients - held_out)
    return max(guarded, RULES.quorum(leaf.strategy, leaf.arguments("strategy")))


def needed_leaves(cloud: CloudConfig) -> int:
    """Minimum number of models in a group for the guarantee of the cloud's rule; at least 2.

    Args:
        cloud: section `cloud` of the configuration.
    """
    return max(2, CLOUD.quorum(cloud.rule, cloud.arguments("rule")))


def krum_quorum(arguments: Mapping[str, Any]) -> int:
    """Number of replies needed by Krum."""
    return 2 * int(arguments[_MALICIOUS]) + 3


def multi_krum_quorum(arguments: Mapping[str, Any]) -> int:
    """Number of replies needed by Multi-Krum."""
    selected = int(arguments[_SELECTED])
    return max(krum_quorum(arguments), selected + arguments[_MALICIOUS] + 2 if selected else 0)


def bulyan_quorum(arguments: Mapping[str, Any]) -> int:
    """Number of replies needed by Bulyan."""
    return 4 * int(arguments[_MALICIOUS]) + 3


def trimmed_mean_quorum(arguments: Mapping[str, Any]) -> int:
    """Number of replies for which one is cut at each end; 1 if nothing is cut."""
    cut = arguments[_CUT]
    if cut == 0:
        return 1
    enough = math.ceil(1 / cut)
    return enough if int(cut * enough) >= 1 else enough + 1  # rounding


def num_training(config: Config, num_clients: int, global_round: int = 1, leaf: int = 0) -> int:
    """Number of a leaf's training clients in a leaf round.

    Args:
        config: configuration, of which `hierarchy` is read.
        num_clients: number of clients of the leaf.
        global_round: global round of the leaf round.
        leaf: number of the leaf.

    Raises:
        ConfigError: a user's function returned neither a number nor a share of clients.
    """
    hierarchy = config.hierarchy
    if hierarchy.participants is not None:
        number = hierarchy.participants.number_at(global_round, leaf)
    elif hierarchy.participation in PARTICIPATIONS.names:
        number = hierarchy.fraction_train
    else:
        number = _call_participation(hierarchy, global_round, leaf, num_clients)
    share = round(number * num_clients) if isinstance(number, float) else number
    return min(num_clients, max(1, share))


def _call_participation(hierarchy: HierarchyConfig, global_round: int, leaf: int, num_clients: int) -> Number:
    """The number or share of clients returned by a user's function."""
    name = hierarchy.participation
    with PARTICIPATIONS.explaining_errors(name):
        number = PARTICIPATIONS.load(name)(
            global_round, leaf, num_clients, **hierarchy.arguments("participation")
        )
    is_count = isinstance(number, int | np.integer) and not isinstance(number, bool) and number >= 1
    is_share = isinstance(number, float | np.floating) and 0 < number <= 1
    if not is_count and not is_share:
        raise ConfigError(
            f"hierarchy.participation {name} must return a whole number of clients of at least 1, or a share "
            f"above 0 and at most 1, but for leaf {leaf} in global round {global_round} it returned "
            f"{shown(number)}; fix it"
        )
    return int(number) if is_count else float(number)


def fewest_training(config: Config, sizes: Sequence[int]) -> tuple[int, int]:
    """The leaf with the fewest training clients in any round (the first on ties), and their number.

    Args:
        config: configuration, of which `hierarchy` and the number of rounds are read.
        sizes: number of clients of each leaf.

    Raises:
        ConfigError: more clients should train than a leaf has.
    """
    hierarchy, rounds, name = config.hierarchy, [1], config.hierarchy.participation
    if hierarchy.participants is not None:
        rounds = [first for first in hierarchy.participants.rounds if first <= config.num_server_rounds]
        _refuse_too_many(hierarchy.participants, rounds, sizes)
    elif name not in PARTICIPATIONS.names:
        rounds = list(range(1, min(config.num_server_rounds, _MOST_TRIED_ROUNDS) + 1))

    def numbers() -> list[tuple[int, int]]:
        return [
            (
                call_again(PARTICIPATIONS, name, partial(num_training, config, size, global_round, leaf)),
                leaf,
            )
            for global_round in rounds
            for leaf, size in enumerate(sizes)
        ]

    is_code = hierarchy.participants is None
    count, leaf = min(call_checked(PARTICIPATIONS, name, numbers) if is_code else numbers())
    return leaf, count


def _refuse_too_many(participants: Participation, rounds: Sequence[int], sizes: Sequence[int]) -> None:
    """Raise ConfigError when more clients should train than a leaf has."""
    for global_round in rounds:
        for leaf, size in enumerate(sizes):
            number = participants.number_at(global_round, leaf)
            if isinstance(number, int) and number > size:
                raise ConfigError(
                    f"hierarchy.participation must be at most the clients that a leaf trains, but asks for "
                    f"{number} of leaf {leaf} from round {global_round} on, which has {size}; lower it, or "
                    f'say "all"'
                )


def refuse_missing_quorum(config: Config, sizes: Sequence[int]) -> None:
    """Raise ConfigError when a leaf has fewer training clients than its strategy or the guard needs.

    Args:
        config: configuration, of which `leaf`, `guard`, `privacy` and `hierarchy` are read.
        sizes: number of clients of each leaf.
    """
    smallest, training = fewest_training(config, sizes)
    needed = needed_replies(config)
    status = f"leaf {smallest} trains {training} in a leaf round"
    if needed > training and needed == config.guard.min_clients:
        raise ConfigError(
            f"guard.min-clients must be at most the clients that a leaf trains, but is {needed} and "
            f"{status}; lower it, or give the leaf more clients"
        )
    _refuse_void_guarantee(config, needed, training, status)
    # the count of clipped updates gets noise of n/20; with it, the total noise is at most doubled
    noise = config.privacy.noise_multiplier
    if config.privacy.is_adaptive and noise >= training / 10:
        raise ConfigError(
            f"privacy.noise-multiplier must be below a tenth of the clients that a leaf trains for adaptive "
            f"clipping, but is {noise:g} and {status}; lower it, or use a fixed norm"
        )


def _refuse_void_guarantee(config: Config, needed: int, training: int, status: str) -> None:
    """Raise ConfigError for a built-in strategy whose guarantee needs more clients than train."""
    leaf = config.leaf
    if RULES.is_own(leaf.strategy):
        return
    arguments = leaf.arguments("strategy")
    _refuse_trimming_nothing(arguments.get(_CUT, 0), training, status)
    selected, malicious = arguments.get(_SELECTED, 0), arguments.get(_MALICIOUS, 0)
    if selected > max(training - malicious - 2, 0):
        raise ConfigError(
            f"{_key(_SELECTED)} must be at most the clients that a leaf trains less the malicious ones and "
            f"two, but is {selected} and {status}; lower it, or set 0 for as many as may be"
        )
    if needed > training:
        detail = f" for {_key(_MALICIOUS)}={malicious}" if _MALICIOUS in arguments else ""
        raise ConfigError(
            f"leaf.strategy {leaf.strategy} needs {needed} clients{detail}, but {status}; "
            f"{_quorum_hint(config, training)}"
        )


def _quorum_hint(config: Config, training: int) -> str:
    """Next step for an error: options to change if fewer clients train than the strategy needs."""
    leaf, hierarchy = config.leaf, config.hierarchy
    arguments = leaf.arguments("strategy")
    fewer = range(arguments.get(_MALICIOUS, 0) - 1, -1, -1)
    possible = (
        number for number in fewer if _is_possible(leaf.strategy, {**arguments, _MALICIOUS: number}, training)
    )
    lower = next(possible, None)
    leaves = f"lower {hierarchy.leaves_option}, " if hierarchy.num_servers > 1 else ""
    least = "" if lower is None else f"lower {_key(_MALICIOUS)} to {lower}, "
    return f"{least}{leaves}use more clients, or set another leaf.strategy"


def _is_possible(strategy: str, arguments: Mapping[str, Any], training: int) -> bool:
    """Whether a strategy takes these arguments, and its guarantee holds with `training` clients."""
    try:
        RULES.arguments(strategy, arguments)
    except ConfigError:
        return False
    return RULES.quorum(strategy, arguments) <= training


def _key(argument: str) -> str:
    """Key of a strategy's argument."""
    return f"{RULES.option}-args.{argument.replace('_', '-')}"


def _refuse_trimming_nothing(cut: float, training: int, status: str) -> None:
    """Raise ConfigError for a trimmed mean that cuts no client at either end, which is a plain mean."""
    if cut == 0 or int(cut * training) >= 1:
        return
    key = _key(_CUT)
    if training < 3:
        hint = f"{key}=0, or use leaves of 3 or more clients"
    else:
        hint = f"at least {key}={(100 // training + 1) / 100:g}"
    raise ConfigError(
        f"{key} must cut at least one client at each end, but {cut:g} of {training} is none ({status}); set "
        f"{hint}"
    )
