"""Groups as a user writes them."""

import pytest

from fedge.config.leaf_groups import static_groups
from fedge.config.registers.option import ConfigError


def test_groups_are_numbered_by_first_appearance():
    assert static_groups(" 4, 1,04 ,2", 4) == [0, 1, 0, 2]
    assert static_groups("", 2) == [0, 0]


@pytest.mark.parametrize("groups", ["0,1", "0,1,x", "0,1,-1", "0,,1", "0,1,99999999999999"])
def test_what_is_no_group_for_every_leaf_is_refused(groups):
    with pytest.raises(
        ConfigError, match=r'whole number for each of 3 children of the cloud.*groups="0,1,0"'
    ):
        static_groups(groups, 3)
