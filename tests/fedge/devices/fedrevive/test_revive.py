"""FedRevive against numbers worked by hand, its control, and what it keeps."""

import numpy as np
import pytest
from virtual_world import START, facts_of

from fedge.config.registers.option import ConfigError
from fedge.devices.fedrevive.revive import fedrevive, seconds_of
from fedge.devices.servers.arrivals import Arrival, Memory
from fedge.devices.servers.rules import fedbuff
from fedge.devices.servers.vectors import version_of


def vec(*numbers):
    return np.array(numbers, np.float64)


def memory_with_facts(children=3):
    version = version_of({name: np.array(array) for name, array in START.items()})
    return Memory(children, facts=facts_of(version, seed=1, children=children))


def test_without_distillation_by_hand():
    """K = 2, η = 2, s_max = 2. τ = 1 and 2 have β = 1 − ½ (1 + cos π/4) = 0.1464 and ½.

    Δ = 4 and −2: 0.8536 · 4 − ½ · 2 is added.
    """
    model, memory = vec(1.0), Memory(2)
    said = {"buffer": 2, "lr": 2.0, "s_max": 2.0, "freeze": 0, "distil": False}
    assert fedrevive(model, memory, Arrival(0, 1, vec(0.0), vec(4.0)), **said) is None
    found = fedrevive(model, memory, Arrival(1, 2, vec(5.0), vec(3.0)), **said)
    assert found.tolist() == pytest.approx([1 + (0.5 + np.sqrt(0.5) / 2) * 4 - 0.5 * 2])
    assert [each.start is each.end for each in memory.buffer] == [True, True]  # old versions are let go


def test_its_control_is_fedbuff_with_cosine_weights():
    rng, model = np.random.default_rng(0), vec(1.0, 2.0)
    one, other = Memory(3), Memory(3)
    for number in range(9):
        arrival = Arrival(number % 3, number, rng.normal(size=2), rng.normal(size=2))
        found = fedrevive(model, one, arrival, buffer=3, lr=0.5, s_max=4.0, freeze=0, distil=False)
        expected = fedbuff(model, other, arrival, buffer=3, lr=0.5, staleness="cosine", b=4.0)
        assert (found is None) == (expected is None)
        assert found is None or found.tobytes() == expected.tobytes()


def test_before_freeze_staleness_does_not_count():
    model = vec(1.0)
    found = fedrevive(model, Memory(1), Arrival(0, 999, model, vec(3.0)), lr=0.5, freeze=1)
    assert found.tolist() == [2.0]


def test_what_a_student_has_learnt_is_added_by_hand():
    """τ = s_max, β = ½, η = 1, Δ = 0: half of w_KD − w, whose entries a step of Adam makes 0.01 long."""
    memory, model = memory_with_facts(), np.array([0.0, 0.0], np.float32)
    teacher = Arrival(0, 10, np.array([2.0, -2.0], np.float32), np.array([2.0, -2.0], np.float32))
    said = {"lr": 1.0, "s_max": 10.0, "freeze": 0, "warmup": 0, "steps": 1, "distil_lr": 0.01}
    before = fedrevive(model, memory, teacher, **said)
    assert before.tolist() == [0.0, 0.0]  # version 0 is warm-up: windows are made
    assert memory.arrays["kd-x"].shape == (64, 1, 8)
    found = fedrevive(model, memory, teacher, **said)
    assert found.tolist() == pytest.approx([0.005, -0.005], rel=1e-2)
    assert memory.arrays["kd-x"].shape == (128, 1, 8)


def test_windows_are_made_as_often_as_is_said():
    memory, model = memory_with_facts(), np.array([0.5, -1.0], np.float32)
    for number in range(5):
        arrival = Arrival(number % 3, 3, model, model + 1)
        fedrevive(model, memory, arrival, s_max=4.0, freeze=0, warmup=1, every=3, teachers=2)
    assert len(memory.arrays["kd-x"]) == 2 * 64  # versions 0 and 3
    assert len(memory.buffer) == 2


def test_probed_shares_are_of_the_first_two_models():
    memory, model = memory_with_facts(), np.array([0.5, -1.0], np.float32)
    for child in (0, 0, 0, 2):
        fedrevive(model, memory, Arrival(child, 3, model, model + 1), freeze=0, warmup=0, shares="probed")
    assert memory.arrays["probes"].tolist() == [2, 0, 1]
    assert memory.arrays["probed"].sum(1).tolist() == pytest.approx([2, 0, 1])


def test_a_model_that_is_not_finite_teaches_nothing():
    memory, model = memory_with_facts(), np.array([0.5, -1.0], np.float32)
    huge = Arrival(0, 10, model, np.full(2, 3e38, np.float32))
    fine = Arrival(1, 10, model, model)
    for arrival in (fine, huge, fine):
        found = fedrevive(model, memory, arrival, s_max=10.0, freeze=0, warmup=0, lr=1e-30)
        assert np.isfinite(found).all()


def test_when_the_server_is_busy():
    """With the arrival that makes a version of which something is learnt, and with no other."""
    said = {"warmup": 3, "buffer": 2, "server_s": 0.5}
    memory = Memory(1, arrays={"made": np.array(4), "waiting": np.array(1)})
    assert seconds_of(memory, said) == 0.5
    assert seconds_of(memory, {**said, "distil": False}) == 0
    assert seconds_of(Memory(1, arrays={"made": np.array(4), "waiting": np.array(0)}), said) == 0
    assert seconds_of(Memory(1, arrays={"made": np.array(3), "waiting": np.array(1)}), said) == 0
    assert seconds_of(Memory(1), {}) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"s_max": 0}, "s_max of a rule"), ({"teachers": 0}, "teachers of a rule"),
        ({"shares": "guessed"}, "must be told or probed"), ({"distil": 1}, "distil true or false"),
        ({"server_s": -1.0}, "server_s of a rule"), ({"pool": 0}, "pool of a rule"),
        ({"latent": 0}, "latent of a rule"), ({"output": "relu"}, "output of fedrevive must be tanh or"),
    ],
)  # fmt: skip
def test_arguments_that_cannot_be_are_refused(arguments, words):
    with pytest.raises(ConfigError, match=words):
        fedrevive(vec(0.0), Memory(1), Arrival(0, 0, vec(0.0), vec(0.0)), **arguments)
