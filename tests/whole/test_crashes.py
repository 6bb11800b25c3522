"""kill -9 of the service and the supervisor at the worst moments: nothing is lost, repeated or started twice."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from tencentcloud.common.exception.tencent_cloud_sdk_exception import TencentCloudSDKException

from tests.running import Service, running, supervisor_pid

pytestmark = pytest.mark.slow

ONCE = 'echo started >> "$PWD/starts"; echo begun; {body}; echo done'


@pytest.fixture(params=["bubblewrap", "none"])
def service(request: pytest.FixtureRequest) -> Iterator[Service]:
    with running(f'[engines.local]\nsandbox = "{request.param}"\n') as one:
        yield one


def submit(service: Service, name: str, body: str) -> None:
    """A job that records each of its starts in its bucket."""
    where = f"cos://b{name}-1250000000.cos.ap-beijing.myqcloud.com/:/data/b"
    service.put(f"cos://b{name}/package")
    service.create(name, "sh", "-c", ONCE.format(body=body), PackageDir=[where])


def starts(service: Service, name: str) -> int:
    path = service.data / f"buckets/b{name}/starts"
    return len(path.read_text().splitlines()) if path.exists() else 0


def kill_supervisor(service: Service) -> None:
    pid = supervisor_pid(service.data)
    assert pid, "there is a supervisor"
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("round_", range(3))
def test_fifty_running_jobs_survive_the_service(round_: int) -> None:
    """Each job still runs or has its true exit code, no line is missing or repeated, and nothing starts twice."""
    with running('[engines.local]\novercommit = 100\nsandbox = "none"\n') as service:
        service.start()
        program = "i=0; while [ $i -lt 30 ]; do echo line $i; i=$((i+1)); sleep 0.0{pause}; done; exit {code}"
        for n in range(50):
            submit(service, f"job-{n}", "(" + program.format(pause=n % 5 + 2, code=n % 7) + ")")
        # Some have ended, most are running, a few lines are out.
        time.sleep(0.3 * round_)
        service.kill()
        time.sleep(0.3 * round_)
        service.start()
        for n in range(50):
            job = service.wait(f"job-{n}")
            assert job["replicas"][0]["exit_code"] == 0, job
            assert starts(service, f"job-{n}") == 1
            lines = [log.Log for log in service.logs(f"job-{n}")]
            assert lines == ["begun", *(f"line {i}" for i in range(30)), "done"]


@pytest.mark.parametrize("place", ["control.decided", "control.committed", "control.acted", "engine.sent"])
def test_the_service_is_killed_while_it_accepts_a_job(service: Service, place: str) -> None:
    service.start(TURNOUT_KILL_AT=place, wait=False)
    _create_until_dead(service)
    service.wait_for_death()
    service.start()
    if place == "control.decided":
        with pytest.raises(TencentCloudSDKException, match="ResourceNotFound"):
            service.describe("one")
        assert starts(service, "one") == 0
        return
    job = service.wait("one")
    assert (job["state"], job["replicas"][0]["exit_code"]) == ("succeeded", 0)
    assert starts(service, "one") == 1
    assert [log.Log for log in service.logs("one")] == ["begun", "done"]


def _create_until_dead(service: Service) -> None:
    """The service dies in its first turn with something to do. If that is this create, there is no response."""
    service.wait_until_up()
    with pytest.raises(TencentCloudSDKException, match="ClientNetworkError"):
        submit(service, "one", "sleep 0.5")


def test_the_service_is_killed_during_a_stop(service: Service) -> None:
    service.start()
    submit(service, "stubborn", "trap 'echo asked' TERM; while :; do sleep 0.1; done")
    service.wait("stubborn", "started")
    job_id = service.native("/jobs/stubborn")["id"]
    service.kill()
    service.start(TURNOUT_KILL_AT="control.committed", wait=False)
    service.wait_until_up()
    with pytest.raises(TencentCloudSDKException, match="ClientNetworkError"):
        service.delete("stubborn")
    service.wait_for_death()
    service.start()
    _until(lambda: not list((service.data / "attempts").glob(f"{job_id}.*")))
    with pytest.raises(TencentCloudSDKException, match="ResourceNotFound"):
        service.describe("stubborn")


def test_the_supervisor_is_killed(service: Service) -> None:
    service.start()
    submit(service, "orphan", "sleep 2; exit 5")
    service.wait("orphan", "started")
    kill_supervisor(service)
    job = service.wait("orphan")
    assert starts(service, "orphan") == 1
    assert job["replicas"][0]["exit_code"] == 5, "the sandbox's status file or the kernel knows it"
    submit(service, "next", "true")
    assert service.wait("next")["state"] == "succeeded"


@pytest.mark.parametrize("place", ["supervisor.claimed", "supervisor.spawned", "supervisor.ending"])
def test_the_supervisor_is_killed_at_a_critical_point(service: Service, place: str) -> None:
    service.start(TURNOUT_KILL_AT=place)
    submit(service, "one", "sleep 1")
    job = service.wait("one")
    assert starts(service, "one") == 1, "one that was claimed and never began is started again"
    if place == "supervisor.ending" and job["reason"] == "node lost":
        assert job["replicas"][0]["exit_code"] is None, (
            "the code was taken from the kernel and not yet written down"
        )
        assert "none" in service.config.read_text(), "in a sandbox the status file has it"
    else:
        assert (job["state"], job["replicas"][0]["exit_code"]) == ("succeeded", 0)


def test_both_are_killed_at_once(service: Service) -> None:
    service.start()
    submit(service, "orphan", "sleep 2; exit 5")
    service.wait("orphan", "started")
    kill_supervisor(service)
    service.kill()
    service.start()
    job = service.wait("orphan")
    assert starts(service, "orphan") == 1
    assert job["state"] == "failed"
    assert job["replicas"][0]["exit_code"] == 5


def test_both_are_killed_and_the_job_ends_before_they_restart(service: Service) -> None:
    service.start()
    submit(service, "orphan", "sleep 0.7; exit 5")
    service.wait("orphan", "started")
    kill_supervisor(service)
    service.kill()
    time.sleep(1.5)
    service.start()
    job = service.wait("orphan")
    assert starts(service, "orphan") == 1
    assert job["state"] == "failed"
    if job["reason"] == "node lost":
        assert job["replicas"][0]["exit_code"] is None, "never a guess"
    else:
        assert job["replicas"][0]["exit_code"] == 5


def test_answered_creates_survive_a_kill_under_load() -> None:
    with running('[engines.local]\nsandbox = "none"\n') as service:
        service.start()
        answered: list[str] = []

        def create(worker: int) -> None:
            for n in range(1000):
                try:
                    service.create(f"w{worker}-{n}", "true")
                except TencentCloudSDKException:
                    return
                answered.append(f"w{worker}-{n}")

        threads = [threading.Thread(target=create, args=(worker,)) for worker in range(4)]
        for thread in threads:
            thread.start()
        _until(lambda: len(answered) > 60)
        service.kill()
        for thread in threads:
            thread.join()
        service.start()
        for name in answered:
            assert service.wait(name)["state"] == "succeeded"


def _until(happened: Callable[[], bool], seconds: float = 30) -> None:
    """Polls, because no event tells when files have been removed."""
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)
