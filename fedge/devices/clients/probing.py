"""Probe on the virtual clock: updates of all devices of the run's first model, for comparison only.

Without waiting, and without effect on servers' models. As in rounds, it is one look at who makes which
update: the first model, the step size of the first period, and as many windows for everybody where clients
are of several sizes (`fedge.clustering.likeness.updates.even_windows`). Devices answer whether they are there
or not, as they do in evaluations.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from flwr.app import Message, RecordDict

from fedge.clustering.likeness.updates import Likeness, Updates, even_windows
from fedge.config.config import Config
from fedge.devices.clients.algorithms import ClockAlgorithms, filled
from fedge.devices.clients.lookahead import RoundContexts, Waiting
from fedge.devices.clients.results import Population
from fedge.devices.servers.vectors import Version
from fedge.exchange.clients import Clients
from fedge.exchange.content import ARRAYS, CONFIG
from fedge.exchange.engine import LookAheadEngine
from fedge.exchange.failure import Failure
from fedge.exchange.round_context import PROBE
from fedge.exchange.schema import ReplyRejected, TrainTask, admit_train
from fedge.exchange.train import TRAIN
from fedge.tasks.chosen import task_of

_AT_ONCE = -2  # before all training


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

    def __init__(
        self,
        engine: LookAheadEngine,
        clients: Clients,
        config: Config,
        round_contexts: RoundContexts,
        first: Version,
        parameter_names: Sequence[str],
        variances: Collection[str],
        waiting: Waiting,
        algorithms: ClockAlgorithms | None = None,
    ) -> None:
        """Stand ready.

        Args:
            engine: delivers messages by urgency.
            clients: which node holds which partition.
            config: its sections on training and guard are read.
            round_contexts: facts for clients.
            first: the run's first model.
            parameter_names: its trainable entries, in layer order.
            variances: its non-negative entries.
            waiting: for replies.
            algorithms: the leaves' sides of their clients' algorithm; None where options say all.
        """
        self._algorithms = algorithms
        self._engine = engine
        self._clients = clients
        self._config = config
        self._round_contexts = round_contexts
        self._first = first
        self._parameters = tuple(parameter_names)
        self._variances = tuple(variances)
        self._waiting = waiting

    def updates(self, who: Population, evaluation: int) -> Probed:
        """Let all devices train, and compare them.

        Args:
            who: devices of the run, under the cloud's children.
            evaluation: at which they are asked, 1, 2, …
        """
        even = even_windows(list(who.windows.values()))
        context = replace(self._round_contexts(1, 1), line=PROBE, most_windows=even)
        messages = {
            device: Message(
                RecordDict({ARRAYS: self._first.record, CONFIG: context.to_record()}),
                self._clients.node(device),
                TRAIN,
            )
            for device in sorted(who.windows)
        }
        for device, message in messages.items():
            if self._algorithms is not None:
                self._algorithms.tell_beside(message, device)
        ids = {device: self._engine.push_due(message, _AT_ONCE) for device, message in messages.items()}
        seen = Updates(self._first.state, self._parameters, evaluation)
        failures: dict[int, Failure] = {}
        uplink = 0
        for device, message in messages.items():
            reply = self._waiting.reply(message, ids[device])
            if isinstance(reply, Failure):
                failures[device] = reply
                continue
            windows = who.windows[device]
            try:
                found = admit_train(reply, self._task(min(windows, even) if even else windows))
            except ReplyRejected as error:
                failures[device] = error.failure
                continue
            uplink += found.uplink_bytes
            seen.note(device, who.leaf_of[device], filled(found, self._first).state, found.samples)
        likeness = seen.likeness() if len(seen) else None
        return Probed(likeness, failures, len(messages) * self._first.nbytes, uplink)

    def _task(self, windows: int) -> TrainTask:
        """Task of a device training on so many windows."""
        train = self._config.train
        return TrainTask(
            self._first.state, windows, train.local_epochs, train.batch_size,
            self._config.guard.client_timeout, self._variances,
            least_loss=task_of(train).least_loss,
            local_steps=self._round_contexts(1, 1).local_steps,
            **({} if self._algorithms is None else self._algorithms.task(keeps=False)),
        )  # fmt: skip
