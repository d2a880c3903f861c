"""Choice of the clients that train, beside other options."""

import pytest

from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError

PRIVATE = {"scaffold.enabled": False, "train.model": "cnn-pool", "privacy.kind": "server-fixed"}


@pytest.mark.parametrize(
    ("options", "telling"),
    [
        ({"hierarchy.participation": "2", "hierarchy.fraction-train": 0.5}, "leave one of them out"),
        ({**PRIVATE, "hierarchy.participation": "1: all; 2: 2"}, "the same number of clients in every round"),
        ({**PRIVATE, "hierarchy.participation": "mine:half"}, "the same number of clients in every round"),
        ({**PRIVATE, "hierarchy.selection": "power-of-choice"}, "to be uniform"),
        ({**PRIVATE, "hierarchy.selection": "mine:choose"}, "would tell of clients' data"),
    ],
)
def test_what_cannot_both_be_is_refused(options, telling):
    with pytest.raises(ConfigError) as caught:
        from_run_config(options)
    assert telling in str(caught.value)
    assert "\n" not in str(caught.value)


def test_privacy_takes_a_number_for_each_leaf():
    config = from_run_config({**PRIVATE, "hierarchy.participation": "2,1,2"})
    assert config.hierarchy.participants.number_at(3, 1) == 1
