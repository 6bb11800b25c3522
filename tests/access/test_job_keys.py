"""Keys of running jobs."""

import stat
from pathlib import Path

import pytest

from turnout.access import JobKeys, Key, Keys
from turnout.access.job_keys import attempt_of, open_secret
from turnout.errors import Unauthenticated
from turnout.job import Attempt

JOB, OTHER = Attempt(1882316917588361216, 1), Attempt(1882316917588361217, 1)


@pytest.fixture
def keys() -> JobKeys:
    made = JobKeys(Keys(Key("AKIDroot", "secret", "default", root=True)), b"s" * 32)
    made.project = lambda attempt: {JOB: "vision", OTHER: "audio"}.get(attempt, "")
    return made


def test_a_key_opens_its_own_project(keys: JobKeys):
    made = keys.make(JOB)
    found = keys.find(made.id)
    assert found
    assert (found.secret, found.project, found.root) == (made.secret, "vision", False)
    assert keys.check_token(made.token) == (JOB, "vision")
    assert keys.at_address(made.address) == JOB
    assert keys.accepts_session(made.id, made.session)


def test_all_parts_differ_between_jobs_and_attempts(keys: JobKeys):
    made = [keys.make(attempt) for attempt in (JOB, OTHER, Attempt(JOB.job, 2))]
    parts = [part for key in made for part in key]
    assert len(set(parts)) == len(parts)


def test_a_key_ends_with_its_attempt(keys: JobKeys):
    retried = Attempt(JOB.job, 2)
    keys.project = lambda attempt: "vision" if attempt == retried else ""
    made = keys.make(JOB)
    assert keys.find(made.id) is None
    assert keys.at_address(made.address) is None
    with pytest.raises(Unauthenticated, match="ends with its job"):
        keys.check_token(made.token)
    assert keys.check_token(keys.make(retried).token) == (retried, "vision")


def test_what_is_not_right_is_refused(keys: JobKeys):
    made, other = keys.make(JOB), keys.make(OTHER)
    for token in (made.token[:-1] + "x", made.token + "0", "tj1.", "tj1.1.1.é", "tj1." + other.address):
        with pytest.raises(Unauthenticated):
            keys.check_token(token)
    for address in ("", "1.1", made.address + "0", f"{JOB}.{other.address.rpartition('.')[2]}", f"{JOB}.é"):
        assert keys.at_address(address) is None
    assert not keys.accepts_session(made.id, other.session)
    assert not keys.accepts_session(made.id, "é")


def test_a_gang_does_not_see_the_keys_of_others(keys: JobKeys):
    own = keys.only(JOB)
    assert own.find(keys.make(JOB).id)
    assert own.find(keys.make(OTHER).id) is None
    assert own.find("AKIDroot")


def test_ids_that_are_not_of_jobs(keys: JobKeys):
    assert attempt_of("AKIDroot") is None
    assert attempt_of("JOB1A") is None
    assert keys.find("AKIDroot") == keys.root
    assert keys.accepts_session("AKIDroot", "anything")


def test_requests_with_the_key_of_an_ended_job_end(keys: JobKeys):
    key_id = keys.make(JOB).id
    with keys.watch(key_id) as ended, keys.watch(keys.make(OTHER).id) as of_other:
        keys.job_changed(JOB.job)
        assert not ended.is_set()
        keys.project = lambda attempt: ""
        keys.job_changed(JOB.job)
        assert ended.is_set()
        assert not of_other.is_set()


def test_the_secret_is_kept_in_a_private_file(tmp_path: Path):
    path = tmp_path / "job-secret"
    secret = open_secret(path)
    assert len(secret) == 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    assert open_secret(path) == secret
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["job-secret"]
