"""Tree of servers on a page: nested rows with a score each, initially folded if there are many."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedge.console.palette import colour, css_name

MOST_SHOWN = 40  # initially open rows
MOST_BELOW = 40  # servers drawn below one


@dataclass(frozen=True)
class Branch:
    """A server, with the servers below it.

    Attributes:
        name: its tier and path.
        value: its score as text.
        share: length of the score's bar, 0..1; None for no bar.
        marks: short words beside it.
        cluster: cluster determining its colour; None for none.
        below: servers below it, in order.
        left_out: words about omitted servers below; empty if all are drawn.
        is_open: whether those below are initially shown.
    """

    name: str
    value: str
    share: float | None = None
    marks: Sequence[str] = ()
    cluster: int | None = None
    below: Sequence["Branch"] = ()
    left_out: str = ""
    is_open: bool = False

    @property
    def colour(self) -> str:
        """CSS variable of its cluster's colour."""
        return css_name(colour(self.cluster or 0)) or "--grey"

    @property
    def width(self) -> str:
        """Width of the bar, for CSS."""
        return f"{100 * (self.share or 0.0):.1f}%"


def open_tiers(root: Branch, most: int = MOST_SHOWN) -> Branch:
    """Tree with as many whole tiers open, from the root down, as fit in `most` rows.

    >>> leaves = [Branch(f"leaf {n}", "") for n in range(3)]
    >>> tree = Branch("cloud", "", below=[Branch("region", "", below=leaves)] * 2)
    >>> [(open_tiers(tree, n).is_open, open_tiers(tree, n).below[0].is_open) for n in (2, 3, 9)]
    [(False, False), (True, False), (True, True)]
    """
    depth, rows, tier = 0, 1, [root]
    while tier and rows + sum(len(branch.below) for branch in tier) <= most:
        tier = [child for branch in tier for child in branch.below]
        depth, rows = depth + 1, rows + len(tier)
    return _open_to_depth(root, depth)


def _open_to_depth(branch: Branch, tiers: int) -> Branch:
    return replace(
        branch,
        is_open=tiers > 0 and bool(branch.below),
        below=[_open_to_depth(b, tiers - 1) for b in branch.below],
    )
