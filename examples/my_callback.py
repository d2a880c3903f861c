"""A callback that ends the run once clusters have been the same for a number of global rounds."""

from fedge.callbacks import Callback, Round


class Settled(Callback):
    """Watch the clusters.

    Args:
        rounds: consecutive global rounds with the same clusters after which the run ends.
    """

    def __init__(self, rounds: int = 5) -> None:
        self.rounds = rounds
        self.labels = ""
        self.since = 0  # attributes are restored when a run resumes

    def end_round(self, round_: Round) -> str | None:
        """Compare the clusters with those of the previous round; a returned text ends the run."""
        labels = round_.numbers["cluster_labels"]
        if labels != self.labels:
            self.labels, self.since = labels, round_.global_round
        same = round_.global_round - self.since + 1
        return f"clusters have been {labels} for {same} global rounds" if same >= self.rounds else None
