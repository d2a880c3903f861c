"""A run on the virtual clock that is killed (SIGKILL) at random moments ends as a whole one does."""

import pytest
from killed_runs import carry_out_with_kills, uninterrupted
from small_data import nine_users

FILES = (
    "checkpoints/final.safetensors", "devices/versions.csv", "devices/jobs.csv", "devices/devices.csv",
    "devices/staleness.csv", "metrics/leaf_rounds.csv",
)  # fmt: skip


@pytest.mark.extended
def test_killed_twice_at_random_moments(tmp_path):
    config = {
        "report": False, "train.model": "mlp-tiny", "train.local-epochs": 1, "seed": 5, "run-name": "killed",
        "data.path": nine_users(), "scaffold.enabled": False, "cluster.enabled": False, "gate.enabled": False,
        "hierarchy.num-servers": 3, "num-server-rounds": 8, "clients": 36, "devices.pieces": 2,
        "devices.dropout": 0.1, "asynchrony.rule": "fedbuff", "asynchrony.rule-args": '{"buffer": 3}',
        "asynchrony.concurrency": 12, "asynchrony.evaluate-every-s": 2.0,
    }  # fmt: skip
    folder = carry_out_with_kills(tmp_path, config, kills=2, seed=1)
    whole = uninterrupted(tmp_path, config)
    for name in FILES:
        assert (folder / name).read_bytes() == (whole / name).read_bytes(), name
