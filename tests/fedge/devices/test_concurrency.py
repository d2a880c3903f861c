"""All places are at work as long as somebody is there, however few devices are there at a time."""

import json

import pytest
from virtual_world import carried_out, config_of

PLACES, HOURS, HOUR_S = 10, 6, 3600.0


@pytest.mark.parametrize(
    ("availability", "arguments"),
    [
        *(("diurnal", {"share": share}) for share in (0.3, 0.2, 0.1, 0.05)),
        ("markov", {"on_s": 600.0, "off_s": 5400.0}),
    ],
    ids=["30 %", "20 %", "10 %", "5 %", "10 %, Markov"],
)
def test_concurrency_holds(availability, arguments):
    """1,000 devices and jobs of 60 s; what is under way at the end, at most 0.28 %, is not counted."""
    config = config_of(
        devices__preset="equal", devices__preset_args=json.dumps({"seconds": 60.0}),
        devices__availability=availability, devices__availability_args=json.dumps(arguments),
        asynchrony__concurrency=PLACES, asynchrony__evaluate_every_s=HOUR_S, num_server_rounds=HOURS,
    )  # fmt: skip
    procedure, _ = carried_out(config, 1000)
    busy_s = procedure.ledger.counts["busy_us"].sum() / 1e6
    share = busy_s / (PLACES * HOURS * HOUR_S)
    print(f"{availability} {arguments}: {share:.2%}")
    assert 0.99 <= share <= 1
