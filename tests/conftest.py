"""Fixtures of all tests: quiet engines, one torch thread, modest property tests, real data if any."""

# ruff: noqa: E402 (PyTorch is imported after what must come before)

import gc
import os
import shutil
import signal
import sys
import tempfile
from itertools import chain
from pathlib import Path

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"  # before Flower and Ray are imported
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
# what tests say yes to is not the user's (`fedge.config.registers.trust`)
os.environ["XDG_CONFIG_HOME"] = (_KEPT := tempfile.TemporaryDirectory(prefix="fedge-tests-config-")).name

from bytecode import Compiling

_COMPILING = Compiling()  # before PyTorch is imported

import pytest
import torch
from hypothesis import HealthCheck, settings
from made_up import make_result, make_windows
from own_code import forgotten

from fedge.flower import identify_task
from fedge.process.resources.threads import available_cores

# what is started by a script in the background, or by nohup, ignores these, and so would every process that
# a test starts and sends one to
if sys.platform != "win32":
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, usual)

torch.set_num_threads(1)
identify_task()  # tests make messages without any engine
settings.register_profile(
    "fedge", deadline=None, max_examples=40, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("fedge")


@pytest.fixture(scope="session")
def shared_data():
    """The folder of real sensor data: FEDGE_TEST_DATA, or ../shared/data beside the checkout."""
    beside = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(os.environ.get("FEDGE_TEST_DATA") or beside)
    if not folder.is_dir():
        pytest.skip(f"no real data: {folder} does not exist; set FEDGE_TEST_DATA to the folder that holds it")
    return folder


@pytest.fixture
def ray_home(monkeypatch):
    """Folder of the folders of all Rays that the test starts; at a short path, as sockets need it.

    In Ray's usual place there may be one of any process id: what another run left when it was killed.
    """
    home = Path(tempfile.mkdtemp(prefix="r-", dir="/tmp"))
    monkeypatch.setenv("RAY_TMPDIR", str(home))
    yield home / "ray"
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(name="make_windows", scope="session")
def make_windows_fixture():
    return make_windows


@pytest.fixture(name="make_result", scope="session")
def make_result_fixture():
    return make_result


@pytest.fixture(autouse=True, scope="module")
def _own_code_of_a_module_is_forgotten(tmp_path_factory):
    with forgotten(tmp_path_factory.getbasetemp()):
        yield


@pytest.fixture(autouse=True)
def _own_code_is_forgotten(tmp_path_factory):
    with forgotten(tmp_path_factory.getbasetemp()):
        yield


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """Two processes more than there are cores, since whole runs often wait; four at most."""
    return min(4, available_cores() + 2)


def pytest_collection_modifyitems(items):
    """Deal whole runs to all processes, module by module, each process its own first; soaks have two hours.

    A process begins with its part of the list and takes over another's rest when it is done: so none waits at
    the end for another's long test.
    """
    for item in items:
        if item.get_closest_marker("soak") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(7200))  # however it is started, `make soak` or by name
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    modules: dict[Path, list] = {}
    short = []
    for item in items:
        if {"runs", "deployed"} & set(item.path.parts) or item.get_closest_marker("whole_runs"):
            modules.setdefault(item.path, []).append(item)
        else:
            short.append(item)
    whole = list(modules.values())
    share = -(-len(items) // processes)
    dealt = []
    for number in range(processes):
        mine = list(chain.from_iterable(whole[number::processes]))
        dealt += [*mine, *short[: max(0, share - len(mine))]]
        del short[: max(0, share - len(mine))]
    items[:] = [*dealt, *short]


@pytest.hookimpl(tryfirst=True)
def pytest_collection():
    """Collect tests without looking for garbage: half the time went into objects that stay."""
    gc.disable()


def pytest_collection_finish():
    """Look for garbage again; modules and tests themselves are none."""
    _COMPILING.end()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished():
    """The same in the process that only deals tests out."""
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    """Let reports hold text that can be sent: a lone surrogate that a test logs would end its worker."""
    report = yield
    report.sections = [
        (name, text.encode("utf-8", "backslashreplace").decode("utf-8")) for name, text in report.sections
    ]
    return report
