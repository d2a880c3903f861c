"""A callback: end the run once the cloud has made the same clusters for some global rounds in a row."""

from fedge.callbacks import Callback, Round


class Settled(Callback):
    """Watch the clusters.

    Args:
        rounds: global rounds in a row with the same clusters after which the run ends.
    """

    def __init__(self, rounds: int = 5) -> None:
        self.rounds = rounds
        self.labels = ""
        self.since = 0  # what has changed since then comes back when a run goes on

    def end_round(self, round_: Round) -> str | None:
        """Compare the clusters with those of the round before; a reason ends the run."""
        labels = round_.numbers["cluster_labels"]
        if labels != self.labels:
            self.labels, self.since = labels, round_.global_round
        same = round_.global_round - self.since + 1
        return f"clusters have been {labels} for {same} global rounds" if same >= self.rounds else None
