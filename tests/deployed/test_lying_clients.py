"""Clients that lie, on Ray, on SuperNodes and under leaf servers, all of them processes of their own.

First answers and error replies are those of tests/runs/faults/test_lying_clients.py, by the same seeds; runs
follow each other within one deployment. FEDGE_LIES_TOLD=N tries N first answers on each engine, from seed
FEDGE_LIES_FROM.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from deployment import BIN, Deployment
from lies_at_once import ENDED, LIARS, SIZE, Fates, greetings, look_at_greetings, look_at_refusals
from lies_at_once import NODES as MANY
from lying_runs import (
    GONE,
    HONEST,
    LEFT_OUT,
    LIAR,
    NOISE,
    carry_out_all,
    ended,
    errors_plan,
    first_plan,
    look_at_errors,
    look_at_first,
    look_at_noise,
    look_at_sums,
    look_at_words,
    sums_plans,
)
from processes import MARK, leftovers
from small_runs import USERS, small_config
from support_folders import PYTHONPATH, SUPPORT

from fedge.config.flat import from_run_config, to_run_config
from fedge.edge.engine import EdgeEngine
from fedge.launch.deal import deal_into
from fedge.launch.flower_runs.flower import toml_of
from fedge.link.certificates import CertificateRequest, make_certificates
from fedge.link.frames import Packet
from fedge.link.gate import LeafGate
from fedge.link.reach import free_port

ROOT = Path(__file__).parents[2]
NODES, LEAVES = 4, 2
APP = ("lies", "lying_client", "lying_runs", "lying_server", "odd_json", "possible", "spoilt_folders")
TOLD = int(os.environ.get("FEDGE_LIES_TOLD", "40"))
FIRST_SEED = int(os.environ.get("FEDGE_LIES_FROM", "50000"))
ERROR_SEED = FIRST_SEED // 100
LIED = ["sums-mean-1000", "sums-mean-1e+300", "sums-std-1e+30"]

pytestmark = [pytest.mark.soak, pytest.mark.whole_runs, pytest.mark.timeout(3600)]


class Study:
    """Plans of runs, the folder of the runs, and what clients are told by the environment."""

    def __init__(self, folder, monkeypatch, is_simulated=False):
        self.folder, self.dealt, self.runs = folder, folder / "dealt", folder / "runs"
        self.seeds = range(FIRST_SEED, FIRST_SEED + TOLD)
        options = small_config(
            folder / "data", hierarchy__num_servers=LEAVES, num_server_rounds=1, guard__retries=0,
            clients=NODES, guard__start_timeout=300.0,
        )  # fmt: skip
        deal_into(self.dealt, options)
        self.config = {**options, "data.path": "nowhere.npz", "runs-dir": str(self.runs)}
        self.errors = [errors_plan(ERROR_SEED + at) for at in range(max(1, TOLD // 20))]
        self.in_rounds = {"num-server-rounds": 4}
        self.sums = [plan for plan in sums_plans() if plan["name"] in ("honest", *LIED)]
        self.parts = [
            [{}, [GONE, LEFT_OUT, *map(first_plan, self.seeds)]],
            [self.in_rounds | {"runs-dir": str(folder / "errors")}, [GONE, *self.errors]],
            [self.in_rounds | {"runs-dir": str(folder / "sums")}, [*self.sums, NOISE]],
        ]
        self.shared = {"runs-dir": str(folder / "shared"), "data.path": options["data.path"]}
        if is_simulated:
            self.parts.append([self.shared, [{**plan, "shared": True} for plan in (HONEST, NOISE)]])
        place_study(folder, monkeypatch, self.config, self.parts)

    def look(self, engine):
        """Look at all runs; say what became of the lies."""
        seen = Counter(look_at_first(self.runs, self.dealt, seed) for seed in self.seeds)
        errors = sum(look_at_errors(self.folder / "errors", plan) for plan in self.errors)
        look_at_sums(self.folder / "sums", LIED)
        look_at_noise(self.folder / "sums", sees_log=False)
        said = look_at_noise(self.folder / "shared") if engine == "Ray" else []
        print(f"\n{engine}: {seen.total()} first answers {dict(sorted(seen.items()))}")
        print(f"{engine}: {errors} error replies; {said}")


def test_on_ray(tmp_path, monkeypatch):
    study = Study(tmp_path, monkeypatch, is_simulated=True)
    project = tmp_path / "project"
    project.mkdir()
    write_app(project)
    text = (ROOT / "pyproject.toml").read_text()
    text = text.replace("fedge.client_app:app", "lying_client:app")
    text = text.replace("fedge.server_app:app", "lying_server:app")
    text = text.replace("options.num-supernodes = 9", f"options.num-supernodes = {NODES}", 1)
    (project / "pyproject.toml").write_text(text)
    config = tmp_path / "options.toml"
    config.write_text(toml_of({**study.config, "num-server-rounds": 1}))
    environment = {
        **os.environ, MARK: str(tmp_path), "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(project), str(ROOT)]),
    }  # fmt: skip
    environment.pop("SEED", None)
    done = subprocess.run(
        [str(BIN / "flwr"), "run", ".", "-c", str(config)], cwd=project, env=environment,
        capture_output=True, text=True, timeout=3000, check=False,
    )  # fmt: skip
    assert "the study is over" in done.stdout, done.stdout[-3000:] + done.stderr[-3000:]
    study.look("Ray")
    assert leftovers(tmp_path) == []


def test_on_supernodes(tmp_path, monkeypatch):
    study = Study(tmp_path, monkeypatch)
    deploy_study(tmp_path, study.config, NODES)
    study.look("SuperNodes")
    look_at_logs([tmp_path / f"node-{node}.log" for node in range(NODES)], LIAR)


@pytest.mark.timeout(7200)
def test_many_at_once_on_supernodes(tmp_path, monkeypatch):
    """By nine of twelve clients at once; those that end a run all the same, one a run."""
    fates = told_in_process(tmp_path, monkeypatch, range(FIRST_SEED, FIRST_SEED + TOLD))
    print(f"\nSuperNodes: {TOLD} first answers, in process {fates.counts()}")
    fates.group()
    ends = fates.seeds_of(ENDED)
    runs = tmp_path / "deployed"
    began = time.monotonic()
    plans = [*(group.plan for group in fates.groups), *map(first_plan, ends)]
    carry_out_deployed(tmp_path, monkeypatch, runs, plans)
    print(f"SuperNodes: in {len(plans)} runs, {time.monotonic() - began:.0f} s")
    for group in fates.groups:
        fates.look_at(runs, group)
    look_at_refusals(runs, ends)
    print(f"SuperNodes: {TOLD} first answers as in process")


@pytest.mark.timeout(7200)
def test_first_answers_alone_on_supernodes(tmp_path, monkeypatch):
    """Nine lies in each exchange, and no work afterwards: the server knows what it knows in process."""
    seeds = range(FIRST_SEED, FIRST_SEED + TOLD)
    config, dealt = options_of(tmp_path), tmp_path / "dealt"
    deal_into(dealt, {**config, "data.path": str(tmp_path / "data" / "small.npz")})
    place_study(tmp_path, monkeypatch)
    plans = greetings(seeds, tmp_path / "here", dealt, config)
    there = tmp_path / "there"
    asked = [[MANY, MANY - SIZE, str(there), plans]]
    place_study(tmp_path, monkeypatch, config, greetings=asked)
    began = time.monotonic()
    deploy_study(tmp_path, config, MANY, 6000)
    print(f"\nSuperNodes: {len(plans)} exchanges, {time.monotonic() - began:.0f} s")
    print(
        f"SuperNodes: {TOLD} first answers alone, {look_at_greetings(there, tmp_path / 'here', plans, dealt)}"
    )


@pytest.mark.timeout(7200)
def test_error_replies_at_once_on_supernodes(tmp_path, monkeypatch):
    """Nine of twelve clients answer all work by error replies, and the others are as if they had failed."""
    config, runs = options_of(tmp_path), tmp_path / "deployed"
    deal_into(tmp_path / "dealt", {**config, "data.path": str(tmp_path / "data" / "small.npz")})
    plans = [errors_plan(ERROR_SEED + at, LIARS) for at in range(max(1, TOLD // 20))]
    gone = {**GONE, "liars": list(LIARS)}
    carry_out_deployed(tmp_path, monkeypatch, runs, [gone, *plans], **{"num-server-rounds": 4})
    errors = sum(look_at_errors(runs, plan) for plan in plans)
    print(f"\nSuperNodes: {errors} error replies of {SIZE} clients at once, in {len(plans)} runs")
    assert errors >= 20 * len(plans)


def test_a_check_that_is_missing_is_found_on_supernodes(tmp_path, monkeypatch):
    """Numbers of windows are not looked at by the run's server; at most two runs."""
    fates = told_in_process(tmp_path, monkeypatch, range(FIRST_SEED, FIRST_SEED + 40))
    fates.group()
    groups = [group for group in fates.groups if "counts" in {fates.alone[seed][0] for seed in group.out}][:2]
    assert groups
    monkeypatch.setenv("FEDGE_HOLE", "counts")
    carry_out_deployed(tmp_path, monkeypatch, tmp_path / "deployed", (group.plan for group in groups))

    def look():
        for group in groups:
            fates.look_at(tmp_path / "deployed", group)

    with pytest.raises((AssertionError, FileNotFoundError)) as found:
        look()
    print(f"\nSuperNodes: a missing check is found by {str(found.value)[:200]}")


