"""A cluster's resources for a client; a real one is asked in runs/engines/test_ray_cluster.py."""

import pytest

from fedge.config.registers.option import ConfigError
from fedge.engine.cluster import address_of, refuse_oversized_clients, words_of_cluster
from fedge.engine.federation import Federation

NODES = [{"CPU": 2.0, "memory": 1e9}, {"CPU": 8.0, "GPU": 1.0}]


@pytest.mark.parametrize("federation", [Federation(9, 8), Federation(9, 1, 0.5), Federation(9, 2, 0)])
def test_a_client_needs_one_machine_that_has_all(federation):
    refuse_oversized_clients(federation, NODES)


@pytest.mark.parametrize("federation", [Federation(9, 10), Federation(9, 1, 2)])
def test_what_fits_on_no_machine_is_refused_although_all_together_have_it(federation):
    with pytest.raises(
        ConfigError, match="and its machines have 2 CPUs and 0 GPUs; 8 CPUs and 1 GPUs; change"
    ):
        refuse_oversized_clients(federation, NODES)


def test_a_federation_names_its_cluster_before_the_environment_does(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert address_of({"address": "10.0.0.2:6379"}) == "10.0.0.2:6379"
    assert address_of({"address": "auto"}) == "10.0.0.1:6379"
    assert address_of({}) == "10.0.0.1:6379"


def test_a_cluster_is_named_by_the_command_with_which_a_run_goes_on(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert words_of_cluster({"address": "10.0.0.2:6379"}) == " --address 10.0.0.2:6379"
    assert words_of_cluster({}) == words_of_cluster({"address": "local"}) == ""
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert words_of_cluster({}) == " --address 10.0.0.1:6379"
