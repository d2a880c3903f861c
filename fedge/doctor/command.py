"""``fedge doctor``: findings as a table, number of clients at a time, and a federation to paste."""

import argparse
import json
import platform
import shutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from fedge.config.flat import from_run_config, value_of
from fedge.config.registers.engines import engine_kind
from fedge.config.registers.option import ConfigError
from fedge.doctor.client_memory import ClientMemory, measure_client
from fedge.doctor.deployment import NAME, deployment_findings
from fedge.doctor.findings import (
    BROKEN,
    TRAP,
    WELL,
    Finding,
    environment_findings,
    installation_findings,
    machine_findings,
    runs_folder_findings,
)
from fedge.doctor.gpus import gpus
from fedge.doctor.shares import Shares, shares_of
from fedge.engine.federation import Federation, cpus_of_ray
from fedge.launch.projects.project import Project
from fedge.process.endings import exits
from fedge.process.resources.machine import this_machine
from hhar.quantity import quantity

if TYPE_CHECKING:
    from fedge.doctor.gpu_check import ProjectNetwork

_SIGNS = {WELL: " ", TRAP: "!", BROKEN: "✗"}
_NAME = "this-machine"
_LONGEST_NAME = 20  # characters of a finding's name beside its words


def resolved(federation: Federation, run_config: dict[str, Any]) -> tuple[Federation, Shares]:
    """Federation with ``client-resources = "auto"`` replaced by values for this machine and run.

    Raises:
        ConfigError: the run cannot work.
    """
    memory = measure_client(run_config, federation)
    shares = _machine_shares(run_config, memory)
    init_args = {"num-cpus": _engine_cpus(run_config), **federation.init_args}
    result = replace(
        federation, num_cpus=shares.num_cpus, num_gpus=shares.num_gpus, init_args=init_args,
        engine_cpus=float(init_args["num-cpus"]), is_auto=False,
    )  # fmt: skip
    return result, shares


def _engine_cpus(run_config: dict[str, Any]) -> int:
    """Number of CPUs for Ray to divide among clients."""
    return max(1, int(this_machine().usable_cores), int(value_of(run_config, "train.threads")))


def _cpus_to_set(run_config: dict[str, Any]) -> int:
    """Number of CPUs to tell Ray; 0 where it counts as many itself."""
    cpus = _engine_cpus(run_config)
    return 0 if cpus == cpus_of_ray() else cpus


def _machine_shares(run_config: dict[str, Any], memory: ClientMemory) -> Shares:
    """Number of a run's clients that fit on this machine."""
    machine = this_machine()
    on_gpu = [gpu.memory_mib for gpu in gpus()] if memory.gpu_mib else []
    threads = int(value_of(run_config, "train.threads"))
    cores = float(max(1, int(machine.usable_cores)))
    return shares_of(cores, machine.available_mib, memory.process_mib, on_gpu, memory.gpu_mib, threads)


def doctor(options: argparse.Namespace) -> int:
    """Carry out ``fedge doctor``; returns the exit code: 0, or 4 if a run will not work."""
    if options.app == NAME and not Path(NAME).is_dir():
        return _print_findings(
            [Finding("machine", WELL, platform.platform()), *deployment_findings(options)], options.json
        )
    if options.gpu:
        return _run_gpu_checks(options)
    on_ray = engine_kind(options.engine).on_ray
    project = Project(Path(options.app))
    findings: list[Finding] = []
    memory = shares = None
    run_config = project.run_config(options.run_config)
    try:
        from_run_config(run_config)
        federation = project.federation(options.federation)
        if federation.num_supernodes:
            memory = measure_client(run_config, federation)
            shares = _machine_shares(run_config, memory)
            findings += _client_findings(memory, shares)
    except ConfigError as error:
        findings.append(Finding("this run", BROKEN, str(error)))
    findings = [
        *machine_findings(this_machine(), gpus(), on_ray),
        *installation_findings(on_ray),
        *environment_findings(value_of(run_config, "seed")),
        runs_folder_findings(str(value_of(run_config, "runs-dir"))),
        *findings,
    ]
    table = federation_table(shares, memory.clients, _cpus_to_set(run_config)) if shares and memory else ""
    if options.json:
        print(json.dumps(_as_json(findings, memory, shares, table), indent=2, ensure_ascii=False))
    else:
        print("\n".join(_format_findings(findings, table)))
    return exits.FAILED if any(finding.state == BROKEN for finding in findings) else exits.COMPLETED


def _run_gpu_checks(options: argparse.Namespace) -> int:
    """Carry out ``fedge doctor --gpu``; returns the exit code."""
    from fedge.doctor.gpu_check import FILE, can_check, check_gpus  # loads PyTorch, rarely needed

    if not can_check():
        raise ConfigError(
            "--gpu needs an NVIDIA GPU that PyTorch can use, but PyTorch finds none; use a "
            "machine with such a GPU, and a PyTorch build with CUDA"
        )
    failed = check_gpus(project=_project_network(options))
    print(f"{failed} failed; details are in {FILE}, which can be attached to a bug report")
    return exits.FAILED if failed else exits.COMPLETED


