"""The records of attempts on disk."""

from pathlib import Path

from turnout.engines.remote import needed_runners
from turnout.engines.remote.records import Accepted, Launched, Records
from turnout.job import Attempt, Launch, Program, Role, Spec

LAUNCH = Launch(
    Attempt(7, 1), "default", "tia", "job", Spec((Role("master", Program(("true",)), leads=True),))
)


def test_the_runners_that_gangs_may_still_fetch(tmp_path: Path):
    assert needed_runners(tmp_path) == set()
    for cluster, number, runner in (("gpu", 1, "a" * 64), ("gpu", 2, "b" * 64), ("cpu", 3, "b" * 64)):
        records = Records(tmp_path / cluster)
        records.prepare()
        records.of(Attempt(number, 1)).append(Launched(LAUNCH, "token", 5, runner), Accepted("12"))
    assert needed_runners(tmp_path) == {"a" * 64, "b" * 64}


def test_a_gang_of_an_earlier_version_may_need_any(tmp_path: Path):
    records = Records(tmp_path / "gpu")
    records.prepare()
    records.of(LAUNCH.attempt).append(Launched(LAUNCH, "token"))
    assert needed_runners(tmp_path) is None
