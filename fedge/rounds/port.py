"""Interface to leaf servers, in this process or elsewhere.

    train      run a leaf round at all leaves of a line, which updates their models
    probe      run a leaf round from one model, for comparison only
    evaluate   let clients evaluate models on their own windows

Replies consist of leaves' models and clients' numbers, never of clients' models. `routed_leaves` implements
leaf servers in this process, `fedge.edge` separate ones.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from fedge.cloud.probe import Probe
from fedge.cloud.region import Region
from fedge.exchange.evaluate import EvaluateReply
from fedge.leaf.leaf import Leaf
from fedge.rounds.evaluation import EvaluationRequest
from fedge.rounds.lines import TrainingLine
from fedge.rounds.measurements.requests import ProbeRequest
from fedge.rounds.task import RunTask
from fedge.rounds.transport import Transport


class LeafPort(Protocol):
    """Leaf servers with their clients; a call reaches all leaves at once and updates the round's record."""

    def train(self, training: TrainingLine, leaf_round: int) -> int:
        """Let leaves, or their forks, train and update their models.

        Args:
            training: the trained line.
            leaf_round: counted over the run.

        Returns:
            Number of accepted replies of clients.

        Raises:
            RunError: the clients' engine has stopped.
        """

    def probe(self, asked: ProbeRequest) -> Probe:
        """Let leaves train one model for a leaf round, for comparison only."""

    def evaluate(self, asked: EvaluationRequest, phase: str = "") -> dict[int, EvaluateReply]:
        """Let clients evaluate models; return the accepted evaluations, client by client.

        Args:
            asked: clients, and models to evaluate.
            phase: phase charged with the time, if the exchange is not a step itself.
        """

    def has_combined(self, region: Region) -> bool:
        """Whether a region ran the round now ending in another process, and so has its model."""

    def facts(self) -> dict[str, Any]:
        """State of leaf servers in a checkpoint, as JSON."""

    def restore(self, facts: Mapping[str, Any]) -> None:
        """Restore the result of `facts`.

        Raises:
            RunError: the run's state is held by leaf servers of another kind.
        """


@runtime_checkable
class TrainsAhead(Protocol):
    """Leaf servers able to evaluate, and train for the next global round, in one exchange."""

    def evaluate_and_train(
        self, asked: EvaluationRequest, training: TrainingLine, leaf_round: int
    ) -> dict[int, EvaluateReply]:
        """Let clients evaluate models, and train for the first leaf round of the next global round.

        No model changes until `train` is called for this leaf round, which also raises errors of training.

        Args:
            asked: clients, and models to evaluate.
            training: the leaves as they start the next global round.
            leaf_round: counted over the run.

        Returns:
            The accepted evaluations, client by client.
        """


@dataclass(frozen=True)
class PortContext:
    """Input for making a port.

    Attributes:
        task: task of the run.
        leaves: all leaves, in order.
        transport: holds the record of the round.
        regions: regions between cloud and leaves, lowest tier first.
    """

    task: RunTask
    leaves: Sequence[Leaf]
    transport: Transport
    regions: Sequence[Region] = ()


PortMaker = Callable[[PortContext], LeafPort]


@dataclass(frozen=True)
class RunFacts:
    """Facts of a run for leaf servers.

    Attributes:
        run: identifier of the run, unchanged by a resume.
        begin: facts sent to them before the first order.
        checkpoints: number of newest checkpoints from which a run may resume.
        reports: partition id → the client's own description of its windows, as text, if clients own them.
    """

    run: str
    begin: Mapping[str, Any]
    checkpoints: int
    reports: Mapping[int, str] = field(default_factory=dict)


@runtime_checkable
class LeafEngine(Protocol):
    """Further methods of an engine with separate leaf servers.

    Attributes:
        resume_words: further arguments of the command to resume the run.
    """

    resume_words: str

    def make_port(self, facts: RunFacts, around: PortContext) -> LeafPort:
        """Make the port for sending orders to leaf servers."""

    def mark_absent(self, clients: Collection[int]) -> None:
        """Stop waiting for the leaf servers of absent clients, which may still arrive later."""
