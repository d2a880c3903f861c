"""The parts that come with Fedge: each has its code, and what is known without it is true."""

import inspect
import subprocess
import sys

import pytest
import torch
from torch import nn

from fedge.config.flat import from_run_config, options
from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import (
    ALGORITHMS,
    CLOUD,
    DATASETS,
    GROUPINGS,
    MODELS,
    PARTICIPATIONS,
    REGISTERS,
    RULES,
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


def taken_by(register, entry):
    """Argument → its default, or None where there is none, as the code of a part takes them."""
    code = register.load(entry.name)
    several = (code, code.leaf) if getattr(code, "leaf", None) else (code,)
    found = [p for one in several for p in inspect.signature(one).parameters.values()]
    return {p.name: None if p.default is p.empty else p.default for p in found}


METHODS = [
    (r, entry) for r in (ALGORITHMS, GROUPINGS) for entry in r if entry.code.startswith("fedge.methods")
]


@pytest.mark.parametrize(("register", "entry"), METHODS, ids=lambda part: getattr(part, "name", ""))
def test_every_argument_of_a_method_is_declared_with_the_default_of_its_code(register, entry):
    taken = {word: default for word, default in taken_by(register, entry).items() if word != "self"}
    assert {word: rule.default for word, rule in entry.arguments.items()} == taken


BOUNDED = [
    (register, entry.name, word)
    for register in (ALGORITHMS, GROUPINGS, RULES, CLOUD)
    for entry in register
    for word in entry.arguments
]


@pytest.mark.parametrize(
    ("register", "name", "word"), BOUNDED, ids=lambda part: getattr(part, "option", part)
)
def test_an_argument_out_of_its_range_is_refused_by_its_name(register, name, word):
    """A step beyond every bound, and a value of another kind; the bounds themselves are taken."""
    rule = next(entry for entry in register if entry.name == name).arguments[word].metadata
    step = 1 if rule["kind"] is int else 1e-3
    least, most = rule["minimum"], rule["maximum"]
    outside = [least is not None and least - step, most is not None and most + step, rule["above"], [1]]
    for value in outside:
        if value is not None and value is not False:
            with pytest.raises(ConfigError, match=f"{register.option}-args.{word.replace('_', '-')} must be"):
                register.arguments(name, {word: value})
    for bound in (least, most):
        if bound is not None:
            assert register.arguments(name, {word: bound})[word] == bound


def test_arguments_of_a_method_are_checked_with_the_options():
    with pytest.raises(ConfigError, match=r"train\.algorithm-args\.alpha must be at most 1, but is 2\.0"):
        from_run_config({"train.algorithm": "apfl", "train.algorithm-args.alpha": 2})
