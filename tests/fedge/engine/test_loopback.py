import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from fedge.config.registers.option import ConfigError
from fedge.engine import loopback
from fedge.engine.loopback import (
    attaches,
    is_loopback,
    keep_ray_on_loopback,
    own_arguments,
    refuse_listening_elsewhere,
)

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1", True), ("127.0.0.2", True), ("::1", True), ("::ffff:127.0.0.1", True),
        ("localhost", True), ("0.0.0.0", False), ("::", False), ("192.168.1.7", False),
        ("::ffff:10.0.0.1", False), ("host", False),
        (1, False), (None, False), (True, False),
    ],
)  # fmt: skip
def test_which_addresses_only_this_machine_reaches(address, expected):
    assert is_loopback(address) is expected


@pytest.mark.parametrize(
    ("init_args", "variables", "expected"),
    [
        ({}, {}, False),
        ({"address": "local"}, {}, False),
        ({"address": "local"}, {"RAY_ADDRESS": "10.0.0.1:6379"}, False),
        ({"address": "10.0.0.1:6379"}, {}, True),
        ({"address": "ray://10.0.0.1:10001"}, {}, True),
        ({"address": "auto"}, {}, True),
        ({}, {"RAY_ADDRESS": "auto"}, True),
        ({}, {"RAY_ADDRESS": "local"}, False),
        ({}, {"RAY_ADDRESS": ""}, False),
    ],
)
def test_who_attaches_to_a_cluster(init_args, variables, expected):
    assert attaches(init_args, variables) is expected


@pytest.mark.parametrize("key", ["_node-ip-address", "_node_ip_address", "-node-ip-address"])
@pytest.mark.parametrize("address", ["0.0.0.0", "192.168.1.7", 7])
def test_a_federation_that_would_listen_elsewhere_is_one_line(key, address):
    with pytest.raises(ConfigError) as caught:
        refuse_listening_elsewhere({key: address}, {})
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("options.backend.init-args._node-ip-address must be a loopback address")
    assert f"but is {address!r}; remove it, or attach to a cluster with " in message.replace('"', "'")
    refuse_listening_elsewhere({key: "127.0.0.1"}, {})
    refuse_listening_elsewhere({key: address, "address": "auto"}, {})
    refuse_listening_elsewhere({key: address}, {"RAY_ADDRESS": "10.0.0.1:6379"})


@pytest.mark.parametrize("key", ["include-dashboard", "include_dashboard"])
def test_a_dashboard_is_refused(key):
    with pytest.raises(ConfigError, match=r"include-dashboard must be false, .* but is True; remove it"):
        refuse_listening_elsewhere({key: True}, {})
    refuse_listening_elsewhere({key: False}, {})
    refuse_listening_elsewhere({key: True}, {"RAY_ADDRESS": "10.0.0.1:6379"})


def test_what_ray_is_started_with(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    own = {"address": "local", "_node_ip_address": "127.0.0.1", "include_dashboard": False}
    assert own_arguments({}) == own
    assert own_arguments({"num_cpus": 2}) == {**own, "num_cpus": 2}
    assert own_arguments({"_node_ip_address": "::1"})["_node_ip_address"] == "::1"
    with pytest.raises(ConfigError):
        own_arguments({"_node_ip_address": "0.0.0.0"})


def test_without_ray_nothing_is_done(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert keep_ray_on_loopback() is False


@pytest.mark.whole_runs  # starts Ray
@pytest.mark.extended
def test_the_client_app_sees_to_it_before_flower_starts_ray():
    """Flower loads the ClientApp, then calls ray.init with what the federation says."""
    code = (
        "import sys, ray, fedge.client_app, psutil\n"
        "from fedge.engine.loopback import keep_ray_on_loopback\n"
        "assert keep_ray_on_loopback()\n"  # once is enough
        "try:\n"
        "    ray.init(_node_ip_address='0.0.0.0')\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, error)\n"
        "ray.init(num_cpus=1, logging_level='error')\n"
        "print(ray.nodes()[0]['NodeManagerAddress'], ray.get_runtime_context().gcs_address.split(':')[0])\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert process.returncode == 0, process.stderr
    refused, started = process.stdout.strip().splitlines()
    assert refused.startswith("ConfigError options.backend.init-args._node-ip-address must be a loopback")
    assert started == "127.0.0.1 127.0.0.1"


@pytest.mark.parametrize(("program", "expected"), [("/x/flwr-simulation", 1), ("/x/fedge", 0)], ids=str)
def test_only_a_process_that_simulates_loads_flowers_engine(monkeypatch, program, expected):
    """Newer Flowers load it after the apps; whole runs: test_flower_versions."""
    loaded = []
    monkeypatch.setattr(loopback, "import_module", loaded.append)
    monkeypatch.setattr(loopback.sys, "argv", [program])
    loopback.load_ray_engine()
    assert len(loaded) == expected


def test_ray_s_folder_lets_no_other_account_in(tmp_path, monkeypatch):
    """Where its name is taken, by somebody who guessed it, another one is."""
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setattr(loopback, "has_reaper", lambda: True)
    removed = []
    monkeypatch.setattr(loopback, "remove_at_end", removed.append)
    first, second = (Path(loopback.session_folder()["_temp_dir"]) for _ in range(2))
    assert first.parent == tmp_path / "ray" / f"f{os.getpid()}"
    assert second.parent.name.startswith(f"f{os.getpid()}-")
    assert removed == [first.parent, second.parent]
    assert {stat.S_IMODE(folder.parent.stat().st_mode) for folder in (first, second)} == {0o700}
