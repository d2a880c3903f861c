"""States of checkpoints that somebody has forged: refused in one line before any work, or of no effect.

Each kind of run keeps states of its own. One change at a time, by number, with checksums that fit; a sample
with all tests, FEDGE_DAY draws another one.
"""

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from daily import DAY
from flower_runs import comparable
from forged_states import forged_facts, forged_groups
from small_runs import small_config

from fedge import simulate
from fedge.cli import main
from fedge.launch.projects.project import flatten, read_toml
from fedge.states.checkpoint import checkpoints, read_checkpoint, write_checkpoint

CONFIGS = Path(__file__).parents[3] / "configs"
ROUNDS, SAMPLE = 3, 7
_CLOCK = {"clients": 9, "asynchrony.concurrency": 6}
KINDS = {
    "fedavg": ("fedavg", {}),
    "scaffold and groups": ("", {}),
    "two levels": ("baselines/mtgc", {"hierarchy.leaf-rounds": 2}),
    "fedadam": ("server/fedadam", {}),
    "clove": ("baselines/clove", {}),
    "flux": ("baselines/flux", {"cluster.method-args.split-round": 2}),
    "feddrift": ("baselines/feddrift", {}),
    "auto": ("fedge", {}),
    "clock": ("devices/fedbuff", {**_CLOCK, "asynchrony.rule-args.buffer": 2}),
    "clock of tiers": ("devices/hierarchical", {**_CLOCK, "asynchrony.rule-args.buffer": 2}),
}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """Kind → a run before its last round, its checkpoint, and what it comes to; each made once."""
    made = {}

    def of(kind):
        if kind not in made:
            made[kind] = _stopped(tmp_path_factory.mktemp("forged"), *KINDS[kind])
        return made[kind]

    return of


def _stopped(place, file, options):
    begun = flatten(read_toml(CONFIGS / f"{file}.toml", "config")) if file else {}
    own = {"num-server-rounds": ROUNDS - 1, "checkpoint.keep": 1}
    config = {**begun, **small_config(place, run_name="run"), **own, **options}
    run = simulate(config, terminal=io.StringIO())
    assert run.status == "completed", run.reason
    found = read_checkpoint(checkpoints(run.folder / "checkpoints")[-1])
    groups = {
        group: {name: {n: np.array(a) for n, a in state.items()} for name, state in states.items()}
        for group, states in found.groups.items()
    }
    facts = json.loads(json.dumps(found.facts))
    code, _, right = resumed(run.folder, place / "right", groups, facts)
    assert code == 0
    return run.folder, groups, facts, right


def resumed(run, place, groups, facts):
    """Exit code, said lines and results of a run that goes on with these states."""
    folder = place / "runs" / "run"
    shutil.copytree(run, folder, symlinks=True)
    (last,) = checkpoints(folder / "checkpoints")
    shutil.rmtree(last)
    write_checkpoint(folder / "checkpoints", ROUNDS - 1, groups, facts)
    code = main(["resume", str(folder), "-c", f"num-server-rounds={ROUNDS} report=false"])
    return code, folder, comparable(folder) if code == 0 else None


def forgeries(groups, facts):
    """(what, groups, facts) of every forgery of a checkpoint's states."""
    name = "strategy" if "strategy" in facts else "procedure"
    yield from ((what, groups, {**facts, name: forged}) for what, forged in forged_facts(facts[name]))
    yield from ((what, forged, facts) for what, forged in forged_groups(groups))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "tried", [pytest.param(SAMPLE, id="sample"),
              pytest.param(0, id="all", marks=[pytest.mark.soak, pytest.mark.timeout(7200)])],
)  # fmt: skip
def test_a_forged_state_is_one_line_before_any_work_or_has_no_effect(stopped, tmp_path, capsys, kind, tried):
    run, groups, facts, right = stopped(kind)
    cases = list(forgeries(groups, facts))
    if tried:
        chosen = np.random.default_rng([24, DAY, *kind.encode()]).choice(len(cases), tried, replace=False)
        cases = [cases[number] for number in sorted(chosen)]
    wrong = []
    for number, (what, forged, said) in enumerate(cases):
        capsys.readouterr()
        code, folder, made = resumed(run, tmp_path / str(number), forged, said)
        shown = "".join(capsys.readouterr())
        lines = [line for line in shown.splitlines() if " is damaged: it says what cannot be: " in line]
        refused = code == 4 and len(lines) == 1 and "; remove this folder" in lines[0]
        if f"round {ROUNDS}/{ROUNDS}" in shown and not (code == 0 and made == right):
            wrong.append(f"{what}: exit code {code} after work")
        elif code != 0 and not refused:
            wrong.append(f"{what}: exit code {code}: {shown[-300:]!r}")
        assert "Traceback" not in shown, what
        shutil.rmtree(folder)
    assert wrong == [], "\n".join(wrong)
