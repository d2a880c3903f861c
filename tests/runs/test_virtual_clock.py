"""A run on the virtual clock that is killed (SIGKILL) at random moments ends as a whole one does."""

import random
import time

from flower_runs import write_overrides
from killed_runs import rounds_done, start, uninterrupted, wait_until
from small_data import nine_users

from fedge.states.checkpoint import checkpoints

FILES = (
    "checkpoints/final.safetensors", "devices/versions.csv", "devices/jobs.csv", "devices/devices.csv",
    "devices/staleness.csv", "metrics/leaf_rounds.csv",
)  # fmt: skip


def test_killed_twice_at_random_moments(tmp_path):
    config = {
        "report": False, "train.model": "mlp-tiny", "train.local-epochs": 1, "seed": 5, "run-name": "killed",
        "data.path": nine_users(), "scaffold.enabled": False, "cluster.enabled": False, "gate.enabled": False,
        "hierarchy.num-servers": 3, "num-server-rounds": 12, "clients": 36, "devices.pieces": 2,
        "devices.dropout": 0.1, "asynchrony.rule": "fedbuff", "asynchrony.rule-args": '{"buffer": 3}',
        "asynchrony.concurrency": 12, "asynchrony.evaluate-every-s": 2.0,
    }  # fmt: skip
    folder, rng = tmp_path / "runs" / "killed", random.Random(1)
    words = ["run", ".", "-c", write_overrides(tmp_path, {**config, "runs-dir": str(tmp_path / "runs")})]
    for last in (2, 6):
        process = start("", *words)
        wait_until(lambda last=last: rounds_done(folder) >= last and checkpoints(folder / "checkpoints"),
                   process, f"round {last}")  # fmt: skip
        time.sleep(rng.uniform(0, 0.1))
        process.kill()
        process.communicate()
        words = ["resume", str(folder)]
    process = start("", *words)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    whole = uninterrupted(tmp_path, config)
    for name in FILES:
        assert (folder / name).read_bytes() == (whole / name).read_bytes(), name
