"""Probe on the virtual clock: updates of the run's first model by all devices, only for comparison.

A probe takes no virtual time, and servers' models do not change. As in rounds, all updates are comparable:
they start from the first model, use the step size of the first period, and the same number of windows if
clients differ in size (`fedge.clustering.likeness.updates.even_windows`). Absent devices reply as well, as
they do in evaluations.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from flwr.app import Message, RecordDict

from fedge.clustering.likeness.updates import Likeness, Updates, even_windows
from fedge.devices.clients.access import ClientAccess
from fedge.devices.clients.algorithms import fill_missing_entries
from fedge.devices.clients.results import Population
from fedge.devices.servers.vectors import Version
from fedge.exchange.content import ARRAYS, CONFIG
from fedge.exchange.failure import Failure
from fedge.exchange.round_context import PROBE
from fedge.exchange.schema import ReplyRejected, admit_train
from fedge.exchange.train import TRAIN


@dataclass(frozen=True)
class ProbeResult:
    """Result of a probe.

    Attributes:
        likeness: comparison of the devices' updates; None without any reply.
        failures: device → reason for a missing update.
        downlink_bytes, uplink_bytes: bytes of models to all devices asked, and from all with a reply.
    """

    likeness: Likeness | None
    failures: Mapping[int, Failure]
    downlink_bytes: int
    uplink_bytes: int


class DeviceProbe:
    """Asks all training devices for updates of the run's first model."""

    def __init__(self, access: ClientAccess, first: Version, parameter_names: Sequence[str]) -> None:
        """Store the arguments.

        Args:
            access: access to the clients.
            first: the run's first model.
            parameter_names: its trainable entries, in layer order.
        """
        self._access, self._first, self._parameters = access, first, tuple(parameter_names)

    def updates(self, population: Population, evaluation: int) -> ProbeResult:
        """Let all devices train, and compare their updates.

        Args:
            population: clients of the run, under the cloud's children.
            evaluation: number of the evaluation, 1, 2, …
        """
        access, window_limit = self._access, even_windows(list(population.windows.values()))
        first_context = access.round_contexts(1, 1)
        context = replace(first_context, line=PROBE, most_windows=window_limit)
        messages = {
            device: Message(
                RecordDict({ARRAYS: self._first.record, CONFIG: context.to_record()}),
                access.clients.node(device),
                TRAIN,
            )
            for device in sorted(population.windows)
        }
        for device, message in messages.items():
            if access.algorithms is not None:
                access.algorithms.prepare_probe(message, device)
        updates = Updates(self._first.state, self._parameters, evaluation)
        failures: dict[int, Failure] = {}
        uplink = 0
        for device, reply in access.replies(messages):
            if isinstance(reply, Failure):
                failures[device] = reply
                continue
            windows = min(population.windows[device], window_limit or population.windows[device])
            try:
                task = access.task(self._first, windows, first_context.local_steps, keeps=False)
                accepted = admit_train(reply, task)
            except ReplyRejected as error:
                failures[device] = error.failure
                continue
            uplink += accepted.uplink_bytes
            updates.note(
                device,
                population.leaf_of[device],
                fill_missing_entries(accepted, self._first).state,
                accepted.samples,
            )
        likeness = updates.likeness() if len(updates) else None
        return ProbeResult(likeness, failures, len(messages) * self._first.nbytes, uplink)
