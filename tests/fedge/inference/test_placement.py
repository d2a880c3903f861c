"""Choice of a model for windows without labels: divergences by hand, and turned users in a run."""

import numpy as np
import pytest
import torch
from torch import nn

from fedge.config.registers.option import ConfigError
from fedge.inference.card import CLASS, CLASSES, NUMBERS
from fedge.inference.network import Classifier
from fedge.inference.placement import best_fit, input_misfit


class Normed(nn.Module):
    """BatchNorm over two channels, a mean over samples, two classes."""

    def __init__(self, mean, variance):
        super().__init__()
        self.norm = nn.BatchNorm1d(2)
        self.head = nn.Linear(2, 2)
        self.norm.running_mean = torch.tensor(mean, dtype=torch.float32)
        self.norm.running_var = torch.tensor(variance, dtype=torch.float32)

    def forward(self, x):
        return self.head(self.norm(x).mean(dim=2))


def model(mean, variance, scaled_by=((), ())):
    return Classifier(Normed(mean, variance), (2, 2), *scaled_by, "float32")


WINDOWS = np.array([[[1.0, 3.0], [0.0, 0.0]], [[1.0, 3.0], [4.0, 4.0]]], dtype=np.float32)


def test_by_hand():
    """Channels have means 2 and 2, variances 1 and 4. Against (2, 1) and (2, 4) nothing is off. Against
    (0, 1) and (2, 8): (1 + 4) / 1 − 1 − ln 1 = 4, halved 2; 4 / 8 − 1 − ln ½ = .193, halved .097."""
    assert input_misfit(model([2, 2], [1, 4]), WINDOWS) == pytest.approx(0, abs=1e-9)
    expected = (2 + (0.5 - 1 + np.log(2)) / 2) / 2
    assert input_misfit(model([0, 2], [1, 8]), WINDOWS) == pytest.approx(expected)


def test_scaling_is_part_of_the_model():
    """Scaled by mean 2 and deviations 1 and 2, the windows have means 0 and variances 1."""
    scaled = model([0, 0], [1, 1], ((2.0, 2.0), (1.0, 2.0)))
    assert input_misfit(scaled, WINDOWS) == pytest.approx(0, abs=1e-6)


def test_the_order_and_number_of_windows_do_not_matter():
    """More than fit into one pass; the network is as it was."""
    many = np.random.default_rng(0).normal(size=(600, 2, 2)).astype(np.float32)
    one = model([0.3, 0], [1, 2])
    before = {name: entry.clone() for name, entry in one.state_dict().items()}
    assert input_misfit(one, many) == pytest.approx(input_misfit(one, many[::-1].copy()))
    assert input_misfit(one, np.tile(many, (2, 1, 1))) == pytest.approx(input_misfit(one, many))
    assert all(torch.equal(entry, before[name]) for name, entry in one.state_dict().items())
    assert not one.network.norm._forward_pre_hooks


def test_without_batch_norm_by_how_unsure_it_is():
    """Equal logits: ln 2 nats. Logits 0 and 100: none."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    nn.init.zeros_(network[1].weight)
    nn.init.zeros_(network[1].bias)
    unsure = Classifier(network, (2, 2), (), (), "float32")
    assert input_misfit(unsure, WINDOWS) == pytest.approx(np.log(2))
    network[1].bias.data[1] = 100.0
    assert input_misfit(unsure, WINDOWS) == pytest.approx(0, abs=1e-6)


def test_a_model_whose_misfit_is_no_number_is_not_chosen():
    assert best_fit([float("nan"), 2.0, float("inf")]) == 1
    assert best_fit([float("nan"), float("nan")]) == 0


# --- in a run -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Four leaves, two of which have turned sensors, each group with a model of its own."""
    from fedge import simulate

    outcome = simulate(
        {
            "report": False, "data.path": "synthetic", "data.synthetic-users": 12, "train.model": "mlp-tiny",
            "train.local-epochs": 2, "num-server-rounds": 3, "seed": 5, "hierarchy.num-servers": 4,
            "cluster.method": "oracle", "gate.enabled": False, "scaffold.enabled": False,
            "scenario": "rotate", "runs-dir": str(tmp_path_factory.mktemp("runs")),
        },
        num_supernodes=12,
    )  # fmt: skip
    assert outcome.status == "completed"
    return outcome.folder


@pytest.mark.slow
def test_newcomers_whose_sensors_are_turned_get_the_model_of_such_leaves(run, tmp_path, capsys):
    """People of another draw, as they are and turned as group 1 is; each is placed by themselves."""
    from fedge.cli import main
    from fedge.records.reading.reader import load_run
    from hhar import synthetic_windows

    loaded = load_run(run)
    planted = loaded.manifest["scenario"]
    (matrix,) = (np.array(c["matrix"]) for c in planted["changes"] if "matrix" in c)
    new = synthetic_windows(4, seed=77)
    turned = np.matmul(matrix, new.x).astype(np.float32)
    people = np.concatenate([np.char.add(new.user, "-plain"), np.char.add(new.user, "-turned")])
    np.savez(tmp_path / "new.npz", x=np.concatenate([new.x, turned]), user=people)
    assert main(["predict", str(run), str(tmp_path / "new.npz"), "--fit"]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("user ")]
    assert len(said) == 8
    groups = {group: [i for i, g in enumerate(planted["groups"]) if g == group] for group in (0, 1)}
    named = {group: f"of leaves {leaves[0]}, {leaves[1]} fits best" for group, leaves in groups.items()}
    assert [named["turned" in line] in line for line in said] == [True] * 8
    assert main(["predict", str(run), str(tmp_path / "new.npz"), "--fit", "--leaf", "1"]) == 4
    assert "goes without --leaf" in capsys.readouterr().err


class Constant(nn.Module):
    """Fixed answers (2,) or (2, positions), whatever the windows."""

    def __init__(self, answers):
        super().__init__()
        self.answers = torch.tensor(answers)

    def forward(self, x):
        return self.answers.expand(len(x), *self.answers.shape)


@pytest.mark.parametrize(
    ("says", "answers", "expected"),
    [
        (CLASS, [0.0, 0.0], np.log(2)),
        (CLASS, [0.0, np.log(3.0)], np.log(4) - 0.75 * np.log(3)),
        (CLASS, [[0.0, 0.0], [0.0, 800.0]], np.log(2) / 2),  # positions: unsure, sure
        (CLASSES, [0.0, 800.0], np.log(2)),
        (CLASSES, [0.0, -800.0], np.log(2)),  # absent for sure is as sure as present
        (CLASSES, [np.log(3.0), -np.log(3.0)], 2 * (np.log(4) - 0.75 * np.log(3))),
    ],
)
def test_without_batchnorm_the_surest_fits_best(says, answers, expected):
    """Entropy by hand: of 1/2 and 1/2 ln 2; of 1/4 and 3/4 ln 4 − 3/4 ln 3; of what is sure 0."""
    sure = Classifier(Constant(answers), (2, 2), (), (), "float32", says)
    assert input_misfit(sure, WINDOWS) == pytest.approx(expected, abs=1e-6)


def test_numbers_are_never_unsure():
    """Only BatchNorm tells models of numbers apart."""
    with pytest.raises(ConfigError, match="predict numbers without BatchNorm; choose a model by --leaf"):
        input_misfit(Classifier(Constant([1.0, 2.0]), (2, 2), (), (), "float32", NUMBERS), WINDOWS)
    normed = Classifier(Normed([2, 2], [1, 4]), (2, 2), (), (), "float32", NUMBERS)
    assert input_misfit(normed, WINDOWS) == pytest.approx(0, abs=1e-9)
