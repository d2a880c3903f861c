"""A server's uplink: its received model, its memory, and its model as decoded above."""

from collections.abc import Mapping
from typing import Any

from fedge.compression.uplink import Uplink
from fedge.states.averaging import State
from fedge.states.restore_checks import checked_int, finite, state


class Sending:
    """State of one server's uplink, from round to round.

    Attributes:
        sent_bytes: bytes of a compressed model.
    """

    def __init__(self, uplink: Uplink, seed: int, path: tuple[int, ...], base: State) -> None:
        """Start with the model known to the server above.

        Args:
            uplink: uplink of the tier.
            seed: root of the random streams.
            path: path of the server.
            base: first model.
        """
        self._uplink, self._seed, self._path = uplink, seed, path
        self._base, self._memory, self._sent = base, dict[str, Any](), 0
        self.sent_bytes = uplink.sent_bytes(base)

    def send(self, model: State) -> State:
        """The model as decoded by the server above; updates the memory."""
        self._sent += 1
        stream = (len(self._path), *self._path, self._sent)
        upload = self._uplink.upload(self._base, model, self._memory, self._seed, *stream)
        self._memory = dict(upload.memory)
        return upload.state

    def set_base(self, model: State) -> None:
        """Store the model of the server above, the base of the next update."""
        self._base = model

    def states(self) -> dict[str, State]:
        """States kept from round to round."""
        return {"sending.given": self._base, **({"sending.memory": self._memory} if self._memory else {})}

    def facts(self) -> dict[str, Any]:
        """Further state as JSON."""
        return {"sent": self._sent}

    def restore(self, states: Mapping[str, State], facts: Mapping[str, Any]) -> None:
        """Restore the result of `states` and `facts`.

        Raises:
            ValueError: they do not belong to this server.
        """
        self._base = state(states["sending.given"], self._base, "the model given to a server")
        self._memory = dict(finite(states.get("sending.memory", {}), "the memory of a server's way up"))
        self._sent = checked_int(facts["sent"], "the number of models that a server has sent")
