"""How good a version is: the clients that hold test windows are asked, before anybody trains on."""

from collections.abc import Mapping

from fedge.devices.lookahead import RoundContexts, Waiting
from fedge.devices.vectors import Version
from fedge.exchange.clients import Clients
from fedge.exchange.engine import LookAheadEngine
from fedge.exchange.evaluate import OWN, Evaluation, evaluate_messages
from fedge.exchange.failure import Failure, loss_not_finite
from fedge.exchange.schema import ReplyRejected, admit_evaluations, not_finite_losses

_AT_ONCE = -2  # before all that trains


class Evaluating:
    """Asks clients to evaluate versions.

    Attributes:
        windows: client → test windows, of those that have any.
    """

    def __init__(
        self,
        engine: LookAheadEngine,
        clients: Clients,
        round_contexts: RoundContexts,
        windows: Mapping[int, int],
        classes: int,
        waiting: Waiting,
    ) -> None:
        """Stand ready.

        Args:
            engine: delivers messages by urgency.
            clients: which node holds which partition.
            round_contexts: what clients must know.
            windows: client → test windows; those without any are not asked.
            classes: of the data.
            waiting: for replies.
        """
        self._engine = engine
        self._clients = clients
        self._round_contexts = round_contexts
        self.windows = {client: count for client, count in sorted(windows.items()) if count}
        self._classes = classes
        self._waiting = waiting

    def evaluate(
        self, version: Version, global_round: int
    ) -> tuple[dict[int, Evaluation], dict[int, Failure]]:
        """Return client → its evaluation of a version on its test windows, and client → why there is none."""
        context = self._round_contexts(global_round, global_round)
        nodes = [self._clients.node(client) for client in self.windows]
        messages = evaluate_messages(nodes, {OWN: version.record}, ["test"], context)
        ids = [self._engine.push_due(message, _AT_ONCE) for message in messages]
        found: dict[int, Evaluation] = {}
        failures: dict[int, Failure] = {}
        for client, message, message_id in zip(self.windows, messages, ids, strict=True):
            reply = self._waiting.reply(message, message_id)
            if isinstance(reply, Failure):
                failures[client] = reply
                continue
            try:
                admitted = admit_evaluations(reply, [OWN], {"test": self.windows[client]}, self._classes)
            except ReplyRejected as error:
                failures[client] = error.failure
                continue
            found[client] = admitted[OWN, "test"]
            for where in not_finite_losses({(OWN, "test"): found[client].loss}):
                failures.setdefault(client, loss_not_finite(where))
        return found, failures
