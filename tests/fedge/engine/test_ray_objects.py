"""Windows in Ray's object store; clients find them there in runs/engines/test_ray_cluster.py."""

import pytest

from fedge.engine.ray_objects import take


def test_a_process_that_is_no_worker_of_rays_unpickles_nothing():
    """A SuperNode would otherwise run what any server sends it."""
    with pytest.raises(RuntimeError, match="this process is not a Ray worker"):
        take("gASVAAAAAAAAAAA=")
