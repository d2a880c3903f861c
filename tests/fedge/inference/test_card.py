import json

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from fedge.config.registers.option import ConfigError
from fedge.inference.card import KEY, Card, Served, read_card
from fedge.records.outputs import MODELS
from fedge.states.files import write_state

CARD = Card(
    "1.2", "my:Net", {"width": 3}, {"package": "", "version": "", "sha256": "ab"}, (2, 16), "float32",
    ("u", "v"), ("sit", "läufe"), (0.5, 1.0), (1.0, 2.0), {"rate_hz": "50"},
    {"leaf-0": Served(0, (0, 1), True, 40)},
)  # fmt: skip
STATE = {"leaf-0/w": np.arange(3, dtype=np.float32)}


def test_a_card_comes_back(tmp_path):
    write_state(tmp_path / "m", STATE, metadata=CARD.metadata())
    assert read_card(tmp_path / "m") == CARD
    with safe_open(tmp_path / "m", "numpy") as file:  # by the library itself
        assert json.loads(file.metadata()[KEY])["model"] == "my:Net"
        assert file.get_tensor("leaf-0/w").tolist() == [0, 1, 2]


def test_the_models_of_a_run_say_what_they_are(used_run):
    _, run = used_run
    card = read_card(run.folder / MODELS)
    assert (card.model, card.input_shape, card.dtype) == ("mlp-tiny", (2, 16), "float32")
    assert (card.channels, len(card.classes), len(card.mean), len(card.std)) == (("u", "v"), 2, 2, 2)
    assert {name.partition("-")[0] for name in card.served} == {"leaf", "unseen"}
    leaf, unseen = card.served["leaf-1"], card.served["unseen-1"]
    assert (leaf.clients, leaf.unseen, unseen.clients, unseen.unseen) == ((3, 4), False, (5,), True)


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        (None, "says nothing: an earlier Fedge wrote it; repeat the run"),
        ({KEY: "{"}, "but it is no JSON; use the version that wrote it"),
        ({KEY: "[" * 100_000}, "but it is no JSON; use the version that wrote it"),
        ({KEY: "[]"}, "but it is a list; use the version that wrote it"),
        ({KEY: '{"format": 2}'}, "but format is 2, not 1; use the version that wrote it"),
        ({KEY: '{"format": 1}'}, "but input_shape is None, not a list"),
    ],
)
def test_a_file_that_says_nothing_or_nonsense_is_one_line(tmp_path, metadata, words):
    save_file(STATE, tmp_path / "m", metadata=metadata)
    with pytest.raises(ConfigError, match=words):
        read_card(tmp_path / "m")


def test_what_is_no_file_of_models(tmp_path):
    (tmp_path / "m").write_bytes(b"no safetensors")
    for name in ("m", "missing"):
        with pytest.raises(ConfigError, match="repeat the run"):
            read_card(tmp_path / name)
