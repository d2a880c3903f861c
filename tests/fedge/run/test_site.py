"""Site of a leaf server: the same windows and the same leaf as in one process."""

import hashlib
import sys
from contextlib import contextmanager

import pytest
from own_code import forgotten
from small_runs import small_config

from fedge.client_app import app
from fedge.config.flat import from_run_config, to_run_config
from fedge.config.registers.option import ConfigError
from fedge.data.prepared import load_source
from fedge.engine.inprocess import InProcessGrid
from fedge.run.preparation.parts import code_of_parts
from fedge.run.preparation.prepare import deal_data
from fedge.run.site import SharedDeal, open_site


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


def test_a_leaf_server_with_other_code_than_the_clouds_is_refused(tmp_path, monkeypatch):
    """It would train another model, and the run would have other results without a word."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    code = "def together(evidence, config, before):\n    return [0] * len(evidence.models)\n"
    (tmp_path / "grouping_at_leaf.py").write_text(code)
    config = from_run_config(small_config(tmp_path, cluster__method="grouping_at_leaf:together"))
    facts = {
        "run": "a run", "leaf": 2, "clients": 9, "seed": 3, "config": to_run_config(config),
        "fingerprint": "0", "parts": {"cluster.method": "0" * 64},
    }  # fmt: skip
    words = r"cluster\.method grouping_at_leaf:together must be the same code .*, and 00000000… at the server"
    with forgotten(tmp_path), pytest.raises(ConfigError, match=words) as caught:
        open_site(tmp_path / "leaf-2", 2, None, facts, trust_code=True, data=config.data.path)
    assert str(tmp_path / "grouping_at_leaf.py") in str(caught.value)
    right = {"cluster.method": hashlib.sha256(code.encode()).hexdigest()}
    assert code_of_parts(config) == right
    with forgotten(tmp_path), pytest.raises(ConfigError, match="another fingerprint"):  # next, the data
        open_site(tmp_path / "leaf-2", 2, None, {**facts, "parts": right}, data=config.data.path)


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


def test_leaves_of_one_process_share_a_deal_until_the_last_lets_it_go(tmp_path):
    config = from_run_config(small_config(tmp_path))
    fingerprint, dealing, made = load_source(config, 9)[1].fingerprint, SharedDeal(), []

    def engine(run_config, total, mine):
        return InProcessGrid(app, total, run_config, 1, mine)

    for leaf in (0, 2):
        facts = {
            "run": "a run", "leaf": leaf, "clients": 9, "seed": 3, "config": to_run_config(config),
            "fingerprint": fingerprint,
        }  # fmt: skip
        where = tmp_path / f"leaf-{leaf}", leaf, engine, facts
        made.append(open_site(*where, data=config.data.path, dealing=dealing))
    (folder,) = tmp_path.glob("leaf-*/run-*/data")
    first, last = made
    first.close()
    first.close()
    assert folder.is_dir()
    assert last.make_leaf(last.model).clients == (6, 7, 8)
    last.close()
    assert not folder.exists()


def test_a_deal_that_fails_is_tried_again_by_the_next(tmp_path):
    dealing, tried = SharedDeal(), []

    def failing():
        tried.append(1)
        raise ConfigError("no data")

    for _ in range(2):
        with pytest.raises(ConfigError, match="no data"):
            dealing.take("a run", failing)
    assert len(tried) == 2
