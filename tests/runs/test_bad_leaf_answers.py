"""A leaf server that lies is a leaf server that was gone: the others have the same bits.

Lies are drawn over the schema of a leaf server's answers (`fedge.edge.answers`) by numbered seeds, in any of
its orders; a lie that counts, since an honest leaf server could have said it, leaves everything finite.
`-m soak` tries 2,000 and prints how many were refused; a sample of them runs with all tests.
"""

import csv
import json
import logging
from collections import Counter

import numpy as np
import pytest
from safetensors.numpy import load_file
from small_runs import small_config
from spoilt import CLIENTS, LEAVES, LIAR, Study, gone_at, honest, lie_of, lies_at

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
BASE = {"gate.min-gain": -1.0, "guard.retries": 0}
TIMES = ("train_seconds", "seconds")
MINE = {str(client) for client in range(LIAR * CLIENTS // LEAVES, (LIAR + 1) * CLIENTS // LEAVES)}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad-leaves")
    made = Study(folder, {**small_config(folder / "data"), **BASE})
    yield made, {}
    made.close()


def rows_of(folder, table):
    with (folder / "metrics" / table).open(newline="") as file:
        return list(csv.DictReader(file))


def of_the_others(folder):
    """Return all that a run leaves of everybody but the liar, and the liar's model."""
    rows = {
        table: [
            {name: value for name, value in row.items() if name not in TIMES}
            for row in rows_of(folder, table)
            if row.get("client") not in MINE
        ]
        for table in ("clients.csv", "leaf_rounds.csv")
    }
    files = ("clusters.jsonl", "checkpoints/final.safetensors")
    return {**rows, **{name: (folder / name).read_bytes() for name in files}}


def remembered(study, kind, place):
    """Return what is left of a run in which the liar was gone at one of its orders; honest for None."""
    made, known = study
    if (kind, place) not in known:
        outcome, gate, _ = made.carry_out(KINDS[kind], honest if place is None else gone_at(place))
        assert outcome.status == ("completed" if place is None else "partial"), outcome.reason
        known[kind, place] = len(gate.orders) if place is None else of_the_others(outcome.folder)
    return known[kind, place]


def lie_once(study, kind, seed):
    """Let a leaf server lie by a seed; return what it lied about and whether the lie was refused."""
    orders = remembered(study, kind, None)
    place = seed % orders
    what, lie = lie_of(seed, is_first=place == 0)
    outcome, _, shown = study[0].carry_out(KINDS[kind], lies_at(place, lie))
    where = f"{kind}, order {place}, seed {seed}: {what}"
    assert outcome.status in ("completed", "partial"), (where, outcome.reason)
    log = (outcome.folder / "run.log").read_text()
    assert "Traceback" not in log, where
    assert all(line.isprintable() for line in [*log.splitlines(), *shown.splitlines()]), where
    failures = [row["failures"] for row in rows_of(outcome.folder, "global_rounds.csv")]
    refused = any("leaf server" in each for each in failures)
    if refused:
        found, wanted = of_the_others(outcome.folder), remembered(study, kind, place)
        assert [name for name in wanted if found[name] != wanted[name]] == [], where
    else:
        for name, array in load_file(outcome.folder / "checkpoints" / "final.safetensors").items():
            assert np.isfinite(array).all(), (where, name)
        json.loads((outcome.folder / "manifest.json").read_text())
    return what, "refused" if refused else "counted"


DAILY = 24


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_whatever_a_leaf_server_answers_the_others_keep_their_bits(study, kind):
    first = sorted(KINDS).index(kind)
    for seed in range(first, DAILY, len(KINDS)):
        lie_once(study, kind, seed)


@pytest.mark.soak
def test_two_thousand_answers(study, capsys):
    logging.disable(logging.INFO)
    seen, kinds = Counter(), sorted(KINDS)
    for seed in range(2000):
        seen[lie_once(study, kinds[seed % len(kinds)], seed)] += 1
    with capsys.disabled():
        refused = sum(count for (_, what), count in seen.items() if what == "refused")
        print(f"\n{sum(seen.values())} answers, {refused} refused, by kind: {dict(sorted(seen.items()))}")
    assert sum(seen.values()) == 2000
