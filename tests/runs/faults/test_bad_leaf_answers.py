"""A leaf server that lies is a leaf server that was gone: the others have the same bits.

Lies are drawn over the schema of a leaf server's answers (`fedge.edge.answers`) by numbered seeds, in any of
its orders; a lie that counts, since an honest leaf server could have said it, leaves everything finite.
`-m soak` tries 2,000 and prints how many were refused; a sample of them runs with all tests.
"""

import logging
from collections import Counter
from contextlib import suppress

import numpy as np
import pytest
from safetensors.numpy import load_file
from small_runs import small_config
from spoilt import Study, gone_at, lie_of, lies_at, of_the_others

from fedge.edge import answers, progress
from fedge.leaf.leaf import Leaf

KINDS = {
    "scaffold": {"train.model": "mlp-tiny"},
    "fedadam": {"scaffold.enabled": False, "leaf.strategy": "fedadam"},
    "two levels": {"scaffold.levels": 2, "cluster.tau": -1.0, "gate.enabled": False},
    "groups": {
        "cluster.signal": "affinity", "cluster.method": "agglomerative", "cluster.count": "auto",
        "cluster.level": 0.5, "cluster.patience": 2, "gate.enabled": False,
        "scenario": "label-permutation", "scenario-sizes": "2,1",
    },
    "unseen": {"partition.unseen-clients": 1, "personal.leaf-rounds": 1, "scaffold.enabled": False},
    "norms": {"guard.max-norm-factor": 5.0, "train.model": "mlp-tiny", "leaf.strategy": "fedavgm",
              "scaffold.enabled": False},
}  # fmt: skip
FURTHER = {  # with facts and states that the kinds above do not have; in the sample only
    "turns": {"hierarchy.selection": "power-of-choice", "hierarchy.participation": "2"},
    "memory": {"scaffold.enabled": False, "train.algorithm": "feddyn", "train.model": "mlp-tiny"},
    "spread": {"cluster.method": "soft-family", "cluster.method-args.warmup": 1, "gate.enabled": False,
               "scaffold.enabled": False},
}  # fmt: skip
ALL = KINDS | FURTHER
BASE = {"gate.min-gain": -1.0, "guard.retries": 0}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad-leaves")
    made = Study(folder, {**small_config(folder / "data"), **BASE})
    yield made, {}
    made.close()


def remembered(study, kind, places):
    """Remains of a run in which the liar was gone at some of its orders; honest for none."""
    made, known = study
    if (kind, places) not in known:
        outcome, gate, _ = made.carry_out(ALL[kind], gone_at(places))
        assert outcome.status == ("partial" if places else "completed"), outcome.reason
        assert gate.refused == sorted(places)
        known[kind, places] = of_the_others(outcome.folder) if places else len(gate.orders)
    return known[kind, places]


def lied(study, kind, lies, where):
    """Let a leaf server lie; return its lies that were refused, having compared what the others have."""
    act = lies_at(lies)
    outcome, gate, shown = study[0].carry_out(ALL[kind], act)
    assert outcome.status in ("completed", "partial"), (where, outcome.reason)
    log = (outcome.folder / "run.log").read_text()
    assert "Traceback" not in log, where
    assert all(line.isprintable() for line in [*log.splitlines(), *shown.splitlines()]), where
    for name, array in load_file(outcome.folder / "checkpoints" / "final.safetensors").items():
        assert np.isfinite(array).all(), (where, name)
    lies_told = {at for at in range(len(gate.orders)) if lies(at) is not None}
    refused = frozenset(gate.refused) & lies_told
    if not refused:
        return refused, gate
    if refused == lies_told == set(gate.refused):
        wanted = remembered(study, kind, refused)
    else:  # others counted: those were told in the run that this one is compared with, too
        known, _, _ = study[0].carry_out(ALL[kind], gone_at(refused, act))
        wanted = of_the_others(known.folder)
    found = of_the_others(outcome.folder)
    assert [name for name in wanted if found[name] != wanted[name]] == [], where
    return refused, gate


def lie_once(study, kind, seed):
    """Let one answer of a leaf server be a lie, by a seed; return what it was about and what became of it."""
    place = seed % remembered(study, kind, frozenset())
    what, lie = lie_of(seed, is_first=place == 0)
    where = f"{kind}, order {place}, seed {seed}: {what}"
    refused, _ = lied(study, kind, lambda at: lie if at == place else None, where)
    return what, "refused" if refused else "counted"


def lie_always(study, kind, seed):
    """Let every answer of a leaf server in a run be a lie; return how many of which kind did what."""
    drawn = [lie_of(1000 * (seed + 1) + at, is_first=True) for at in range(100)]
    refused, gate = lied(study, kind, lambda at: drawn[at][1], f"{kind}, all orders, seed {seed}")
    return Counter(
        (what, "refused" if at in refused else "counted")
        for at, (what, _) in enumerate(drawn[: len(gate.orders)])
    )


DAILY = 9
HOLE_SEEDS = 40


@pytest.mark.parametrize("kind", sorted(ALL))
def test_whatever_a_leaf_server_answers_the_others_keep_their_bits(study, kind):
    first = sorted(ALL).index(kind)
    for seed in range(first, DAILY, len(ALL)):
        lie_once(study, kind, seed)
    lie_always(study, kind, first)


HOLES = {
    "books": ("fedadam", answers.Schema, "_check_book", lambda self, record, *_: record),
    "models": ("scaffold", answers.Schema, "check_model", lambda *_: None),
    "drift": ("two levels", answers.Schema, "_check_drift", lambda *_: None),
    "strategies": ("fedadam", Leaf, "refuse_other_strategy", lambda *_: None),
    "notes": ("groups", progress, "check_note", lambda packet, *_: (*(packet.facts[n] for n in NOTED), 0)),
}
NOTED = ("kind", "back", "failed")


@pytest.mark.extended
@pytest.mark.parametrize("name", sorted(HOLES))
def test_a_check_that_is_missing_is_found(study, monkeypatch, name):
    """One check of an answer is taken away: the lies of a few runs show it."""
    kind, where, attribute, hole = HOLES[name]
    remembered(study, kind, frozenset())
    monkeypatch.setattr(where, attribute, hole)
    found = []
    for seed in range(HOLE_SEEDS):
        with suppress(Exception):
            lie_always(study, kind, seed)
            continue
        found.append(seed)
        break
    print(f"{name}: found by seed {found}")
    assert found


@pytest.mark.soak
@pytest.mark.parametrize("part", range(4))
def test_two_thousand_answers(study, capsys, part):
    """500 of them by the seeds of a part; the parts may run side by side."""
    logging.disable(logging.INFO)
    seen, kinds, seed = Counter(), sorted(KINDS), 10_000 * (part + 1)
    while seen.total() < 500:
        kind, seed = kinds[seed % len(kinds)], seed + 1
        if seed % 4:
            seen += lie_always(study, kind, seed)
        else:
            seen[lie_once(study, kind, seed)] += 1
    with capsys.disabled():
        refused = sum(count for (_, what), count in seen.items() if what == "refused")
        print(f"\n{seen.total()} answers, {refused} refused, by kind: {dict(sorted(seen.items()))}")
