"""A run that is stopped between any two events and goes on from a checkpoint ends with the same bits."""

import random

import pytest
from virtual_world import REVIVED, carried_out, config_of, outcome, stopped_and_gone_on, world

from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import SERVER_RULES
from fedge.devices.snapshot import restore, snapshot

RULES = [name for name in SERVER_RULES.names if name != "off"]
ARGUMENTS = {
    "fedbuff": '{"buffer": 4}',
    "ca2fl": '{"buffer": 4}',
    "fedfa": '{"buffer": 4}',
    "fedrevive": REVIVED,
}
FAILS = {(1, 1), (4, 2)}
DEVICES = 12


def config(rule, **changes):
    return config_of(
        asynchrony__rule=rule, asynchrony__rule_args=ARGUMENTS.get(rule, ""), asynchrony__concurrency=6,
        asynchrony__evaluate_every_s=0.4, devices__dropout=0.1, devices__availability="markov",
        devices__availability_args='{"on_s": 0.5, "off_s": 0.1}', **changes,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_at_random_events(rule, tmp_path):
    of = config(rule)
    procedure, noted = carried_out(of, DEVICES, fails=FAILS)
    whole, last = outcome(procedure, noted), procedure.clock.events
    for events in random.Random(rule).sample(range(1, last), 5):
        found = stopped_and_gone_on(of, DEVICES, events, tmp_path, fails=FAILS)
        assert outcome(*found) == whole, f"after {events} of {last} events"


def test_with_jobs_cut_short(tmp_path):
    """Jobs under way and updates in the buffer keep their share of the steps."""
    of = config("fedbuff", devices__partial_work=True, train__batch_size=1, asynchrony__timeout_s=0.5)
    procedure, noted = carried_out(of, DEVICES, fails=FAILS)
    whole, last = outcome(procedure, noted), procedure.clock.events
    assert procedure.ledger.total("partial") > 5
    for events in random.Random(2).sample(range(1, last), 4):
        found = stopped_and_gone_on(of, DEVICES, events, tmp_path, fails=FAILS)
        assert outcome(*found) == whole, f"after {events} of {last} events"


def test_in_the_middle_of_a_buffer_with_jobs_in_flight(tmp_path):
    """The checkpoint holds each vector once, and no result of a job that is under way."""
    of = config("fedbuff", asynchrony__max_staleness=3)
    whole = outcome(*carried_out(of, DEVICES, fails=FAILS))
    kept = []
    found = stopped_and_gone_on(
        of, DEVICES, 43, tmp_path, lambda stopped: kept.append(snapshot(stopped)), fails=FAILS
    )
    assert outcome(*found) == whole
    ((groups, facts),) = kept
    assert 0 < len(facts["servers"][0]["buffer"]) < 4
    assert 0 < len(facts["jobs"]) <= 6
    starts = {start[0] for _, start in facts["jobs"]}
    buffered = {number for entry in facts["servers"][0]["buffer"] for number in entry[2:4]}
    assert len(groups["vectors"]) == len(starts | buffered | {facts["servers"][0]["version"][0]})


@pytest.mark.parametrize("option", ["asynchrony.rule", "asynchrony.cloud-rule"])
def test_what_a_rule_keeps_late_and_no_checkpoint_holds_is_named(option):
    """After any trial before the run, and by the option of its own tier."""
    procedure, _ = carried_out(config("fedbuff"), DEVICES)
    server = procedure.servers[0]
    server.rule_label = f"{option} mine:rule"
    server.memory.buffer.append((0.5, 1.0))
    with pytest.raises(ConfigError, match=rf"^{option} mine:rule must keep arrivals in memory\.buffer"):
        snapshot(procedure)


def test_before_the_first_event(tmp_path):
    of = config("fedavg", asynchrony__over_selection=1.5, asynchrony__deadline_s=0.1)
    found = stopped_and_gone_on(of, DEVICES, 0, tmp_path, fails=FAILS)
    assert outcome(*found) == outcome(*carried_out(of, DEVICES, fails=FAILS))


@pytest.mark.parametrize("form", [None, 1])
def test_a_checkpoint_of_another_form_is_refused_in_one_line(form):
    of = config("fedbuff")
    with world(of, DEVICES) as (procedure, _):
        procedure.begin()
        groups, facts = snapshot(procedure)
        others = {name: value for name, value in facts.items() if name != "form"}
        if form is not None:
            others["form"] = form
        with pytest.raises(
            ConfigError, match=r"must be of this version's virtual clock .*start the run again"
        ):
            restore(procedure, groups, others)
