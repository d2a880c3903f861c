import io

import pytest
from small_runs import small_config

from fedge import simulate
from fedge.cli import main
from fedge.states.checkpoint import checkpoints

ROUNDS = ["round-000000", "round-000001", "round-000002"]


def test_the_first_checkpoint_is_there_before_the_first_round(tmp_path):
    config = small_config(tmp_path, checkpoint__keep=9)
    folder = simulate(config, terminal=io.StringIO()).folder
    assert [path.name for path in checkpoints(folder / "checkpoints")] == ROUNDS


def test_going_on_clears_away_what_the_last_attempt_left(tmp_path, monkeypatch):
    """Client windows of a killed run, and checkpoints later than the one to go on from that are damaged."""
    monkeypatch.delenv("SEED", raising=False)
    config = small_config(tmp_path, checkpoint__keep=9, run_name="run")
    folder = simulate(config, terminal=io.StringIO()).folder
    (folder / "data").mkdir()
    (folder / "data" / "x.npy").write_bytes(b"left")
    for path in (folder / "checkpoints" / ROUNDS[2]).iterdir():
        path.write_bytes(b"damaged")
    assert main(["resume", str(folder), "--workers", "1"]) == 0
    assert not (folder / "data").exists()
    assert [path.name for path in checkpoints(folder / "checkpoints")] == ROUNDS


@pytest.mark.slow
def test_the_final_models_are_those_of_an_unbroken_run(tmp_path, monkeypatch):
    monkeypatch.delenv("SEED", raising=False)
    whole = simulate(small_config(tmp_path, num_server_rounds=4, run_name="whole"), terminal=io.StringIO())
    first = simulate(small_config(tmp_path, num_server_rounds=2, run_name="parts"), terminal=io.StringIO())
    assert main(["resume", str(first.folder), "-c", "num-server-rounds=4", "--workers", "2"]) == 0
    name = "checkpoints/final.safetensors"
    assert (first.folder / name).read_bytes() == (whole.folder / name).read_bytes()
