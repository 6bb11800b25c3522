"""A gang larger than the machine runs, and so do the jobs after it."""

import os

from tests.running import running


def test_a_gang_of_nine_runs_where_eight_cpus_are_promised() -> None:
    promised = 8 / len(os.sched_getaffinity(0))
    with running(f'[engines.local]\novercommit = {promised}\nsandbox = "none"\n') as service:
        service.start()
        small = "1U1G0P"
        service.create(
            "nine",
            "true",
            ScaleTier="CUSTOM",
            MasterType=small,
            WorkerType=small,
            WorkerCount=8,
        )
        service.create("next", "true", ScaleTier="CUSTOM", MasterType=small)
        assert service.wait("nine")["state"] == "succeeded"
        assert service.wait("next")["state"] == "succeeded"
