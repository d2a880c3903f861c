"""Arguments of Fedge's parts: a value of another type is refused before a run, by the argument's name.

Every argument with a default counts, whether declared in the register or read by the part's own code: a text
is true, and true is 1, so that without a check "no" means yes.
"""

import inspect
import io

import pytest
from small_runs import small_config

from fedge import simulate
from fedge.config.registers import parts
from fedge.config.registers.option import ConfigError

pytestmark = pytest.mark.whole_runs

PLAIN = {"scaffold.enabled": False, "gate.enabled": False, "cluster.enabled": False}
CLOCK = {
    **PLAIN, "asynchrony.rule": "fedbuff", "asynchrony.end-versions": 2, "hierarchy.leaf-rounds": 1,
}  # fmt: skip
IMAGES = {
    **PLAIN, "data.path": "digits", "train.model": "cnn2d", "train.kernel": "torch", "partition.kind": "iid",
    "data.split": "blocks",
}  # fmt: skip
WITH = (
    (parts.SCHEDULES, PLAIN),
    (parts.AUGMENTATIONS, IMAGES),
    (parts.DEVICES, CLOCK),
    (parts.AVAILABILITY, CLOCK),
    (parts.SELECTIONS, CLOCK),
    (parts.CLIENT_SELECTIONS, {**PLAIN, "hierarchy.participation": "2"}),
    (parts.SERVER_RULES, CLOCK),
    (parts.CLIENT_UPLINKS, PLAIN),
    (parts.SERVER_UPLINKS, PLAIN),
    (parts.MOBILITIES, PLAIN),
    (parts.ASSOCIATIONS, {**PLAIN, "partition.kind": "dirichlet", "data.split": "blocks"}),
)
REQUIRED = {"rounds": 9, "at": "2"}
OTHERS = {bool: ("no", 1), int: (2.5, True, "x"), float: (True, "x")}
OF_OPTIONS = {("exponential", "decay")}  # train.lr-decay gives it


def arguments():
    """Wrong values of every argument with a default: option, options beside it, part, its arguments."""
    found = []
    for register, options in WITH:
        for name in register.names:
            code = register.load(name) if register.is_code(name) else None
            known = inspect.signature(code).parameters.values() if code is not None else ()
            for one in known:
                has_default = type(one.default) in OTHERS and (name, one.name) not in OF_OPTIONS
                for wrong in OTHERS[type(one.default)] if has_default else ():
                    needed = {word.name: REQUIRED[word.name] for word in known if word.name in REQUIRED}
                    case = register.option, options, name, {**needed, one.name: wrong}
                    found.append(pytest.param(*case, id=f"{register.option}-{name}-{one.name}-{wrong}"))
    return found


@pytest.mark.parametrize(("option", "options", "name", "given"), arguments())
def test_an_argument_of_another_type_is_refused_by_its_name(tmp_path, option, options, name, given):
    config = {**small_config(tmp_path), **options, option: name}
    config |= {f"{option}-args.{word.replace('_', '-')}": value for word, value in given.items()}
    with pytest.raises(ConfigError) as refused:
        simulate(config, terminal=io.StringIO())
    word = list(given)[-1]
    assert word in str(refused.value).replace("-", "_")
    assert "\n" not in str(refused.value)
