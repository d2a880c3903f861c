"""Windows that nobody recorded, and what a student learns from them: cases by hand, the same bits twice."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector
from virtual_world import START, facts_of

from fedge.devices.fedrevive.distillation import (
    Teacher,
    chosen,
    distil,
    estimate_class_shares,
    synthesis_loss,
    synthesise,
    with_distance,
)
from fedge.devices.fedrevive.generator import new_generator
from fedge.devices.servers.vectors import version_of
from fedge.seeding import Purpose, torch_stream

EVEN = np.array([0.5, 0.5])


class Fixed(nn.Module):
    """Says the same of whatever it sees."""

    def __init__(self, *logits):
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(logits))

    def forward(self, x):
        return self.logits + 0 * x.flatten(1).sum(1, keepdim=True)


@pytest.fixture
def facts():
    version = version_of({name: np.array(array) for name, array in START.items()})
    return facts_of(version, seed=1, children=3)


def teachers_of(facts, *vectors):
    return [
        Teacher(facts.network(number, np.array(vector, np.float32)), EVEN)
        for number, vector in enumerate(vectors)
    ]


def test_distance_by_hand():
    """Inputs 1, 3, 5, 7: mean 4, variance 5. Remembered 1 and 1: |4 − 1| + |5 − 1| = 7."""
    norm = nn.BatchNorm1d(1).eval()
    norm.running_mean.fill_(1.0)
    _, distance = with_distance(norm, torch.tensor([[1.0], [3.0], [5.0], [7.0]]))
    assert distance.item() == pytest.approx(7)
    assert not norm._forward_pre_hooks
    assert with_distance(Fixed(0.0), torch.ones(2, 1))[1].item() == 0


def test_loss_by_hand():
    """Two teachers without BatchNorm, who say ½ and ½, and ¾ and ¼, of a window of class 0.

    Who has seen it: weights ½ and ½: ½ ln 2 + ½ ln(4/3). The student says what the first one says: KL is 0 to
    it, and to the second ¾ ln(3/2) + ¼ ln(½); both name class 0. That is taken off with a factor of 0.1.
    """
    half, most = Teacher(Fixed(0.0, 0.0), EVEN), Teacher(Fixed(np.log(3.0), 0.0), EVEN)
    x, y, weights = torch.zeros(1, 1), torch.tensor([0]), torch.full((2, 1), 0.5)
    loss = synthesis_loss(x, y, weights, [half, most], None).item()
    assert loss == pytest.approx(0.5 * np.log(2) + 0.5 * np.log(4 / 3))
    apart = 0.75 * np.log(1.5) + 0.25 * np.log(0.5)
    harder = synthesis_loss(x, y, weights, [half, most], Fixed(0.0, 0.0)).item()
    assert harder == pytest.approx(loss - 0.1 * 0.5 * apart)


def test_a_pool_grows_to_its_limit_and_the_generator_by_a_step_of_adam(facts):
    """Adam's first step has the length of the step size, 0.003, wherever there is a gradient."""
    there = teachers_of(facts, [1.0, 0.0], [0.0, 2.0])
    one = synthesise(facts, {}, there, None, 3, 100)
    again = synthesise(facts, {}, there, None, 3, 100)
    assert all(np.array_equal(one[name], again[name]) for name in one)
    assert one["x"].shape == (64, 1, 8)
    two = synthesise(facts, one, there, there[0].network, 4, 100)
    assert two["x"].shape == (100, 1, 8)
    assert np.array_equal(two["x"][:36], one["x"][28:])
    assert (int(one["adapted"]), int(two["adapted"])) == (1, 2)
    begin = torch_stream(facts.seed, Purpose.DISTILLATION, facts.server, 0, 0)
    before = parameters_to_vector(new_generator(facts.input_shape, begin).parameters()).detach().numpy()
    moved = np.abs(one["generator"] - before)
    assert np.median(moved) == pytest.approx(0.003, rel=1e-3)
    assert moved.max() < 0.00301
    assert set(np.unique(two["y"])) == {0, 1}


def test_what_is_not_finite_makes_no_windows(facts):
    kept = synthesise(facts, {}, teachers_of(facts, [1.0, 0.0]), None, 3, 100)
    broken = teachers_of(facts, [np.inf, 0.0])
    found = synthesise(facts, kept, broken, None, 4, 100)
    assert all(found[name] is kept[name] for name in kept)
    assert synthesise(facts, {}, broken, None, 4, 100) == {}


def test_a_student_comes_nearer_to_its_teacher(facts):
    """One step of Adam moves each weight by the step size; many bring it to what the teacher says."""
    there = teachers_of(facts, [2.0, -2.0])
    kept = synthesise(facts, {}, there, None, 1, 100)
    student = copy.deepcopy(facts.network(5, np.array([0.0, 0.0], np.float32)))
    distil(facts, kept, there, student, 1, steps=1, lr=0.01)
    assert student.w.abs().tolist() == pytest.approx([0.01, 0.01], rel=1e-2)
    assert not student.w.requires_grad
    x = torch.from_numpy(kept["x"])
    for version in range(2, 30):
        distil(facts, kept, there, student, version, steps=10, lr=0.05)
    expected = torch.softmax(there[0].network(x), 1)
    assert (torch.softmax(student(x), 1) - expected).abs().max() < 0.02


def test_a_student_without_a_finite_loss_stays(facts):
    there = teachers_of(facts, [2.0, -2.0])
    kept = synthesise(facts, {}, there, None, 1, 100)
    student = facts.network(5, np.array([0.5, 0.5], np.float32))
    distil(facts, kept, teachers_of(facts, [np.nan, 0.0]), student, 1, steps=3, lr=0.1)
    assert student.w.tolist() == [0.5, 0.5]


def test_windows_are_chosen_by_class():
    labels = np.array([1, 0, 1, 1, 0])
    ones = chosen(labels, np.array([0.0, 1.0, 0.0]), 200, torch.Generator().manual_seed(0))
    assert set(ones.tolist()) == {0, 2, 3}
    absent = chosen(labels, np.array([0.0, 0.0, 1.0]), 200, torch.Generator().manual_seed(0))
    assert set(absent.tolist()) == {0, 1, 2, 3, 4}


def test_a_probe_by_hand(facts):
    """Logits ln 3 and 0 at temperature 0.8: 3^1.25 : 1."""
    odds = 3**1.25
    found = estimate_class_shares(facts, Fixed(np.log(3.0), 0.0), 0)
    assert found.tolist() == pytest.approx([odds / (1 + odds), 1 / (1 + odds)])
