"""Common test set beside other options."""

import pytest

from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"asynchrony.rule": "fedbuff", "scaffold.enabled": False, "cluster.enabled": False},
            "evaluate.common needs rounds in which all leaves meet, but asynchrony.rule is fedbuff",
        ),
        (
            {"privacy.kind": "local", "scaffold.enabled": False},
            "lets the server read clients' test windows, but privacy.kind is local",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(changes, words):
    """On the virtual clock; of private clients' windows, but not of a file."""
    given = {"train.model": "linear", "gate.enabled": False, "evaluate.common": "test", **changes}
    with pytest.raises(ConfigError) as refused:
        from_run_config(given)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
    if "privacy.kind" in changes:
        assert from_run_config({**given, "evaluate.common": "own.npz"}).evaluate.common == "own.npz"
