"""A job is plain but for its model, and known to its end when it begins."""

import json

import numpy as np

from fedge.devices.jobs import Job, restored
from fedge.devices.vectors import version_of

JOB = Job(3, 7, 0, 2, 1, 4, 100, 250, 120, 230, "trains", version_of({"w": np.zeros(1, np.float32)}))


def test_a_job_is_its_facts_and_its_model():
    assert restored(json.loads(json.dumps(JOB.facts())), JOB.start) == JOB


def test_a_job_that_is_stopped_ends_earlier_and_is_late():
    assert JOB.busy_us == 150
    assert JOB.stopped(200).busy_us == 100
    assert JOB.stopped(300).end_us == 250
    assert JOB.stopped(200).fate == "late"
