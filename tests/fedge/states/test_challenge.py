"""Readers of the server's folder can show that they are, and learn nothing of any other file."""

import os
import stat
import subprocess
import sys

import pytest

from fedge.states.challenge import answer_to, challenge_of_process, write_challenge

NAME = "challenge-" + 32 * "0"


def test_an_answer_takes_the_file_s_content_and_each_file_has_its_own(tmp_path):
    first, second = write_challenge(tmp_path), write_challenge(tmp_path)
    assert answer_to(first) == answer_to(first) != answer_to(second)
    assert len(answer_to(first)) == 64
    assert stat.S_IMODE(os.stat(first).st_mode) == 0o600
    before = answer_to(first)
    with open(first, "r+b") as file:
        file.write(b"another")
    assert answer_to(first) != before


def test_a_challenge_of_this_process_is_answered_here_and_in_no_other():
    challenge = challenge_of_process()
    assert len(answer_to(challenge)) == 64
    code = "import sys; from fedge.states.challenge import answer_to; print(repr(answer_to(sys.argv[1])))"
    done = subprocess.run([sys.executable, "-c", code, challenge], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "''"


def test_other_files_are_not_told_of_whether_they_are_there_or_not(tmp_path):
    """A stranger's question about any path has the answer of one that is not there."""
    (tmp_path / "secret").write_bytes(bytes(32))
    (tmp_path / NAME).mkdir()
    (tmp_path / "long").mkdir()
    (tmp_path / "long" / NAME).write_bytes(bytes(33))
    (tmp_path / "short").mkdir()
    (tmp_path / "short" / NAME).write_bytes(bytes(31))
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / NAME).symlink_to(tmp_path / "secret")
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / NAME)
    asked = [
        "/etc/passwd",
        "/nowhere",
        str(tmp_path / "secret"),
        str(tmp_path),
        NAME,
        "",
        "\0",
        f"/\0/{NAME}",
    ]
    asked += [str(tmp_path / way / NAME) for way in (".", "long", "short", "link", "pipe")]
    asked += [f"/dev/{NAME}", f"/etc/passwd/../{NAME}", "x" * 100_000, f"{'x' * 100_000}/{NAME}"]
    assert [answer_to(path) for path in asked] == [""] * len(asked)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_to_is_not_seen(tmp_path):
    told = write_challenge(tmp_path)
    tmp_path.chmod(0o500)
    assert answer_to(told) == ""
