"""A client of a run, measured in a process of its own."""

import pytest
import torch

from fedge.config.registers.option import ConfigError
from fedge.doctor.client_memory import epochs_to_measure, measure_client
from fedge.engine.federation import Federation
from fedge.training.sgd import GRAPH_FROM

LARGE = """
import torch

class Large(torch.nn.Module):
    def __init__(self, input_shape, classes):
        super().__init__()
        self.wide = torch.nn.Linear(input_shape[0] * input_shape[1], 12_000)
        self.head = torch.nn.Linear(12_000, classes)

    def forward(self, x):
        return self.head(self.wide(x.flatten(1)))
"""
SMALL = {"data.path": "synthetic", "train.model": "linear"}


@pytest.mark.extended
def test_a_models_size_is_seen(tmp_path, monkeypatch):
    """A model of the user's of 12,000 × 600 weights, 29 MB, with gradients and copies: over twice that."""
    (tmp_path / "measured_model.py").write_text(LARGE)
    monkeypatch.chdir(tmp_path)
    small = measure_client(SMALL, Federation(9, is_default=True))
    large = measure_client({**SMALL, "train.model": "measured_model:Large"}, Federation(9, is_default=True))
    assert small.clients == large.clients == 9
    assert small.windows == large.windows > 0
    assert (small.gpu_mib > 0) is torch.cuda.is_available()
    assert small.process_mib > 100
    grown = large.gpu_mib - small.gpu_mib if small.gpu_mib else large.client_mib - small.client_mib
    assert grown > 55


@pytest.mark.extended  # of the command: test_command.py
@pytest.mark.slow
def test_a_run_that_cannot_work_is_said_in_its_words():
    with pytest.raises(ConfigError, match=r"^data\.path: nowhere\.npz: window file must exist"):
        measure_client({"data.path": "nowhere.npz"}, Federation(9))


@pytest.mark.parametrize(
    ("windows", "epochs", "wanted"), [(320, 5, 3), (320, 2, 1), (3200, 1, 1), (20, 9, 1), (32 * 29, 2, 2)]
)
def test_a_graph_is_recorded_where_the_run_records_one(windows, epochs, wanted):
    """Batches of 32; from 30 full ones on a graph is recorded, which keeps memory on the GPU."""
    assert epochs_to_measure(windows, 32, epochs) == wanted
    assert (windows // 32 * epochs >= GRAPH_FROM) == (windows // 32 * wanted >= GRAPH_FROM)
