"""Runs one after another some of whose clients lie, on any engine, and what is looked at afterwards.

Each run follows a plan of `lying_client`; its name is the plan's. What the terminal showed lies in a file
beside the run folders.
"""

import csv
import io
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from lies import first_answer
from lying_client import TOLD
from possible import first_fault
from safetensors.numpy import load_file
from spoilt_folders import spoil_folder

from fedge.data.own_windows import WindowsReport
from fedge.data.prepared import read_laid_out
from fedge.exchange.engine import RunError
from fedge.exchange.finding import find_clients
from fedge.exchange.hello import Question
from fedge.exchange.node_registry import Quorum
from fedge.native.library import usable_kernels
from fedge.run.run import run

CLIENTS, LIAR = 9, 1
TABLES = (
    "metrics/clients.csv", "metrics/leaf_rounds.csv", "devices/jobs.csv", "devices/versions.csv",
    "devices/devices.csv", "devices/staleness.csv",
)  # fmt: skip
FILES = ("clusters.jsonl", "checkpoints/final.safetensors")
TIMES = ("train_seconds", "seconds")
GONE = {"name": "gone", "what": "gone", "liars": [LIAR]}
LEFT_OUT = {"name": "left-out", "what": "sums", "sums": ["mean", 1e17], "liars": [LIAR]}
MOST_LOG = 200_000  # bytes of run.log


def errors_plan(seed, liars=(LIAR,)):
    """The plan of a run in which clients answer all work by the error replies of a seed."""
    return {"name": f"errors-{seed}", "what": "errors", "seed": seed, "liars": list(liars)}


WHOLE = {"name": "whole", "what": "none", "works": True, "liars": []}


def files_plan(seed):
    """The plan of a run that goes on from a folder of which one file is spoilt by a seed."""
    return {"name": f"files-{seed}", "what": "files", "seed": seed, "works": True, "liars": []}


def first_plan(seed):
    """The plan of a run in which one client's first answer is the lie of a seed."""
    return {"name": f"first-{seed}", "what": "first", "seed": seed, "liars": [LIAR]}


def carry_out_all(make_engine, name, config, plans):
    """Carry out a run for each plan on an engine.

    Args:
        make_engine: gives the engine of a run.
        name: of the engine.
        config: of all runs, flat; `runs-dir` is absolute.
        plans: in order.
    """
    shown = Path(config["runs-dir"]) / "shown"
    shown.mkdir(parents=True, exist_ok=True)
    told = Path(os.environ["FEDGE_LIES"]).with_name(TOLD)
    for plan in plans:
        write_plan(plan)
        terminal = io.StringIO()
        options = {**config, "run-name": plan["name"]}
        if plan["what"] == "files":  # the run goes on from a folder with a spoilt file
            folder = Path(config["runs-dir"]) / plan["name"]
            shutil.copytree(folder.with_name("whole"), folder, symlinks=True)
            spoil_folder(folder, plan["seed"])
            options = {**config, "resume": str(folder), "num-server-rounds": config["num-server-rounds"] + 1}
        outcome = carry_out(make_engine, name, options, terminal)
        ended = {"status": outcome.status, "reason": outcome.reason, "shown": terminal.getvalue()}
        ended["lies"] = told.stat().st_size if told.exists() else 0
        (shown / f"{plan['name']}.json").write_text(json.dumps(ended))


def write_plan(plan):
    """Write a plan for whoever lies."""
    place = Path(os.environ["FEDGE_LIES"])
    new = place.with_name(f"{place.name}.new")
    new.write_text(json.dumps(plan))
    new.replace(place)
    place.with_name(TOLD).unlink(missing_ok=True)


def greet_all(make_engine, clients, least, folder, plans):
    """Find the clients of a run for each plan, and no more; what was found lies in a folder, by name.

    A run depends on its clients' first answers by this alone.

    Args:
        make_engine: gives the engine of each.
        clients: how many there are; `least` of them are enough.
        folder: of what was found.
        plans: in order.
    """
    told = Path(os.environ["FEDGE_LIES"]).with_name(TOLD)
    Path(folder).mkdir(parents=True, exist_ok=True)
    for plan in plans:
        write_plan(plan)
        found = greeted(make_engine(), clients, least)
        found["lies"] = told.stat().st_size if told.exists() else 0
        (Path(folder) / f"{plan['name']}.json").write_text(json.dumps(found, sort_keys=True))


