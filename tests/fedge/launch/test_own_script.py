"""Scripts that start a run with parts of their own, by name: the run imports them, and starts no other."""

import os
import subprocess
import sys
import threading

import pytest
from daily import daily
from own_code import forgotten

from fedge.config.registers.parts import LOSSES
from fedge.config.registers.register import refuse_run_in_import

PARTS = {
    "loss": ("train.loss", "answers, y"),
    "Net": ("train.model", "input_shape, classes"),
    "data": ("data.path", ""),
    "group": ("cluster.method", "evidence, config, before"),
}
SIMULATE = "import fedge\nfedge.simulate({{'{option}': 'study:{name}', 'num-server-rounds': 1}})\n"
COMMAND = (
    "import subprocess, sys\n"
    "sys.exit(subprocess.call([sys.executable, '-m', 'fedge.cli', 'run', '-c', '{option}=study:{name}']))\n"
)


@pytest.mark.parametrize("start", [SIMULATE, COMMAND], ids=["simulate", "command"])
@pytest.mark.parametrize("name", daily(PARTS, ["group"]))
def test_script_without_a_guard_is_refused(name, start, tmp_path):
    option, arguments = PARTS[name]
    script = f"print('imported', flush=True)\ndef {name}({arguments}): pass\n"
    (tmp_path / "study.py").write_text(script + start.format(option=option, name=name))
    done = subprocess.run(
        [sys.executable, "study.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120,
        env={key: value for key, value in os.environ.items() if key != "SEED"},
    )  # fmt: skip
    assert done.returncode
    said = f"a run must not be started by the import of study:{name}, but the code beside it starts one"
    assert said in done.stderr
    assert '`if __name__ == "__main__":`' in done.stderr
    assert done.stdout.count("imported") == 2  # as the script, and once as a module
    assert not (tmp_path / "runs").exists()


def test_another_threads_import_refuses_no_run(tmp_path, monkeypatch):
    """One thread imports a part, for as long as another starts a run and a process."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slow_part.py").write_text(
        "import sys\nsys.begun_here.set(); assert sys.ended_here.wait(60)\nloss = print\n"
    )
    begun, ended = threading.Event(), threading.Event()
    monkeypatch.setattr(sys, "begun_here", begun, raising=False)
    monkeypatch.setattr(sys, "ended_here", ended, raising=False)
    with forgotten(tmp_path):
        importer = threading.Thread(target=LOSSES.load, args=("slow_part:loss",))
        importer.start()
        assert begun.wait(60)
        refuse_run_in_import()
        code = "from fedge.config.registers.register import refuse_run_in_import as f; f()"
        subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
        ended.set()
        importer.join(60)


SCRIPT = """import sys
import fedge

class Ends(fedge.Callback):
    def end_round(self, result):
        if result.global_round == 2 and "again" not in sys.argv:
            raise ValueError("no more")

if __name__ == "__main__":
    options = {"num-server-rounds": 3, "train.model": "linear", "report": False, "run-name": "it",
               "data.synthetic-users": 4, "clients": 4, "hierarchy.num-servers": 2}
    again = {"resume": "runs/it"} if "again" in sys.argv else {}
    print(fedge.simulate({**options, **again}, callbacks=[Ends()]))
"""


@pytest.mark.extended
def test_a_run_with_code_of_a_script_goes_on_from_the_script(tmp_path):
    """No command has that code: the next step is the same call, on the terminal and in `fedge status`."""
    (tmp_path / "study.py").write_text(SCRIPT)
    environment = {key: value for key, value in os.environ.items() if key != "SEED"}

    def carried_out(*words):
        done = subprocess.run(
            [sys.executable, *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            env=environment,
        )
        return done.returncode, done.stdout + done.stderr

    step = 'the same call of fedge.simulate and the option "resume": "runs/it"'
    code, output = carried_out("study.py")
    assert f"once the cause is fixed, resume with: {step}\n" in output
    assert f"then {step}\n" in carried_out("-m", "fedge.cli", "status")[1]
    code, output = carried_out("-m", "fedge.cli", "resume", "latest")
    assert (code, "is of a script or notebook; go on there" in output) == (4, True)
    code, output = carried_out("study.py", "again")
    assert (code, "completed, 3 of 3 rounds" in output) == (0, True)