def options_of(folder):
    """Options of runs of twelve owners, whose windows lie in `folder`, that may begin with three of them."""
    options = small_config(
        folder / "data", hierarchy__num_servers=LEAVES, num_server_rounds=1, guard__retries=0, clients=MANY,
        guard__start_timeout=300.0, guard__start_clients=MANY - SIZE,
        partition__kind_args='{"split-users": true}' if len(USERS) < MANY else "",
    )  # fmt: skip
    return {**options, "data.path": "nowhere.npz", "runs-dir": str(folder / "runs")}


def told_in_process(folder, monkeypatch, seeds):
    """Deal windows to owners, and tell each lie in a run in this process; returns their fates."""
    config = options_of(folder)
    deal_into(folder / "dealt", {**config, "data.path": str(folder / "data" / "small.npz")})
    place_study(folder, monkeypatch)
    fates = Fates(MANY, config, folder / "dealt")
    fates.judge(seeds)
    return fates


def place_study(folder, monkeypatch, config=None, parts=(), greetings=()):
    """Write what is to be carried out, and tell this process and those it starts where."""
    for name, place in (("LIES", "plan.json"), ("DEALT", "dealt"), ("STUDY", "study.json")):
        monkeypatch.setenv(f"FEDGE_{name}", str(folder / place))
    (folder / "study.json").write_text(json.dumps({"config": config, "parts": parts, "greetings": greetings}))


