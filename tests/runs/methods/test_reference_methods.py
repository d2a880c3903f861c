"""Whole runs by methods of clients beside a second implementation, in double precision
(tests/support/methods/reference_methods.py).
"""

import io
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from reference_methods import METHODS, MethodOracle
from reference_rounds import SmoothNet
from safetensors.numpy import load_file

from fedge import simulate
from fedge.config.registers.parts import ALGORITHMS
from tests.runs.methods.test_reference_rounds import BASE, CLIENTS, GATE, OPTIONS, SIZES, windows

pytestmark = pytest.mark.whole_runs

# written a second time elsewhere: tests/fedge/methods
ELSEWHERE = {"fedavg", "fedala", "fedsoft", "esperhfl"}
# argument → values
ARGUMENTS = {
    "fedprox": {"mu": [0.1, 1.0]},
    "ditto": {"strength": [0.1, 1.0], "epochs": [0, 1, 2]},
    "pfedme": {
        "strength": [1.0, 15.0], "inner-steps": [1, 3], "lr": [0.0, 0.01], "restart": [True, False],
        "decay": [0.0, 0.01], "beta": [1.0, 0.5],
    },
    "apfl": {"alpha": [0.3, 0.8]},
    "fedrep": {"head-epochs": [1, 3], "base-epochs": [1, 2]},
    "fedbabu": {"tune-epochs": [1, 2], "from-own": [True, False]},
    "feddyn": {"alpha": [0.1, 1.0]},
    "moon": {"mu": [0.5, 2.0], "temperature": [0.5, 1.0]},
}  # fmt: skip


def both(method, options):
    """Carry out `options` both ways; the run's rows, weights and own models, and the oracle after its own."""
    data = windows(options["seed"])
    config = {**BASE, **options, "train.algorithm": method, "scaffold.enabled": False}
    config["train.lr"] = min(config["train.lr"], 0.05)  # several terms add up
    with tempfile.TemporaryDirectory() as runs:
        run = simulate(
            {**config, "runs-dir": runs}, model=SmoothNet, data=data, clients=CLIENTS, workers=1,
            terminal=io.StringIO(),
        )  # fmt: skip
        assert run.status == "completed", run.reason
        final = load_file(Path(run.folder) / "checkpoints/final.safetensors")
        rows = run.leaves.to_dicts()
        own = {(r["global_round"], r["client"]): r for r in run.client_models.to_dicts()}
    oracle = MethodOracle({**run.manifest["config"], "seed": options["seed"]}, data, SIZES)
    served = oracle.run()
    return rows, final, own, oracle, served


def is_sure(oracle):
    """Whether single precision decides nothing otherwise than double precision."""
    return oracle.logit_gap > 2e-5 and oracle.tau_gap > 2e-6


def refuse_differences(rows, final, own, oracle, served):
    """Compare labels, decisions, scores, weights and own models."""
    for row in rows:
        expected, leaf = oracle.rounds[row["global_round"] - 1], row["leaf"]
        assert (row["cluster"], row["gate"]) == (expected.labels[leaf], expected.decisions[leaf])
        assert row["test_accuracy"] == pytest.approx(expected.test[leaf], abs=1e-12)
    for leaf, state in enumerate(served):
        for name, array in state.items():
            np.testing.assert_allclose(final[f"leaf-{leaf}/{name}"], array, rtol=1e-3, atol=1e-4)
    assert own.keys() == oracle.personal.keys()
    for where, (_, loss) in oracle.personal.items():
        assert own[where]["test_loss"] == pytest.approx(loss, rel=2e-4, abs=2e-4)


def test_every_method_is_written_a_second_time():
    assert set(ALGORITHMS.names) == ELSEWHERE | set(METHODS)


@pytest.mark.parametrize("method", METHODS)
def test_a_method_agrees_with_all_terms_at_once(method):
    """Momentum, weight decay, clipping, FedProx, partial participation, strangers, fine-tuning."""
    options = {
        "seed": 5, "num-server-rounds": 2, "hierarchy.leaf-rounds": 2, "hierarchy.fraction-train": 0.67,
        "train.lr": 0.05, "train.lr-decay": 0.8, "train.momentum": 0.9, "train.weight-decay": 0.001,
        "train.clip-norm": 0.5, "train.prox-mu": 0.3, "cluster.tau": 0.997, "cluster.blend": 0.3,
        "personal.leaf-rounds": 2, "partition.unseen-clients": 1, "train.local-steps": 12,
    }  # fmt: skip
    arguments = {name: values[0] for name, values in ARGUMENTS.get(method, {}).items()}
    given = {f"train.algorithm-args.{name}": value for name, value in arguments.items()}
    found = both(method, {**options, **given})
    assert is_sure(found[3])
    refuse_differences(*found)


@pytest.mark.extended
# not made smaller: an example is short as it is, and shrinking it takes hundreds of runs
@settings(
    phases=[Phase.explicit, Phase.reuse, Phase.generate], max_examples=40, deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)  # fmt: skip
@given(st.data(), OPTIONS, GATE, st.sampled_from(METHODS), st.sampled_from(["cluster", "same"]))
def test_any_configuration_of_a_method_agrees(data, options, gate, method, strangers):
    arguments = {
        f"train.algorithm-args.{name}": data.draw(st.sampled_from(values), label=name)
        for name, values in ARGUMENTS.get(method, {}).items()
    }
    found = both(method, {**options, **gate, **arguments, "personal.unseen-clients": strangers})
    assume(is_sure(found[3]))
    refuse_differences(*found)
