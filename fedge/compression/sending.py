"""A server's way up: the model that it was given, its memory, and what of its own arrives above."""

from collections.abc import Mapping
from typing import Any

from fedge.compression.uplink import Uplink
from fedge.states.averaging import State


class Sending:
    """State of one server's uplink, from round to round.

    Attributes:
        sent_bytes: of a model on its way up.
    """

    def __init__(self, uplink: Uplink, seed: int, path: tuple[int, ...], given: State) -> None:
        """Begin with the model that the server above knows.

        Args:
            uplink: of the tier.
            seed: root of the random streams.
            path: of the server.
            given: first model.
        """
        self._uplink, self._seed, self._path = uplink, seed, path
        self._given, self._memory, self._sent = given, dict[str, Any](), 0
        self.sent_bytes = uplink.sent_bytes(given)

    def send(self, model: State) -> State:
        """The model as the server above decodes it; the memory goes on."""
        self._sent += 1
        where = (len(self._path), *self._path, self._sent)
        found = self._uplink.upload(self._given, model, self._memory, self._seed, *where)
        self._memory = dict(found.memory)
        return found.state

    def took(self, model: State) -> None:
        """Take in the model that the server above has given, from which the next update is counted."""
        self._given = model

    def states(self) -> dict[str, State]:
        """States that it keeps from round to round."""
        return {"sending.given": self._given, **({"sending.memory": self._memory} if self._memory else {})}

    def facts(self) -> dict[str, Any]:
        """Further state as JSON."""
        return {"sent": self._sent}

    def restore(self, states: Mapping[str, State], facts: Mapping[str, Any]) -> None:
        """Restore the result of `states` and `facts`."""
        self._given = states["sending.given"]
        self._memory = dict(states.get("sending.memory", {}))
        self._sent = int(facts["sent"])
