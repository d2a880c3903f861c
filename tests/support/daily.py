"""Cases that `make test` tries of many alike; the rest are in `make extended`."""

from collections.abc import Iterable
from typing import Any

import pytest


def daily(cases: Iterable[Any], chosen: Iterable[Any]) -> list[Any]:
    """All cases as parameters; those that are not chosen are extended."""
    chosen = list(chosen)
    return [
        case if case in chosen else pytest.param(case, marks=pytest.mark.extended, id=str(case))
        for case in cases
    ]