def carry_out_deployed(folder, monkeypatch, runs, plans, **changes):
    """Carry out plans of a folder's study on SuperNodes; the runs lie in `runs`."""
    config = {**options_of(folder), "runs-dir": str(runs), **changes}
    place_study(folder, monkeypatch, config, [[{}, list(plans)]])
    deploy_study(folder, config, MANY, 6000)


def deploy_study(folder, config, nodes, limit_s=3000):
    """Carry out the study in a folder on a SuperLink and SuperNodes."""
    deployment = Deployment(folder, config)
    write_app(deployment.app)
    text = (deployment.app / "pyproject.toml").read_text()
    text = text.replace("fedge.client_app:app", "lying_client:app")
    (deployment.app / "pyproject.toml").write_text(text.replace("fedge.server_app:app", "lying_server:app"))
    with deployment:
        deployment.register(nodes)
        for node in range(nodes):
            deployment.start_node(node, nodes, folder / "dealt" / f"client-{node}")
        done = subprocess.run(
            [str(BIN / "flwr"), "run", ".", "deployed", "--stream"], cwd=deployment.app,
            env=deployment.environment(folder / "user"), capture_output=True, text=True, timeout=limit_s,
            check=False,
        )  # fmt: skip
    assert "the study is over" in done.stdout, done.stdout[-3000:] + done.stderr[-3000:]


def write_app(folder):
    """Copy the lying client and the server that carries out a study into a project."""
    for name in APP:
        shutil.copy(SUPPORT / "liars" / f"{name}.py", folder)


def test_under_leaf_servers(tmp_path, monkeypatch):
    """Lies of clients, and those that a leaf server tells of its clients."""
    study = Study(tmp_path, monkeypatch)
    address, certificates = f"127.0.0.1:{free_port()}", tmp_path / "certs"
    make_certificates(certificates, CertificateRequest(leaves=LEAVES))
    tells = [{**first_plan(seed), "what": "tell", "name": f"tell-{seed}"} for seed in study.seeds]
    processes = [started(leaf, address, certificates, tmp_path) for leaf in range(LEAVES)]
    try:
        with LeafGate(address, certificates, LEAVES, Packet("welcome", {})) as gate:
            for changes, plans in [*study.parts, [{}, tells]]:
                options = {**study.config, **changes}
                carry_out_all(lambda options=options: engine_of(gate, options), "leaves", options, plans)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    study.look("leaf servers")
    look_at_logs([tmp_path / f"leaf-{leaf}" / "leaf.log" for leaf in range(LEAVES)], 0)
    look_at_logs([tmp_path / f"leaf-{leaf}.out" for leaf in range(LEAVES)])
    for plan in tells:
        look_at_words(ended(study.runs, plan["name"]), plan["name"])
    print(Counter(ended(study.runs, plan["name"]).status for plan in tells))


def look_at_logs(paths, of_liar=None):
    """Assert that no log is endless, and that the liar's says what was left out."""
    logs = [path.read_text(errors="replace") for path in paths]
    assert [len(log) for log in logs if len(log) > 2**22] == []
    assert of_liar is None or f"client {LIAR}: " in logs[of_liar]


def started(leaf, address, certificates, folder):
    """Start a leaf server with lying clients."""
    program = SUPPORT / "liars" / "lying_leaf.py"
    words = [sys.executable, program, leaf, address, certificates, folder / f"leaf-{leaf}"]
    with (folder / f"leaf-{leaf}.out").open("ab") as out:
        return subprocess.Popen(
            list(map(str, [*words, NODES, LEAVES])), cwd=folder, stdout=out, stderr=out,
            env={**os.environ, MARK: str(folder), "PYTHONPATH": PYTHONPATH},
        )  # fmt: skip


def engine_of(gate, options):
    """The engine of one run, and what ends it; leaf servers stay."""
    while len(gate.hellos()) < LEAVES:
        time.sleep(0.05)
    config = from_run_config(options)
    owners = {"config": to_run_config(config), "seed": config.seed, "clients": NODES}
    engine = EdgeEngine(gate, [NODES // LEAVES] * LEAVES, owners)
    return engine, engine.dismiss
