"""A run on a SuperLink: submitted with `flwr run`, followed to its end, with a truthful exit code.

The run's server and its run folder are on the SuperLink's machine. On this machine, the folder is in the
usual place; on another, in `runs-dir`, relative to the SuperLink's working directory.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from fedge.config.registers.option import ConfigError, Scalar
from fedge.engine.federation import TOLD, Federation
from fedge.flower import moves_federations
from fedge.launch.flower_runs.flower import toml_of
from fedge.launch.preflight import check
from fedge.launch.projects.moved_federations import connections, flower_config, keeping_federations
from fedge.launch.projects.project import Project, read_toml
from fedge.launch.projects.writable import writable_project
from fedge.link.reach import is_listening, refuse_other_authority
from fedge.process.endings import exits
from fedge.process.python import python_words
from fedge.records.folder import dated_name

_FLWR = python_words(
    "-c", "from fedge.process.endings.channels import exit_despite_channels; "
    "exit_despite_channels(); from flwr.cli.app import app; app(prog_name='flwr')",
)  # fmt: skip
_RUN_STARTED = re.compile(r"Successfully started run (\d+)")
_RUN_ENDED = re.compile(r"^fedge: run (\w+), exit code (\d+): (.*)$", re.MULTILINE)
_LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]")
_SUPERLINK = "flower-superlink"
_MAX_WORDS_BEFORE_PROGRAM = 6  # largest number of words before the program in a command
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def is_local_superlink(address: str) -> bool:
    """Whether the SuperLink at an address, host:port, uses this machine's files.

    A port of the loopback interface may be a tunnel, e.g. of ssh, kubectl port-forward or a container; then
    the listener is not a SuperLink of this account. If the system does not reveal the listener, it counts as
    a SuperLink.
    """
    host, _, port = address.rpartition(":")
    if host not in _LOOPBACK_HOSTS:
        return False
    listening = _listeners(int(port)) if port.isdecimal() else None
    return not listening or any(map(_is_superlink, listening))


def _listeners(port: int) -> list[int | None] | None:
    """Process ids listening on a port of this machine; None for other accounts' processes, or if unknown."""
    try:
        sockets = psutil.net_connections("tcp")
    except (psutil.Error, OSError, RuntimeError):  # macOS reveals listeners only to root
        return None
    return [
        socket.pid for socket in sockets if socket.status == psutil.CONN_LISTEN and socket.laddr.port == port
    ]


def _is_superlink(pid: int | None) -> bool:
    """Whether a process is a SuperLink."""
    if pid is None:
        return False
    try:
        command = psutil.Process(pid).cmdline()
    except psutil.Error:
        return False
    return any(Path(part).name == _SUPERLINK for part in command[:_MAX_WORDS_BEFORE_PROGRAM])


@dataclass(frozen=True)
class _RunOutput:
    """Output of `flwr run`.

    Attributes:
        run_id: id of the run at the SuperLink; empty if there is none.
        exit_code: exit code of the run; None if its server did not report one.
    """

    run_id: str
    exit_code: int | None


def run_deployed(project: Project, federation: str, address: str, run_config: Mapping[str, Scalar]) -> int:
    """Carry out a run on a SuperLink; returns the exit code.

    Args:
        project: the project whose app is submitted.
        federation: name of the federation.
        address: address of the SuperLink's Control API.
        run_config: all options of the run.

    Raises:
        ConfigError: the run cannot work.
    """
    checked_config, is_local = dict(run_config), is_local_superlink(address)
    if not is_local:
        checked_config["resume"] = ""  # the run's folder is on the SuperLink's machine
    prepared = check(checked_config, Federation())
    _refuse_unreachable(project, federation, address)
    config = prepared.config
    settings: dict[str, Any] = {**run_config, "seed": prepared.seed}  # SEED is set in this process only
    settings["run-name"] = config.run_name or dated_name(prepared.seed, with_microseconds=True)
    if is_local:
        settings["runs-dir"] = str(Path(config.runs_dir).absolute())
    app = [str(project.folder), federation]
    with tempfile.TemporaryDirectory(prefix="fedge-") as folder, keeping_federations(project.path):
        overrides = Path(folder, "overrides.toml")
        overrides.write_text(toml_of(project.as_declared(settings)), encoding="utf-8")
        variables = _flower_environment(Path(folder), project, federation, address)
        submitted = [str(writable_project(project.folder, Path(folder))), federation]
        certificate = _certificate_arguments(project, federation) if submitted != app else []
        command = ["flwr", "run", *submitted, *certificate, "--stream", "-c", str(overrides)]
        try:
            output = _follow(command, [*_superlink_arguments(submitted), *certificate], variables)
        except KeyboardInterrupt:
            if not is_local or _run_folder(settings).is_dir():
                print(
                    f"fedge: run stopped; resume with: {_resume_command(app, is_local, settings)}", flush=True
                )
            raise
    if output.exit_code is None:
        print(
            f"fedge: {_no_end_message(output, app, address, settings, is_local)}", file=sys.stderr, flush=True
        )
        return exits.FAILED
    return output.exit_code


