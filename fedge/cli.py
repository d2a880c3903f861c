# PYTHON_ARGCOMPLETE_OK
"""The command `fedge`.

Exit codes: 0 completed, 2 invalid command line, 3 partial, 4 failed or refused, 5 stalled, 130 on Ctrl-C,
143 on SIGTERM, 141 if nothing reads the output; of `fedge status` also 1, still running.
"""

from fedge.process.endings.loading import end_of_loading  # first, to handle Ctrl-C while the others load

# isort: split
import errno
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path

from fedge.commands.compare import compare_command
from fedge.commands.demo import add_demo
from fedge.commands.docs import add_docs
from fedge.commands.measure import add_doctor, add_profile, add_status, add_sweep
from fedge.commands.projects import add_lists, add_new
from fedge.commands.run import add_run
from fedge.config.registers.option import ConfigError, shown
from fedge.datasets.command import add_datasets
from fedge.launch.clock_command import add_clock
from fedge.launch.command_line import Commands, Parser, parse_command_line
from fedge.launch.completion import complete
from fedge.launch.deal import add_deal
from fedge.launch.devices_command import add_devices
from fedge.launch.flower_runs.superlink_command import add_superlink
from fedge.launch.leaf_servers.leaf_command import add_leaf
from fedge.launch.nodes.node_command import add_node
from fedge.link.command import add_commands as add_link_commands
from fedge.process.endings import exits
from fedge.process.endings.channels import exit_despite_channels
from fedge.process.escape import printable
from fedge.process.resources.room import refuse_low_limits
from fedge.process.streams import (
    forget_unread,
    open_missing_streams,
    replace_unprintable,
    silence_grpc,
    write_whole_output,
)
from fedge.report.commands import add_commands as add_report_commands
from fedge.use.commands import add_commands as add_model_commands

end_of_loading()
# commands with the exit codes of a run
_RUN_COMMANDS = frozenset({"demo", "run", "resume", "status", "sweep", "superlink", "leaf", "node"})
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_RIGHTS = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})

# A command's modules are loaded when it runs, because shells request completion at every keystroke.


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code of a command line; None for this process's own."""
    owns_process = argv is None
    if owns_process:
        open_missing_streams()
        replace_unprintable()
        write_whole_output()
        silence_grpc()
        exit_despite_channels()
    try:
        return _run_command(sys.argv[1:] if argv is None else argv, owns_process)
    except BrokenPipeError:  # the reader of the output is gone, e.g. `head`
        return exits.UNREAD
    except OSError as error:
        message = _os_error_message(error)
        if message is None:
            raise
        print(f"fedge: {message}", file=sys.stderr)
        return exits.FAILED
    except ConfigError as error:
        print(f"fedge: {error}", file=sys.stderr)
        return exits.FAILED
    except KeyboardInterrupt as error:
        return (exits.find_interruption(error) or exits.Interrupted()).exit_code
    finally:
        if owns_process:
            forget_unread()


def _run_command(arguments: Sequence[str], owns_process: bool) -> int:
    """Carry out a command; returns its exit code. Without a command, help is shown."""
    _refuse_lost_folder()
    parser = _build_parser()
    complete(parser)
    if not arguments:
        parser.print_help()
        return exits.COMPLETED
    options = parse_command_line(parser, arguments)
    options.owns_process = owns_process
    if getattr(options, "needs_room", False):
        refuse_low_limits()  # before torch and SciPy are loaded
    with exits.signals_as_exceptions(to_the_end=True) if owns_process else nullcontext():
        code = int(options.command(options))
    if owns_process and code == exits.COMPLETED and arguments[0] not in _RUN_COMMANDS:
        sys.stdout.flush()  # an incomplete page or table is a failure
    return code


def _os_error_message(error: OSError) -> str | None:
    """Rule, reason and next step for an error of permissions, length or disk space; None for others."""
    reason = error.strerror or error
    if error.errno == errno.ENAMETOOLONG and error.filename is not None:
        path = shown(os.fsdecode(error.filename))
        return f"a path must be one that the file system can have, but {path}: {reason}; name another"
    if error.errno in _NO_RIGHTS and error.filename is not None:
        rule = f"{printable(os.fsdecode(error.filename))} must be accessible to this user, but: {reason}"
        return f"{rule}; change its permissions (chmod, chown), or name another"
    if error.errno in _NO_ROOM:
        return f"the output must have room, but: {reason}; make room, or write elsewhere"
    return None


def _refuse_lost_folder() -> None:
    """Raise ConfigError if the working directory is gone, on which libraries end with obscure errors."""
    try:
        Path.cwd()
    except OSError as error:
        raise ConfigError(
            f"the working directory must exist, but: {error.strerror or error}; cd to one that does"
        ) from None


def _build_parser() -> Parser:
    """Parser of all subcommands, in the groups shown in the help."""
    parser = Parser(prog="fedge", description="Hierarchical, clustered federated learning.")
    parser.add_argument("--version", action="version", version=f"fedge {version('fedge')}")
    commands = Commands(parser)
    start = commands.group("begin here")
    add_demo(start)
    add_new(start)
    runs = commands.group("carry out runs")
    add_run(runs)
    add_status(runs)
    add_sweep(runs)
    add_clock(runs)
    results = commands.group("look at results, and use them")
    add_report_commands(results, compare_command)
    add_model_commands(results)
    data = commands.group("data")
    add_datasets(data)
    add_deal(data)
    add_devices(data)
    lookups = commands.group("look something up")
    add_docs(lookups)
    add_lists(lookups)
    machine = commands.group("this machine")
    add_doctor(machine)
    add_profile(machine)
    machines = commands.group("several machines")
    add_superlink(machines)
    add_leaf(machines)
    add_node(machines)
    add_link_commands(machines)
    return parser


if __name__ == "__main__":
    sys.exit(main())
