"""Site of a leaf server for a run whose clients are SuperNodes with windows of their own.

It never sees a window: it asks its clients for descriptions of theirs, hands them to the cloud, and gets from
it the scale of all clients of the run. Clients learn a run's options from messages: to the leaf
server's SuperLink all runs of the cloud are one.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedge.config.flat import from_run_config
from fedge.config.option import ConfigError
from fedge.config.topology import clients_per_leaf
from fedge.data.own import WindowsReport
from fedge.data.scaling import Scale
from fedge.edge.host import Site
from fedge.edge.orders import WAIT_S
from fedge.exchange.clients import Clients
from fedge.exchange.engine import Engine
from fedge.exchange.finding import find_again, find_clients
from fedge.exchange.roll import ALL, WHOEVER, Among, Question
from fedge.run.algorithms import form_of_algorithm
from fedge.run.facts import part_of_owners
from fedge.run.foreign_parts import refuse_code_of_cloud
from fedge.run.kernel import offers_of, shared
from fedge.run.site import RUN, clients_of_leaf, plan_of, refuse_other_leaf, site_of
from fedge.states.memory import MemoriesBehind
from fedge.states.shared import SharedStates
from fedge.training.kernels import NATIVE


class NodeSites:
    """Gives a leaf server its site for each run, as `fedge.edge.host.LeafHost` wants it."""

    def __init__(self, folder: Path, leaf: int, engine: Engine, trust_code: bool = False) -> None:
        """Stand ready.

        Args:
            folder: the leaf server's own; each run has one in it.
            leaf: which one this is.
            engine: reaches its clients.
            trust_code: say yes to code of others that options of a run name.
        """
        self._trust_code = trust_code
        self._folder = folder
        self._leaf = leaf
        self._engine = engine
        self._found: tuple[Question, Clients] | None = None  # of the run about to begin

    def tell(self, facts: Mapping[str, Any]) -> tuple[dict[int, str], list[str]]:
        """Partition id → the client's description of its windows, as text; kernels that all clients can use.

        With `guard.start-clients`, of those alone that come in time: the cloud knows how many are enough.

        Args:
            facts: of the run, as the cloud tells them.

        Raises:
            ConfigError: a client names no windows of its own, or the cloud takes this for another leaf.
            RunError: clients do not come in time, or give impossible answers.
        """
        self._refuse(facts)
        guard = from_run_config(facts["config"]).guard
        wait_s, question = float(facts.get(WAIT_S, guard.start_timeout)), _question(facts)
        quorum = WHOEVER if guard.start_clients else ALL
        clients = find_clients(self._engine, wait_s, question, among=self._among(facts), quorum=quorum)
        if len(clients.away) == len(clients):
            return {}, []
        if clients.told is None:
            raise ConfigError(
                "SuperNodes of a leaf server must name windows of their own; add data-folder, own-data or "
                "data to their --node-config"
            )
        self._found = question, clients
        texts = {client: told.to_text() for client, told in clients.told.items()}
        return texts, shared(offers_of(clients.kernels, "client"), NATIVE)

    def open(self, facts: Mapping[str, Any]) -> Site:
        """Site for a run.

        Args:
            facts: of the run, with the earlier descriptions by this leaf's clients.

        Raises:
            ConfigError: the cloud does not know of windows that clients own.
        """
        self._refuse(facts)
        if facts.get("scale") is None:
            raise ConfigError("its clients own their windows; start the cloud with fedge run --owners")
        told = {int(client): WindowsReport.of_text(text) for client, text in facts["told"].items()}
        scale = Scale(*map(tuple, facts["scale"]))
        plan = replace(plan_of(self._folder, facts), owners_scale=scale, options=_question(facts).options)
        clients = self._clients(facts, told)
        clients.wait_for_gone(plan.config.guard.return_timeout)
        dealt, shape = part_of_owners(plan.config, plan.seed, int(facts["clients"]), told, scale)
        form = form_of_algorithm(plan.config, shape, None)
        behind = (
            MemoriesBehind(plan.folder.name.removeprefix(RUN)) if form is not None and form.keeps else None
        )
        shared = SharedStates(plan.folder, in_one_process=True)  # nodes see no file of this machine
        plan = replace(plan, form=form, memories=behind, shared=shared)
        return site_of(plan, self._leaf, dealt, shape, clients, shared.close)

    def _refuse(self, facts: Mapping[str, Any]) -> None:
        """Raise ConfigError for a run of another leaf, or with code that this user has said no yes to."""
        refuse_other_leaf(self._leaf, facts)
        refuse_code_of_cloud(from_run_config(facts["config"]), self._folder, self._trust_code)

    def _clients(self, facts: Mapping[str, Any], told: Mapping[int, WindowsReport]) -> Clients:
        """The clients as they were asked.

        A leaf server that is a new process asks again, and one of whose clients the cloud knows others than
        those that were there: of absent ones by its checkpoint, and nothing of some that the run began
        without.
        """
        found, self._found = self._found, None
        if found is not None and found[0] == _question(facts) and told.keys() == (found[1].told or {}).keys():
            return found[1]
        guard = from_run_config(facts["config"]).guard
        wait_s = min(guard.return_timeout, guard.start_timeout / 2)  # the cloud waits for the answer
        return find_again(self._engine, wait_s, _question(facts), self._among(facts), told)

    def _among(self, facts: Mapping[str, Any]) -> Among:
        """This leaf's clients, among those of the run."""
        total = int(facts["clients"])
        sizes = clients_per_leaf(from_run_config(facts["config"]).hierarchy, total)
        return Among(clients_of_leaf(sizes, self._leaf), total)


def _question(facts: Mapping[str, Any]) -> Question:
    """Question to nodes at their first call in a run."""
    return Question("", int(facts["seed"]), json.dumps(facts["config"], sort_keys=True))
