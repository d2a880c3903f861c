"""Limits of a run, as it reports them."""

from fedge.devices.limits import Limits


def test_training_limits_if_the_loop_waits():
    limits = Limits({"wait": 3.0, "aggregate": 1.0}, 2, 8)
    assert limits.bottleneck == "training"
    assert "waited 75 % of 4 s for its 2 workers; more cores would help, up to 8" in limits.line()


def test_too_few_jobs_at_a_time():
    limits = Limits({"wait": 3.0, "aggregate": 1.0}, 4, 4)
    assert limits.bottleneck == "concurrency"
    assert "asynchrony.concurrency 4" in limits.line()
    assert "for its 1 worker, with no more jobs" in Limits({"wait": 1.0}, 1, 1).line()


def test_the_server_limits_otherwise():
    limits = Limits({"wait": 1.0, "aggregate": 2.0, "record": 1.0}, 2, 8)
    assert limits.bottleneck == "server"
    assert "most on aggregate (2 s)" in limits.line()
    assert limits.facts()["waited"] == 0.25
