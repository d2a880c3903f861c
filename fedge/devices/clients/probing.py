"""Probe on the virtual clock: updates of all devices of the run's first model, for comparison only.

Without waiting, and without effect on servers' models. As in rounds, it is one look at who makes which
update: the first model, the step size of the first period, and as many windows for everybody where clients
are of several sizes (`fedge.clustering.likeness.updates.even_windows`). Devices answer whether they are there
or not, as they do in evaluations.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from flwr.app import Message, RecordDict

from fedge.clustering.likeness.updates import Likeness, Updates, even_windows
from fedge.devices.clients.access import ClientAccess
from fedge.devices.clients.algorithms import filled
from fedge.devices.clients.results import Population
from fedge.devices.servers.vectors import Version
from fedge.exchange.content import ARRAYS, CONFIG
from fedge.exchange.failure import Failure
from fedge.exchange.round_context import PROBE
from fedge.exchange.schema import ReplyRejected, admit_train
from fedge.exchange.train import TRAIN


@dataclass(frozen=True)
class Probed:
    """Result of a probe.

    Attributes:
        likeness: of the devices' updates; None where nobody has answered.
        failures: device → reason for a missing update.
        downlink_bytes, uplink_bytes: of the models, to all asked and from all answering devices.
    """

    likeness: Likeness | None
    failures: Mapping[int, Failure]
    downlink_bytes: int
    uplink_bytes: int


class Probing:
    """Asks all training devices for their updates of the run's first model."""

    def __init__(self, access: ClientAccess, first: Version, parameter_names: Sequence[str]) -> None:
        """Stand ready.

        Args:
            access: to the clients.
            first: the run's first model.
            parameter_names: its trainable entries, in layer order.
        """
        self._access, self._first, self._parameters = access, first, tuple(parameter_names)

    def updates(self, who: Population, evaluation: int) -> Probed:
        """Let all devices train, and compare them.

        Args:
            who: devices of the run, under the cloud's children.
            evaluation: at which they are asked, 1, 2, …
        """
        access, even = self._access, even_windows(list(who.windows.values()))
        of_round = access.round_contexts(1, 1)
        context = replace(of_round, line=PROBE, most_windows=even)
        messages = {
            device: Message(
                RecordDict({ARRAYS: self._first.record, CONFIG: context.to_record()}),
                access.clients.node(device),
                TRAIN,
            )
            for device in sorted(who.windows)
        }
        for device, message in messages.items():
            if access.algorithms is not None:
                access.algorithms.tell_beside(message, device)
        seen = Updates(self._first.state, self._parameters, evaluation)
        failures: dict[int, Failure] = {}
        uplink = 0
        for device, reply in access.replies(messages):
            if isinstance(reply, Failure):
                failures[device] = reply
                continue
            windows = min(who.windows[device], even or who.windows[device])
            try:
                task = access.task(self._first, windows, of_round.local_steps, keeps=False)
                found = admit_train(reply, task)
            except ReplyRejected as error:
                failures[device] = error.failure
                continue
            uplink += found.uplink_bytes
            seen.note(device, who.leaf_of[device], filled(found, self._first).state, found.samples)
        likeness = seen.likeness() if len(seen) else None
        return Probed(likeness, failures, len(messages) * self._first.nbytes, uplink)
