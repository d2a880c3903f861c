"""Pictures, from an empty folder to an accuracy."""

from fedge.launch.projects.packaged import packaged_file
from fedge.launch.projects.project import flatten, read_toml
from fedge.launch.simulate import simulate


def test_digits_to_ninety_percent_over_ten_clients(tmp_path, monkeypatch):
    """FedAvg with cnn2d on the 1,797 real digits of scikit-learn: 93 % of test images in five rounds."""
    monkeypatch.chdir(tmp_path)
    fedavg = flatten(read_toml(packaged_file("fedge:fedavg"), "fedavg"))
    run = simulate(
        fedavg
        | {
            "data.path": "digits", "train.model": "cnn2d", "num-server-rounds": 5, "report": False,
            "checkpoint.every": 0,
        },
        clients=10,
    )  # fmt: skip
    assert run.status == "completed"
    assert run.rounds["test_accuracy_mean"][-1] > 0.9
