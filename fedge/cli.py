"""The command `fedge`. Exit codes: 0 completed, 3 partial, 4 failed or refused, 130 interrupted."""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from fedge.config import ConfigError, Scalar
from fedge.config import knobs as all_knobs
from fedge.federation import Federation
from fedge.preflight import check
from fedge.project import Project
from fedge.report.commands import add_commands

EXIT_CODES = {"completed": 0, "partial": 3, "failed": 4}
INTERRUPTED = 130  # 128 + SIGINT, as shells have it


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    options = _parser().parse_args(argv)
    try:
        return int(options.command(options))
    except ConfigError as error:
        print(f"fedge: {error}", file=sys.stderr)
        return EXIT_CODES["failed"]
    except KeyboardInterrupt:
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    """Return the parser of all subcommands."""
    parser = argparse.ArgumentParser(prog="fedge", description="Hierarchical, clustered federated learning.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser(
        "run", help="carry out a run, as `flwr run` would, with an exit code that tells the truth"
    )
    run.add_argument("app", nargs="?", default=".", help="folder of pyproject.toml (default: .)")
    run.add_argument("federation", nargs="?", help="name in [tool.flwr.federations] (default: its default)")
    run.add_argument(
        "-c", "--run-config", action="append", default=[], metavar="OVERRIDE",
        help="'key=value …' or FILE.toml; repeatable, later ones win",
    )  # fmt: skip
    run.add_argument(
        "--engine",
        choices=("inprocess", "flower"),
        default="inprocess",
        help="threads here, or Flower on Ray",
    )
    run.add_argument("--workers", type=int, help="inprocess: clients that train at a time (default: cores)")
    run.set_defaults(command=_run)
    knobs = commands.add_parser("knobs", help="print a table of all configuration keys (Markdown)")
    knobs.set_defaults(command=_print_knobs)
    add_commands(commands)
    return parser


def _run(options: argparse.Namespace) -> int:
    """Carry out ``fedge run``."""
    if options.workers is not None and options.workers < 1:
        raise ConfigError(
            f"--workers must be at least 1, but is {options.workers}; leave it out for one per core"
        )
    project = Project(Path(options.app))
    run_config = project.run_config(options.run_config)
    federation = project.federation(options.federation)
    if federation.num_supernodes == 0:
        raise ConfigError(
            "federation must be a simulated one (options.num-supernodes); start others with flwr run"
        )
    check(run_config, federation)
    if options.engine == "flower":
        return _run_on_flower(options, run_config)
    return _run_in_process(run_config, federation, options.workers)


def _run_in_process(run_config: dict[str, Scalar], federation: Federation, workers: int | None) -> int:
    """Run on threads of this process."""
    from fedge.engine.simulate import run_in_process  # loads torch, which a refused run need not wait for

    return EXIT_CODES[run_in_process(run_config, federation, workers, None).status]


def _run_on_flower(options: argparse.Namespace, run_config: dict[str, Scalar]) -> int:
    """Run ``flwr run``, its output passed through; the manifest, not its exit code, tells how it ended."""
    name = str(run_config.get("run-name") or f"{datetime.now():%Y%m%d-%H%M%S-%f}")
    folder = Path(str(run_config["runs-dir"])) / name
    with tempfile.NamedTemporaryFile("w", suffix=".toml", encoding="utf-8") as overrides:
        overrides.writelines(
            f"{_quoted(key)} = {json.dumps(v)}\n" for key, v in {**run_config, "run-name": name}.items()
        )
        overrides.flush()
        words = [options.app, *([options.federation] if options.federation else []), "-c", overrides.name]
        code = subprocess.run(["flwr", "run", *words], check=False).returncode
    manifest = folder / "manifest.json"
    if not manifest.is_file():
        print(f"fedge: flwr run ended with code {code} and left no {manifest}", file=sys.stderr)
        return EXIT_CODES["failed"]
    return EXIT_CODES.get(json.loads(manifest.read_text(encoding="utf-8"))["status"], EXIT_CODES["failed"])


def _print_knobs(_: argparse.Namespace) -> int:
    """Carry out ``fedge knobs``."""
    print(knob_table())
    return 0


def knob_table() -> str:
    """Return a Markdown table of every knob: key, default, allowed values, meaning."""
    lines = ["| key | default | allowed | meaning |", "|---|---|---|---|"]
    for key, (default, rule) in all_knobs().items():
        lines.append(f"| `{key}` | `{json.dumps(default)}` | {_allowed(default, rule)} | {rule['doc']} |")
    return "\n".join(lines)


def _allowed(default: Scalar, rule: Mapping[str, Any]) -> str:
    """Return what a knob may be, in a few signs."""
    if rule["choices"]:
        return ", ".join(f"`{choice}`" for choice in rule["choices"])
    if isinstance(default, bool):
        return "`true`, `false`"
    bounds = (("minimum", "≥"), ("above", ">"), ("maximum", "≤"))
    limits = " and ".join(f"{sign} {rule[name]:g}" for name, sign in bounds if rule[name] is not None)
    return limits or "any"


def _quoted(key: str) -> str:
    """Return a dotted key as a TOML key path."""
    return ".".join(f'"{part}"' for part in key.split("."))


if __name__ == "__main__":
    sys.exit(main())
