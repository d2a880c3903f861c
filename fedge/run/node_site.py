"""Site of a leaf server for a run whose clients are SuperNodes with windows of their own.

The leaf server never sees a window: it asks its clients for descriptions, sends these to the cloud, and
receives the common scale. Clients receive a run's options in messages, because all runs of a cloud are a
single Flower run at the leaf server's SuperLink.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError
from fedge.config.topology import clients_per_leaf
from fedge.data.own_windows import WindowsReport
from fedge.data.scaling import Scale
from fedge.edge.order_execution import Site
from fedge.edge.packets.orders import WAIT_S
from fedge.exchange.clients import Clients
from fedge.exchange.engine import Engine
from fedge.exchange.finding import find_again, find_clients
from fedge.exchange.hello import Question
from fedge.exchange.node_registry import ALL, WHOEVER, Among
from fedge.run.kernel import common_kernels, offers_of
from fedge.run.preparation.algorithms import form_of_algorithm
from fedge.run.preparation.data_facts import part_of_owners
from fedge.run.preparation.foreign_parts import refuse_code_of_cloud
from fedge.run.site import RUN, clients_of_leaf, refuse_other_leaf, site_of, site_plan
from fedge.states.memory import LeafServerMemories
from fedge.states.state_files import SharedStates
from fedge.training.kernels import NATIVE


class NodeSites:
    """Factory of a leaf server's site for each run, for `fedge.edge.host.LeafHost`."""

    def __init__(self, folder: Path, leaf: int, engine: Engine, trust_code: bool = False) -> None:
        """Sites of one leaf server.

        Args:
            folder: the leaf server's folder; each run has a folder in it.
            leaf: number of the leaf.
            engine: connection to the leaf's clients.
            trust_code: whether to trust the code named by a run's options.
        """
        self._trust_code = trust_code
        self._folder = folder
        self._leaf = leaf
        self._engine = engine
        self._found_clients: tuple[Question, Clients] | None = None  # for the next run

    def describe_owners(self, facts: Mapping[str, Any]) -> tuple[dict[int, str], list[str]]:
        """Partition id → description of the client's windows, as text; and the kernels common to all clients.

        With `guard.start-clients`, only clients that reply in time: the cloud knows how many are enough.

        Args:
            facts: the run's facts, sent by the cloud.

        Raises:
            ConfigError: a client does not name its own windows, or the cloud expects another leaf here.
            RunError: clients do not connect in time, or give impossible answers.
        """
        self._refuse_unfit_run(facts)
        guard = from_run_config(facts["config"]).guard
        wait_s, question = float(facts.get(WAIT_S, guard.start_timeout)), _question(facts)
        quorum = WHOEVER if guard.start_clients else ALL
        clients = find_clients(self._engine, wait_s, question, among=self._leaf_clients(facts), quorum=quorum)
        if len(clients.away) == len(clients):
            return {}, []
        if clients.reports is None:
            raise ConfigError(
                "SuperNodes of a leaf server must name windows of their own; add data-folder, own-data or "
                "data to their --node-config"
            )
        self._found_clients = question, clients
        texts = {client: report.to_text() for client, report in clients.reports.items()}
        return texts, common_kernels(offers_of(clients.kernels, "client"), NATIVE)

    def open(self, facts: Mapping[str, Any]) -> Site:
        """Site for a run.

        Args:
            facts: the run's facts, with the descriptions given by this leaf's clients.

        Raises:
            ConfigError: the cloud was started without --owners.
        """
        self._refuse_unfit_run(facts)
        if facts.get("scale") is None:
            raise ConfigError("its clients own their windows; start the cloud with fedge run --owners")
        reports = {int(client): WindowsReport.of_text(text) for client, text in facts["told"].items()}
        scale = Scale(*map(tuple, facts["scale"]))
        plan = replace(site_plan(self._folder, facts), owners_scale=scale, options=_question(facts).options)
        clients = self._clients(facts, reports)
        clients.wait_for_gone(plan.config.guard.return_timeout)
        dealt, shape = part_of_owners(plan.config, plan.seed, int(facts["clients"]), reports, scale)
        form = form_of_algorithm(plan.config, shape, None)
        behind = (
            LeafServerMemories(plan.folder.name.removeprefix(RUN))
            if form is not None and form.keeps
            else None
        )
        shared = SharedStates(plan.folder, in_one_process=True)  # nodes see no file of this machine
        plan = replace(plan, form=form, memories=behind, shared=shared)
        return site_of(plan, self._leaf, dealt, shape, clients, shared.close)

    def _refuse_unfit_run(self, facts: Mapping[str, Any]) -> None:
        """Raise ConfigError for a run of another leaf, or with code not trusted by this user."""
        refuse_other_leaf(self._leaf, facts)
        config = from_run_config(facts["config"])
        parts, run = facts.get("parts", {}), str(facts.get("run", ""))
        refuse_code_of_cloud(config, self._folder, self._trust_code, parts, run)

    def _clients(self, facts: Mapping[str, Any], reports: Mapping[int, WindowsReport]) -> Clients:
        """Clients found by `describe_owners`.

        A restarted leaf server finds them again. So does one whose information about a client differs from
        the cloud's: the cloud's checkpoint knows absent clients, and clients without which the run began are
        unknown.
        """
        found, self._found_clients = self._found_clients, None
        if (
            found is not None
            and found[0] == _question(facts)
            and reports.keys() == (found[1].reports or {}).keys()
        ):
            return found[1]
        guard = from_run_config(facts["config"]).guard
        wait_s = min(guard.return_timeout, guard.start_timeout / 2)  # the cloud waits for the answer
        return find_again(self._engine, wait_s, _question(facts), self._leaf_clients(facts), reports)

    def _leaf_clients(self, facts: Mapping[str, Any]) -> Among:
        """This leaf's clients, among those of the run."""
        total = int(facts["clients"])
        sizes = clients_per_leaf(from_run_config(facts["config"]).hierarchy, total)
        return Among(clients_of_leaf(sizes, self._leaf), total)


def _question(facts: Mapping[str, Any]) -> Question:
    """Question to nodes in their first message of a run."""
    options = json.dumps(facts["config"], sort_keys=True)
    return Question("", int(facts["seed"]), options, parts=facts.get("parts", {}))
