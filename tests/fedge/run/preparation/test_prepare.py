import gc
import io
import weakref

import pytest
from small_runs import PER_USER, small_config

from fedge.config.registers.option import ConfigError
from fedge.data import prepared as data_module
from fedge.engine.federation import Federation
from fedge.launch.preflight import check
from fedge.launch.simulate import run_in_process
from fedge.rounds.strategy import HierarchicalStrategy
from fedge.run.preparation.prepare import Handover, deal_data, prepare_config


def test_what_is_handed_over_is_gone():
    held = Handover("windows")
    assert held.take() == "windows"
    with pytest.raises(IndexError):
        held.take()


def test_configuration_and_seed_need_no_data(monkeypatch):
    monkeypatch.setenv("SEED", "11")
    prepared = prepare_config({"data.path": "not looked for", "seed": 3})
    assert (prepared.seed, prepared.seed_source, prepared.config.seed) == (11, "environment", 3)
    assert prepared.deal is None
    with pytest.raises(ConfigError, match=r"train\.lt is not a configuration key"):
        prepare_config({"train.lt": 1.0})


def test_the_data_are_dealt_to_leaves_and_clients(tmp_path):
    config = prepare_config(small_config(tmp_path, hierarchy__clients_per_server="4,3,2")).config
    deal = deal_data(config, 3, 9, None)
    assert deal.clients_per_leaf == [4, 3, 2]
    assert [sum(map(len, parts)) for parts in deal.partition.clients] == [PER_USER] * 9
    assert deal.source.name == config.data.path
    with pytest.raises(ConfigError, match="adds up to 9 and there are 8"):
        deal_data(config, 3, 8, None)


def test_an_in_process_run_reads_its_windows_once_and_lets_them_go(tmp_path, monkeypatch):
    """As it trains nothing holds them any more: neither the run, nor the check, nor who called both."""
    loaded, alive = [], []

    def counting(path, load=data_module.load_windows):
        windows = load(path)
        loaded.append(weakref.ref(windows.x))
        return windows

    def start(*args, really=HierarchicalStrategy.start, **kwargs):
        gc.collect()
        alive.append([ref() is not None for ref in loaded])
        return really(*args, **kwargs)

    monkeypatch.setattr(data_module, "load_windows", counting)
    monkeypatch.setattr(HierarchicalStrategy, "start", start)
    run_config = small_config(tmp_path)
    prepared = check(run_config, Federation(9))
    outcome = run_in_process(run_config, Federation(9), 1, io.StringIO(), prepared=prepared)
    assert (outcome.status, alive) == ("completed", [[False]])