def greeted(engine, clients, least):
    """Knowledge that a run's server has of its clients after their first answers, as JSON."""
    quorum = Quorum(least, is_possible=True)
    try:
        found = find_clients(engine, 300.0, Question("", 3), expected=clients, quorum=quorum)
    except RunError as error:
        return {"error": str(error)}
    of_kernels = sorted([list(names), count] for names, count in found.kernels.items())
    return {
        "away": found.away, "unknown": sorted(found.unknown), "kernels": of_kernels,
        "devices": found.devices, "out": sorted(set(found._roll.out.values())),
        "told": {str(client): one.to_text() for client, one in (found.reports or {}).items()},
    }  # fmt: skip


def carry_out(make_engine, name, options, terminal):
    """Carry out one run; `make_engine` gives its engine, or (its engine, what ends it)."""
    made = make_engine()
    engine, end = made if isinstance(made, tuple) else (made, lambda: None)
    try:
        return run(engine, options, name, {}, lambda _: terminal)
    finally:
        end()


@dataclass(frozen=True)
class Ended:
    """A run of a plan that has ended."""

    folder: Path
    status: str
    reason: str
    shown: str
    lies: int

    @property
    def log(self):
        return (self.folder / "run.log").read_text(errors="replace")

    @property
    def manifest(self):
        return json.loads((self.folder / "manifest.json").read_text())

    def rows(self, table):
        with (self.folder / table).open(newline="") as file:
            return list(csv.DictReader(file))

    def of_the_others(self, liars=(LIAR,)):
        """All that the run leaves of everybody but the liars."""
        mine = set(map(str, liars))
        rows = {
            table: [
                {name: value for name, value in row.items() if name not in TIMES}
                for row in self.rows(table)
                if row.get("client") not in mine
            ]
            for table in TABLES
            if (self.folder / table).is_file()
        }
        files = [name for name in FILES if (self.folder / name).is_file()]
        assert "checkpoints/final.safetensors" in files
        return {**rows, **{name: (self.folder / name).read_bytes() for name in files}}


def ended(runs, name):
    """The run of a name."""
    said = json.loads((Path(runs) / "shown" / f"{name}.json").read_text())
    return Ended(Path(runs) / name, **said)


def honest_record(dealt, client=LIAR, clients=CLIENTS):
    """The values of a client's honest first answer."""
    _, facts = read_laid_out(Path(dealt) / f"client-{client}")
    kernels = " ".join(usable_kernels())
    of = {"partition_id": client, "num_partitions": clients, "seen": "", "told": facts["told"]}
    return {**of, "kernels": kernels}


def look_at_first(runs, dealt, seed, clients=CLIENTS):
    """Look at the run in which a first answer was the lie of a seed; return what became of the lie.

    "refused": the run, in one line, before any work. "left out": of the statistics. "nothing": nobody goes by
    it. "counted": an honest client could have said it. Whatever it is, nothing of it is raw or endless.
    """
    what, spoil = first_answer(seed)
    found, where = ended(runs, first_plan(seed)["name"]), f"seed {seed}: {what}"
    look_at_words(found, where)
    if found.status == "failed":
        look_at_refused(found, where)
        return what, "refused"
    honest = honest_record(dealt, clients=clients)
    lie = spoil(dict(honest))
    assert first_fault(honest, lie) is None, where
    changes_work, changes_scale = heard_of(honest, lie)
    if not changes_work:
        left_out = str(LIAR) in found.manifest["data"].get("left_out", {})
        wanted = "left-out" if left_out else "" if changes_scale else "gone"
        if wanted:
            look_at_others(found, ended(runs, wanted), where)
            return what, "left out" if left_out else "nothing"
    look_at_finite(found, where)
    return what, "counted"


def heard_of(honest, lie):
    """Tell whether the others' work depends on a lie, and whether the common scale may."""
    is_same = lie.get("kernels", honest["kernels"]) == honest["kernels"]  # all use what all say that they can
    before, after = WindowsReport.of_text(honest["told"]), WindowsReport.of_text(str(lie.get("told")))
    return after.counts != before.counts or not is_same, after.sums != before.sums


def look_at_refused(found, where):
    """Assert that a run has ended in one line, before any work."""
    assert 0 < len(found.reason) < 1000, where
    assert "\n" not in found.reason, where
    assert found.rows("metrics/global_rounds.csv") == [], where


def look_at_finite(found, where, liars=(LIAR,)):
    """Assert that the models of a run are finite, and that all others have worked."""
    for name, array in load_file(found.folder / "checkpoints" / "final.safetensors").items():
        assert np.isfinite(array).all(), (where, name)
    mine = set(map(str, liars))
    others = [row for row in found.rows("metrics/clients.csv") if row["client"] not in mine]
    assert all(row["train_loss"] and row["test_loss"] for row in others), where


