"""Checkpoints of the virtual clock that no procedure of this world has given are refused."""

import copy

import pytest
from virtual_world import config_of, world

from fedge.devices.restoring import refuse_foreign_facts
from fedge.devices.snapshot import snapshot


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda facts: facts["clock"]["ahead"][0].__setitem__(0, -1), "the time of an event must be"),
        (lambda facts: facts["clock"]["ahead"][0].__setitem__(2, 99), "this run's servers and devices"),
        (lambda facts: facts["clock"].update(ahead=[]), "an evaluation must be ahead"),
        (lambda facts: facts.update(begun=-1), "jobs begun must be"),
        (lambda facts: facts["choosing"]["rosters"][0]["there"].pop(), "idle devices of a leaf must be"),
        (lambda facts: facts["ledger"]["moved"].update(up=-1), "bytes up must be"),
        (lambda facts: facts["moved_before"].update(up=-1), "bytes up must be"),
        (lambda facts: facts["ledger"]["losses"].append([99, 0.5]), "must be of this run's devices"),
    ],
)
def test_facts_of_nobody(change, words):
    of = config_of(
        asynchrony__rule="fedbuff", asynchrony__rule_args='{"buffer": 4}', asynchrony__concurrency=6
    )
    with world(of, 12) as (procedure, _):
        procedure.begin()
        _, facts = snapshot(procedure)
        refuse_foreign_facts(procedure, facts)
        forged = copy.deepcopy(facts)
        change(forged)
        with pytest.raises(ValueError, match=words) as refused:
            refuse_foreign_facts(procedure, forged)
        assert "\n" not in str(refused.value)


def test_bytes_before_are_all_there():
    """The next evaluation takes them from those of now, one by one."""
    with world(config_of(asynchrony__rule="fedbuff"), 12) as (procedure, _):
        procedure.begin()
        _, facts = snapshot(procedure)
        with pytest.raises(KeyError, match="'up'"):  # told as missing by `refusing_impossible_values`
            refuse_foreign_facts(procedure, {**facts, "moved_before": {}})
