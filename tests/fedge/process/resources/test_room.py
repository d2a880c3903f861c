"""Limits of the address space: one line before any library is loaded, or room held for OpenBLAS."""

import ast
import errno
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from daily import daily
from limited import limited
from small_runs import small_config

from fedge.config.registers.option import ConfigError
from fedge.launch.flower_runs.flower import toml_of
from fedge.process.resources import room
from fedge.process.resources.room import blas_threads, limit_mib, needed_mib, refuse_low_limits, remedy
from fedge.process.resources.threads import available_cores

FEDGE = str(Path(sys.executable).with_name("fedge"))
MIB = 2**20
ROOT = Path(__file__).parents[4]


def under(mib, *words, **more):
    """A finished command whose address space is limited; a hang is an error."""
    return subprocess.run(
        limited(words, resource.RLIMIT_AS, mib * MIB), capture_output=True, text=True, timeout=200,
        check=False, **more,
    )  # fmt: skip


def test_without_a_limit_nothing_is_refused_or_loaded():
    assert limit_mib() == float("inf")
    words = (
        "import sys; from fedge.process.resources import room; room.refuse_low_limits(); "
        "print('scipy' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", words], text=True) == "False\n"


@pytest.mark.parametrize(
    ("variables", "threads"),
    [({}, None), ({"OMP_NUM_THREADS": "1"}, 1), ({"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "9"}, 1),
     ({"OPENBLAS_NUM_THREADS": "0"}, None), ({"OPENBLAS_NUM_THREADS": "many"}, None),
     ({"OPENBLAS_NUM_THREADS": "1000"}, None)],
)  # fmt: skip
def test_threads_are_those_of_openblas(monkeypatch, variables, threads):
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    wanted = threads or available_cores()
    assert blas_threads() == wanted
    assert needed_mib() == 1536 + 80 * (wanted - 1)


def test_a_limit_is_refused_with_its_value_and_the_next_step(monkeypatch):
    monkeypatch.setattr(room, "limit_mib", lambda: 1000.0)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    with pytest.raises(
        ConfigError, match=r"must be at least 1536 MiB .*, but is 1000 MiB; raise it"
    ) as error:
        refuse_low_limits()
    assert "\n" not in str(error.value)


def test_room_that_others_have_taken_is_refused_before_scipy_asks_for_it():
    """All but 50 MiB of the addresses are taken: SciPy's OpenBLAS would ask for ever."""
    words = (
        "import mmap, re\n"
        "from fedge.process.resources.room import refuse_low_limits, limit_mib\n"
        "size = int(re.search(r'VmSize:\\s+(\\d+)', open('/proc/self/status').read())[1]) / 1024\n"
        "taken = mmap.mmap(-1, int((limit_mib() - size - 50) * 2**20))\n"
        "refuse_low_limits()\n"
    )
    done = under(needed_mib() + 100, sys.executable, "-c", words)
    assert "ConfigError: the limit of the address space (ulimit -v) must be high enough" in done.stderr


COMMANDS = (
    ("resume",), ("run",), ("compare", "a", "b"), ("predict", "a", "b"), ("demo",), ("report", "a"),
    ("deal", "a"), ("datasets", "prepare", "hhar", "a"),
)  # fmt: skip
LITTLE = [(words, mib) for words in COMMANDS for mib in (400, 1300)]


@pytest.mark.parametrize("case", daily(LITTLE, [*LITTLE[::4], *LITTLE[3::4]]), ids=str)  # each command once
def test_too_small_a_limit_is_one_line(tmp_path, case):
    words, mib = case
    done = under(mib, FEDGE, *words, cwd=tmp_path)
    (line,) = done.stderr.splitlines()
    assert line.startswith("fedge: the limit of the address space (ulimit -v) must be at least")
    assert f"but is {mib} MiB" in line
    assert done.returncode == 4


def test_a_command_that_trains_nothing_needs_little(tmp_path):
    done = under(1024, FEDGE, "status", cwd=tmp_path)
    assert "address space" not in done.stderr


@pytest.mark.whole_runs
def test_a_run_ends_by_itself_in_the_least_room(tmp_path):
    """Where OpenBLAS of SciPy once asked for memory for ever, at its first use in a cloud step or gate."""
    config = tmp_path / "options.toml"
    config.write_text(toml_of(small_config(tmp_path / "data")))
    done = under(needed_mib(), FEDGE, "run", "-c", str(config), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "run folder: " in done.stdout


@pytest.mark.parametrize("command", ["run", "resume", "demo"])
def test_few_open_files_are_one_line(tmp_path, command):
    done = subprocess.run(
        limited([FEDGE, command], resource.RLIMIT_NOFILE, 63), capture_output=True, text=True, timeout=200,
        check=False, cwd=tmp_path,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (
        4,
        "fedge: open files (ulimit -n) must be at least 64, but are 63; raise the limit\n",
    )


@pytest.mark.parametrize(
    ("error", "said"),
    [(OSError(errno.EMFILE, "x"), "allow more open files (ulimit -n)"),
     (OSError(errno.ENOSPC, "x"), "free disk space"), (OSError(errno.EDQUOT, "x"), "free disk space"),
     (FileNotFoundError(errno.ENOENT, "x"), "leave the run's files in place"),
     (OSError(errno.EROFS, "x"), "make the folder writable"),
     (PermissionError(errno.EACCES, "x"), "make the folder writable"),
     (OSError(errno.EFBIG, "x"), "allow larger files (ulimit -f)"),
     (OSError(errno.EIO, "x"), "check the disk"),
     (OSError("x"), "free disk space"), (ValueError("x"), "free disk space")],
)  # fmt: skip
def test_the_remedy_is_of_the_error(error, said):
    assert remedy(error) == said


def test_no_message_shows_the_number_of_an_error_of_the_system():
    """Its reason is its strerror: its text begins with "[Errno 28]", and may repeat the file's name."""
    caught, found = "except OSError as", []
    paths = [*(ROOT / "fedge").rglob("*.py"), *(ROOT / "hhar").rglob("*.py")]
    for path in (path for path in paths if caught in path.read_text()):
        for one in ast.walk(ast.parse(path.read_text())):
            if isinstance(one, ast.ExceptHandler) and ast.unparse(one).startswith(caught):
                parts = [part for part in ast.walk(one) if isinstance(part, ast.FormattedValue)]
                found += [f"{path}:{part.lineno}" for part in parts if ast.unparse(part.value) == one.name]
    assert found == []
