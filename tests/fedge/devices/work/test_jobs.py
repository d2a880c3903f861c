"""A job is plain but for its model, and known to its end when it begins."""

import json
from dataclasses import replace

import numpy as np

from fedge.devices.servers.vectors import version_of
from fedge.devices.work.jobs import Job, restore_job
from fedge.states.memory import KeptVersion

JOB = Job(3, 7, 0, 2, 1, 4, 100, 250, 120, 230, "trains", version_of({"w": np.zeros(1, np.float32)}))


def test_a_job_is_its_facts_and_its_model():
    assert restore_job(json.loads(json.dumps(JOB.facts())), JOB.start) == JOB


def test_one_that_is_cut_short_keeps_how_short():
    cut = replace(JOB, steps=3, of_steps=12)
    assert restore_job(json.loads(json.dumps(cut.facts())), JOB.start) == cut
    assert cut.share == 0.25
    assert len(JOB.facts()) == len(cut.facts()) - 2  # checkpoints of other runs are as they were


def test_the_version_of_memory_is_among_the_facts():
    for job in (
        replace(JOB, kept=KeptVersion(4, "ab", 9)),
        replace(JOB, steps=3, of_steps=12, kept=KeptVersion(1, "", 0)),
    ):
        assert restore_job(json.loads(json.dumps(job.facts())), JOB.start) == job


def test_a_job_that_is_stopped_ends_earlier_and_is_late():
    assert JOB.busy_us == 150
    assert JOB.stopped(200).busy_us == 100
    assert JOB.stopped(300).end_us == 250
    assert JOB.stopped(200).fate == "late"
