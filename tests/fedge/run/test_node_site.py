"""Site of a leaf server whose clients own their windows; whole runs: test_leaf_servers_owners."""

from dataclasses import replace

import pytest
from small_runs import small_config

from fedge.client_app import app
from fedge.config.flat import from_run_config, to_run_config
from fedge.config.registers.option import ConfigError
from fedge.data.own_windows import WindowsReport
from fedge.engine.inprocess import InProcessGrid
from fedge.exchange.engine import RunError
from fedge.launch.deal import deal_into
from fedge.native.library import usable_kernels
from fedge.run.node_site import NodeSites
from fedge.run.preparation.prepare import deal_data


@pytest.fixture
def given(tmp_path):
    """(opener of runs at leaf 1 of two, its nodes, facts, configuration)."""
    options = small_config(tmp_path, hierarchy__num_servers=2)
    deal_into(tmp_path / "dealt", {**options, "clients": 4})
    with InProcessGrid(app, 4, {}, 1, [2, 3]) as grid:
        for context in grid._contexts.values():
            client = context.node_config["partition-id"]
            context.node_config["data-folder"] = str(tmp_path / "dealt" / f"client-{client}")
        config = from_run_config(options)
        facts = {"config": to_run_config(config), "seed": 3, "clients": 4, "leaf": 1, "run": "a run"}
        yield NodeSites(tmp_path / "leaf", 1, grid), grid, facts, config


def begun(facts, told):
    """The facts with which a run begins, without scaling."""
    return {**facts, "scale": [[], []], "told": {str(client): text for client, text in told.items()}}


def test_clients_tell_of_their_windows_and_the_leaf_knows_their_counts(given):
    sites, _, facts, config = given
    told, kernels = sites.describe_owners(facts)
    assert list(told) == [2, 3]
    assert kernels == list(usable_kernels())
    site = sites.open(begun(facts, told))
    leaf, dealt = site.make_leaf(site.model), deal_data(config, 3, 4, None).partition
    assert leaf.train_samples == {client: len(dealt.clients[client][0]) for client in (2, 3)}
    assert (
        site.task.held_out[3]["test"]
        == len(dealt.clients[3][2])
        == WindowsReport.of_text(told[3]).windows("test")
    )
    assert site.facilities.round_context(1, 1).data_folder == ""
    assert '"train.model": "linear"' in site.facilities.round_context(1, 1).options


def test_a_new_process_asks_its_nodes_again(given):
    sites, _, facts, _ = given
    told, _ = sites.describe_owners(facts)
    another = NodeSites(sites._folder, 1, sites._engine)
    site = another.open(begun(facts, told))
    assert {client: site.facilities.clients.node(client) for client in (2, 3)} == {2: 3, 3: 4}


def test_nodes_without_windows_of_their_own_are_refused(given):
    sites, grid, facts, _ = given
    for context in grid._contexts.values():
        del context.node_config["data-folder"]
    with pytest.raises(ConfigError, match="SuperNodes of a leaf server must name windows of their own"):
        sites.describe_owners(facts)


def test_a_cloud_that_knows_of_no_owners_is_told(given):
    sites, _, facts, _ = given
    with pytest.raises(ConfigError, match="start the cloud with fedge run --owners"):
        sites.open({**facts, "scale": None})
    with pytest.raises(ConfigError, match="this is leaf server 1, but the cloud expects 0 here"):
        sites.describe_owners({**facts, "leaf": 0})


def test_a_node_that_does_not_come_back_is_gone_and_no_more(given):
    """Its partition has a node that Flower does not know, until it comes."""
    sites, grid, facts, _ = given
    told, _ = sites.describe_owners(facts)
    del grid._contexts[4]
    config = {**facts["config"], "guard.return-timeout": 0.2}
    site = NodeSites(sites._folder, 1, grid).open(begun({**facts, "config": config}, told))
    clients = site.facilities.clients
    assert clients.node(2) == 3
    assert clients.node(3) not in grid.get_node_ids()
    assert replace(clients.reports[3]) == WindowsReport.of_text(told[3])


def test_with_a_quorum_a_leaf_tells_of_those_that_came(given):
    """Of a run that begins without client 3 nothing is known of its windows: it stays away for good."""
    sites, grid, facts, _ = given
    node = grid._contexts.pop(4)
    facts = {**facts, "config": {**facts["config"], "guard.start-clients": 1}, "wait_s": 0.3}
    told, kernels = sites.describe_owners(facts)
    assert (list(told), kernels) == ([2], list(usable_kernels()))
    grid._contexts[4] = node
    for opener in (sites, NodeSites(sites._folder, 1, grid)):
        site = opener.open(begun(facts, told))
        assert site.make_leaf(site.model).train_samples[3] == 0
        assert site.facilities.clients.node(2) == 3
        assert site.facilities.clients.node(3) not in grid.get_node_ids()
        assert site.facilities.clients.away == [3]


def test_with_a_quorum_a_leaf_may_have_nobody(given):
    sites, grid, facts, _ = given
    grid._contexts.clear()
    config = {**facts["config"], "guard.start-clients": 1}
    assert sites.describe_owners({**facts, "config": config, "wait_s": 0.2}) == ({}, [])
    with pytest.raises(RunError, match=r"0 of 2 clients answered within 0\.2 s; missing: partition 2, 3;"):
        sites.describe_owners({**facts, "wait_s": 0.2})


def test_a_node_of_a_resumed_run_may_come_later_with_its_windows(given):
    """The checkpoint knows what it told: it is expected, and asked again and again."""
    sites, grid, facts, _ = given
    told, _ = sites.describe_owners(facts)
    node = grid._contexts.pop(4)
    config = {**facts["config"], "guard.start-clients": 1, "guard.return-timeout": 0.2}
    facts = {**facts, "config": config, "wait_s": 0.2}
    assert list(sites.describe_owners(facts)[0]) == [2]
    clients = sites.open(begun(facts, told)).facilities.clients
    assert (clients.away, sorted(clients.reports)) == ([3], [2, 3])
    grid._contexts[4] = node
    clients = sites.open(begun(facts, told)).facilities.clients
    assert (clients.away, clients.node(3)) == ([], 4)
