"""Memory of a deployment's nodes in a round, from their own measurements in replies."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fedge.process.identity import machine_number, pid_of
from fedge.process.resources.memory import ProcessMemory
from fedge.timing.timeline import ExchangeTimes


class NodeBook:
    """Collects reports of nodes, and names their machines, whose own names are not reported.

    A machine is named after the first of its clients to reply: ``client 3``.
    """

    def __init__(self, server: int) -> None:
        """Start; `server` is the process number of the server, whose machine has no name."""
        self._server_machine = machine_number(server)
        self._names: dict[int, str] = {}

    @property
    def names(self) -> Mapping[int, str]:
        """Number of a machine → its name."""
        return self._names

    def round(self, exchanges: Sequence[ExchangeTimes]) -> list[ProcessMemory]:
        """Processes of all nodes with a reply in a round, by the latest measurement of each."""
        newest: dict[int, Sequence[ProcessMemory]] = {}
        for exchange in exchanges:
            newest.update(exchange.held)
        return [
            self._with_machine(client, process) for client in sorted(newest) for process in newest[client]
        ]

    def _with_machine(self, client: int, process: ProcessMemory) -> ProcessMemory:
        """A process with the name of its machine; on the server's machine, with a plain process id."""
        machine = machine_number(process.number)
        if machine == self._server_machine:
            return replace(process, number=pid_of(process.number))
        return replace(process, machine=self._names.setdefault(machine, f"client {client}"))
