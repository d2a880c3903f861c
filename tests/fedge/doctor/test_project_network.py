"""The network of a project, and the windows of its largest client."""

import pytest
import torch
from small_runs import small_config

from fedge.config.registers.option import ConfigError
from fedge.doctor.project_network import project_network
from fedge.engine.federation import Federation


def test_it_is_the_runs_network_with_the_largest_clients_windows_and_options(tmp_path):
    options = small_config(tmp_path, train__batch_size=5, train__lr=0.25)
    subject, about = project_network(options, Federation(9))
    assert (len(subject.x), tuple(subject.x.shape[1:]), subject.x.dtype) == (8, (2, 16), torch.float32)
    assert (subject.settings.batch_size, subject.settings.lr) == (5, 0.25)
    assert (about["batch_size"], about["input"]) == (5, [2, 16])
    first, second = subject.make(), subject.make()
    assert first is not second
    assert all(torch.equal(w, second.state_dict()[name]) for name, w in first.state_dict().items())


def test_a_federation_of_unknown_size_has_no_clients(tmp_path):
    with pytest.raises(ConfigError, match="--gpu needs a federation of known size"):
        project_network(small_config(tmp_path), Federation())
