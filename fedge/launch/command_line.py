"""Parser of the command line; an unknown word is refused in one line, with the nearest one suggested."""

import argparse
import difflib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from textwrap import wrap
from typing import Any, NoReturn

from fedge.config.describe import help_lines
from fedge.config.flat import option_meant, options
from fedge.config.registers.option import ALIKE, ConfigError, nearest, shown
from fedge.launch.projects.packaged import is_packaged

UNREADABLE = 2  # exit code for an invalid command line, as in most commands

_MOST_USED_TITLE = "options for -c that most runs set, with their defaults; --help-all shows all of them:"
_ALL_TITLE = "options for -c, with their defaults:"


class _Subcommands(argparse._SubParsersAction):
    """Subcommands whose help begins with their line in the list of commands."""

    def add_parser(self, name: str, **options: Any) -> Any:
        """Parser of a new command; arguments as in argparse's ``add_parser``, including `help`."""
        summary = str(options["help"])
        return super().add_parser(name, description=f"{summary[:1].upper()}{summary[1:]}.", **options)


class Parser(argparse.ArgumentParser):
    """Parser with one-line errors, whose help may end with further sections."""

    more: Callable[[int], Iterable[str]] | None = None
    also: Sequence[str] = ()
    _mixes = False  # while words after options are read

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Parser like argparse's, whose subcommands describe themselves."""
        super().__init__(*arguments, **options)
        self.register("action", "parsers", _Subcommands)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Arguments, and unknown words; arguments without a dash may also follow options.

        argparse leaves out optional ones that do not come with the first.
        """
        words = list(sys.argv[1:] if args is None else args)
        parsed, unknown = super().parse_known_args(words, copy(namespace))
        is_late = unknown and not any(word.startswith("-") for word in unknown)
        if not is_late or self._mixes or self._subparsers is not None or "--" in words:
            return parsed, unknown
        self._mixes = True
        try:
            return self.parse_known_intermixed_args(words, namespace)
        finally:
            self._mixes = False

    def error(self, message: str) -> NoReturn:
        """Print the error in one line and exit."""
        hint = "" if message.endswith("?") else f"; see {self.prog} --help"
        self.exit(UNREADABLE, f"fedge: {ConfigError(message)}{hint}\n")

    def format_help(self) -> str:
        """Usage, arguments, and further sections."""
        more = self.more(terminal_width()) if self.more else []
        return super().format_help() + ("\n".join(["", *more, ""]) if more else "")


def terminal_width() -> int:
    """Characters per line of the terminal, as argparse determines them."""
    return max(shutil.get_terminal_size().columns - 2, 30)


class Commands:
    """Subcommands of a parser, grouped under titles in its help."""

    def __init__(self, parser: Parser) -> None:
        """Subcommands of `parser`, whose help lists them by group."""
        parser.usage = f"{parser.prog} [-h] [--version] COMMAND ..."
        self._subparsers = parser.add_subparsers(
            required=True, metavar="COMMAND", help=argparse.SUPPRESS, prog=parser.prog
        )
        self._groups: list[CommandGroup] = []
        parser.more = self._lines

    def group(self, title: str) -> "CommandGroup":
        """New group for subcommands; its `add_parser` is the one of ``add_subparsers``."""
        self._groups.append(CommandGroup(title, self._subparsers))
        return self._groups[-1]

    def _lines(self, width: int) -> Iterator[str]:
        """All groups, one command per line with its help wrapped beside it."""
        indent = 2 + max(len(name) for group in self._groups for name, _ in group.commands) + 2
        for group in self._groups:
            yield f"{group.title}:"
            for name, summary in group.commands:
                yield from wrap(
                    summary, width, initial_indent=f"  {name}".ljust(indent), subsequent_indent=" " * indent
                )
            yield ""
        yield from wrap("fedge COMMAND --help describes a command.", width)


class CommandGroup:
    """Commands under one title.

    Attributes:
        title: shown in the help.
        commands: name and help of each, in the order of addition.
    """

    def __init__(self, title: str, subparsers: Any) -> None:
        """Empty group within `subparsers`."""
        self.title = title
        self.commands: list[tuple[str, str]] = []
        self._subparsers = subparsers

    def add_parser(self, name: str, *, help: str, also: Sequence[str] = (), **options: Any) -> Parser:
        """Parser of a new command; further arguments as in argparse's ``add_parser``.

        Args:
            name: name of the command.
            help: its line in the list of commands.
            also: names of this command in other tools; an error for one of them suggests this command.
            options: arguments for the parser.
        """
        self.commands.append((name, help))
        parser: Parser = self._subparsers.add_parser(name, help=help, **options)
        parser.also = also
        return parser


class _HelpAll(argparse.Action):
    """Action printing the help of a run with all options of its configuration."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        """Print the help and exit."""
        assert isinstance(parser, Parser)
        parser.more = lambda width: [*wrap(_ALL_TITLE, width), *help_lines(width, most_used=False)]
        parser.print_help()
        parser.exit()


def show_options(parser: Parser) -> None:
    """Add the run's options to the help of a command starting a run, and ``--help-all``."""
    parser.more = lambda width: [*wrap(_MOST_USED_TITLE, width), *help_lines(width, most_used=True)]
    parser.add_argument("--help-all", action=_HelpAll, nargs=0, help="show this with all options of a run")


