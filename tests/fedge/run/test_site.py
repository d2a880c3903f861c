"""Site of a leaf server: the same windows and the same leaf as in one process."""

from contextlib import contextmanager

import pytest
from small_runs import small_config

from fedge.client_app import app
from fedge.config.flat import from_run_config, to_run_config
from fedge.data.prepared import load_source
from fedge.engine.inprocess import InProcessGrid
from fedge.run.prepare import deal_data
from fedge.run.site import open_site


@pytest.fixture
def site(tmp_path):
    config = from_run_config(small_config(tmp_path, **{"partition.unseen-clients": 1}))
    entered = []

    @contextmanager
    def engine(run_config, total, mine):
        entered.append((total, list(mine)))
        with InProcessGrid(app, total, run_config, 1, mine) as grid:
            yield grid
        entered.append("left")

    facts = {
        "run": "a run", "leaf": 2, "clients": 9, "seed": 3, "config": to_run_config(config),
        "fingerprint": load_source(config, 9)[1].fingerprint,
    }  # fmt: skip
    made = open_site(tmp_path / "leaf-2", 2, engine, facts, data=config.data.path)
    yield config, made, entered, tmp_path / "leaf-2"
    made.close()


def test_a_site_holds_the_clients_of_its_leaf(site):
    config, made, entered, _ = site
    leaf, dealt = made.make_leaf(made.model), deal_data(config, 3, 9, None).partition
    assert entered == [(9, [6, 7, 8])]
    assert (leaf.index, leaf.clients, leaf.unseen_clients) == (2, (6, 7), (8,))
    assert leaf.train_samples == {client: len(dealt.clients[client][0]) for client in (6, 7)}
    assert made.task.held_out[8]["test"] == len(dealt.clients[8][2])
    assert made.facilities.clients.node(7) == 8


def test_a_leaf_is_fresh_every_time(site):
    _, made, _, _ = site
    first = made.make_leaf(made.model)
    first.client_controls[6] = made.model
    assert made.make_leaf(made.model).client_controls == {}


def test_windows_go_when_the_run_is_over_and_control_variates_stay(site):
    _, made, entered, folder = site
    made.kept.write_controls(1, {6: made.model})
    assert list(folder.glob("run-*/data"))
    made.close()
    assert list(folder.glob("run-*/data")) == []
    assert list(folder.glob("run-*/controls/1.safetensors"))
    assert entered[-1] == "left"
