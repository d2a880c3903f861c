"""State of a run on the virtual clock at an evaluation: time, versions, training devices."""

from dataclasses import dataclass

from hhar.quantity import quantity


@dataclass(frozen=True)
class VersionRow:
    """One evaluation, a row of devices/versions.csv. Totals are over the run so far.

    Attributes:
        evaluation: 1, 2, …
        virtual_s: time of the evaluation, in virtual seconds.
        version: number of versions made by the servers of clients' models.
        updates, jobs: number of results used, and of all ended jobs.
        seen_score, unseen_score: mean over clients of the task's first test score, for users seen in training
            and for unseen ones.
        up, down, cloud_up, cloud_down: bytes of models.
        mean_staleness: mean staleness of all arrivals; None before the first.
        utilisation: share of the available device time spent on jobs, 0..1.
        wasted: lost share of the time spent on jobs, 0..1.
        gini: Gini coefficient of the devices' numbers of updates.
        events: number of events of the virtual clock.
        server_busy: share of virtual time in which leaves were busy with rules, 0..1.
        in_line: ended jobs waiting for a busy leaf.
        at_work: number of devices training now.
        leaf_versions: number of model versions over all leaves.
        cloud_staleness: mean staleness of models sent by leaves; None before the first.
        cloud_busy: share of virtual time in which the cloud was busy with rules, summed over groups.
        cloud_in_line: leaves' models waiting for a busy cloud.
        places: target number of devices training at a time.
        partial: number of updates from only a part of the steps (`devices.partial-work`).
        joules: energy of devices for ended jobs; None if their power is unknown.
    """

    evaluation: int
    virtual_s: float
    version: int
    updates: int
    jobs: int
    seen_score: float | None
    unseen_score: float | None
    up: int
    down: int
    cloud_up: int
    cloud_down: int
    mean_staleness: float | None
    utilisation: float
    wasted: float
    gini: float
    events: int
    server_busy: float = 0.0
    in_line: int = 0
    at_work: int = 0
    leaf_versions: int = 0
    cloud_staleness: float | None = None
    cloud_busy: float = 0.0
    cloud_in_line: int = 0
    joules: float | None = None
    places: int = 0
    partial: int = 0

    def words(self) -> str:
        """One line for display.

        >>> row = VersionRow(1, 12.0, 340, 0, 0, None, None, 0, 0, 0, 0, 3.14, 1.0, 0.0, 0.0, 0, at_work=10,
        ...                  places=10)
        >>> row.words()
        '12.0 s virtual, 340 versions, staleness 3.1, 10 of 10 at work'
        """
        stale = "-" if self.mean_staleness is None else f"{self.mean_staleness:.1f}"
        return (
            f"{self.virtual_s:.1f} s virtual, {quantity(self.version, 'version')}, "
            f"staleness {stale}, {self.at_work} of {self.places} at work"
        )
