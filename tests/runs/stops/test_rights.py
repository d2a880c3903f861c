"""Files and folders whose rights this user does not have: one line with the name, the rule and the next step.

Commands run without root's rights over files (`tests/support/unprivileged.py`); a mode of 0 is no access.
"""

import os
import shutil
import subprocess
import sys

import pytest

from fedge.cli import main
from fedge.link.certificates import CertificateRequest, make_certificates, revoke
from tests.support.unprivileged import unprivileged

pytestmark = pytest.mark.whole_runs
QUICK = "num-server-rounds=1 train.local-epochs=1 train.model='linear' data.path='synthetic' run-name='a'"
FEDGE = [
    sys.executable,
    "-c",
    "import sys; sys.argv[0] = 'fedge'; from fedge.cli import main; sys.exit(main())",
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder with a finished run, runs/a."""
    folder = tmp_path_factory.mktemp("finished")
    assert main(["run", "-c", QUICK, "-c", f"runs-dir='{folder / 'runs'}'"]) == 0
    return folder


def _said(folder, *words, env=None):
    """Exit code and error's lines of a command in a folder."""
    done = subprocess.run(
        unprivileged([*FEDGE, *map(str, words)]), cwd=folder, capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **(env or {})},
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, [line for line in done.stderr.splitlines() if line.startswith("fedge: ")]


def _refused(folder, *words, name, rule, step, env=None):
    code, lines = _said(folder, *words, env=env)
    assert (code, len(lines)) == (4, 1), lines
    assert all(text in lines[0] for text in (name, rule, step)), lines[0]


def each_day(cases, every):
    """Cases with several values; all but every n-th of them are extended."""
    return [
        case if not n % every else pytest.param(*case, marks=pytest.mark.extended)
        for n, case in enumerate(cases)
    ]


RIGHTS = "(chmod, chown)"
MUST_READ = "must be readable"


@pytest.mark.parametrize("lost", ["d.npz", "inner"])
def test_data(tmp_path, lost):
    (tmp_path / "inner").mkdir()
    file = tmp_path / ("d.npz" if lost == "d.npz" else "inner/d.npz")
    file.write_bytes(b"x")
    (tmp_path / lost).chmod(0)
    path = file.relative_to(tmp_path)
    words = ("run", "-c", QUICK.replace("synthetic", str(path)))
    _refused(tmp_path, *words, name=str(path), rule=MUST_READ, step=RIGHTS)
    assert not (tmp_path / "runs").exists()


OF_A_RUN = (  # command, what its rights are lost of, the rule
    *[(words, "", "must be") for words in (["resume", "runs/a"], ["compare", "runs/a"], ["runs"])],
    *[(["status", "runs/a"], lost, "must be") for lost in ("..",)],
    (["report", "runs/a"], "metrics", MUST_READ),
    (["export", "runs/a", "--torchscript", "m.pt"], "checkpoints", "must be accessible"),
    (["export-run", "runs/a", "out"], "checkpoints", "must be accessible"),
    *[
        (["resume", "runs/a", "-c", "num-server-rounds=2"], lost, MUST_READ)
        for lost in (
            "checkpoints", "checkpoints/round-000001", "checkpoints/round-000001/leaves.safetensors",
            "checkpoints/final.safetensors", "manifest.json", "metrics/global_rounds.csv", "run.log",
        )
    ],
)  # fmt: skip


@pytest.mark.parametrize(("words", "lost", "rule"), OF_A_RUN)
def test_a_run_folder(tmp_path, finished, words, lost, rule):
    """A checkpoint without rights is no damaged one: rounds must not be done again."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    place = tmp_path / "runs" if lost == ".." else tmp_path / "runs" / "a" / lost
    before = sorted(tmp_path.rglob("*"))
    mode = place.stat().st_mode
    place.chmod(0)
    try:
        _refused(tmp_path, *words, name="runs" if lost == ".." else lost or "a", rule=rule, step=RIGHTS)
    finally:
        place.chmod(mode)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("words", [["run", "-c"], ["sweep"], ["doctor", "-c"]], ids=lambda words: words[0])
def test_options(tmp_path, words):
    (tmp_path / "o.toml").write_text("num-server-rounds=1\n")
    (tmp_path / "o.toml").chmod(0)
    _refused(tmp_path, *words, "o.toml", name="o.toml", rule="must be a readable file", step="chmod")


@pytest.mark.extended
def test_a_module_of_one_s_own(tmp_path):
    (tmp_path / "mine.py").write_text("")
    (tmp_path / "mine.py").chmod(0)
    words = ("run", "-c", QUICK.replace("linear", "mine:Net"))
    _refused(tmp_path, *words, name="mine", rule="cannot be imported", step="fix it")
    assert not (tmp_path / "runs").exists()


SUPERLINK = ["superlink", "--nodes", "127.0.0.1:9", "--control", "127.0.0.1:9"]
NODE = ["node", "0", "--of", "1", "--superlink", "localhost:9", "--data", "synthetic"]
LEAF = ["leaf", "0", "--cloud", "localhost:9", "--once", "--wait", "1"]
CLOUD = ["run", "--leaves", "127.0.0.1:9", "-c", QUICK]
OF_LINKS = [
    *[(SUPERLINK, lost) for lost in ("ca.crt", "superlink.crt", "superlink.key")],
    *[(NODE, lost) for lost in ("ca.crt", "node-0")],
    *[(LEAF, lost) for lost in ("ca.crt", "leaf-0.crt", "leaf-0.key")],
    *[(CLOUD, lost) for lost in ("ca.crt", "cloud.crt", "cloud.key", "revoked.pem")],
]


@pytest.fixture(scope="module")
def certs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "certs"
    make_certificates(folder, CertificateRequest(leaves=2, nodes=1))
    revoke(folder, ["leaf-1"])
    return folder


@pytest.mark.parametrize(
    ("words", "lost"), each_day(OF_LINKS, 10), ids=lambda value: value[0] if len(value[0]) > 1 else value
)
def test_certificates_and_keys(tmp_path, certs, words, lost):
    """Nothing listens, and nobody waits, before they can be read."""
    shutil.copytree(certs, tmp_path / "certs")
    (tmp_path / "certs" / lost).chmod(0)
    _refused(tmp_path, *words, name=lost, rule="Permission denied", step=RIGHTS)


UNWRITABLE = [
    (["run", "-c", QUICK], "runs-dir must be a writable folder", "choose another"),
    (["demo"], "runs-dir must be a writable folder", "choose another"),
    (["compare", "{runs}/a"], "compare.html", ";"),
    (["new", "p"], "p", ";"),
    (["certs", "certs", "--leaves", "1"], "certs", ";"),
    (["export-run", "{runs}/a", "out"], "out", ";"),
    (["export", "{runs}/a", "--torchscript", "m.pt"], "m.pt", ";"),
    (["report", "{runs}/a", "-o", "page.html"], "page.html", ";"),
]


@pytest.mark.parametrize(("words", "name", "step"), each_day(UNWRITABLE, 4), ids=lambda value: value[0])
def test_a_working_folder_that_cannot_be_written_to(tmp_path, finished, words, name, step):
    tmp_path.chmod(0o555)
    words = [word.format(runs=finished / "runs") for word in words]
    try:
        _refused(tmp_path, *words, name=name, rule="Permission denied", step=step)
    finally:
        tmp_path.chmod(0o755)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", [0, 0o555])
@pytest.mark.extended
def test_a_run_needs_no_folder_of_the_user_s_but_that_of_its_runs(tmp_path, mode):
    """Neither a home, nor its parts for caches and settings, nor one for temporary files."""
    home = tmp_path / "home"
    home.mkdir(mode=mode)
    parts = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
    env = dict.fromkeys(("HOME", "TMPDIR", *parts), str(home))
    assert _said(tmp_path, "run", "-c", QUICK, env=env) == (0, [])
    assert (tmp_path / "runs" / "a" / "manifest.json").exists()


GONE = """\
import os, shutil
from fedge.callbacks import Callback

class Gone(Callback):
    def {when}(self, *_):
        if os.path.exists({here!r}):
            shutil.rmtree({here!r})
"""


@pytest.mark.extended
@pytest.mark.parametrize("when", ["begin_run", "begin_round", "end_round", "end_run"])
def test_a_working_folder_that_is_removed_during_the_run(tmp_path, when):
    """A run kept elsewhere ends as it would have, e.g. if a cluster clears its job's folder early."""
    here = tmp_path / "here"
    here.mkdir()
    (here / "gone.py").write_text(GONE.format(when=when, here=str(here)))
    words = [*FEDGE, "run", "-c", QUICK, "-c", f"runs-dir='{tmp_path / 'runs'}' callbacks='gone:Gone'"]
    done = subprocess.run(words, cwd=here, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert not here.exists()
    assert f"\nrun folder: {tmp_path}/runs/a\n" in done.stdout
    assert (tmp_path / "runs" / "a" / "report.html").exists()
