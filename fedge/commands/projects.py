"""``fedge new``, and commands listing the names for a study: configurations, options, methods, columns."""

import argparse
import json
import shlex
from pathlib import Path
from typing import Any

from fedge.commands.methods import add_methods
from fedge.config.describe import json_schema, lines_on, option_table
from fedge.launch.command_line import terminal_width
from fedge.launch.completion import SHELLS, shell_code
from fedge.launch.projects.new_project import new_project
from fedge.launch.projects.packaged import packaged_configurations


def add_new(commands: Any) -> None:
    """Add the subcommand ``new``."""
    new = commands.add_parser(
        "new",
        help="write a small project with its own model, options and federations",
        also=("init", "create"),
    )
    new.add_argument("folder", type=Path, help="its folder, new or empty, and its name: my-study")
    new.add_argument("--method", action="store_true", help="with its own client method as a start")
    new.set_defaults(command=_new)


def add_lists(commands: Any) -> None:
    """Add the subcommands for lists: configurations, options, methods, columns, completion."""
    configs = commands.add_parser("configs", help="list the built-in configurations, for -c")
    configs.set_defaults(command=_print_configs)
    completion = commands.add_parser(
        "completion", help='print the shell\'s completion code: eval "$(fedge completion bash)"'
    )
    completion.add_argument("shell", choices=SHELLS)
    completion.set_defaults(command=_print_completion)
    options = commands.add_parser(
        "options",
        help="explain an option, a section or all options, or find those with a word",
        also=("config", "settings"),
    )
    options.add_argument(
        "word", nargs="?",
        help="key, section or word, as train.lr, train or noise; without: all options as a table (Markdown)",
    )  # fmt: skip
    options.add_argument(
        "--json-schema", nargs="?", const="config", choices=("config", "pyproject"),
        help="print a JSON schema instead, for editors: of a file for -c, or of pyproject.toml",
    )  # fmt: skip
    options.set_defaults(command=_print_options)
    add_methods(commands)
    tables = commands.add_parser(
        "tables", help="print the meaning of every column of a run's tables (Markdown)"
    )
    tables.set_defaults(command=_print_tables)


def _new(options: argparse.Namespace) -> int:
    """Carry out ``fedge new``."""
    for file in new_project(options.folder, options.method):
        print(file)
    print(f"next: cd {shlex.quote(str(options.folder))} && fedge run -c num-server-rounds=5")
    return 0


def _print_configs(_: argparse.Namespace) -> int:
    """Carry out ``fedge configs``."""
    configurations = list(packaged_configurations())
    width = max(len(name) for name, _ in configurations)
    for name, meaning in configurations:
        print(f"{name:{width}}  {meaning}")
    return 0


def _print_completion(options: argparse.Namespace) -> int:
    """Carry out ``fedge completion``."""
    print(shell_code(options.shell))
    return 0


def _print_options(options: argparse.Namespace) -> int:
    """Carry out ``fedge options``."""
    if options.word:
        print("\n".join(lines_on(options.word, terminal_width())))
    elif options.json_schema:
        schema = json_schema(options.json_schema == "pyproject")
        print(json.dumps(schema, indent=2))
    else:
        print(option_table())
    return 0


def _print_tables(_: argparse.Namespace) -> int:
    """Carry out ``fedge tables``."""
    from fedge.records.tables.catalog import page

    print(page(), end="")
    return 0
