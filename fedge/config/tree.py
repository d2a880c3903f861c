"""Parsing of the tree of servers, from the cloud down to leaves and clients.

A node is named by its path: () the root, (1, 0) the first child of its second child. All leaves have the same
depth, so servers of one depth form a tier: tier 0 is the root, the last one the leaves.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fedge.config.registers.option import ConfigError, shown

Path = tuple[int, ...]
"""From the root down: which child, then which child of that, …"""

_EXAMPLE = 'set for example hierarchy.tree="2x3x4"'
_MOST_TIERS = 8
_MOST_LEAVES = 100_000
_MOST_DIGITS = 5
_FAULTS = (
    (r"\(,", "has a comma behind a bracket that opens"),
    (r",\)", "has a comma before a bracket that closes"),
    (r",,", "has two commas in a row"),
    (r"\)\(|[0-9]\(|\)[0-9]", "lacks a comma between two children"),
    (r"^,|,$", "begins or ends with a comma"),
    (r"\(\)", "has a server without children"),
)  # pattern → fault of a tree in brackets


def dotted(path: Path) -> str:
    """Path as written in tables and files: "1.0"; "" for the root."""
    return ".".join(map(str, path))


def require_server_path(text: str, said_by: str) -> None:
    """Raise ConfigError unless a text is the path of a server below the root, such as "1" or "1.0"."""
    if (
        not re.fullmatch(r"(0|[1-9][0-9]{0,4})(\.(0|[1-9][0-9]{0,4}))*", text)
        or text.count(".") > _MOST_TIERS
    ):
        raise ConfigError(
            f"{said_by} must be the path of a server below the cloud, from the cloud's child down as 1 or "
            f"1.0, but is {shown(text)}"
        )


@dataclass(frozen=True)
class Tree:
    """Servers under servers.

    Attributes:
        children: one tree per child of the root; empty for a leaf, whose children are clients.
        clients: number of clients of a leaf; 0 if they are split evenly over the leaves.
    """

    children: tuple["Tree", ...] = ()
    clients: int = 0

    @property
    def tiers(self) -> int:
        """Number of tiers of servers, including the root and the leaves; 1 for a single leaf."""
        return 1 + (self.children[0].tiers if self.children else 0)

    def leaves(self) -> Iterator["Tree"]:
        """Leaves, from left to right."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves()

    def servers(self, tier: int) -> "Iterator[Tree]":
        """Trees of all servers of a tier, from left to right."""
        if tier == 0:
            yield self
        for child in self.children if tier else ():
            yield from child.servers(tier - 1)

    def paths(self, tier: int, prefix: Path = ()) -> list[Path]:
        """Paths of all servers of a tier, from left to right.

        >>> parse_tree("2x2x4").paths(2)
        [(0, 0), (0, 1), (1, 0), (1, 1)]
        """
        if tier == 0:
            return [prefix]
        return [path for n, child in enumerate(self.children) for path in child.paths(tier - 1, (*prefix, n))]

    @property
    def clients_per_server(self) -> str:
        """Value of `hierarchy.clients-per-server` for this tree."""
        counts = [leaf.clients for leaf in self.leaves()]
        return ",".join(map(str, counts)) if all(counts) else "auto"


def parse_tree(text: str) -> Tree:
    """Parse a tree written as "2x3x4" or "((3,3),(2,2,2))".

    The first form gives the number of children per server on each tier from the root down, and last the
    clients per leaf, or "*" to split the clients evenly. The second form lists the clients of every leaf.

    Raises:
        ConfigError: the text is malformed.

    >>> parse_tree("2x3x4") == parse_tree("((4,4,4),(4,4,4))")
    True
    >>> parse_tree("((3,3),(2,2,2))").clients_per_server, parse_tree("3x*").clients_per_server
    ('3,3,2,2,2', 'auto')
    >>> parse_tree("9").tiers
    1
    """
    compact = re.sub(r"\s", "", text)
    if re.search(r"[0-9]\s+[0-9]", text):
        raise _parse_error(text, "has a space between two digits")
    if re.fullmatch(r"([1-9][0-9]{0,4}x)*([1-9][0-9]{0,5}|\*)", compact):
        return _parse_even(compact.split("x"))
    if re.fullmatch(r"[(),0-9]+", compact) and len(compact) < 10**6:
        return _parse_nested(compact, text)
    raise _parse_error(text, _fault_of_even(compact))


def _fault_of_even(compact: str) -> str:
    """Fault of a malformed text not in brackets."""
    match = re.search(r"[^0-9x*(),]", compact)
    if match or len(compact) >= 10**6:
        return f"has {shown(match.group())}, which means nothing there" if match else "is too long"
    if not compact:
        return "is empty"
    if re.search(r"[(),]", compact):
        return "has both brackets or commas and x or *"
    for word in compact.split("x"):
        if not word:
            return "has an x without a number on both sides"
        if word.startswith("0"):
            return f"has a number that begins with 0, {shown(word)}"
        if "*" in word:
            return "has a * that is not the clients of the leaves, the last of all"
    return f"has a number of more than {_MOST_DIGITS} digits, {shown(max(compact.split('x'), key=len))}"


def _parse_even(words: list[str]) -> Tree:
    """Tree in which all servers of a tier have the same number of children."""
    servers = 1
    for word in words[:-1]:
        servers *= int(word)
    if len(words) > _MOST_TIERS or servers > _MOST_LEAVES:
        raise ConfigError(
            f"hierarchy.tree must have at most {_MOST_TIERS} tiers and {_MOST_LEAVES} leaves, but "
            f"{shown('x'.join(words))} has {len(words)} and {servers}; use a smaller one"
        )
    tree = Tree(clients=0 if words[-1] == "*" else int(words[-1]))
    for word in reversed(words[:-1]):
        tree = Tree((tree,) * int(word))
    return tree


