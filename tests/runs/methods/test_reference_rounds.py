"""Fedge's rounds beside a second implementation, in double precision
(tests/support/methods/reference_rounds.py).
"""

import io
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, event, given, settings
from hypothesis import strategies as st
from reference_rounds import Oracle, SmoothNet
from safetensors.numpy import load_file

from fedge import simulate
from hhar.windows.window_file import Windows

pytestmark = pytest.mark.whole_runs

BASE = {
    "report": False, "num-server-rounds": 3, "hierarchy.num-servers": 3, "train.local-epochs": 1,
    "train.batch-size": 8, "train.kernel": "torch",
}  # fmt: skip
CLIENTS = 9
SIZES = (3, 3, 3)


def windows(seed, users=CLIENTS, classes=3, channels=2, steps=6):
    """Windows of users of different sizes, each with an offset of its own, in sessions of four windows.

    With an odd seed the last third of the users name their classes otherwise: leaves that disagree.
    """
    rng = np.random.default_rng(seed)
    prototypes = rng.standard_normal((classes, channels, steps))
    x, y, user, session = [], [], [], []
    for u in range(users):
        labels = np.sort(
            np.r_[np.tile(np.arange(classes), 12), rng.integers(0, classes, rng.integers(0, 40))]
        )
        offset = rng.standard_normal((channels, 1)) * 0.5
        x.append(prototypes[labels] * 0.7 + offset + rng.standard_normal((len(labels), channels, steps)))
        y.append((labels + 1) % classes if seed % 2 and u >= 2 * users // 3 else labels)
        user += [f"u{u}"] * len(labels)
        session += [f"{u}/{c}/{k // 4}" for c in range(classes) for k in range(int((labels == c).sum()))]
    return Windows(
        np.concatenate(x).astype(np.float32), np.concatenate(y).astype(np.int64), np.array(user), None,
        np.array(session), tuple("abcdefgh"[:classes]), tuple("uvwxyz"[:channels]),
    )  # fmt: skip


OPTIONS = st.fixed_dictionaries({
    "seed": st.integers(0, 999),
    "num-server-rounds": st.integers(2, 4),
    "hierarchy.leaf-rounds": st.integers(1, 2),
    "hierarchy.fraction-train": st.sampled_from([1.0, 0.67, 0.34]),
    "train.local-epochs": st.integers(1, 2),
    "train.local-steps": st.sampled_from([0, 0, 3, 12]),
    "train.lr": st.sampled_from([0.02, 0.1]),
    "train.lr-decay": st.sampled_from([1.0, 0.8]),
    "train.momentum": st.sampled_from([0.0, 0.9]),
    "train.weight-decay": st.sampled_from([0.0, 0.001]),
    "train.clip-norm": st.sampled_from([0.0, 0.5]),
    "train.label-smoothing": st.sampled_from([0.0, 0.1]),
    "train.prox-mu": st.sampled_from([0.0, 0.3]),
    "cluster.tau": st.sampled_from([0.5, 0.99, 0.997]),
    "cluster.blend": st.sampled_from([1.0, 0.3]),
    "gate.min-gain": st.sampled_from([0.0, 0.02]),
    "personal.leaf-rounds": st.integers(0, 2),
    "partition.unseen-clients": st.integers(0, 1),
})  # fmt: skip
SCAFFOLD = st.sampled_from([
    {"scaffold.enabled": False}, {"scaffold.enabled": True}, {"scaffold.enabled": True, "scaffold.levels": 2}
])  # fmt: skip
GATE = st.sampled_from([{"gate.enabled": False}, {"gate.rule": "published"}, {"gate.rule": "after-round"}])


def compare(options):
    """Carry out `options` both ways and compare every label, decision, accuracy and weight."""
    data = windows(options["seed"])
    with tempfile.TemporaryDirectory() as runs:
        config = {**BASE, **options, "runs-dir": runs}
        run = simulate(config, model=SmoothNet, data=data, clients=CLIENTS, workers=1, terminal=io.StringIO())
        assert run.status == "completed", run.reason
        final = load_file(Path(run.folder) / "checkpoints/final.safetensors")
        rows = run.leaves.sort(["global_round", "leaf"]).to_dicts()
    oracle = Oracle({**run.manifest["config"], "seed": options["seed"]}, data, SIZES)
    served = oracle.run()
    assume(oracle.logit_gap > 2e-5 and oracle.tau_gap > 2e-6)  # else single precision may decide
    for row in rows:
        expected, leaf = oracle.rounds[row["global_round"] - 1], row["leaf"]
        assert (row["cluster"], row["gate"]) == (expected.labels[leaf], expected.decisions[leaf])
        assert row["val_accuracy_own"] == pytest.approx(expected.own[leaf], abs=1e-12)
        assert row["test_accuracy"] == pytest.approx(expected.test[leaf], abs=1e-12)
    for leaf, state in enumerate(served):
        for name, array in state.items():
            np.testing.assert_allclose(final[f"leaf-{leaf}/{name}"], array, rtol=1e-4, atol=2e-5)
    return oracle


# not made smaller: an example is short as it is, and shrinking it takes hundreds of runs
@settings(
    phases=[Phase.explicit, Phase.reuse, Phase.generate], max_examples=25, deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)  # fmt: skip
@given(OPTIONS, SCAFFOLD, GATE)
def test_any_configuration_agrees(options, scaffold, gate):
    oracle = compare({**options, **gate, **scaffold})
    event(f"clusters {max(len(set(r.labels)) for r in oracle.rounds)}")
    event("accepted" if any("accepted" in r.decisions for r in oracle.rounds) else "never accepted")
