"""Limits on a run on the virtual clock other than time: versions, updates, bytes, joules."""

from fedge.config.sections.devices import AsynchronyConfig
from fedge.devices.state import ClockState


class Ends:
    """The limits of a run.

    Attributes:
        are_set: whether there is any limit.
    """

    def __init__(self, config: AsynchronyConfig) -> None:
        """Read `asynchrony.end-…`; 0 is no limit."""
        self._most = {
            "end-versions": config.end_versions,
            "end-updates": config.end_updates,
            "end-megabytes": config.end_megabytes,
            "end-joules": config.end_joules,
        }
        self.are_set = any(self._most.values())

    def reached(self, state: ClockState) -> str:
        """The first limit reached, as a sentence; empty if none."""
        ledger = state.ledger
        found = {
            "end-versions": state.versions,
            "end-updates": ledger.taken,
            "end-megabytes": sum(ledger.moved.values()) / 1e6,
            "end-joules": ledger.joules or 0.0,
        }
        for name, most in self._most.items():
            if most and found[name] >= most:
                return f"asynchrony.{name} {most:g} was reached at {state.clock.now_us / 1e6:g} virtual s"
        return ""
