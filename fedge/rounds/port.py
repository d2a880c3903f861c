"""Port: a global round's requests to leaf servers, wherever they are.

    train      a leaf round at all leaves of a line, and their models' moves
    probe      a leaf round from one model, for comparison only
    evaluate   clients evaluate models on their own windows

Replies are models of leaves and numbers of clients: no model of a client passes here. `routed` has leaf
servers within this process; `fedge.edge` has separate leaf servers.
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
from fedge.rounds.measurements.wanted import ProbeRequest
from fedge.rounds.task import RunTask
from fedge.rounds.transport import Transport


class LeafPort(Protocol):
    """Leaf servers with their clients; each call reaches all leaves at once and keeps the round's book."""

    def train(self, training: TrainingLine, leaf_round: int) -> int:
        """Let leaves, or forks of them, train; they move to the resulting models.

        Args:
            training: the trained line.
            leaf_round: counted through the run.

        Returns:
            How many replies of clients count.

        Raises:
            RunError: the clients' engine has stopped.
        """

    def probe(self, asked: ProbeRequest) -> Probe:
        """Let leaves train one model for a leaf round, which counts for nothing but comparison."""

    def evaluate(self, asked: EvaluationRequest, phase: str = "") -> dict[int, EvaluateReply]:
        """Let clients evaluate models; return the accepted evaluations, client by client.

        Args:
            asked: clients, and models to evaluate.
            phase: is charged with all of the time, where the exchange is no step of its own.
        """

    def has_combined(self, region: Region) -> bool:
        """Whether a region whose round ends has carried it out elsewhere: it has its model already."""

    def facts(self) -> dict[str, Any]:
        """State of leaf servers in a checkpoint, as JSON."""

    def restore(self, facts: Mapping[str, Any]) -> None:
        """Restore the result of `facts`.

        Raises:
            RunError: the run had leaf servers of another kind, which hold its state.
        """


@runtime_checkable
class TrainsAhead(Protocol):
    """Leaf servers with joint evaluation, and training for the next global round, in one exchange."""

    def evaluate_and_train(
        self, asked: EvaluationRequest, training: TrainingLine, leaf_round: int
    ) -> dict[int, EvaluateReply]:
        """Let clients evaluate models, and train for the leaf round with which the next global round begins.

        No model changes before `train` is called for this leaf round; errors of training are raised there.

        Args:
            asked: clients, and models to evaluate.
            training: the line: the leaves as they begin the next global round.
            leaf_round: counted through the run.

        Returns:
            The accepted evaluations, client by client.
        """


@dataclass(frozen=True)
class Around:
    """Parts from which a port is made.

    Attributes:
        task: of the run.
        leaves: in order.
        transport: has the book of the round.
        regions: between cloud and leaves, lowest tier first.
    """

    task: RunTask
    leaves: Sequence[Leaf]
    transport: Transport
    regions: Sequence[Region] = ()


PortMaker = Callable[[Around], LeafPort]


@dataclass(frozen=True)
class RunFacts:
    """Facts of a run for leaf servers.

    Attributes:
        run: names the run, also after a resume.
        begin: facts for them before the first order.
        checkpoints: how many of the newest a run may go on from.
        told: partition id → its client's description of its windows, as text, where clients own them.
    """

    run: str
    begin: Mapping[str, Any]
    checkpoints: int
    told: Mapping[int, str] = field(default_factory=dict)


@runtime_checkable
class LeafEngine(Protocol):
    """Additions to an engine with separate leaf servers.

    Attributes:
        resume_words: further arguments of the command that resumes the run.
    """

    resume_words: str

    def make_port(self, facts: RunFacts, around: Around) -> LeafPort:
        """Factory of the port through which leaf servers get their orders."""

    def do_without(self, clients: Collection[int]) -> None:
        """Stop waiting for leaf servers of clients that did not come; they may come any time."""
