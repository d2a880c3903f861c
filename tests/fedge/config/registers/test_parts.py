"""The parts that come with Fedge: each has its code, and what is known without it is true."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from fedge.config.flat import options
from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import (
    DATASETS,
    MODELS,
    PARTICIPATIONS,
    REGISTERS,
    TRACKERS,
    refuse_input_shape,
)
from fedge.config.registers.traits import BATCH_NORM, IMAGES, WINDOWS
from fedge.training.networks.models import build_model

PARTS = [(register, entry) for register in REGISTERS for entry in register]


@pytest.mark.slow
@pytest.mark.parametrize(("register", "entry"), PARTS, ids=lambda part: getattr(part, "name", ""))
def test_every_part_has_its_code_and_its_line(register, entry):
    assert entry.doc
    assert "\n" not in entry.doc
    if entry.package:
        pytest.importorskip(entry.package)
    if entry.code:
        assert callable(register.load(entry.name))
    else:
        assert entry.name in ("none", "auto", "off", "preset")


def test_every_register_is_that_of_its_option():
    for register in REGISTERS:
        default, rule = options()[register.option]
        assert default in register.names or (rule["many"] and default == "")
        if register not in (DATASETS, PARTICIPATIONS):  # which take files and numbers, too
            assert rule["register"] is register
            assert rule["choices"] == register.names


@pytest.mark.parametrize("name", MODELS.names)
def test_batch_norm_is_where_the_register_says(name):
    shape = (2, 8) if MODELS.has(name, WINDOWS) else (2, 8, 8)
    model = build_model(name, shape, 3, torch.Generator())
    there = any(isinstance(layer, nn.modules.batchnorm._BatchNorm) for layer in model.modules())
    assert there == MODELS.has(name, BATCH_NORM)


@pytest.mark.parametrize("name", MODELS.names)
@pytest.mark.parametrize(("trait", "shape"), [(WINDOWS, (2, 8)), (IMAGES, (2, 8, 8))])
def test_models_take_the_inputs_that_the_register_says(name, trait, shape):
    if MODELS.has(name, trait):
        model = build_model(name, shape, 3, torch.Generator())
        assert model(torch.zeros(2, *shape)).shape == (2, 3)
    else:
        with pytest.raises(ConfigError, match=f"data are of shape .*, but {name} does not; use"):
            refuse_input_shape(name, shape)


def test_the_registers_load_no_code():
    heavy = "'torch', 'flwr', 'ray', 'polars', 'matplotlib', 'sklearn', 'scipy'"
    code = f"import sys, fedge.config.sections; assert not {{{heavy}}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_trackers_name_their_packages():
    assert {entry.name: entry.package for entry in TRACKERS if entry.code} == {
        name: name for name in TRACKERS.names if name != "none"
    }
