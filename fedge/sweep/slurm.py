"""A sweep as a Slurm job array: a script for ``sbatch``, with one run of the sweep per task.

The script, ``<sweep>/slurm/array.sh``, lists the names of its runs. Each task carries out one run by ``fedge
sweep FILE --only NAME``: it resumes from the run's checkpoint if there is one, and does nothing if the run is
complete. So requeued tasks and resubmitted scripts do only the rest. Slurm keeps a copy of a submitted
script, so a waiting task keeps its run even if a newer script is written. Tasks share no process, and no lock
except the lock of a run's own folder.
"""

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedge.config.registers.option import ConfigError, shown
from fedge.process.escape import printable
from fedge.process.python import python_words
from fedge.records.folder import short, writing_below
from fedge.sweep.plan import Sweep
from fedge.sweep.run_states import RunStanding

FOLDER, SCRIPT = "slurm", "array.sh"


@dataclass(frozen=True)
class JobSettings:
    """Settings of the jobs.

    Attributes:
        workers: clients in training at a time in a run, and cores of a task.
        at_a_time: most tasks running at once; 0 for no limit.
        words: arguments for ``sbatch``, e.g. "--time=02:00:00 --partition=cpu".
    """

    workers: int
    at_a_time: int
    words: str


def write_script(sweep: Sweep, todo: Sequence[RunStanding], settings: JobSettings) -> Path:
    """Write the script for the runs to do, replacing an older one; returns its path.

    Raises:
        ConfigError: the folder cannot be written to, or the arguments for sbatch are invalid.
    """
    folder = (sweep.folder / FOLDER).resolve()
    text = _script(sweep, [standing.run.name for standing in todo], settings, folder)
    with writing_below(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / SCRIPT).write_text(text)
        (folder / SCRIPT).chmod(0o755)
    return folder / SCRIPT


def _script(sweep: Sweep, names: Sequence[str], settings: JobSettings, folder: Path) -> str:
    """Text of the script."""
    limit = f"%{settings.at_a_time}" if settings.at_a_time else ""
    options = [
        f"--job-name=fedge-{sweep.name}",
        f"--array=0-{len(names) - 1}{limit}",
        f"--cpus-per-task={settings.workers}",
        f"--output={str(folder).replace('%', '%%')}/%A-%a.log",
        "--open-mode=append",
        "--requeue",
        *_parse_arguments(settings.words),
    ]
    program = shlex.join(python_words("-m", "fedge.cli", "sweep", str(sweep.path.resolve())))
    return "\n".join(
        [
            "#!/bin/bash",
            f"# A task per run of {sweep.path}, written by fedge sweep. Submit it again to resume.",
            *(f"#SBATCH {shlex.quote(option)}" for option in options),  # sbatch reads quotes as a shell does
            "set -eu",
            f"cd {shlex.quote(str(Path.cwd()))}",
            "runs=(",
            *(f"  {shlex.quote(name)}" for name in names),
            ")",
            f'exec {program} --only "${{runs[$SLURM_ARRAY_TASK_ID]}}" --workers {settings.workers}',
            "",
        ]
    )


def _parse_arguments(words: str) -> list[str]:
    """Arguments for sbatch, one option each.

    Raises:
        ConfigError: one of them is not an option, or quotes do not match.
    """
    try:
        arguments = shlex.split(words)
    except ValueError as error:
        raise ConfigError(f"--sbatch must be options of sbatch, but {shown(words)}: {error}") from error
    for argument in arguments:
        if not argument.startswith("--") or "\n" in argument:
            raise ConfigError(
                f'--sbatch must be options of sbatch, e.g. --sbatch="--time=02:00:00 --mem=4G", but has '
                f"{shown(argument)}"
            )
    return arguments


def submit(script: Path) -> str:
    """Submit a script by ``sbatch``; returns its output.

    Raises:
        ConfigError: there is no sbatch, or it refuses the script.
    """
    program = shutil.which("sbatch")
    if program is None:
        raise ConfigError(
            f"--submit needs sbatch, but it is not installed here; on a Slurm machine: {to_submit(script)}"
        )
    environment = {name: value for name, value in os.environ.items() if name != "SEED"}
    process = subprocess.run(
        [program, str(script)], capture_output=True, text=True, errors="replace", check=False, env=environment
    )
    if process.returncode != 0:
        words = printable(" ".join((process.stderr or process.stdout).split()))
        words = words or f"it ended with code {process.returncode}"
        raise ConfigError(f"sbatch must accept {short(script)}, but: {words}; change --sbatch")
    return "\n".join(map(printable, process.stdout.strip().splitlines()))


def to_submit(script: Path) -> str:
    """Command to submit a script."""
    return f"sbatch {shlex.quote(str(short(script)))}"
