"""Options of planted groups: parsing of texts such as "1,5" and "10:2,20:1", and checks.

Groups consist of leaves. A scenario may begin, end and move leaves between groups, always at the start of a
global round (`fedge.data.scenario` draws the members).
"""

from itertools import pairwise

from fedge.config.registers import parts, traits
from fedge.config.registers.option import ConfigError, shown
from fedge.config.run_options import RunOptions

_MOST_DIGITS = 9  # of a number in a list


def planted_numbers(text: str, key: str, example: str) -> list[int]:
    """Parse a list of numbers: "1,5" → [1, 5], "" → [].

    Raises:
        ConfigError: the text is not a list of positive whole numbers.
    """
    if not text.strip():
        return []
    words = [word.strip() for word in text.split(",")]
    if not all(_is_number(word) for word in words):
        raise ConfigError(
            f'{key} must be positive whole numbers as "{example}", but is {shown(text)}; '
            f'set for example {key}="{example}"'
        )
    return [int(word) for word in words]


def moves(text: str) -> list[tuple[int, int]]:
    """Parse moves, "10:2,20:1" → [(10, 2), (20, 1)]: (global round, number of leaves changing group).

    Raises:
        ConfigError: the text is malformed, or its rounds are not ascending.
    """
    if not text.strip():
        return []
    pairs = [word.strip().split(":") for word in text.split(",")]
    if not all(len(pair) == 2 and all(map(_is_number, pair)) for pair in pairs):
        raise ConfigError(
            f'scenario-moves must be rounds and leaves as "10:2,20:1", but is {shown(text)}; set for '
            f'example scenario-moves="10:1"'
        )
    parsed = [(int(global_round), int(leaves)) for global_round, leaves in pairs]
    if any(first[0] >= second[0] for first, second in pairwise(parsed)):
        raise ConfigError(
            f"scenario-moves must name rounds in rising order, each once, but is {shown(text)}; sort them"
        )
    return parsed


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdecimal() and len(word) <= _MOST_DIGITS and int(word) > 0


def files_of(path: str) -> list[str]:
    """The window files named by `data.path` for the scenario datasets, in order."""
    return [name for name in map(str.strip, path.split(",")) if name]


def group_count(config: RunOptions) -> int:
    """Number of planted groups: the number of files, the number of sizes, or `scenario-groups`."""
    if parts.SCENARIOS.has(config.scenario, traits.FILES):
        return len(files_of(config.data.path))
    sizes = planted_numbers(config.scenario_sizes, "scenario-sizes", "1,5")
    return len(sizes) or config.scenario_groups


def refuse_impossible_groups(config: RunOptions) -> None:
    """Raise ConfigError when the leaves cannot form the groups, or change groups as configured."""
    if config.scenario == "none":
        return
    leaves, leaves_option = config.hierarchy.num_servers, config.hierarchy.leaves_option
    sizes = planted_numbers(config.scenario_sizes, "scenario-sizes", "1,5")
    _refuse_wrong_files(config)
    if sizes and sum(sizes) != leaves:
        raise ConfigError(
            f"scenario-sizes must add up to {leaves_option}, because groups are of leaves, but "
            f"{config.scenario_sizes!r} adds up to {sum(sizes)} and there are {leaves}; change one of them"
        )
    if sizes and (len(sizes) < 2 or config.scenario_groups not in (2, len(sizes))):
        raise ConfigError(
            f"scenario-sizes must name two groups or more, as many as scenario-groups where that is set, but "
            f"{config.scenario_sizes!r} names {len(sizes)} and scenario-groups is {config.scenario_groups}; "
            f"remove scenario-groups, or change scenario-sizes"
        )
    if group_count(config) > leaves:
        raise ConfigError(
            f"scenario-groups must be at most {leaves_option}, because groups are of leaves, but "
            f"is {group_count(config)} for {leaves}; change one of them"
        )
    _refuse_impossible_changes(config, leaves - group_count(config))


def _refuse_wrong_files(config: RunOptions) -> None:
    """Raise ConfigError when the scenario `datasets` lacks files, or its sizes do not match their number."""
    if not parts.SCENARIOS.has(config.scenario, traits.FILES):
        return
    files, sizes = files_of(config.data.path), config.scenario_sizes
    if len(files) < 2:
        raise ConfigError(
            f"scenario {config.scenario} needs a window file for each group of leaves, but data.path is "
            f'{shown(config.data.path)}; set for example data.path="data/one.npz, data/other.npz"'
        )
    if sizes and len(planted_numbers(sizes, "scenario-sizes", "1,5")) != len(files):
        raise ConfigError(
            f"scenario-sizes must name as many groups as data.path names files, but is {sizes!r} for "
            f"{len(files)}; change one of them"
        )
    if not parts.PARTITIONS.has(config.partition.kind, traits.WHOLE_USERS):
        raise ConfigError(
            f"scenario {config.scenario} needs partition.kind to be user, because whole users belong to the "
            f'leaves of their file, but it is {config.partition.kind!r}; set partition.kind="user"'
        )


def _refuse_impossible_changes(config: RunOptions, most: int) -> None:
    """Raise ConfigError for impossible times or moves of groups; at most `most` leaves may move at once."""
    first, last, moved = config.scenario_from, config.scenario_until, moves(config.scenario_moves)
    if (first > 1 or last or moved) and parts.SCENARIOS.has(config.scenario, traits.FIXED):
        raise ConfigError(
            f"scenario {config.scenario} cannot begin, end or move, because it decides which windows clients "
            f"have, but scenario-from, scenario-until or scenario-moves is set; remove them"
        )
    if last and last < first:
        raise ConfigError(
            f"scenario-until must not come before scenario-from, but is {last} and {first}; change "
            f"one of them"
        )
    outside = [r for r, _ in moved if r <= first or (last and r > last)]
    if outside:
        raise ConfigError(
            f"scenario-moves must lie after the first round of the groups, {first}, and not behind their last"
            f"{f', {last}' if last else ''}, but names round {outside[0]}; change it"
        )
    too_many = [count for _, count in moved if count > most]
    if too_many:
        raise ConfigError(
            f"scenario-moves must leave every group a leaf, so that at most {most} can move at a time, but "
            f"names {too_many[0]}; {'lower it' if most else 'remove them'}, or raise "
            f"{config.hierarchy.leaves_option}"
        )
