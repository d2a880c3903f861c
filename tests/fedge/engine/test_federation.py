import json

import pytest

from fedge.config.registers.option import ConfigError
from fedge.engine import federation
from fedge.engine.federation import (
    Federation,
    cpus_of_ray,
    federation_of_this_process,
    from_backend,
    has_gpu,
    refuse_missing_cpus,
    refuse_missing_gpu,
)


def test_backend_by_hand():
    """Flower writes keys with dashes or underscores; a client without resources gets Flower's 2 CPUs."""
    assert from_backend(9, {"client-resources": {"num-cpus": 3, "num-gpus": 0.5}}) == Federation(9, 3.0, 0.5)
    assert from_backend(9, {"client_resources": {"num_cpus": 3, "num_gpus": 0.5}}) == Federation(9, 3.0, 0.5)
    assert from_backend(9, {"client-resources": {"num-gpus": 1}}) == Federation(9, 1.0, 1.0)
    assert from_backend(9, {}) == Federation(9, 2.0, 0.0)
    own = from_backend(9, {"init_args": {"num_cpus": 64, "_node_ip_address": "127.0.0.1"}})
    assert own.engine_cpus == 64
    assert own.init_args == {"num-cpus": 64, "-node-ip-address": "127.0.0.1"}


@pytest.mark.parametrize("value", ["1", True, -0.5, float("nan"), float("inf"), None])
def test_amounts_are_checked(value):
    with pytest.raises(ConfigError) as caught:
        from_backend(9, {"client-resources": {"num-gpus": value}})
    message = str(caught.value)
    assert message.startswith(
        "options.backend.client-resources.num-gpus must be a number of at least 0, but is"
    )
    assert repr(value) in message
    assert "set e.g." in message


def test_flowers_command_line_is_understood():
    backend = json.dumps({"client-resources": {"num-cpus": 1, "num-gpus": 0.25}})
    argv = ["flwr-simulation", "--num-supernodes", "9", "--backend-config", backend, "--verbose"]
    found = federation_of_this_process(argv)
    assert found == Federation(9, 1.0, 0.25)
    assert found.describe() == {"num-supernodes": 9, "num-cpus": 1.0, "num-gpus": 0.25}
    assert federation_of_this_process(["flwr-simulation", "--num-supernodes", "4"]) == Federation(4, 2.0, 0.0)
    assert federation_of_this_process(["pytest"]) == Federation()


def test_a_gpu_share_needs_a_gpu(monkeypatch):
    monkeypatch.setattr(federation, "has_gpu", lambda: False)
    refuse_missing_gpu(Federation(9, 1.0, 0.0))
    with pytest.raises(ConfigError, match=r"num-gpus is 0\.25, but .* no usable GPU; use .*flwr run"):
        refuse_missing_gpu(Federation(9, 1.0, 0.25))
    monkeypatch.setattr(federation, "has_gpu", lambda: True)
    refuse_missing_gpu(Federation(9, 1.0, 0.25))


def fake_driver(folder, monkeypatch, script):
    """Put an `nvidia-smi` first on the path."""
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_the_driver_is_asked(tmp_path, monkeypatch):
    fake_driver(tmp_path, monkeypatch, "echo 'GPU 0: some card'")
    assert has_gpu()
    for hidden in ("", "-1"):  # a card that the run may not see is none
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        assert not has_gpu()


def test_a_driver_that_cannot_be_run_is_no_gpu(tmp_path, monkeypatch):
    fake_driver(tmp_path, monkeypatch, "echo GPU")
    (tmp_path / "nvidia-smi").write_text("#!/no/such/shell\n")
    assert not has_gpu()


@pytest.mark.parametrize("script", ["echo 'No devices were found'", "echo GPU; exit 9"])
def test_a_driver_without_a_card_is_no_gpu(tmp_path, monkeypatch, script):
    fake_driver(tmp_path, monkeypatch, script)
    assert not has_gpu()


def test_without_a_driver_there_is_no_gpu(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not has_gpu()


def test_a_client_needs_some_of_the_machines_cpus():
    refuse_missing_cpus(Federation(9, 1.0), on_ray=True)
    refuse_missing_cpus(Federation(9, 5000.0, engine_cpus=5000.0), on_ray=True)
    for cpus in (0.0, 5000.0):
        with pytest.raises(ConfigError, match=f"num-cpus must be above 0 and .*but is {cpus:g}; change it"):
            refuse_missing_cpus(Federation(9, cpus), on_ray=False)


@pytest.mark.parametrize(("quota", "cpus"), [(50_000, 0), (150_000, 1), (200_000, 2), (10**9, 8), (-1, 8)])
def test_ray_counts_a_container_s_whole_cpus(tmp_path, monkeypatch, quota, cpus):
    """On a machine with 8, as Ray's own function reads the same files; half a CPU is none, and no client."""
    (tmp_path / "cpu").mkdir()
    files = [tmp_path / "cpu" / f"cpu.cfs_{name}_us" for name in ("quota", "period")]
    for file, number in zip(files, (quota, 100_000), strict=True):
        file.write_text(str(number))
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    assert cpus_of_ray(tmp_path) == cpus
    by_ray = pytest.importorskip("ray._private.utils")._get_docker_cpus(*map(str, files), "none", "none")
    assert cpus == int(min(8, by_ray or 8))
    monkeypatch.setattr(federation, "cpus_of_ray", lambda: cpus_of_ray(tmp_path))
    if not cpus:
        with pytest.raises(ConfigError, match=r"at most the 0 CPUs that Ray counts here, .* set init-args\."):
            refuse_missing_cpus(Federation(9, 1.0), on_ray=True)
    refuse_missing_cpus(Federation(9, 1.0), on_ray=False)
    refuse_missing_cpus(Federation(9, 1.0, engine_cpus=1.0), on_ray=True)
    monkeypatch.setenv("RAY_USE_MULTIPROCESSING_CPU_COUNT", "1")
    assert cpus_of_ray(tmp_path) == 8
