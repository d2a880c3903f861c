"""Every part that comes with Fedge, chosen alone: taken, or refused in one plain line before any work."""

import numpy as np
import pytest
from small_runs import small_config

from fedge.config.registers import groupings, parts
from fedge.config.registers.option import ConfigError
from fedge.config.registers.register import Register
from fedge.engine.federation import Federation
from fedge.launch.preflight import check
from hhar.windows.window_file import Windows, save_windows

REGISTERS = {
    found.option: found for room in (parts, groupings) for found in vars(room).values()
    if isinstance(found, Register)
}  # fmt: skip
OFF = {"scaffold.enabled": False, "gate.enabled": False}
CLOCK = {"asynchrony.rule": "fedbuff", "cluster.enabled": False}
BESIDE = {"gate.rule": {"gate.enabled": True}, "hierarchy.selection": {"hierarchy.participation": "2"}}
# of Python and of authors of parts: a user who has chosen a part of Fedge has nothing to fix in its code
NOT_PLAIN = ("Error: ", "fix it", "positional", "must take (", "change its parameters")


def refusal(config):
    """The line that refuses a configuration; "" if it can be carried out."""
    try:
        check(config, Federation(9))
    except ConfigError as error:
        return str(error)
    return ""


def odd(option, line):
    """Words of a line that are for authors of parts, and an option named twice in a row."""
    return [words for words in (*NOT_PLAIN, f"{option} {option}") if words in line] + [
        option for _ in range(line.count(f": {option}"))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("option", REGISTERS)
def test_every_part_alone(tmp_path, option):
    on_clock = CLOCK if option.startswith(("devices", "asynchrony")) else {}
    base = small_config(tmp_path) | OFF | on_clock | BESIDE.get(option, {})
    found = {part.name: refusal({**base, option: part.name}) for part in REGISTERS[option]}
    assert {name: line for name, line in found.items() if odd(option, line)} == {}


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(1, 1), (3, 2), (1, 1, 1), (3, 2, 9), (1,), (2, 2, 2, 2)])
@pytest.mark.parametrize("algorithm", ["fedavg", "ditto"])
def test_every_network_on_the_smallest_data(tmp_path, shape, algorithm):
    """Refusals of a network come before the run begins."""
    y = np.tile(np.arange(2), 90)
    x = np.random.default_rng(0).normal(size=(len(y), *shape)).astype(np.float32)
    users, channels = np.repeat(list("abcdefghi"), 20), tuple(f"c{k}" for k in range(shape[0]))
    path = save_windows(tmp_path / "least.npz", Windows(x, y, users, None, None, ("p", "q"), channels))
    base = small_config(tmp_path) | OFF | {"data.path": str(path), "train.algorithm": algorithm}
    for part in parts.MODELS:
        line = refusal({**base, "train.model": part.name})
        assert not odd("train.model", line), line
        taken = ("linear", "cnn", "mlp-tiny") if len(shape) == 2 else ("linear",)
        assert (not line) == (part.name in taken), (part.name, line)