def parse_command_line(parser: Parser, arguments: Sequence[str]) -> argparse.Namespace:
    """Parsed command line; an invalid one ends the process with one line."""
    commands = _commands(parser)
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:2], "--help"]
    if arguments and not arguments[0].startswith("-") and arguments[0] not in commands:
        flags = [f"--{arguments[0]}"] if f"--{arguments[0]}" in parser._option_string_actions else []
        suggestions = [*flags, *(name for name, command in commands.items() if arguments[0] in command.also)]
        hint = f"; did you mean {' or '.join(suggestions)}?" if suggestions else ""
        hint = hint or nearest(arguments[0], list(commands)) or f"; it is one of {', '.join(commands)}"
        parser.error(f"there is no command {shown(arguments[0])}{hint}")
    if arguments and not any(
        candidate.startswith(arguments[0]) for candidate in [*parser._option_string_actions, *commands]
    ):
        _refuse_unknown(parser, arguments[:1], list(arguments))
    namespace, unknown = parser.parse_known_args(arguments)
    if unknown:
        _refuse_unknown(commands.get(arguments[0], parser), unknown, list(arguments))
    return namespace


def _commands(parser: argparse.ArgumentParser) -> dict[str, Parser]:
    """Parsers of all commands, by name."""
    return next(dict(a.choices) for a in parser._actions if isinstance(a, argparse._SubParsersAction))


_FLWR_RUN_HINTS = {  # options of `flwr run`
    "--federation": "its name follows the folder's: fedge run . NAME",
    "--federation-config": "the number of clients is --clients N",
    "--stream": "leave it out: lines are printed as they come",
}


def _refuse_unknown(command: Parser, unknown: Sequence[str], arguments: Sequence[str]) -> NoReturn:
    """Exit with a line on the first word unknown to a command."""
    word = next((word for word in unknown if word.startswith("-")), unknown[0])
    name, _, value = word.partition("=")
    key = name.lstrip("-")
    flags = {text.lstrip("-"): text for action in command._actions for text in action.option_strings}
    is_option = word.startswith("-") or "=" in word
    if is_option and "run-config" in flags and (option := option_meant(key)):
        next_word = next(
            (text for text in arguments[arguments.index(word) + 1 :] if not text.startswith("-")), None
        )
        setting = value or next_word or json.dumps(options()[option][0])
        command.error(f"there is no {name}: options of a run follow -c, as -c {shown(f'{option}={setting}')}")
    # dashes are alike
    matches = difflib.get_close_matches(key, flags, n=1, cutoff=ALIKE) if is_option else []
    hint = f"; did you mean {flags[matches[0]]}?" if matches else ""
    if name in _FLWR_RUN_HINTS and "--clients" in flags.values():
        hint = f"; {_FLWR_RUN_HINTS[name]}"
    command.error(f"{'there is no' if word.startswith('-') else 'too many words:'} {shown(word)}{hint}")


def refuse_option_as_place(word: str | None, argument: str) -> None:
    """Raise ConfigError for an option or configuration in place of a folder or a federation."""
    if word and not os.path.isdir(word) and ("=" in word or word.endswith(".toml") or is_packaged(word)):
        raise ConfigError(f"{argument} cannot be {shown(word)}, which belongs after -c: use -c {shown(word)}")
