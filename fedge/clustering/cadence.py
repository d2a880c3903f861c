"""Cloud steps with a comparison of leaves: all until groups have settled, then every n-th.

In a comparison all clients may have to evaluate the models of all leaves. This is worth its price while
groups are being found; once they have settled, an occasional comparison shows whether they still hold.
"""

from collections.abc import Mapping
from typing import Any

from fedge.states.restore_checks import checked_int


def is_split_due(global_round: int, split_round: int, every: int, is_first: bool) -> bool:
    """Whether a cloud step is the first in or after the round of the only grouping.

    Args:
        global_round: global round of the step.
        split_round: global round of the grouping.
        every: global rounds from one cloud step to the next.
        is_first: there has been no cloud step before.
    """
    return (is_first or global_round - every < split_round) and split_round <= global_round


class Pace:
    """Counts cloud steps and comparisons.

    A quiet comparison changes no group and leaves none waiting for confirmation.

    Attributes:
        quiet: quiet comparisons in a row.
        since: cloud steps since the latest comparison.
    """

    def __init__(self, every: int, settled_after: int) -> None:
        """Start with unsettled groups.

        Args:
            every: cloud steps from one comparison to the next once groups have settled.
            settled_after: quiet comparisons in a row after which they have.
        """
        self._every, self._settled_after = every, settled_after
        self.quiet = 0
        self.since = 0

    @property
    def is_due(self) -> bool:
        """Whether the coming cloud step compares."""
        return self.quiet < self._settled_after or self.since + 1 >= self._every

    def note_comparison(self, quiet: bool) -> None:
        """Record a step with a comparison; without one, the comparison remains due."""
        self.quiet = self.quiet + 1 if quiet else 0
        self.since = 0

    def note_rest(self) -> None:
        """Record a step in which no comparison was due."""
        self.since += 1

    def facts(self) -> dict[str, Any]:
        """Everything as JSON, for `restore`."""
        return {"quiet": self.quiet, "since": self.since}

    def restore(self, facts: Mapping[str, Any]) -> None:
        """Restore the result of `facts`; ValueError for anything else."""
        self.quiet = checked_int(facts["quiet"], "the number of quiet comparisons")
        self.since = checked_int(facts["since"], "the number of cloud steps since a comparison")
