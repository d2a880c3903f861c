"""The parts that come with Fedge: each has its code, and what is known without it is true."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from fedge.config.parts import BATCH_NORM, MODELS, REGISTERS, TRACKERS
from fedge.config.sections import options
from fedge.training.models import build_model

PARTS = [(register, entry) for register in REGISTERS for entry in register]


@pytest.mark.parametrize(("register", "entry"), PARTS, ids=lambda part: getattr(part, "name", ""))
def test_every_part_has_its_code_and_its_line(register, entry):
    assert entry.doc
    assert "\n" not in entry.doc
    if entry.package:
        pytest.importorskip(entry.package)
    if entry.code:
        assert callable(register.load(entry.name))
    else:
        assert entry.name == "none"


def test_every_register_is_that_of_its_option():
    for register in REGISTERS:
        default, rule = options()[register.option]
        assert rule["register"] is register
        assert rule["choices"] == register.names
        assert default in register.names


@pytest.mark.parametrize("name", MODELS.names)
def test_batch_norm_is_where_the_register_says(name):
    model = build_model(name, (2, 8), 3, torch.Generator())
    there = any(isinstance(layer, nn.modules.batchnorm._BatchNorm) for layer in model.modules())
    assert there == MODELS.has(name, BATCH_NORM)


def test_the_registers_load_no_code():
    heavy = "'torch', 'flwr', 'ray', 'polars', 'matplotlib', 'sklearn', 'scipy'"
    code = f"import sys, fedge.config.sections; assert not {{{heavy}}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_trackers_name_their_packages():
    assert {entry.name: entry.package for entry in TRACKERS if entry.code} == {
        name: name for name in TRACKERS.names if name != "none"
    }
