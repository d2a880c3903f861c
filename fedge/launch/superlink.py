"""A run on a Flower that has a SuperLink for simulations (1.27 and later): one of the run's own.

`flwr run` by itself hands runs to a SuperLink that stays in the background, with the environment (SEED) and
the working directory of its first starter, and installs the app's dependencies anew for every run.
Here the run gets a SuperLink that starts and ends with it, in a home of Flower's that is removed afterwards:
the user's pyproject.toml, which `flwr run` would edit, and ``~/.flwr`` are not touched. The app that is
handed over is a pyproject.toml with the run's options and no code; code comes from this environment and the
user's folder.
"""

import http.client
import json
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

from fedge.config.option import ConfigError, Scalar
from fedge.engine.federation import TOLD, Federation
from fedge.flower import has_one_port
from fedge.launch.project import Project
from fedge.launch.simulation import Simulation, own_environment, start_command
from fedge.link.reach import free_port
from fedge.process.lent import VARIABLE as TERMINAL
from fedge.process.lent import lend_output
from fedge.process.reaper import remove_at_end, start_reaper

KEEP_ENVIRONMENT = "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"  # "1": no environment per run
_NAME = "fedge-run"  # of the connection, and of the app
_START_S = 60.0
_POLL_S = 0.1
_END_S = 5.0


@contextmanager
def behind_superlink(
    project: Project, federation: Federation, run_config: Mapping[str, Scalar]
) -> Iterator[Simulation]:
    """Start a run behind a SuperLink of its own, which ends when this is left.

    Args:
        project: the app's, for its components and folder.
        federation: that the run is to be on.
        run_config: all options.
    """
    start_reaper()  # nothing of a SuperLink ends with its starter
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
    """One ``flwr run`` and the SuperLink that it hands its run to."""

    def __init__(
        self, folder: Path, project: Project, federation: Federation, run_config: Mapping[str, Scalar]
    ) -> None:
        """Start both; files are in `folder`."""
        self._log = folder / "flower.log"
        self._family: dict[int, psutil.Process] = {}
        port = free_port()
        app, home = folder / "app", folder / "home"
        for made in (app, home):
            made.mkdir()
        (app / "pyproject.toml").write_text(_app(project, run_config), encoding="utf-8")
        (home / "config.toml").write_text(_connection(port, federation), encoding="utf-8")
        environment = _environment(home, project, federation, folder / "terminal")
        with self._log.open("ab") as log:
            self._superlink = start_command(_superlink_words(port), environment, log)
            _await_health(self._superlink, port, self._log)
            words = ["flwr", "run", str(app), _NAME, "--stream"]
            self._process = start_command(words, environment, log)

    def why_not(self) -> str:
        """The last lines of Flower's output."""
        return last_lines(self._log)

    def _simulating(self) -> list[psutil.Process]:
        """The SuperLink's simulation processes."""
        found = []
        with suppress(psutil.Error):
            for process in psutil.Process(self._superlink.pid).children(recursive=True):
                with suppress(psutil.Error):
                    if any(Path(word).name == "flwr-simulation" for word in process.cmdline()[:3]):
                        found.append(process)
        return found

    def _has_ended(self) -> bool:
        """Whether ``flwr run`` has ended, or its SuperLink has, without which it waits."""
        return self._process.poll() is not None or self._superlink.poll() is not None

    def end_superlink(self) -> None:
        """End the SuperLink and all that it has started."""
        try:
            below = psutil.Process(self._superlink.pid).children(recursive=True)
        except psutil.Error:
            below = []
        with suppress(OSError):
            self._superlink.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._superlink.wait(_END_S)
        for process in below:
            with suppress(psutil.Error):
                process.kill()
        self._superlink.kill()
        self._superlink.wait()
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def _app(project: Project, run_config: Mapping[str, Scalar]) -> str:
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
    """Start a run without a SuperLink (Flower up to 1.26) on a federation that Flower's own table lacks.

    Args:
        folder: an empty one, for the app that is handed over.
        project: the app's.
        federation: that the run is to be on.
        run_config: all options.
    """
    table = {f"backend.init-args.{key}": value for key, value in federation.init_args.items()}
    table |= {
        "num-supernodes": federation.num_supernodes,
        "backend.client-resources.num-cpus": _number(federation.num_cpus),
        "backend.client-resources.num-gpus": federation.num_gpus,
    }
    options = toml_of({f"options.{key}": value for key, value in table.items()})
    text = f'{_app(project, run_config)}\n[tool.flwr.federations]\ndefault = "{_NAME}"\n'
    text += f"[tool.flwr.federations.{_NAME}]\n{options}"
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    path = os.pathsep.join(filter(None, [str(project.folder.resolve()), os.environ.get("PYTHONPATH", "")]))
    return Simulation(["flwr", "run", str(folder)], {"PYTHONPATH": path, TOLD: federation.as_told()})


def _connection(port: int, federation: Federation) -> str:
    """Flower's configuration: where the SuperLink is, and how many nodes are simulated."""
    init = {key: federation.init_args[key] for key in _KNOWN_INIT if key in federation.init_args}
    options: dict[str, Any] = {
        "num-supernodes": federation.num_supernodes,
        "backend.client-resources.num-cpus": _number(federation.num_cpus),
        "backend.client-resources.num-gpus": federation.num_gpus,
        **{f"backend.init-args.{key}": value for key, value in init.items()},
    }
    table = {"address": f"127.0.0.1:{port}", "insecure": True}
    table |= {f"options.{key}": value for key, value in options.items()}
    return f'[superlink]\ndefault = "{_NAME}"\n\n[superlink.{_NAME}]\n{toml_of(table)}'


_KNOWN_INIT = ("num-cpus", "num-gpus", "logging-level", "log-to-driver")  # others reach Ray by `TOLD`


def _number(value: float) -> float | int:
    """A number as TOML is to have it: Flower takes whole CPUs as integers."""
    return int(value) if value == int(value) else value


def toml_of(table: Mapping[str, Any]) -> str:
    """A flat mapping as TOML; JSON's strings and numbers are TOML's."""
    return "".join(
        f"{_quoted(key)} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in table.items()
    )


def _quoted(key: str) -> str:
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
        TOLD: federation.as_told(),
    }


def _superlink_words(port: int) -> list[str]:
    """The command of a SuperLink for simulations, which listens on loopback only."""
    words = ["flower-superlink", "--insecure", "--simulation", "--isolation", "subprocess"]
    if has_one_port():
        return [*words, "--host", "127.0.0.1", "--port", str(port)]
    return [*words, "--control-api-address", f"127.0.0.1:{port}"]


def _await_health(superlink: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    """Wait until the SuperLink answers.

    Raises:
        ConfigError: it ended instead, or does not answer within a minute.
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
    """Whether a SuperLink answers; asked directly, past any proxy in the environment."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1.0)
    with suppress(OSError, http.client.HTTPException):
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    return False


def last_lines(path: Path, count: int = 3) -> str:
    """The last lines of a log in one, without the colours of a terminal."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    plain = [" ".join(_plain(line).split()) for line in lines]
    return " / ".join([line for line in plain if line][-count:])


def _plain(line: str) -> str:
    """A line without escape sequences for colours."""
    head, *rest = line.split("\x1b[")
    return head + "".join(part.partition("m")[2] for part in rest)