def look_at_others(found, wanted, where, liars=(LIAR,)):
    """Assert that all others have what they have in another run."""
    mine, theirs = found.of_the_others(liars), wanted.of_the_others(liars)
    differ = [name for name in theirs if mine[name] != theirs[name]]
    assert differ == [], f"{where}: {differ} differ"


def look_at_words(found, where, most=MOST_LOG):
    """Assert that nothing said is raw, endless or a traceback."""
    for name, text in (("terminal", found.shown), ("log", found.log), ("reason", found.reason)):
        assert "Traceback" not in text, (where, name)
        odd = [line for line in text.split("\n") if not line.isprintable()]
        assert odd == [], (where, name)
        assert len(text) < most, (where, name)


def look_at_errors(runs, plan):
    """Look at a run with error replies: each is a failure; return how many there were."""
    found = ended(runs, plan["name"])
    look_at_words(found, plan["name"])
    assert found.status == "partial", (plan["name"], found.reason)
    look_at_others(found, ended(runs, "gone"), plan["name"], plan["liars"])
    return found.lies


# --- whole runs with a node whose statistics are a lie, or that talks without end ---------------------------

HONEST = {"name": "honest", "what": "none", "works": True, "liars": [LIAR]}
SUMS = [("mean", 1e3), ("mean", 1e17), ("mean", 1e300), ("std", 1e30), ("std", 1e300)]
NOISE = {"name": "noise", "what": "noise", "works": True, "liars": [LIAR]}


def sums_plans():
    """Plans of an honest run, and of those with a node that lies about its windows and works on."""
    lying = {"what": "sums", "works": True, "liars": [LIAR]}
    return [HONEST, *({**lying, "name": f"sums-{which}-{n:g}", "sums": [which, n]} for which, n in SUMS)]


def look_at_sums(runs, names, has_report=False):
    """Look at runs with a node that was left out: it is named, and the others are as without it."""
    honest, first = ended(runs, "honest"), None
    for name in names:
        found = ended(runs, name)
        look_at_words(found, name)
        assert found.status == "completed", (name, found.reason)
        said = f"partition {LIAR} is left out of the statistics for scaling"
        assert said in found.shown, name
        (why,) = found.manifest["data"]["left_out"].values()
        assert list(found.manifest["data"]["left_out"]) == [str(LIAR)], name
        assert any(said in line and why in line for line in found.manifest["remarks"]), name
        assert not has_report or said in (found.folder / "report.html").read_text(), name
        first = first or found
        look_at_others(found, first, name)
        difference = accuracy(found) - accuracy(honest)
        assert abs(difference) < 0.05, (name, difference)


def accuracy(found):
    """The mean test accuracy of all but the liar in the last round."""
    rows = [row for row in found.rows("metrics/clients.csv") if row["client"] != str(LIAR)]
    last = max(int(row["global_round"]) for row in rows)
    return np.mean([float(row["test_accuracy"]) for row in rows if int(row["global_round"]) == last])


def look_at_noise(runs, sees_log=True):
    """Look at a run with a client that talks without end: its results are the same, its words bounded.

    Returns what the log says of it; on machines of their own clients do not see the log.
    """
    found = ended(runs, "noise")
    assert found.status == "completed", found.reason
    look_at_others(found, ended(runs, "honest"), "noise", ())
    log = found.log
    assert len(log) < 8_000_000  # an escape takes four characters, a worker of Ray's has a share of its own
    assert "\x1b" not in log
    said = [line for line in log.splitlines() if f"client {LIAR}: " in line and "were left out" in line]
    assert int(sees_log) <= len(said) <= 10 * sees_log, said
    return said


def look_at_files(runs, seed):
    """Look at a run that was to go on from a spoilt folder: it does, or says in one line why not."""
    found, where = ended(runs, files_plan(seed)["name"]), f"files, seed {seed}"
    log = found.log.split("resuming after", 1)[-1] if (found.folder / "run.log").is_file() else ""
    for name, text in (("terminal", found.shown), ("log", log), ("reason", found.reason)):
        assert "Traceback" not in text, (where, name)
        assert all(line.isprintable() for line in text.split("\n")), (where, name)
        assert len(text) < MOST_LOG, (where, name)
    if found.status == "failed":
        assert 0 < len(found.reason) < 1500, where
        return "refused"
    for name, array in load_file(found.folder / "checkpoints" / "final.safetensors").items():
        assert np.isfinite(array).all(), (where, name)
    return "gone on"
