"""Options that a refusal proposes with -c can be pasted, and are accepted beside those refused."""

import shlex
from itertools import combinations

import pytest

from fedge.config.contradictions import _ROUNDS_ONLY
from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError
from fedge.launch.projects.project import Project

ON_THE_CLOCK = {
    "asynchrony.rule": "fedbuff", "clients": 9, "hierarchy.num-servers": 3, "scaffold.enabled": False,
    "gate.enabled": False, "cluster.enabled": False,
}  # fmt: skip
REFUSED = {
    "scaffold.enabled": {"scaffold.enabled": True},
    "cluster.blend": {"cluster.enabled": True, "cluster.blend": 0.5},
    "a single leaf": {"cluster.enabled": True, "hierarchy.num-servers": 1},
    "groups said and found": {"cluster.enabled": True, "asynchrony.groups": "0,0,1"},
    "evaluate.every": {"evaluate.every": 2},
    "gate.enabled": {"gate.enabled": True},
    "personal.leaf-rounds": {"personal.leaf-rounds": 1},
    "personal.layers": {"personal.layers": "head"},
    "leaf.strategy": {"leaf.strategy": "fedmedian"},
    "cloud.rule": {"cloud.rule": "fedmedian"},
    "hierarchy.leaf-rounds": {"hierarchy.leaf-rounds": 2},
    "hierarchy.region-rounds": {"hierarchy.tree": "3x1x3", "hierarchy.region-rounds": "2"},
    "hierarchy.fraction-train": {"hierarchy.fraction-train": 0.5},
    "hierarchy.participation": {"hierarchy.participation": "2"},
    "hierarchy.selection": {"hierarchy.selection": "by-size"},
    "guard.min-clients": {"guard.min-clients": 2},
    "guard.max-norm-factor": {"guard.max-norm-factor": 2.0},
    "too few devices": {"gate.enabled": True, "clients": 6},
}
PAIRS = [*((one,) for one in REFUSED), *combinations(REFUSED, 2)]


def pasted(error):
    """Text after the last -c of a refusal, as a shell reads it."""
    return shlex.split(str(error)[str(error).rindex("-c '") :])[1]


@pytest.mark.parametrize("names", PAIRS, ids=" and ".join)
def test_options_proposed_on_the_virtual_clock_are_accepted(tmp_path, names):
    options = dict(ON_THE_CLOCK)
    for name in names:
        options |= REFUSED[name]
    if options["hierarchy.num-servers"] == 1:
        options["asynchrony.groups"] = options.get("asynchrony.groups") and "0"
        options.pop("hierarchy.tree", None)
    options = {key: value for key, value in options.items() if value is not None}
    with pytest.raises(ConfigError) as refused:
        from_run_config(options)
    if "-c '" not in str(refused.value):  # two that never go together
        with pytest.raises(ConfigError):
            from_run_config({**options, "asynchrony.rule": "off"})
        return
    text = pasted(refused.value)
    keys = [word.partition("=")[0] for word in shlex.split(text)]
    remedy = Project(tmp_path).run_config([text])
    from_run_config({**options, **{key: remedy[key] for key in keys}})


def test_every_refusal_of_a_part_that_needs_rounds_is_among_them():
    assert len(_ROUNDS_ONLY) == len(REFUSED) - 1  # the last is of the number of devices
