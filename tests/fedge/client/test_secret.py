"""A client's secret: drawn once, its own, kept where workers find it."""

import copy
from concurrent.futures import ThreadPoolExecutor

from flwr.app import Context, RecordDict

from fedge.client.secret import secret_of


def a_node(number=1):
    return Context(1, number, {"partition-id": number}, RecordDict(), {})


def test_every_node_has_its_own_for_good():
    first, second = a_node(), a_node(2)
    assert len(secret_of(first)) == 32
    assert secret_of(first) == secret_of(first) != secret_of(second)


def test_a_copy_of_its_state_has_it():
    """As workers of Ray and SuperNodes get it, once it was drawn."""
    node = a_node()
    secret = secret_of(node)
    assert secret_of(copy.deepcopy(node)) == secret


def test_threads_that_draw_at_once_draw_one():
    for _ in range(50):
        node = a_node()
        with ThreadPoolExecutor(8) as pool:
            assert len(set(pool.map(lambda _, node=node: secret_of(node), range(8)))) == 1
