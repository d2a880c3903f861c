"""Several processes train as one does: state, loss, steps; errors and deaths are told in one line.

Three processes, batches of 20 and 2 windows: shares are uneven, and in the last batch of an epoch one of the
processes has no window.
"""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from own_statistics import OwnStatistics

from fedge.config.registers.option import ConfigError
from fedge.parallel.team import Team, TeamError, TeamKind
from fedge.training.local import train
from fedge.training.networks.models import build_model, parameter_names
from fedge.training.networks.module_state import get_state
from fedge.training.networks.own_models import OwnFit
from fedge.training.settings import LocalTraining

pytestmark = pytest.mark.whole_runs

C, T, CLASSES, N = 6, 16, 5, 62
SETTINGS = LocalTraining(
    lr=0.05, epochs=2, batch_size=20, momentum=0.9, weight_decay=1e-3, clip_norm=1.0, label_smoothing=0.1,
    prox_mu=0.01,
)  # fmt: skip
CLOSE = {"rtol": 1e-6, "atol": 1e-6}
NETWORKS = Path(__file__).parents[2] / "support" / "networks"


@pytest.fixture(scope="module")
def team():
    with_processes = Team(3)
    yield with_processes
    with_processes.close()


def windows(n=N):
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(0, CLASSES, (n,), generator=generator)
    x = torch.randn(n, C, T, generator=generator)
    x[torch.arange(n), y] += 1.0
    return x.numpy(), y.numpy()


def network(name):
    return build_model(name, (C, T), CLASSES, torch.Generator().manual_seed(1))


def seeded(seed=5):
    return torch.Generator().manual_seed(seed)


def both(team, name, settings=SETTINGS, correction=None):
    """Train in one process and in several from one state; returns both results."""
    model, (x, y) = network(name), windows()
    start = get_state(model)
    one = train(
        model,
        torch.from_numpy(x),
        torch.from_numpy(y),
        settings,
        seeded(),
        correction=correction,
        state=start,
    )
    kind = TeamKind(name, {}, (C, T), CLASSES, look_in=[str(NETWORKS)])
    together = team.train(kind, start, (x, y), settings, seeded(), correction)
    return one, together


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("mlp-tiny", 0),
        ("half_frozen:HalfFrozen", 0),
        *(pytest.param("cnn", steps, marks=pytest.mark.extended) for steps in (0, 6)),
    ],
)
def test_they_train_as_one_process_does(team, name, steps):
    """BatchNorm takes its statistics over the whole batch, also where a process has no window of it."""
    one, together = both(team, name, replace(SETTINGS, steps=steps))
    assert list(together.state) == list(one.state)
    for entry, array in one.state.items():
        assert together.state[entry].dtype == array.dtype
        np.testing.assert_allclose(together.state[entry], array, **CLOSE, err_msg=entry)
    assert together.loss == pytest.approx(one.loss, rel=1e-6)
    assert together.steps == one.steps == (steps or 8)


def test_they_train_a_network_for_tokens(team):
    """In the processes it was tried on numbers, so no client could train."""
    tokens, y = torch.randint(0, 10, (N, T), generator=seeded()), windows()[1]
    fit, name = OwnFit(tokens=True), "token_network:TokenNetwork"
    model = build_model(name, (T,), CLASSES, torch.Generator().manual_seed(1), fit=fit)
    start = get_state(model)
    one = train(model, tokens, torch.from_numpy(y), SETTINGS, seeded())
    kind = TeamKind(name, {}, (T,), CLASSES, look_in=[str(NETWORKS)], tokens=True)
    together = team.train(kind, start, (tokens.numpy(), y), SETTINGS, seeded())
    for entry, array in one.state.items():
        np.testing.assert_allclose(together.state[entry], array, **CLOSE, err_msg=entry)


def test_the_correction_of_scaffold_is_added(team):
    rng = np.random.default_rng(0)
    model = network("linear")
    correction = {
        name: 0.1 * rng.normal(size=model.state_dict()[name].shape) for name in parameter_names(model)
    }
    one, together = both(team, "linear", correction=correction)
    plain = both(team, "linear")[1]
    for entry, array in one.state.items():
        np.testing.assert_allclose(together.state[entry], array, **CLOSE)
        assert not np.allclose(plain.state[entry], array, **CLOSE)


