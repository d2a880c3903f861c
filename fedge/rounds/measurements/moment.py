"""A moment of a run on the virtual clock: its time, versions made, devices at work."""

from dataclasses import dataclass

from hhar.quantity import quantity


@dataclass(frozen=True)
class VersionRow:
    """One evaluation; a row of devices/versions.csv. Totals are of the run so far.

    Attributes:
        evaluation: 1, 2, …
        virtual_s: when, in virtual seconds.
        version: updates of the evaluated model, by its server.
        updates, jobs: results used, and all ended jobs.
        seen_score, unseen_score: mean over clients of the task's first test score, of users seen in training
            or not.
        up, down, cloud_up, cloud_down: bytes of models.
        mean_staleness: over all arrivals; None before the first.
        utilisation: virtual time at work over that of all places, 0..1.
        wasted: lost share of the time at work, 0..1.
        gini: of the devices' numbers of updates.
        events: of the virtual clock.
        server_busy: share of virtual time in which rules occupied their leaves, 0..1.
        in_line: ended jobs waiting for a busy leaf.
        at_work: devices at this moment.
        leaf_versions: made by leaves, over all leaves.
        cloud_staleness: mean over all sent by leaves; None before the first.
        cloud_busy: share of virtual time in which rules occupied the cloud; groups add up.
        cloud_in_line: models of leaves waiting for a busy cloud.
        places: target number of devices at work at a time.
        partial: updates of a part of their steps (`devices.partial-work`).
        joules: spent by devices on ended jobs; None where their power is not known.
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
        """The moment in a line, for viewers.

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
