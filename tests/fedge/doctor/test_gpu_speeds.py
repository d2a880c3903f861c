"""Steps per second: counted over cores, and over clients that are batched."""

import pytest
import torch

from fedge.doctor import gpu_speeds
from fedge.doctor.gpu_speeds import Subject, batched_speeds, cores_speed, device_speed
from fedge.training.networks.models import build_model
from fedge.training.settings import LocalTraining


@pytest.fixture
def subject(monkeypatch):
    """A network and 3 windows of batches of 2; every try of work takes two seconds."""
    monkeypatch.setattr(gpu_speeds, "_SECONDS", 0.001)
    return Subject(
        lambda: build_model("linear", (2, 4), 3, torch.Generator().manual_seed(0)),
        torch.arange(24.0).view(3, 2, 4) / 24, torch.tensor([0, 1, 2]), LocalTraining(batch_size=2),
    )  # fmt: skip


def test_batches_are_full_of_the_subjects_windows(subject):
    x, y = subject.epoch_of(2)
    assert y.tolist() == [0, 1, 2, 0]
    assert torch.equal(x, subject.x[[0, 1, 2, 0]])


def test_all_cores_take_steps_and_all_of_them_count(subject, monkeypatch):
    trained = []
    monkeypatch.setattr(gpu_speeds, "available_cores", lambda: 3)
    monkeypatch.setattr(gpu_speeds, "_train", lambda subject, model, steps: trained.append(steps))
    monkeypatch.setattr(gpu_speeds, "_calibrated_steps", lambda work: 10)
    monkeypatch.setattr(gpu_speeds, "_fastest_s", lambda work: work() or 2.0)
    assert cores_speed(subject) == 3 * 10 / 2.0
    assert trained == [10, 10, 10]


@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_device_takes_enough_steps_for_a_graph(subject, monkeypatch, is_recorded):
    seen = []
    monkeypatch.setattr(
        gpu_speeds, "_train", lambda way, model, steps: seen.append((steps, way.settings.cuda_graph))
    )
    monkeypatch.setattr(gpu_speeds, "_calibrated_steps", lambda work: 2)
    monkeypatch.setattr(gpu_speeds, "_fastest_s", lambda work: work() or 0.5)
    assert device_speed(subject, "cpu", is_recorded) == 30 / 0.5
    assert seen == [(30, is_recorded)]


def test_batched_clients_are_counted_together_and_agree_with_one_after_another(subject, monkeypatch):
    monkeypatch.setattr(gpu_speeds, "_calls_per_second", lambda work, device: (work() is None and 7.0) or 5.0)
    found = batched_speeds(subject, "cpu", clients=2)
    assert (found.in_turn, found.batched, found.recorded) == (14.0, 10.0, 0.0)
    assert found.is_same
    assert found.distance < 1e-5
