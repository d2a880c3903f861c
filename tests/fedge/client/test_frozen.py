"""Frozen entries are drawn by the network's code of the run, also in a process that stays for another run."""

import sys

import numpy as np

from fedge.client.frozen import whole_model
from fedge.config.flat import from_run_config
from fedge.data.prepared import ClientData

NETWORK = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, input_shape, classes):
        super().__init__()
        self.body = nn.Linear(input_shape[0], 4)
        nn.init.constant_(self.body.weight, {constant})
        self.body.requires_grad_(False)
        self.head = nn.Linear(4, classes)

    def forward(self, x):
        return self.head(self.body(x.mean(2)))
"""


def test_a_network_written_anew_draws_its_frozen_entries_anew(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    config = from_run_config({"train.model": "frozen_net:Net", "train.exchange": "trainable"}).train
    windows = np.zeros((2, 3, 8), np.float32), np.zeros(2, np.int64)
    data, sent = ClientData(windows, windows, 1, 2), {"head.weight": np.ones((2, 4)), "head.bias": np.ones(2)}
    found = []
    for constant in (1.0, 2.0):
        (tmp_path / "frozen_net.py").write_text(NETWORK.format(constant=constant))
        sys.modules.pop("frozen_net", None)  # as `fedge.process.persistent_process` does for another run
        from frozen_net import Net

        whole = whole_model(sent, Net((3, 8), 2), config, data, seed=1)
        assert whole["head.weight"] is sent["head.weight"]
        found.append(float(whole["body.weight"][0, 0]))
    sys.modules.pop("frozen_net")
    assert found == [1.0, 2.0]
