"""The kernel of a run: one that all processes can use, and what is said where they differ."""

import io

import pytest
from any_networks import kernels, needs_native
from small_runs import small_config

from fedge import client_app, simulate
from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError
from fedge.data.prepared import DataShape
from fedge.exchange.hello import CPU
from fedge.records.manifest import read_manifest
from fedge.run.build import RunPlan
from fedge.run.kernel import KernelOffer, common_kernels, kernel_of_run, offers_of
from fedge.states.state_files import SharedStates
from fedge.timing.laps import LapClock
from fedge.training.kernels import AUTO, NATIVE, Kernel

SHAPE = DataShape((2, 16), 2)
needs_two = pytest.mark.skipif(
    len([name for name in kernels() if name != "plain"]) < 2, reason="this processor has one fast kernel"
)


def plan(folder, **changes):
    config = from_run_config(small_config(folder, **changes))
    return RunPlan(config, 3, folder, folder / "data", SharedStates(folder, enabled=False), LapClock())


def best(count=0):
    """The kernels of this processor from the one of a number on, best first."""
    return kernels()[count:]


@pytest.mark.parametrize(
    ("offered", "wanted", "common"),
    [
        ([("amx", "avx512", "avx2", "plain")], AUTO, ["amx", "avx512", "avx2"]),
        ([("amx", "avx512", "avx2", "plain"), ("avx2", "plain")], AUTO, ["avx2"]),
        ([("avx2", "plain"), ("amx", "avx512", "avx2", "plain")], NATIVE, ["avx2", "plain"]),
        ([("avx2", "plain"), ("neon", "plain")], AUTO, []),
        ([("avx2", "plain"), ("neon", "plain")], NATIVE, ["plain"]),
        ([("avx2", "plain"), ()], NATIVE, []),
        ([], NATIVE, []),
    ],
    ids=str,
)
def test_kernels_that_all_can_use(monkeypatch, offered, wanted, common):
    monkeypatch.delenv("FEDGE_KERNEL", raising=False)
    assert common_kernels([KernelOffer(names, "somebody") for names in offered], wanted) == common


@needs_native
def test_all_alike_take_the_best(tmp_path):
    found = kernel_of_run(
        plan(tmp_path, train__kernel="auto"), SHAPE, [CPU], offers_of({best(): 9}, "client")
    )
    assert found == Kernel(f"native {best()[0]}")


@needs_two
def test_unlike_processors_take_what_all_have_and_it_is_said(tmp_path):
    offers = offers_of({best(): 5, best(1): 4}, "client")
    found = kernel_of_run(plan(tmp_path, train__kernel="auto"), SHAPE, (), offers)
    assert found.name == f"native {best(1)[0]}"
    lines = {f"{best()[0]}: the server, 5 clients", f"{best(1)[0]}: 4 clients"}
    assert set(found.differing_kernels.split("; ")) == lines


@needs_two
def test_a_run_that_goes_on_keeps_its_kernel_where_all_have_it(tmp_path):
    offers = offers_of({best(): 9}, "client")
    wanted = plan(tmp_path, train__kernel="auto")
    slower = f"native {best(1)[0]}"
    assert kernel_of_run(wanted, SHAPE, (), offers, slower).name == slower
    assert kernel_of_run(wanted, SHAPE, (), offers, "native none-such").name == f"native {best()[0]}"
    assert kernel_of_run(wanted, SHAPE, (), offers, "torch").name == f"native {best()[0]}"


@needs_native
def test_where_one_client_has_none_pytorch_trains_everywhere_or_the_run_is_refused(tmp_path):
    offers = offers_of({best(): 8, (): 1}, "client")
    found = kernel_of_run(plan(tmp_path, train__kernel="auto"), SHAPE, (), offers)
    assert found.name == "torch"
    assert found.reason.startswith("no kernel of the native step can be used everywhere: ")
    assert "none: 1 client" in found.reason
    with pytest.raises(ConfigError, match=r"^train\.kernel native needs a kernel common to all processes"):
        kernel_of_run(plan(tmp_path, train__kernel="native"), SHAPE, (), offers)


@pytest.mark.parametrize(
    ("changes", "devices", "why"),
    [
        ({}, ["NVIDIA H100"], "clients train on a GPU"),
        ({"train__processes": 2}, [CPU], "several processes train a client's model (train.processes)"),
        ({"train__task": "regression"}, [CPU], "the native step has no train.task regression"),
        ({"train__augment": "flip"}, [CPU], "the native step has no train.augment flip"),
        ({"train__optimizer": "adam", "scaffold__enabled": False}, [CPU], "has no train.optimizer adam"),
    ],
    ids=str,
)
def test_options_that_leave_the_steps_to_pytorch(tmp_path, changes, devices, why):
    found = kernel_of_run(plan(tmp_path, train__kernel="auto", **changes), SHAPE, devices)
    assert found.name == "torch"
    assert why in found.reason


@needs_two
def test_a_run_of_unlike_clients_has_the_bytes_of_the_kernel_that_all_have(tmp_path, monkeypatch):
    """As where four of nine clients are processes on an older machine."""

    def ran(name, **environment):
        terminal = io.StringIO()
        with monkeypatch.context() as machine:
            for key, value in environment.items():
                machine.setenv(key, value)
            config = small_config(tmp_path, run_name=name, train__kernel="auto")
            run = simulate(config, terminal=terminal, workers=2)
        assert run.status == "completed", run.reason
        return run.folder, terminal.getvalue()

    calls = iter(range(99))
    with monkeypatch.context() as machine:
        machine.setattr(client_app, "usable_kernels", lambda: best(int(next(calls) < 4)))
        folder, said = ran("unlike")
    older = best(1)[0]
    line = f"note: train.kernel: all train with native {older}, though there are others ("
    assert line in said
    assert read_manifest(folder)["kernel"]["name"] == f"native {older}"
    alike, said = ran("alike", FEDGE_KERNEL=older)
    assert "train.kernel" not in said
    models = [(each / "checkpoints" / "final.safetensors").read_bytes() for each in (folder, alike)]
    assert models[0] == models[1]
