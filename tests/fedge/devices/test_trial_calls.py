"""Users' own parts are tried before anything starts; each fault of theirs is one line."""

from dataclasses import replace

import numpy as np
import pytest

from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import AVAILABILITY, DEVICES, DURATIONS, SERVER_RULES
from fedge.config.registers.traits import PARTIAL
from fedge.config.sections.devices import DevicesConfig
from fedge.devices.trial_calls import (
    refuse_partial_work,
    try_availability,
    try_duration,
    try_preset,
    try_rule,
)


def mean_of_all(model, memory, arrival):
    return (model + arrival.end) / 2


def wrong(*_, **__):
    return "soon"


def raising(*_, **__):
    raise KeyError("hm")


def late(model, memory, arrival, buffer=9):
    memory.buffer.append(arrival)
    return "soon" if len(memory.buffer) == buffer else None


@pytest.mark.parametrize("name", [name for name in SERVER_RULES.names if name != "off"])
def test_rules_that_come_with_fedge_work(name):
    try_rule(name, {})


def test_a_rule_of_ones_own_works():
    name = SERVER_RULES.given(mean_of_all)
    try_rule(name, {})
    SERVER_RULES.forget(name)


@pytest.mark.parametrize(
    ("register", "act"), [(SERVER_RULES, try_rule), (DEVICES, try_preset), (AVAILABILITY, try_availability)],
    ids=["rule", "preset", "availability"],
)  # fmt: skip
@pytest.mark.parametrize(
    ("part", "words"), [(wrong, "soon|not callable"), (raising, "cannot be used: KeyError")]
)
def test_what_does_not_fit_is_one_line(register, act, part, words):
    name = register.given(part)
    try:
        with pytest.raises(ConfigError, match=words):
            act(name, {})
    finally:
        register.forget(name)


def test_it_is_tried_up_to_its_first_model():
    name = SERVER_RULES.given(late)
    try:
        with pytest.raises(ConfigError, match="but returned 'soon'"):
            try_rule(name, {})
    finally:
        SERVER_RULES.forget(name)


def in_place(model, memory, arrival):
    model += 1
    return model


def forgetful(model, memory, arrival):
    memory.arrays["seen"] = {arrival.child}
    return arrival.end


def keeping(change):
    """A rule that keeps what `change` makes of an arrival in its buffer."""

    def rule(model, memory, arrival):
        memory.buffer.append(change(arrival))
        return arrival.end

    return rule


def noting(model, memory, arrival):
    memory.steps = 1
    return arrival.end


def by_number(model, memory, arrival):
    memory.arrays[arrival.child] = arrival.end
    return arrival.end


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (in_place, "read-only"),
        (forgetful, r"arrays of numbers .* as 'seen'; fix it"),
        (by_number, r"arrays of numbers .* as 0; fix it"),
        (noting, "no attribute 'steps'"),
        (
            keeping(lambda one: (one.delta, one.weight)),
            r"must keep arrivals in memory\.buffer, .* but keeps \(",
        ),
        (
            keeping(lambda one: replace(one, end=one.delta)),
            r"the end of one is .* and the model float32 \(1,\)",
        ),
        (keeping(lambda one: replace(one, start=one.start[:0])), "the start of one is"),
        (keeping(lambda one: replace(one, weight=-1.0)), r"the weight of one is -1\.0; fix it"),
        (keeping(lambda one: replace(one, weight=np.float32(1))), "the weight of one is"),
        (keeping(lambda one: replace(one, share=2.0)), "the share of one is"),
        (keeping(lambda one: replace(one, child=np.int64(1))), "the child of one is"),
    ],
)
def test_what_would_break_a_run_later_is_one_line(part, words):
    name = SERVER_RULES.given(part)
    try:
        with pytest.raises(ConfigError, match=words):
            try_rule(name, {})
    finally:
        SERVER_RULES.forget(name)


def test_a_duration_is_tried():
    try_duration("preset", {})
    name = DURATIONS.given(lambda work, most=0: most)
    try:
        try_duration(name, {"most": 2})
        with pytest.raises(ConfigError, match="seconds above 0"):
            try_duration(name, {})
    finally:
        DURATIONS.forget(name)


def test_arguments_are_looked_at():
    with pytest.raises(ConfigError, match="did you mean hinge"):
        try_rule("fedbuff", {"staleness": "hing", "buffer": 1000})
    with pytest.raises(ConfigError, match=r"asynchrony\.rule fedbuff: lr of a rule"):
        try_rule("fedbuff", {"lr": -1})
    with pytest.raises(ConfigError, match=r"preset-args\.sigma"):
        try_preset("lognormal", {"sigma": "x"})
    with pytest.raises(ConfigError, match=r"availability-args\.share"):
        try_availability("diurnal", {"share": 2})


def test_partial_work_needs_a_rule_that_takes_it():
    partial = DevicesConfig(partial_work=True)
    for name in SERVER_RULES.names_with(PARTIAL):
        refuse_partial_work(partial, name)
    for name in {"ca2fl", "fedfa", "fedrevive"}:
        refuse_partial_work(DevicesConfig(), name)
        with pytest.raises(ConfigError, match=r"devices.partial-work needs an asynchrony.rule that takes it"):
            refuse_partial_work(partial, name)


def test_a_rule_of_ones_own_says_whether_it_takes_partial_work():
    name = SERVER_RULES.given(mean_of_all)
    with pytest.raises(ConfigError, match="takes_partial_work = True"):
        refuse_partial_work(DevicesConfig(partial_work=True), name)
    mean_of_all.takes_partial_work = True
    refuse_partial_work(DevicesConfig(partial_work=True), name)
    del mean_of_all.takes_partial_work
    SERVER_RULES.forget(name)
