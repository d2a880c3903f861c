"""Parsing of `asynchrony.groups`, fixed groups of leaves."""

from fedge.config.registers.option import ConfigError, shown


def static_groups(groups: str, leaves: int) -> list[int]:
    """Group of each child of the cloud by `asynchrony.groups`, numbered by first appearance.

    >>> static_groups("5,2,5", 3), static_groups("", 3)
    ([0, 1, 0], [0, 0, 0])

    Raises:
        ConfigError: the text is not one whole number per leaf.
    """
    if not groups:
        return [0] * leaves
    words = [word.strip() for word in groups.split(",")]
    if len(words) != leaves or not all(word.isdecimal() and len(word) < 10 for word in words):
        example = ",".join(str(leaf % 2) for leaf in range(leaves))
        raise ConfigError(
            f"asynchrony.groups must be a whole number for each of {leaves} children of the cloud, "
            f'with commas between, but is {shown(groups)}; set for example asynchrony.groups="{example}"'
        )
    numbers = list(dict.fromkeys(map(int, words)))
    return [numbers.index(int(word)) for word in words]