def _project_network(options: argparse.Namespace) -> "ProjectNetwork | None":
    """Function giving the network of the project and its windows; None where there is no project."""
    from fedge.doctor.project_network import project_network

    if not (Path(options.app) / "pyproject.toml").is_file():
        return None
    project = Project(Path(options.app))
    run_config = project.run_config(options.run_config)
    return partial(project_network, run_config, project.federation(options.federation))


def _print_findings(findings: Sequence[Finding], as_json: bool) -> int:
    """Print findings that concern no run; returns the exit code."""
    text = json.dumps([asdict(finding) for finding in findings], indent=2, ensure_ascii=False)
    print(text if as_json else "\n".join(_format_findings(findings, "")))
    return exits.FAILED if any(finding.state == BROKEN for finding in findings) else exits.COMPLETED


def _client_findings(memory: ClientMemory, shares: Shares) -> list[Finding]:
    """Findings on a client's memory, and on the number of clients that fit."""
    gpu = f", {memory.gpu_mib:,.0f} MiB on its GPU" if memory.gpu_mib else ""
    words = (
        f"{memory.process_mib:,.0f} MiB as a process, {memory.client_mib:,.0f} more as a thread{gpu}; "
        f"measured with the largest of {quantity(memory.clients, 'client')}, "
        f"{quantity(memory.windows, 'window', separated=True)}"
    )
    per_gpu = f", {shares.per_gpu} on each GPU" if shares.per_gpu else ""
    fit = f"{shares.at_a_time}{per_gpu}; limited by {shares.limit}"
    state = TRAP if shares.limit == "memory" else WELL
    return [Finding("a client", WELL, words), Finding("clients at a time", state, fit)]


def federation_table(shares: Shares, clients: int, cpus: int = 0) -> str:
    """Federation for this machine as a table of pyproject.toml.

    Args:
        shares: of a client.
        clients: their number.
        cpus: number of CPUs to tell Ray; 0 for its own count.

    >>> print(federation_table(Shares(4, 2.0, 0.25, 4, "GPU memory"), 9))
    [tool."flwr".federations.this-machine]
    options.num-supernodes = 9
    options.backend.client-resources.num-cpus = 2
    options.backend.client-resources.num-gpus = 0.25
    options.backend.init-args.logging-level = "error"
    options.backend.init-args.log-to-driver = false
    """
    cpu_line = [f"options.backend.init-args.num-cpus = {cpus}"] * (cpus > 0)
    return "\n".join(
        [
            f'[tool."flwr".federations.{_NAME}]',
            f"options.num-supernodes = {clients}",
            f"options.backend.client-resources.num-cpus = {shares.num_cpus:g}",
            f"options.backend.client-resources.num-gpus = {shares.num_gpus or '0.0'}",
            *cpu_line,
            'options.backend.init-args.logging-level = "error"',
            "options.backend.init-args.log-to-driver = false",
        ]
    )


def _format_findings(findings: Sequence[Finding], table: str) -> list[str]:
    """Findings as lines of text; a long name, e.g. of a folder, has its own line."""
    width = max(shutil.get_terminal_size().columns - 2, 60)
    name_width = min(max(len(finding.name) for finding in findings), _LONGEST_NAME)
    lines = []
    for finding in findings:
        text = wrap(finding.words, width - name_width - 4) or [""]
        own_line = [""] * (len(finding.name) > name_width)
        first, *rest = [*own_line, *text]
        lines.append(f"{_SIGNS[finding.state]} {finding.name:{name_width}}  {first}".rstrip())
        lines += [f"{'':{name_width + 4}}{line}" for line in rest]
    counts = {state: sum(finding.state == state for finding in findings) for state in _SIGNS}
    lines += ["", f"{quantity(counts[BROKEN], 'error')} (✗), {quantity(counts[TRAP], 'note')} (!)"]
    if table:
        lines += [
            "",
            "add this to pyproject.toml; then: flwr run . this-machine, or fedge run --engine flower",
            "",
            table,
        ]
    return lines


def _as_json(
    findings: Sequence[Finding], memory: ClientMemory | None, shares: Shares | None, table: str
) -> dict[str, Any]:
    """Findings as JSON."""
    return {
        "findings": [asdict(finding) for finding in findings],
        "client": asdict(memory) if memory else None,
        "shares": asdict(shares) if shares else None,
        "machine": asdict(this_machine()),
        "gpus": [asdict(gpu) for gpu in gpus()],
        "federation": table,
    }
