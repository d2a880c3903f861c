"""Limits on a run on the virtual clock other than time: versions, updates, bytes, joules."""

from fedge.config.sections.devices import AsynchronyConfig
from fedge.devices.state import ClockState


class RunLimits:
    """The limits of a run.

    Attributes:
        are_set: whether there is any limit.
    """

    def __init__(self, config: AsynchronyConfig) -> None:
        """Read `asynchrony.end-…`; 0 is no limit."""
        self._limits = {
            "end-versions": config.end_versions,
            "end-updates": config.end_updates,
            "end-megabytes": config.end_megabytes,
            "end-joules": config.end_joules,
        }
        self.are_set = any(self._limits.values())

    def reached(self, state: ClockState) -> str:
        """The first limit reached, as a sentence; empty if none."""
        ledger = state.ledger
        current = {
            "end-versions": state.versions,
            "end-updates": ledger.taken,
            "end-megabytes": sum(ledger.moved.values()) / 1e6,
            "end-joules": ledger.joules or 0.0,
        }
        for name, limit in self._limits.items():
            if limit and current[name] >= limit:
                return f"asynchrony.{name} {limit:g} was reached at {state.clock.now_us / 1e6:g} virtual s"
        return ""
