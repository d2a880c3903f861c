"""A SuperLink in the background keeps the SEED and the folder of whoever started it: seen, and refused."""

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from fedge.config.registers.option import ConfigError
from fedge.launch.flower_runs.background import refuse_ignored_settings, standing_superlink

PORT = "39871"  # of no real one
HERE = {"FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": PORT, "FLWR_LOCAL_CONTROL_API_PORT": "39872"}
LOCAL = {"address": ":local:"}
KEEP = {"FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1"}


@contextmanager
def superlink(folder, cwd=None, **variables):
    """Start a process that looks like one: by its name, its port, its environment, its folder."""
    program = folder / "flower-superlink"
    program.write_text("import time\nprint('up', flush=True)\ntime.sleep(600)\n")
    environment = {key: value for key, value in os.environ.items() if key not in ("SEED", *KEEP)}
    process = subprocess.Popen(
        [sys.executable, str(program), "--simulation", "--port", PORT], cwd=cwd or Path.cwd(),
        env={**environment, **variables}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout.readline() == "up\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_without_one_all_is_well():
    assert standing_superlink(HERE) is None
    refuse_ignored_settings(LOCAL, 42, {"num-gpus": 1}, {**HERE, "SEED": "7"})


@pytest.mark.parametrize(
    ("started", "said", "configured", "told"),
    [
        ({"SEED": "42"}, {"SEED": "42"}, 5, None),
        ({"SEED": "42"}, {}, 42, None),
        ({}, {"SEED": "5"}, 5, None),
        ({}, {}, 5, None),
        ({"SEED": "42"}, {"SEED": "43"}, 5, r"be 43, .* SEED=42 and the run would have 42; end it .kill"),
        ({"SEED": "42"}, {}, 5, "must be 5, .* was started with SEED=42"),
        ({}, {"SEED": "43"}, 5, r"be 43, .* without SEED .* have 5; .* or add -c seed=43, or use"),
    ],
)  # fmt: skip
def test_a_seed_that_would_not_reach_the_run_is_refused(started, said, configured, told, tmp_path):
    with superlink(tmp_path, **KEEP, **started) as process:
        assert standing_superlink(HERE).pid == process.pid
        if told is None:
            refuse_ignored_settings(LOCAL, configured, {}, {**HERE, **said})
            return
        with pytest.raises(ConfigError, match=told):
            refuse_ignored_settings(LOCAL, configured, {}, {**HERE, **said})


def test_another_folder_is_refused(tmp_path):
    told = f"works in {tmp_path}; .* run cd {tmp_path} first"
    with superlink(tmp_path, cwd=tmp_path, **KEEP), pytest.raises(ConfigError, match=told):
        refuse_ignored_settings(LOCAL, 42, {}, HERE)


def test_an_environment_per_run_is_refused(tmp_path):
    told = r"install the app's dependencies again .* started without FLWR_DIS"
    with superlink(tmp_path), pytest.raises(ConfigError, match=told):
        refuse_ignored_settings(LOCAL, 42, {}, HERE)


def test_a_superlink_elsewhere_has_its_own_seed():
    far = {"address": "far.example:443"}
    refuse_ignored_settings(far, 42, {}, {})
    with pytest.raises(ConfigError, match=r"'far.example:443' has its own environment.*; use -c seed=7"):
        refuse_ignored_settings(far, 42, {}, {"SEED": "7"})


def test_what_flower_does_not_pass_on_is_refused():
    """1.41 and 1.42 take four of Ray's arguments; without a dashboard is Ray's way here anyway."""
    refuse_ignored_settings(LOCAL, 42, {"include-dashboard": False, "num-gpus": 2}, HERE)
    with pytest.raises(ConfigError, match="but the federation has object-store-memory; remove it, or use"):
        refuse_ignored_settings(LOCAL, 42, {"object-store-memory": 1e8, "num-gpus": 2}, HERE)
