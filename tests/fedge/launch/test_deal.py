"""A data set dealt into folders for machines of their own."""

import logging

import numpy as np
import pytest
from small_runs import small_config

from fedge.cli import main
from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError
from fedge.data import own_windows
from fedge.data.own_windows import FOLDER, own_data
from fedge.launch.deal import deal_into
from fedge.run.preparation.prepare import deal_data


def test_every_client_gets_a_folder_with_its_own_windows_alone(tmp_path):
    config = small_config(tmp_path, clients=9)
    said = deal_into(tmp_path / "dealt", config)
    deal = deal_data(from_run_config(config), 3, 9, None)
    assert said[0].startswith("144 windows of ")
    for client in range(9):
        node = {"partition-id": client, "num-partitions": 9, FOLDER: str(tmp_path / f"dealt/client-{client}")}
        own = own_data(node, from_run_config({}), 99)
        rows = np.concatenate(deal.partition.clients[client])
        assert own.laid.x.tobytes() == deal.windows.x[rows].tobytes()
        assert own.report.source == "small.npz"
    assert sorted(path.name for path in (tmp_path / "dealt").iterdir()) == [f"client-{n}" for n in range(9)]


def test_a_disk_that_fills_up_leaves_no_half_dealt_folder(tmp_path, monkeypatch):
    """NumPy's own error on a full disk has no number, only words."""
    config, save = small_config(tmp_path, clients=9), own_windows.write_share

    def fill_up(folder, share):
        save(folder, share)
        if folder.name == "client-3":
            raise OSError("96 requested and 0 written")

    monkeypatch.setattr(own_windows, "write_share", fill_up)
    with pytest.raises(ConfigError, match=r"but .*dealt: 96 requested and 0 written; choose another"):
        deal_into(tmp_path / "dealt", config)
    assert not (tmp_path / "dealt").exists()


def test_the_command_deals_as_the_run_will(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = small_config(tmp_path)
    words = ["deal", "out", "--clients", "9", "-c", f'data.path="{config["data.path"]}" seed=3']
    assert main(words) == 0
    assert "dealt to 9 clients, seed 3 (from config)" in capsys.readouterr().out
    deal_into(tmp_path / "other", {**config, "clients": 9})
    assert (tmp_path / "out/client-4/x.npy").read_bytes() == (tmp_path / "other/client-4/x.npy").read_bytes()
    assert main(words) != 0
    assert "must be new" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["cloud.rule", "leaf.strategy"])
def test_a_rule_on_trial_tells_the_terminal_nothing(tmp_path, caplog, option):
    """Flower's strategies tell how many results they have received, and other news."""
    rule = {option: "flwr.serverapp.strategy:FedAvg", "scaffold.enabled": False}
    logging.getLogger("flwr").addHandler(caplog.handler)
    try:
        deal_into(tmp_path / "dealt", small_config(tmp_path, clients=9) | rule)
    finally:
        logging.getLogger("flwr").removeHandler(caplog.handler)
    assert [record.message for record in caplog.records if record.name == "flwr"] == []


def test_the_number_of_clients_must_be_said(tmp_path):
    with pytest.raises(ConfigError, match="clients must be the number of SuperNodes to deal to, but is auto"):
        deal_into(tmp_path / "out", small_config(tmp_path))
