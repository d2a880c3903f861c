"""Standard streams that are closed, full or read by nobody, in processes of their own."""

import os
import subprocess
import sys

import pytest

CODE = """
import os, sys
from fedge.process.streams import forget_unread, open_missing_streams
open_missing_streams()
mine = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
assert mine > 2, mine
try:
    print("words", flush=True)
    print("more words")
except OSError:
    pass
forget_unread()
os.write(mine, b"mine")
sys.exit(7)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full is Linux's")
@pytest.mark.parametrize(
    "redirection", ["", ">&-", "2>&-", "<&- >&- 2>&-", "> /dev/full", "> /dev/full 2>&1"]
)
def test_the_exit_code_and_files_are_ours(tmp_path, redirection):
    """A file that got a closed stream's descriptor would hold what is printed."""
    line = f'"{sys.executable}" -c "$0" "$1" {redirection}'
    process = subprocess.run(
        ["sh", "-c", line, CODE, tmp_path / "mine"], capture_output=True, text=True, check=False
    )
    assert (process.returncode, process.stderr) == (7, "")
    assert (tmp_path / "mine").read_text() == "mine"
    assert process.stdout == ("words\nmore words\n" if redirection in ("", "2>&-") else "")


@pytest.mark.parametrize(
    "change", ["sys.stdout = None", "sys.stdout.close()", "sys.stderr = sys.stdout = None"]
)
def test_streams_that_the_user_s_code_took_away_change_no_exit_code(change):
    code = (
        f"import sys; from fedge.process.streams import forget_unread; {change}; forget_unread(); sys.exit(7)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (7, "")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_a_number_keeps_its_sign_in_any_encoding(encoding):
    """− was printed as ?: an interval lost its sign."""
    code = (
        "import codecs; from fedge.process.streams import replace_unprintable; replace_unprintable(); "
        "print('\\u22120.2 ± 0.1, 3 ≥ 2, – ü 好')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True,
        env={**os.environ, "PYTHONIOENCODING": encoding},
    )  # fmt: skip
    assert (
        done.stdout.decode(encoding).strip()
        == {
            "ascii": "-0.2 +- 0.1, 3 >= 2, - ? ?",
            "latin-1": "-0.2 ± 0.1, 3 >= 2, - ü ?",
            "cp1252": "-0.2 ± 0.1, 3 >= 2, – ü ?",
            "utf-8": "\u22120.2 ± 0.1, 3 ≥ 2, – ü 好",
        }[encoding]
    )


def test_nobody_reads(tmp_path):
    line = f'{{ "{sys.executable}" -c "$0" "$1"; echo $? > "$1.code"; }} | true'
    process = subprocess.run(
        ["sh", "-c", line, CODE, tmp_path / "mine"], capture_output=True, text=True, check=False
    )
    assert (process.stdout, process.stderr) == ("", "")
    assert (tmp_path / "mine.code").read_text() == "7\n"


def test_unbuffered_output_is_written_whole_and_at_once():
    code = (
        "import sys, time; from fedge.process.streams import write_whole_output; write_whole_output(); "
        "print('−', end=''); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8"},
    ) as process:  # fmt: skip
        assert process.stdout.read(3).decode() == "−"
        process.kill()