def _superlink_arguments(app: Sequence[str]) -> list[str]:
    """Arguments by which Flower's commands name the SuperLink; newer versions use their own configuration."""
    return list(app[1:] if moves_federations() else app)


def _certificate_arguments(project: Project, federation: str) -> list[str]:
    """Words by which Flower finds the authority of a project submitted from elsewhere."""
    _, authority = project.authority(federation)
    if authority is None or moves_federations():
        return []
    return ["--federation-config", f'root-certificates="{authority.absolute()}"']


def _flower_environment(folder: Path, project: Project, federation: str, address: str) -> dict[str, str]:
    """Environment in which a newer Flower knows the SuperLink; empty for older versions.

    It is also empty if the user's own configuration names the SuperLink, perhaps with further settings such
    as the user's account.
    """
    if not moves_federations():
        return {}
    config_file = flower_config()
    if (
        config_file.is_file()
        and federation in connections(read_toml(config_file, "Flower's configuration"))[0]
    ):
        return {}
    has_tls, authority = project.authority(federation)
    link: dict[str, Any] = {"address": address} | ({} if has_tls else {"insecure": True})
    if authority is not None:
        link["root-certificates"] = str(authority.absolute())
    home = folder / "home"
    home.mkdir()
    table = f'[superlink]\ndefault = "{federation}"\n\n[superlink."{federation}"]\n{toml_of(link)}'
    (home / "config.toml").write_text(table, encoding="utf-8")
    return {"FLWR_HOME": str(home)}


def _no_end_message(
    output: _RunOutput, app: Sequence[str], address: str, settings: Mapping[str, Any], is_local: bool
) -> str:
    """Message for a run whose server did not report its end: the server or its SuperLink was killed."""
    if not output.run_id:
        return "the SuperLink did not accept the run; see the lines above"
    fault = (
        "the run's server was killed or has crashed"
        if is_listening("address", address)
        else f"the SuperLink at {address} no longer answers; start fedge superlink there again"
    )
    log = shlex.join(["flwr", "log", output.run_id, *_superlink_arguments(app)])
    return f"{fault}; resume with: {_resume_command(app, is_local, settings)}; its log: {log}"


def _run_folder(settings: Mapping[str, Any]) -> Path:
    """Folder of a run on this machine."""
    return Path(settings["resume"] or Path(settings["runs-dir"], settings["run-name"]))


def _resume_command(app: Sequence[str], is_local: bool, settings: Mapping[str, Any]) -> str:
    """Command to resume the run."""
    if is_local:
        folder = str(_run_folder(settings))
        return shlex.join(["fedge", "resume", folder, "--app", app[0], "--federation", app[1]])
    resume = f'resume="{settings["resume"] or settings["run-name"]}"'
    return f"{shlex.join(['fedge', 'run', *app, '-c', resume])} with the options of the run"


def _refuse_unreachable(project: Project, federation: str, address: str) -> None:
    """Raise ConfigError unless the SuperLink answers and its certificate fits the authority."""
    name = f"address of federation {federation}"
    has_tls, authority = project.authority(federation)
    if not (refuse_other_authority(name, address, authority) if has_tls else is_listening(name, address)):
        raise ConfigError(
            f"{name} must be a SuperLink's Control API, but {address} does not answer; start "
            f"fedge superlink there (docs/machines.md)"
        )


def _follow(command: list[str], superlink_arguments: list[str], variables: Mapping[str, str]) -> _RunOutput:
    """Start `flwr run`, print its output, and stop the run at the SuperLink if this process is interrupted.

    Args:
        command: `flwr run` with its arguments.
        superlink_arguments: arguments naming the SuperLink.
        variables: environment variables added to this process's.
    """
    federation = Federation().to_json()  # `flwr run` would look here for a folder to resume
    environment = {**os.environ, **variables, "PYTHONUNBUFFERED": "1", TOLD: federation}
    environment.pop("SEED", None)  # the run's options have the seed
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace", start_new_session=True, env=environment,
        )  # fmt: skip
    except OSError as error:
        raise ConfigError(
            f"a federation on a SuperLink needs the command flwr, but: "
            f"{error.strerror or error}; activate the "
            f"environment that Fedge is installed in"
        ) from error
    assert process.stdout is not None
    text = ""
    try:
        for line in process.stdout:
            text += line
            print(line, end="", flush=True)
        process.wait()
    except KeyboardInterrupt:
        if start := _RUN_STARTED.search(text):
            stop = ["stop", start[1], *superlink_arguments]
            subprocess.run([*_FLWR, *stop], env=environment, stdin=subprocess.DEVNULL, check=False)
        raise
    finally:
        process.kill()
        process.wait()
    start, ends = _RUN_STARTED.search(text), list(_RUN_ENDED.finditer(_COLOURS.sub("", text)))
    return _RunOutput(start[1] if start else "", int(ends[-1][2]) if ends else None)
