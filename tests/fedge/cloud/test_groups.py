"""Both life cycles of groups answer the same questions, so that a step need not know which it has."""

import inspect

import pytest

from fedge.cloud.by_deals import GroupsByDeals
from fedge.cloud.by_method import GroupsByMethod
from fedge.cloud.groups import Groups
from fedge.cloud.memory import CloudMemory
from fedge.config.sections.cluster import ClusterConfig

DEAL = {"signal": "affinity", "method": "agglomerative", "count": "auto", "patience": 2}
ASKED = [name for name in vars(Groups) if not name.startswith("_")]


@pytest.mark.parametrize("kind", [GroupsByDeals, GroupsByMethod])
def test_each_question_has_the_same_arguments(kind):
    assert len(ASKED) > 10
    for name in ASKED:
        wanted, found = vars(Groups)[name], getattr(kind, name, None)
        if inspect.isfunction(wanted):
            assert list(inspect.signature(found).parameters) == list(inspect.signature(wanted).parameters), (
                name
            )


def test_the_deal_test_has_its_own_and_all_else_goes_by_its_method():
    kinds = [
        type(CloudMemory(ClusterConfig(**options)).groups)
        for options in (DEAL, {**DEAL, "count": "2"}, {}, {**DEAL, "enabled": False})
    ]
    assert kinds == [GroupsByDeals, GroupsByMethod, GroupsByMethod, GroupsByMethod]
