"""A run whose models for clients outside training differ from those for the others."""

import io

import pytest
from small_runs import small_config

from fedge import simulate


@pytest.fixture(scope="session")
def used_run(tmp_path_factory):
    """Configuration and result of a run of nine users under three leaves, one unseen in each."""
    config = small_config(
        tmp_path_factory.mktemp("used"), partition__unseen_clients=1, personal__leaf_rounds=3,
        run_name="used", train__lr=0.01, train__model="mlp-tiny",
    )  # fmt: skip
    run = simulate(config, terminal=io.StringIO())
    assert run.status == "completed", run.reason
    return config, run
