"""A run on Flower 1.41 and 1.42, on its own SuperLink for simulations.

`flwr run` itself submits runs to a background SuperLink, which has the environment (SEED) and the working
directory of its first starter, and installs the app's dependencies again for every run. Here the run gets a
SuperLink of its own, started and ended with it, in a Flower home removed afterwards; the user's ``~/.flwr``
and pyproject.toml, which `flwr run` would edit, are not touched. The submitted app is a pyproject.toml with
the run's options and no code; code comes from this environment and the user's folder.
"""

import http.client
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from fedge.config.registers.option import ConfigError, Scalar
from fedge.engine.federation import TOLD, Federation
from fedge.flower import has_one_port
from fedge.launch.flower_runs.simulation import Simulation, own_environment, start_command
from fedge.launch.projects.project import Project
from fedge.link.reach import free_port
from fedge.process.endings.reaper import remove_at_end, start_reaper
from fedge.process.escape import toml_value
from fedge.process.lent_output import VARIABLE as TERMINAL
from fedge.process.lent_output import lend_output

KEEP_ENVIRONMENT = "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"  # "1": no separate environment per run
_NAME = "fedge-run"  # name of the connection, and of the app
_START_S = 60.0
_POLL_S = 0.1
_END_S = 5.0


@contextmanager
def behind_superlink(
    project: Project, federation: Federation, run_config: Mapping[str, Scalar]
) -> Iterator[Simulation]:
    """Start a run behind its own SuperLink, which ends with the context.

    Args:
        project: the app's project, for its components and folder.
        federation: federation of the run.
        run_config: all options.
    """
    start_reaper()  # a SuperLink's processes outlive their starter
    folder = Path(tempfile.mkdtemp(prefix="fedge-"))
    remove_at_end(folder)
    try:
        with lend_output(folder / "terminal"):
            simulation = _BehindSuperLink(folder, project, federation, run_config)
            try:
                yield simulation
            finally:
                simulation.end_superlink()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _BehindSuperLink(Simulation):
    """One ``flwr run`` and the SuperLink for its run."""

    def __init__(
        self, folder: Path, project: Project, federation: Federation, run_config: Mapping[str, Scalar]
    ) -> None:
        """Start both; their files are in `folder`."""
        self._log = folder / "flower.log"
        self._descendants: dict[int, psutil.Process] = {}
        port = free_port()
        app, home = folder / "app", folder / "home"
        for new_folder in (app, home):
            new_folder.mkdir()
        (app / "pyproject.toml").write_text(_app_toml(project, run_config), encoding="utf-8")
        (home / "config.toml").write_text(_flower_config(port, federation), encoding="utf-8")
        environment = _environment(home, project, federation, folder / "terminal")
        with self._log.open("ab") as log:
            self._superlink = start_command(_superlink_command(port), environment, log)
            _await_health(self._superlink, port, self._log)
            command = ["flwr", "run", str(app), _NAME, "--stream"]
            self._process = start_command(command, environment, log)

    def startup_output(self) -> str:
        """The last lines of Flower's output."""
        return last_lines(self._log)

    def _simulation_processes(self) -> list[psutil.Process]:
        """The SuperLink's simulation processes."""
        processes = []
        with suppress(psutil.Error):
            for process in psutil.Process(self._superlink.pid).children(recursive=True):
                with suppress(psutil.Error):
                    if any(Path(part).name == "flwr-simulation" for part in process.cmdline()[:3]):
                        processes.append(process)
        return processes

    def _has_ended(self) -> bool:
        """Whether ``flwr run`` has ended, or the SuperLink for which it would wait."""
        return self._process.poll() is not None or self._superlink.poll() is not None

    def end_superlink(self) -> None:
        """End the SuperLink and all its processes."""
        try:
            children = psutil.Process(self._superlink.pid).children(recursive=True)
        except psutil.Error:
            children = []
        with suppress(OSError):
            self._superlink.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._superlink.wait(_END_S)
        for process in children:
            with suppress(psutil.Error):
                process.kill()
        self._superlink.kill()
        self._superlink.wait()
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def _app_toml(project: Project, run_config: Mapping[str, Scalar]) -> str:
    """The app's pyproject.toml: components and options, without federations."""
    head = {
        "project": {"name": _NAME, "version": "0.1.0"},
        "tool.flwr.app": {"publisher": "fedge"},
        "tool.flwr.app.components": {"serverapp": project.server_app, "clientapp": project.client_app},
        "tool.flwr.app.config": run_config,
    }
    return "\n".join(f"[{name}]\n{toml_of(table)}" for name, table in head.items())


