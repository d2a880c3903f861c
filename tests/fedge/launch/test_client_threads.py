"""One thread per core, or one per GPU; several on one GPU record no graphs."""

import pytest
import torch

from fedge.config.registers.option import ConfigError
from fedge.launch.client_threads import client_threads
from fedge.process.resources.threads import available_cores


@pytest.fixture
def gpus(monkeypatch):
    """Let PyTorch see so many GPUs."""

    def let_see(count):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)

    return let_see


def test_on_a_cpu_there_is_one_per_core(gpus):
    gpus(0)
    assert client_threads({}, None, 10**6) == (available_cores(), {})
    assert client_threads({}, 5, 9) == (5, {})
    assert client_threads({}, 50, 9) == (9, {})
    assert client_threads({"train.processes": 10**6}, None, 9)[0] == 1
    with pytest.raises(ConfigError, match=r"train\.device is \"cuda\", but this client sees no GPU"):
        client_threads({"train.device": "cuda"}, None, 9)


@pytest.mark.parametrize(
    ("there", "options", "workers", "count", "graph"),
    [
        pytest.param(1, {}, None, 1, None, id="one GPU"),
        pytest.param(1, {"train.device": "cuda"}, 4, 4, "off", id="shared by four"),
        pytest.param(2, {}, None, 2, None, id="two"),
        pytest.param(2, {}, 3, 3, "off", id="two shared by three"),
        pytest.param(4, {"train.processes": 2}, None, 2, None, id="two each"),
        pytest.param(1, {"train.cuda-graph": "auto"}, 1, 1, "auto", id="one worker"),
    ],
)
def test_on_gpus_there_is_one_each_and_graphs_only_where_none_is_shared(
    there, options, workers, count, graph, gpus
):
    gpus(there)
    found, told = client_threads(options, workers, 9)
    assert found == count
    assert told.get("train.cuda-graph") == graph
    assert told.get("train.device") == options.get("train.device")


def test_who_wants_the_cpu_gets_its_cores_beside_gpus(gpus):
    gpus(1)
    assert client_threads({"train.device": "cpu"}, None, 10**6)[0] == available_cores()
