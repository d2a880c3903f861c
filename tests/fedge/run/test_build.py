import re
from dataclasses import replace

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvg
from small_runs import carry_out, small_config

from fedge.client_app import app
from fedge.config.registers.option import ConfigError
from fedge.config.sections import guard
from fedge.data.prepared import DataShape, write_client_data
from fedge.engine.inprocess import InProcessGrid
from fedge.exchange.clients import Clients
from fedge.leaf.leaf import Leaf
from fedge.process.resources import machine
from fedge.run.build import RunPlan, build_strategy, prepare_sharing
from fedge.run.preparation.prepare import deal_data, prepare_config
from fedge.states.state_files import SharedStates
from fedge.timing.laps import LapClock


def built(folder, shape=None, **changes):
    """Strategy and initial model of a run."""
    run_config = small_config(folder, **changes)
    prepared = prepare_config(run_config)
    deal = deal_data(prepared.config, prepared.seed, 9, None)
    real = write_client_data(folder / "data", deal.windows, deal.partition, True)
    shared = SharedStates(folder, enabled=False)
    plan = RunPlan(prepared.config, prepared.seed, folder, folder / "data", shared, LapClock())
    with InProcessGrid(app, 9, run_config, 1) as engine:
        clients = Clients(engine, {client: client + 1 for client in range(9)})
        return build_strategy(
            plan, clients, deal.partition, deal.clients_per_leaf, shape or real, lambda *_: None
        )


def test_leaves_hold_their_clients_by_training_windows(tmp_path):
    strategy, initial = built(tmp_path, hierarchy__clients_per_server="4,3,2", partition__unseen_clients=1)
    assert [leaf.clients for leaf in strategy.leaves] == [(0, 1, 2), (4, 5), (7,)]
    assert [leaf.unseen_clients for leaf in strategy.leaves] == [(3,), (6,), (8,)]
    assert all(0 < n < 16 for leaf in strategy.leaves for n in leaf.train_samples.values())
    for leaf in strategy.leaves:
        for name, array in initial.items():
            np.testing.assert_array_equal(leaf.model[name], array)


@pytest.mark.parametrize(
    ("levels", "control", "drift"), [(0, False, False), (1, True, False), (2, True, True)]
)
def test_scaffold_has_the_levels_that_are_set(tmp_path, levels, control, drift):
    changes = {"scaffold__levels": levels or 1, "scaffold__enabled": levels > 0, "gate__enabled": False}
    leaf = built(tmp_path, **changes)[0].leaves[0]
    assert (leaf.control is not None, leaf.drift is not None) == (control, drift)


def test_the_initial_model_follows_from_the_seed(tmp_path):
    states = [built(tmp_path / str(n), seed=seed)[1] for n, seed in enumerate((3, 3, 4))]
    assert all(np.array_equal(states[0][name], states[1][name]) for name in states[0])
    assert not all(np.array_equal(states[0][name], states[2][name]) for name in states[0])


def test_windows_too_small_for_the_model_are_one_line(tmp_path):
    with pytest.raises(ConfigError, match=re.escape("train.model cnn-pool takes inputs of at least 4")):
        built(tmp_path, DataShape((2, 1), 2), train__model="cnn-pool")


def test_a_server_whose_clients_see_no_file_keeps_its_own_and_their_replies_in_files(tmp_path):
    """As with SuperNodes; where leaf servers are processes, clients' models need no room here."""
    config, asked = prepare_config(small_config(tmp_path)).config, []
    shared = SharedStates(tmp_path, in_one_process=True)
    plan = RunPlan(config, 3, tmp_path, tmp_path / "data", shared, LapClock())
    kept = shared.prepare
    shared.prepare = lambda above, model, whole: (asked.append(whole), kept(0.0, model, whole))
    leaf = Leaf(0, {0: 4, 1: 4}, {"w": np.zeros(8, np.float32)}, ["w"], FedAvg(), 1)
    with InProcessGrid(app, 2, {}, 1) as engine:
        for here in (None, 0):
            clients = Clients(engine, {0: 1, 1: 2})
            prepare_sharing(plan, clients, [leaf], at_clients=here)
            assert clients._keep == shared.keep
    shared.close()
    of_clients = 2 * 32 + 3 * 64  # their models; their control variates, and one in exchange
    assert asked[0] - asked[1] == of_clients


@pytest.mark.parametrize(
    ("changes", "free_mib", "said"),
    [
        ({}, 1000.0, "they stay in memory"),
        ({}, 0.0, "models go through files"),
        ({"scaffold.enabled": True}, 1000.0, "models go through files"),
        ({"transfer.spill-above-mb": 0.0}, 1000.0, "models go through files"),
        ({"transfer.spill-above-mb": 50.0}, 1000.0, None),
    ],
)
def test_free_memory_decides_where_large_models_lie(tmp_path, monkeypatch, changes, free_mib, said):
    """By default, in one process, without control variates; no bit depends on it."""
    config = small_config(tmp_path, scaffold__enabled=False)
    here = carry_out({**config, **{k: v for k, v in changes.items() if "scaffold" in k}}, "small")
    monkeypatch.setattr(guard, "_LARGE_BYTES", 0.0)
    found = replace(machine.this_machine(), available_mib=free_mib)
    monkeypatch.setattr(machine, "this_machine", lambda: found)
    assert carry_out({**config, **changes}, "large") == here
    log = (tmp_path / "runs" / "large" / "run.log").read_text()
    assert ("a round's models need" in log, "models go through files" in log) == (
        said == "they stay in memory", said == "models go through files",
    )  # fmt: skip