def test_the_same_processes_give_the_same_bits_again(team):
    first = both(team, "cnn")[1]
    before = team.pids
    second = both(team, "cnn")[1]
    assert team.pids == before != []
    assert all(np.array_equal(first.state[name], second.state[name]) for name in first.state)


def test_the_generators_move_on_as_in_one_process(team):
    model, (x, y) = network("linear"), windows()
    alone, together = seeded(), seeded()
    train(model, torch.from_numpy(x), torch.from_numpy(y), SETTINGS, alone)
    team.train(TeamKind("linear", {}, (C, T), CLASSES), get_state(model), (x, y), SETTINGS, together)
    assert torch.equal(alone.get_state(), together.get_state())


def test_they_speak_on_the_loopback_interface_only(team):
    both(team, "linear")
    listening = [
        connection.laddr.ip
        for pid in team.pids
        for connection in psutil.Process(pid).net_connections()
        if connection.status == psutil.CONN_LISTEN
    ]
    assert set(listening) == {"127.0.0.1"}


def test_training_that_diverges_is_the_error_of_one_process_and_ends_nobody(team):
    both(team, "linear")
    before = team.pids
    model, (x, y) = network("linear"), windows()
    with pytest.raises(FloatingPointError, match=r"training: (loss|weight)"):
        team.train(
            TeamKind("linear", {}, (C, T), CLASSES), get_state(model), (x, y),
            LocalTraining(lr=1e30, weight_decay=1e6, epochs=9, batch_size=20), seeded(),
        )  # fmt: skip
    assert team.pids == before != []


def test_a_model_that_keeps_statistics_of_its_own_is_refused(team):
    model, (x, y) = OwnStatistics((C, T), CLASSES), windows()
    kind = TeamKind("own_statistics:OwnStatistics", {}, (C, T), CLASSES, look_in=[str(NETWORKS)])
    with pytest.raises(ConfigError, match="a model whose buffer seen follows the windows of each process"):
        team.train(kind, get_state(model), (x, y), SETTINGS, seeded())


@pytest.mark.extended
def test_a_process_that_dies_is_told_and_replaced(team):
    expected = both(team, "cnn")[1]
    before = team.pids
    with ThreadPoolExecutor(1) as pool:
        kind, start = TeamKind("cnn", {}, (C, T), CLASSES), get_state(network("cnn"))
        at_work = pool.submit(team.train, kind, start, windows(), replace(SETTINGS, epochs=10**6), seeded())
        time.sleep(0.3)
        assert not at_work.done()
        os.kill(before[1], signal.SIGKILL)
        with pytest.raises(
            TeamError, match=r"process 1 of train.processes=3 was ended by signal 9 \(SIGKILL"
        ):
            at_work.result()
    assert not any(psutil.pid_exists(pid) for pid in before)
    again = both(team, "cnn")[1]
    assert not set(team.pids) & set(before)
    assert all(np.array_equal(again.state[name], expected.state[name]) for name in again.state)


def test_processes_that_do_not_answer_in_time_are_ended(team):
    model, data = network("linear"), windows()
    both(team, "linear")
    before = team.pids
    os.kill(before[2], signal.SIGSTOP)
    with pytest.raises(TeamError, match="did not answer in time"):
        team.train(
            TeamKind("linear", {}, (C, T), CLASSES), get_state(model), data, SETTINGS, seeded(), timeout_s=0.5
        )
    assert not any(psutil.pid_exists(pid) for pid in before)


def test_windows_that_fit_nothing_are_refused_before_any_process_starts():
    team = Team(2)
    x, y = windows()
    with pytest.raises(ValueError, match="x must be float32"):
        team.train(TeamKind("linear", {}, (C, T), CLASSES), {}, (x.astype(np.float64), y), SETTINGS, seeded())
    assert team.pids == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_process_with_a_gpu_of_its_own_trains_as_a_cpu_does():
    """Alone, over NCCL; more of them need a GPU each."""
    alone, (x, y) = Team(1), windows()
    start = get_state(network("cnn"))
    one = train(network("cnn"), torch.from_numpy(x), torch.from_numpy(y), SETTINGS, seeded(), state=start)
    there = alone.train(
        TeamKind("cnn", {}, (C, T), CLASSES, device="cuda"), start, (x, y), SETTINGS, seeded()
    )
    alone.close()
    assert there.loss == pytest.approx(one.loss, rel=1e-4)
    for name, array in one.state.items():
        np.testing.assert_allclose(there.state[name], array, rtol=1e-3, atol=1e-4, err_msg=name)
