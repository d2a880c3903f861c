"""Cases that `make test` tries of many alike; the rest are in `make extended`.

`FEDGE_DAY=20000 pytest …` draws another day's sample of what no run tries in full; `make soak` draws today's.
Without it the samples are the same on every day: a commit that passed passes again.
"""

import os
from collections.abc import Iterable
from typing import Any

import pytest

DAY = int(os.environ.get("FEDGE_DAY", "0"))


def daily(cases: Iterable[Any], chosen: Iterable[Any]) -> list[Any]:
    """All cases as parameters; those that are not chosen are extended."""
    chosen = list(chosen)
    return [
        case if case in chosen else pytest.param(case, marks=pytest.mark.extended, id=str(case))
        for case in cases
    ]
