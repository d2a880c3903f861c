"""The register of engines."""

import pytest

from fedge.config.registers.engines import CHOICES, FLOWER, IN_PROCESS, LEAVES, engine_argument, engine_kind
from fedge.config.registers.option import ConfigError


def test_an_engine_is_found_under_its_name() -> None:
    assert [engine_kind(kind.name) for kind in (IN_PROCESS, FLOWER, LEAVES)] == [IN_PROCESS, FLOWER, LEAVES]


def test_leaf_servers_are_asked_for_by_another_option() -> None:
    assert CHOICES == ("inprocess", "flower")


def test_an_unknown_engine_is_refused_in_one_line() -> None:
    with pytest.raises(ConfigError, match="engine must be one of inprocess, flower, leaves, but is 'spark'"):
        engine_kind("spark")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["fedge", "run", "--engine", "flower"], FLOWER),
        (["fedge", "run", "--engine=flower", "."], FLOWER),
        (["fedge", "run", "--engine", "inprocess", "flower"], IN_PROCESS),
        (["fedge", "run", "flower"], None),
        ([], None),
        (["fedge", "run", "--engine"], None),
        (["fedge", "run", "--engine", "spark"], None),
    ],
)
def test_an_engine_is_read_off_a_command_line(words: list[str], found: object) -> None:
    assert engine_argument(words) is found
