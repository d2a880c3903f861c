"""GPU of a client, as far as it can be seen without one: a process that sees several."""

import threading

import pytest
import torch
from small_runs import small_config

from fedge import client_app, simulate
from fedge.config.registers.option import ConfigError
from fedge.config.sections.train import TrainConfig
from fedge.exchange.round_context import RoundContext
from fedge.seeding import Purpose, torch_stream
from fedge.timing import calls


class Cuda:
    """PyTorch's view of so many GPUs, each with its peak of memory; the current one is the thread's."""

    def __init__(self, monkeypatch, count):
        self.current = threading.local()
        self.peaks = {gpu: 100.0 * (gpu + 1) * 2**20 for gpu in range(count)}
        for name, value in {
            "is_available": lambda: count > 0, "device_count": lambda: count, "is_initialized": lambda: True,
            "set_device": lambda gpu: setattr(self.current, "gpu", gpu),
            "max_memory_allocated": lambda: self.peaks[self.now()],
            "max_memory_reserved": lambda: 2 * self.peaks[self.now()],
            "reset_peak_memory_stats": lambda: self.peaks.update({self.now(): 0.0}),
        }.items():  # fmt: skip
            monkeypatch.setattr(torch.cuda, name, value)

    def now(self):
        return getattr(self.current, "gpu", 0)


def in_threads(count, function):
    """Results of `function` in so many threads, which live at the same time."""
    found, all_here = [], threading.Barrier(count)

    def work():
        all_here.wait()
        found.append(function())
        all_here.wait()

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_threads_take_turns_at_the_gpus(monkeypatch):
    """Six threads, three GPUs: two on each; a thread stays where it is."""
    cuda = Cuda(monkeypatch, 3)

    def choose():
        first, second = client_app.device_of_thread("auto"), client_app.device_of_thread("cuda")
        assert first == second
        assert first.index == cuda.now()
        return first.index

    assert sorted(in_threads(6, choose)) == [0, 0, 1, 1, 2, 2]


def test_peaks_of_memory_are_those_of_the_threads_gpu(monkeypatch):
    Cuda(monkeypatch, 2)

    def peak():
        index = client_app.device_of_thread("cuda").index
        return index, calls.cuda_mib(), calls.cuda_mib()

    assert sorted(in_threads(2, peak)) == [(0, (100.0, 200.0), (0.0, 0.0)), (1, (200.0, 400.0), (0.0, 0.0))]


@pytest.mark.parametrize("wanted", ["auto", "cuda"])
def test_a_worker_that_sees_one_gpu_uses_that(wanted, monkeypatch):
    """As on Ray, which shows a worker the GPU of its share."""
    Cuda(monkeypatch, 1)
    assert client_app.device_of_thread(wanted) == torch.device("cuda")
    assert client_app.device_of_thread("cpu") == torch.device("cpu")


def test_without_a_gpu_it_is_refused_or_the_cpu(monkeypatch):
    Cuda(monkeypatch, 0)
    assert client_app.device_of_thread("auto") == torch.device("cpu")
    with pytest.raises(ConfigError, match=r'train\.device is "cuda", but this client sees no GPU'):
        client_app.device_of_thread("cuda")


def test_a_users_model_draws_from_a_stream_of_its_own():
    """Not from that of the order of windows."""
    context = RoundContext(7, 1, 3, "nowhere", "log", 0, 5.0)
    own = client_app._dropout_stream(TrainConfig(model="fedge.training.networks.models:Cnn"), context, 5)
    where = context.seed, context.stream_of(5)
    drawn = own.get_state().tolist()
    assert drawn == torch_stream(where[0], Purpose.DROPOUT, *where[1]).get_state().tolist()
    others = [purpose for purpose in Purpose if purpose != Purpose.DROPOUT]
    assert all(drawn != torch_stream(where[0], p, *where[1]).get_state().tolist() for p in others)
    assert client_app._dropout_stream(TrainConfig(model="cnn"), context, 5) is None


def test_a_message_costs_one_look_up_of_all_options(tmp_path, monkeypatch):
    """It takes as long as an eighth of a small client's message."""
    calls_of = dict.fromkeys(("_checked_config", "_open_call"), 0)

    def counted(name, function):
        def call(*given):
            calls_of[name] += 1
            return function(*given)

        return call

    for name in calls_of:
        monkeypatch.setattr(client_app, name, counted(name, getattr(client_app, name)))
    simulate(small_config(tmp_path), workers=1)
    assert 9 * 2 <= calls_of["_checked_config"] <= calls_of["_open_call"]
