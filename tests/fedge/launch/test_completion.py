"""Completions offered to a shell, asked as bash asks."""

import os
import shlex
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from odd_names import odd_names

from fedge.cli import main
from fedge.launch.completion import SHELLS, overrides, shell_code

ROOT = Path(__file__).parents[3]
BREAKS = " \t\n\"'><=;|&(:"  # bash's own


def offered(line, folder):
    """Completions of a line typed in a folder, and the modules loaded for them."""
    code = (
        "import os, sys, atexit\n"
        "from fedge.cli import main\n"
        "sys.argv[0] = 'fedge'\n"
        "end = os._exit\n"
        "def leave(code):\n"
        "    heavy = {'torch', 'flwr', 'ray', 'polars', 'numpy', 'matplotlib'} & sys.modules.keys()\n"
        "    os.write(2, repr(sorted(heavy)).encode())\n"
        "    end(code)\n"
        "os._exit = leave\n"
        "main()\n"
    )
    variables = {
        **os.environ, "_ARGCOMPLETE": "1", "_ARGCOMPLETE_SHELL": "bash", "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_COMP_WORDBREAKS": BREAKS, "COMP_TYPE": "9", "COMP_LINE": line,
        "COMP_POINT": str(len(line.encode())), "_ARGCOMPLETE_STDOUT_FILENAME": str(folder / ".offered"),
    }  # fmt: skip
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=variables, capture_output=True, check=False
    )
    assert ended.stderr.decode().endswith("[]")  # nothing heavy
    return sorted((folder / ".offered").read_text().split("\n"))


@pytest.mark.whole_runs
def test_bash_is_offered_commands_options_values_and_names(tmp_path):
    (tmp_path / "mine.toml").write_text("")
    (tmp_path / "runs" / "first").mkdir(parents=True)
    (tmp_path / "runs" / "first" / "manifest.json").write_text("{}")
    assert offered("fedge ru", tmp_path) == ["run", "runs"]
    assert offered("fedge run -c train.l", tmp_path) == [
        "train.label-smoothing=", "train.local-epochs=", "train.local-steps=", "train.loss-args=",
        "train.loss=", "train.lr-decay=", "train.lr=",
    ]  # fmt: skip
    assert offered("fedge run -c scaffold.enabled=", tmp_path) == ["false", "true"]  # bash breaks words at =
    assert offered("fedge run -c fedge:hie", tmp_path) == ["hierfl "]
    assert offered("fedge run . local-simulation-3", tmp_path) == ["local-simulation-30 "]
    assert offered("fedge report f", tmp_path) == ["first "]
    assert offered("fedge sweep m", tmp_path) == ["mine.toml "]


def test_after_c(tmp_path, monkeypatch):
    """Keys, values, several in one word, packaged configurations, files; nothing for what is no option."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.toml").write_text("")
    (tmp_path / ".hidden.toml").write_text("")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.toml").write_text("")
    assert overrides("train.prox") == ["train.prox-mu="]
    assert overrides("train.prox-mu=") == ["train.prox-mu=0.0"]
    assert overrides("train.prox-mu=0.1 gate.e") == ["train.prox-mu=0.1 gate.enabled="]
    assert overrides("data.split=") == [
        f'data.split="{kind}"' for kind in ("auto", "session", "blocks", "given")
    ]
    assert overrides("fedge:server/fedad") == ["fedge:server/fedadagrad", "fedge:server/fedadam"]
    assert {"a.toml", "sub/"} <= set(overrides(""))
    assert ".hidden.toml" not in overrides("")
    assert overrides("sub/") == ["sub/b.toml"]
    assert overrides("nothing.like=") == ['nothing.like=""']
    assert overrides(str(tmp_path / "su")) == [f"{tmp_path}/sub/"]
    assert overrides("nowhere/x") == []


@pytest.mark.parametrize("shell", SHELLS)
def test_the_code_for_a_shell_is_printed(shell, capsys):
    assert main(["completion", shell]) == 0
    assert "fedge" in capsys.readouterr().out


def words_of_bash(line, folder, home):
    """Words that a real bash makes of each completion of a line: it is typed, and carried out."""
    script = folder.parent / "complete.sh"
    script.write_text(
        f'export PATH="{Path(sys.executable).parent}:$PATH"\n'
        f"{shell_code('bash')}\n"
        f"COMP_LINE={shlex.quote(line)} COMP_POINT={len(line.encode())} COMP_TYPE=9 COMP_KEY=9\n"
        f'read -ra COMP_WORDS <<< "$COMP_LINE"; COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\n'
        "_python_argcomplete fedge\n"
        'for word in "${COMPREPLY[@]}"; do printf \'%s\\0\' "$word"; done\n'
    )
    done = subprocess.run(
        ["bash", str(script)],
        cwd=folder,
        capture_output=True,
        check=True,
        env={**os.environ, "HOME": str(home)},
    )
    return [word for word in done.stdout.decode("utf-8", "surrogateescape").split("\0") if word]


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_no_name_of_a_file_or_run_becomes_a_command_in_bash(tmp_path):
    """300 odd names of files, and as many runs: each word that is offered is carried out as an argument."""
    folder, home = tmp_path / "here", tmp_path / "home"
    (folder / "runs").mkdir(parents=True)
    home.mkdir()
    names = {name.encode("utf-8", "replace").decode() for name in odd_names(300, 3)}
    names = {name for name in names if name.strip("./") and "/" not in name and "\0" not in name}
    for name in names:
        with suppress(OSError):
            (folder / f"{name}.toml").write_text("")
            (folder / "runs" / name).mkdir()
            (folder / "runs" / name / "manifest.json").write_text("{}")
    for line, known in (("fedge sweep ", folder), ("fedge report ", folder / "runs")):
        words = words_of_bash(line, folder, home)
        assert len(words) > 50
        argument = "".join(f"printf '%s\\0' {word}\n" for word in words)
        done = subprocess.run(["bash", "-c", argument], cwd=home, capture_output=True, check=False)
        told = done.stdout.decode("utf-8", "surrogateescape").split("\0")
        assert list(home.iterdir()) == []
        odd = [name for name in told if name not in {"", "latest", *os.listdir(known)} and name[-1:] != "/"]
        assert odd == []
