"""Memory of the nodes of a deployment in a round: own measurements, from their last answers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fedge.process.identity import machine_number, pid_of
from fedge.process.resources.memory import ProcessMemory
from fedge.timing.timeline import ExchangeTimes


class NodeBook:
    """Puts together nodes' reports, and gives their machines names, which are not reported.

    A machine has the name of its first answering client: ``client 3``.
    """

    def __init__(self, server: int) -> None:
        """Start; `server` is the server's process number, whose machine has no name."""
        self._here = machine_number(server)
        self._names: dict[int, str] = {}

    @property
    def names(self) -> Mapping[int, str]:
        """Number of a machine → its name."""
        return self._names

    def round(self, exchanges: Sequence[ExchangeTimes]) -> list[ProcessMemory]:
        """The processes of all answering nodes of a round, by each one's last measurement."""
        newest: dict[int, Sequence[ProcessMemory]] = {}
        for exchange in exchanges:
            newest.update(exchange.held)
        return [self._placed(client, one) for client in sorted(newest) for one in newest[client]]

    def _placed(self, client: int, process: ProcessMemory) -> ProcessMemory:
        """A process with the name of its machine; on the server's it is known by process ids."""
        machine = machine_number(process.number)
        if machine == self._here:
            return replace(process, number=pid_of(process.number))
        return replace(process, machine=self._names.setdefault(machine, f"client {client}"))