def _parse_nested(compact: str, text: str) -> Tree:
    """Parse a tree in brackets."""
    stack: list[list[Tree]] = [[]]
    for token in re.findall(r"[(),]|[0-9]+", _with_separators(compact, text)):
        if token == "(":
            stack.append([])
            if len(stack) > _MOST_TIERS + 1:
                raise _parse_error(text, f"has more than {_MOST_TIERS} brackets within each other")
        elif token == ")":
            children = stack.pop()
            if not stack:
                raise _parse_error(text, "closes a bracket that is not open")
            stack[-1].append(Tree(tuple(children)))
        elif token != ",":
            if not 0 < int(token[:10]) < 10**6:
                raise _parse_error(text, f"has {shown(token)}, where a leaf has 1 to 999999 clients")
            stack[-1].append(Tree(clients=int(token)))
    if len(stack) != 1:
        raise _parse_error(text, "leaves a bracket open")
    if len(stack[0]) != 1:
        raise _parse_error(text, "lacks the brackets around all of it")
    tree = stack[0][0]
    if len(set(_depths(tree))) > 1:
        raise ConfigError(
            f"hierarchy.tree must have all leaves at one depth, but {shown(text)} has some higher up; "
            f"put a server between, as ((2,2),(3)) for ((2,2),3)"
        )
    return tree


def _with_separators(compact: str, text: str) -> str:
    """The text, after checking its commas between children and the places of its brackets."""
    for pattern, fault in _FAULTS:
        if re.search(pattern, compact):
            raise _parse_error(text, fault)
    return compact


def _depths(tree: Tree) -> Iterator[int]:
    """Depth of every leaf."""
    if not tree.children:
        yield 0
    for child in tree.children:
        yield from (depth + 1 for depth in _depths(child))


def _parse_error(text: str, fault: str) -> ConfigError:
    return ConfigError(
        f'hierarchy.tree must be numbers of children from the cloud down as "2x3x4", or the clients of every '
        f'leaf in brackets as "((3,3),(2,2,2))", but {shown(text)} {fault}; {_EXAMPLE}'
    )


def numbers_of_tiers(text: str, count: int, key: str) -> tuple[int, ...]:
    """Parse a whole number for each of `count` tiers: "2,3" → (2, 3); "2" stands for all tiers.

    Raises:
        ConfigError: there are too many or too few, or one is not a whole number from 1.
    """
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and len(word) < 7 and int(word) > 0 for word in words):
        raise ConfigError(
            f"{key} must be whole numbers from 1 with commas between, from the cloud's children down, but is "
            f'{shown(text)}; set for example {key}="2"'
        )
    if len(words) not in (1, count):
        raise ConfigError(
            f"{key} must be one number, or one for each of {count} tiers between cloud and leaves, but "
            f"{shown(text)} has {len(words)}; change it, or hierarchy.tree"
        )
    return tuple(map(int, words)) if len(words) == count else (int(words[0]),) * count


def parse_tiers(text: str, names: Sequence[str], key: str) -> frozenset[int]:
    """Tiers above the leaves named by an option, by number (the root is 0) or by name.

    Args:
        text: value of the option.
        names: names of all tiers, from the root down.
        key: key of the option.

    Raises:
        ConfigError: a tier does not exist, or is the leaves'.

    >>> sorted(parse_tiers("cloud, 1", ["cloud", "region", "leaf"], "cluster.tiers"))
    [0, 1]
    """
    inner = list(names[:-1])
    words = [word.strip() for word in text.split(",")]
    unknown = [word for word in words if word not in inner and word not in map(str, range(len(inner)))]
    if unknown:
        raise ConfigError(
            f"{key} must name tiers of servers over servers, from the root's 0 or by name, commas between "
            f'({", ".join(inner)}), but has {shown(unknown[0])}; set for example {key}="{len(inner) - 1}"'
        )
    return frozenset(inner.index(word) if word in inner else int(word) for word in words)


def names_of_tiers(text: str, tiers: int) -> list[str]:
    """Name of each tier, from the root down; by default cloud, region, …, leaf.

    Raises:
        ConfigError: `hierarchy.names` has too many or too few names.

    >>> names_of_tiers("", 3), names_of_tiers("", 4)
    (['cloud', 'region', 'leaf'], ['cloud', 'region-1', 'region-2', 'leaf'])
    """
    if not text:
        between = ["region"] if tiers == 3 else [f"region-{tier}" for tier in range(1, tiers - 1)]
        return ["cloud", *between, "leaf"][-tiers:]
    names = [name.strip() for name in text.split(",")]
    numbers = [name for name in names if name.isdecimal()]  # options name tiers by number, too
    if numbers:
        raise ConfigError(
            f"hierarchy.names must not have a number as a name, because options name tiers by their numbers, "
            f"too, but has {shown(numbers[0])}; set for example "
            f'hierarchy.names="{",".join(names_of_tiers("", tiers))}"'
        )
    if len(names) != tiers or len(set(names)) != tiers or not all(re.fullmatch(r"[\w -]+", n) for n in names):
        raise ConfigError(
            f"hierarchy.names must be different names for {tiers} tiers of servers, from the root down and "
            f'with commas between, but is {shown(text)}; set for example hierarchy.names="'
            f'{",".join(names_of_tiers("", tiers))}"'
        )
    return names
