"""Program: `fedge run` in forks of one warm process, each with a signal at a drawn call of its code.

Calls of Fedge's functions in the main thread are counted from the moment at which the run's folder is made,
so every moment is met, however short. Prints a line of JSON for every trial: what was sent, and what was
wrong.
"""

import json
import os
import random
import re
import shutil
import signal
import sys
import threading
import time
import traceback
from pathlib import Path

import fedge.cli
import fedge.launch.simulate  # all that a run loads, once
import fedge.run.run

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
OURS = str(Path(fedge.cli.__file__).parent)
FIRST, MANY = 400, 12_000  # calls: until the first step of a run, and until its end
LIMIT_S = 40.0
COLUMNS_OF_TIME = re.compile(r"(^|_)(s|seconds|mib)$")


def words_of(folder, name, algorithm):
    """Words of the command; one worker, so what the main thread does is soon over."""
    options = {
        "num-server-rounds": 3, "train.local-epochs": 1, "data.synthetic-users": 4, "run-name": name,
        "hierarchy.num-servers": 2, "hierarchy.clients-per-server": "2,2", "train.model": "linear",
        "runs-dir": str(folder), "report": False, "scaffold.enabled": False, "train.algorithm": algorithm,
    }  # fmt: skip
    pairs = (f"{key}={json.dumps(value)}" for key, value in options.items())
    return ["run", str(folder), "-c", " ".join(pairs)]


def strike(number, after, again_s):
    """Send this process a signal at a call after the run's folder was begun, and perhaps another."""
    seen = 0

    def count(frame, event, _):
        nonlocal seen
        if event != "call" or not frame.f_code.co_filename.startswith(OURS):
            return
        if seen or frame.f_code.co_name == "open_folder":
            seen += 1
        if seen == after + 1:
            sys.setprofile(None)
            if again_s is not None:
                threading.Timer(again_s, os.kill, (os.getpid(), number)).start()
            os.kill(os.getpid(), number)

    sys.setprofile(count)


def started(words, said, before):
    """Process id of a fork that carries out a command as a process of its own, after `before`."""
    process = os.fork()
    if process:
        return process
    code = 99
    try:
        os.setsid()
        for number in SIGNALS:  # the tests may run under nohup
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        out = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(out, 1)
        os.dup2(out, 2)
        sys.argv = ["fedge", *words]
        before()
        code = fedge.cli.main()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def ended(process):
    """Exit code of a process; None if it had to be killed."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return None


def results(folder):
    """Results of a run without its times, by file."""
    found = {}
    for path in [
        *folder.glob("metrics/*.csv"),
        folder / "clusters.jsonl",
        folder / "checkpoints/final.safetensors",
    ]:
        content = path.read_bytes()
        if path.suffix == ".csv":
            header, *rows = [line.split(",") for line in content.decode().splitlines()]
            kept = [n for n, column in enumerate(header) if not COLUMNS_OF_TIME.search(column)]
            content = "\n".join(",".join(row[n] for n in kept) for row in [header, *rows]).encode()
        found[path.name] = content
    return found


def wrong_with(code, number, said, folder):
    """Promises that an interrupted run has not kept."""
    wrong = []
    if code != 128 + number:
        wrong.append(f"exit code {code}")
    if "Traceback" in said or "Exception ignored" in said:
        wrong.append("a traceback")
    if not (folder / "manifest.json").exists():
        return [*wrong, "a folder without a manifest"] if folder.exists() else wrong
    manifest = json.loads((folder / "manifest.json").read_text())
    if manifest["status"] == "completed":  # its end was written before
        return wrong
    if manifest["status"] != "failed" or manifest["exit_code"] != 128 + number:
        wrong.append(f"manifest {manifest['status']}, {manifest.get('exit_code')}")
    if "fedge: interrupted" not in said:
        wrong.append("no last words")
    if left := [
        path.name for path in folder.rglob("*") if re.search(r"\.(tmp|part)$|^data(-\d+)?$", path.name)
    ]:
        wrong.append(f"left {left}")
    return wrong


def trial(folder, name, draw, algorithm, whole):
    """One interrupted run, and often its continuation; what was sent, and what was wrong."""
    number, again_s = draw.choice(SIGNALS), draw.choice([None, None, 0.0, 0.01, 0.6])
    after = draw.randrange(draw.choice([FIRST, MANY]))
    said = folder / f"{name}.txt"
    code = ended(started(words_of(folder, name, algorithm), said, lambda: strike(number, after, again_s)))
    run, text = folder / name, said.read_text(errors="replace")
    wrong = wrong_with(code, number, text, run) if code != 0 else []
    if not wrong and code and "resume with" in text and draw.random() < 0.5:
        code = ended(started(["resume", str(run)], said, lambda: None))
        if code != 0 or results(run) != whole:
            wrong.append(f"resumed: exit code {code}, other results")
    shutil.rmtree(run, ignore_errors=True)
    sent = f"{signal.Signals(number).name} at call {after}" + (
        "" if again_s is None else f", again {again_s} s"
    )
    return {"name": name, "sent": sent, "code": code, "wrong": wrong, "said": text[-2000:] if wrong else ""}


def main(place, trials, seed, algorithm):
    """Carry out a whole run, and then the trials."""
    folder, draw = Path(place), random.Random(f"{seed} {algorithm}")
    said = folder / "whole.txt"
    if ended(started(words_of(folder, "whole", algorithm), said, lambda: None)) != 0:
        sys.exit(said.read_text())
    whole = results(folder / "whole")
    for n in range(int(trials)):
        print(json.dumps(trial(folder, f"run-{n}", draw, algorithm, whole)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