def made_app(
    folder: Path, project: Project, federation: Federation, run_config: Mapping[str, Scalar]
) -> Simulation:
    """Start a run without a SuperLink (Flower 1.25), on a federation missing from Flower's own table.

    Args:
        folder: empty folder for the submitted app.
        project: the app's project.
        federation: federation of the run.
        run_config: all options.
    """
    table = {f"backend.init-args.{key}": value for key, value in federation.init_args.items()}
    table |= {
        "num-supernodes": federation.num_supernodes,
        "backend.client-resources.num-cpus": _toml_number(federation.num_cpus),
        "backend.client-resources.num-gpus": federation.num_gpus,
    }
    options = toml_of({f"options.{key}": value for key, value in table.items()})
    text = f'{_app_toml(project, run_config)}\n[tool.flwr.federations]\ndefault = "{_NAME}"\n'
    text += f"[tool.flwr.federations.{_NAME}]\n{options}"
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    path = os.pathsep.join(filter(None, [str(project.folder.resolve()), os.environ.get("PYTHONPATH", "")]))
    return Simulation(["flwr", "run", str(folder)], {"PYTHONPATH": path, TOLD: federation.to_json()})


def _flower_config(port: int, federation: Federation) -> str:
    """Flower's configuration: address of the SuperLink, and the simulated federation."""
    init = {key: federation.init_args[key] for key in _KNOWN_INIT if key in federation.init_args}
    options: dict[str, Any] = {
        "num-supernodes": federation.num_supernodes,
        "backend.client-resources.num-cpus": _toml_number(federation.num_cpus),
        "backend.client-resources.num-gpus": federation.num_gpus,
        **{f"backend.init-args.{key}": value for key, value in init.items()},
    }
    table = {"address": f"127.0.0.1:{port}", "insecure": True}
    table |= {f"options.{key}": value for key, value in options.items()}
    return f'[superlink]\ndefault = "{_NAME}"\n\n[superlink.{_NAME}]\n{toml_of(table)}'


_KNOWN_INIT = ("num-cpus", "num-gpus", "logging-level", "log-to-driver")  # others reach Ray through `TOLD`


def _toml_number(value: float) -> float | int:
    """A number for TOML; Flower accepts whole CPUs as integers only."""
    return int(value) if value == int(value) else value


def toml_of(table: Mapping[str, Any]) -> str:
    """A flat mapping as TOML."""
    return "".join(f"{_quoted_key(key)} = {toml_value(value)}\n" for key, value in table.items())


def _quoted_key(key: str) -> str:
    """A dotted key as a TOML key path."""
    return ".".join(f'"{part}"' for part in key.split("."))


def _environment(home: Path, project: Project, federation: Federation, terminal: Path) -> dict[str, str]:
    """The environment of a run's own SuperLink, and so of its simulation and workers."""
    path = os.pathsep.join(filter(None, [str(project.folder.resolve()), os.environ.get("PYTHONPATH", "")]))
    return {
        **own_environment(),
        "FLWR_HOME": str(home),
        KEEP_ENVIRONMENT: "1",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "NO_PROXY": ",".join(filter(None, ["127.0.0.1", os.environ.get("NO_PROXY", "")])),
        "PYTHONPATH": path,
        TERMINAL: str(terminal),
        TOLD: federation.to_json(),
    }


def _superlink_command(port: int) -> list[str]:
    """Command of a SuperLink for simulations, which listens on the loopback interface only."""
    command = ["flower-superlink", "--insecure", "--simulation", "--isolation", "subprocess"]
    if has_one_port():
        return [*command, "--host", "127.0.0.1", "--port", str(port)]
    return [*command, "--control-api-address", f"127.0.0.1:{port}"]


def _await_health(superlink: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    """Wait until the SuperLink answers.

    Raises:
        ConfigError: the SuperLink ended, or does not answer within a minute.
    """
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and superlink.poll() is None:
        if _is_healthy(port):
            return
        time.sleep(_POLL_S)
    superlink.kill()
    raise ConfigError(
        f"--engine flower needs a SuperLink, but flower-superlink did not start: {last_lines(log)}; "
        f"use fedge run, which needs none"
    )


def _is_healthy(port: int) -> bool:
    """Whether a SuperLink answers on a port; asked directly, without the environment's proxy."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1.0)
    with suppress(OSError, http.client.HTTPException):
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    return False


def last_lines(path: Path, count: int = 3) -> str:
    """The last lines of a log joined into one, without terminal colours."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    plain = [" ".join(_without_colours(line).split()) for line in lines]
    return " / ".join([line for line in plain if line][-count:])


def _without_colours(line: str) -> str:
    """A line without colour escape sequences."""
    head, *rest = line.split("\x1b[")
    return head + "".join(part.partition("m")[2] for part in rest)
