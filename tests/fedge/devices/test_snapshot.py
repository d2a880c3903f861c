"""A run that is stopped between any two events and goes on from a checkpoint ends with the same bits."""

import random

import pytest
from virtual_world import REVIVED, carried_out, config_of, outcome, world

from fedge.config.option import ConfigError
from fedge.config.parts import SERVER_RULES
from fedge.devices.snapshot import restore, snapshot
from fedge.states.checkpoint import read_checkpoint, write_checkpoint

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


def stopped_and_gone_on(of, events, folder, workers=2):
    """Outcome of a run that is stopped after so many events, and resumed in another world."""
    with world(of, DEVICES, fails=FAILS) as (procedure, before):
        procedure.begin()
        procedure.go_on(of.num_server_rounds, events=events)
        path = write_checkpoint(folder, events, *snapshot(procedure))
    checkpoint = read_checkpoint(path)
    with world(of, DEVICES, workers=workers, fails=FAILS) as (procedure, after):
        restore(procedure, checkpoint.groups, checkpoint.facts)
        procedure.go_on(of.num_server_rounds)
    after.rows[:0], after.jobs[:0] = before.rows, before.jobs
    return outcome(procedure, after), checkpoint


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_at_random_events(rule, tmp_path):
    of = config(rule)
    procedure, noted = carried_out(of, DEVICES, fails=FAILS)
    whole, last = outcome(procedure, noted), procedure.clock.events
    for events in random.Random(rule).sample(range(1, last), 5):
        found, _ = stopped_and_gone_on(of, events, tmp_path)
        assert found == whole, f"after {events} of {last} events"


def test_with_jobs_cut_short(tmp_path):
    """Jobs under way and updates in the buffer keep their share of the steps."""
    of = config("fedbuff", devices__partial_work=True, train__batch_size=1, asynchrony__timeout_s=0.5)
    procedure, noted = carried_out(of, DEVICES, fails=FAILS)
    whole, last = outcome(procedure, noted), procedure.clock.events
    assert procedure.ledger.total("partial") > 5
    for events in random.Random(2).sample(range(1, last), 4):
        found, _ = stopped_and_gone_on(of, events, tmp_path)
        assert found == whole, f"after {events} of {last} events"


def test_in_the_middle_of_a_buffer_with_jobs_in_flight(tmp_path):
    """The checkpoint holds each vector once, and no result of a job that is under way."""
    of = config("fedbuff", asynchrony__max_staleness=3)
    whole = outcome(*carried_out(of, DEVICES, fails=FAILS))
    found, checkpoint = stopped_and_gone_on(of, 43, tmp_path)
    assert found == whole
    facts = checkpoint.facts
    assert 0 < len(facts["servers"][0]["buffer"]) < 4
    assert 0 < len(facts["jobs"]) <= 6
    starts = {start[0] for _, start in facts["jobs"]}
    buffered = {number for entry in facts["servers"][0]["buffer"] for number in entry[2:4]}
    assert len(checkpoint.groups["vectors"]) == len(starts | buffered | {facts["servers"][0]["version"][0]})


def test_before_the_first_event(tmp_path):
    of = config("fedavg", asynchrony__over_selection=1.5, asynchrony__deadline_s=0.1)
    assert stopped_and_gone_on(of, 0, tmp_path)[0] == outcome(*carried_out(of, DEVICES, fails=FAILS))


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
            ConfigError, match=r"must be of this version's virtual clock .*begin the run anew"
        ):
            restore(procedure, groups, others)
