"""kill -9, of the service and of the keeper, wherever it hurts: nothing is lost, doubled or started twice."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from tencentcloud.common.exception.tencent_cloud_sdk_exception import TencentCloudSDKException

from tests.running import Service, keeper_pid, running

pytestmark = pytest.mark.slow

ONCE = 'echo started >> "$PWD/starts"; echo begun; {body}; echo done'


@pytest.fixture(params=["bubblewrap", "none"])
def service(request: pytest.FixtureRequest) -> Iterator[Service]:
    with running(f'[engines.local]\nsandbox = "{request.param}"\n') as one:
        yield one


def submit(service: Service, name: str, body: str) -> None:
    """A job that writes down in its bucket each time it is started."""
    where = f"cos://b{name}-1250000000.cos.ap-beijing.myqcloud.com/:/data/b"
    service.create(name, "sh", "-c", ONCE.format(body=body), PackageDir=[where])


def starts(service: Service, name: str) -> int:
    path = service.data / f"buckets/b{name}/starts"
    return len(path.read_text().splitlines()) if path.exists() else 0


def kill_keeper(service: Service) -> None:
    pid = keeper_pid(service.data)
    assert pid, "there is a keeper"
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("round_", range(3))
def test_fifty_running_jobs_survive_the_service(round_: int) -> None:
    """Each is still running or has its true exit code; no line is missing or doubled; nothing starts twice."""
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
def test_killed_on_the_way_from_accepting_to_recording(service: Service, place: str) -> None:
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
    """The service dies at its first turn with something to do, which may be this create: then there is no answer."""
    service.wait_until_up()
    with pytest.raises(TencentCloudSDKException, match="ClientNetworkError"):
        submit(service, "one", "sleep 0.5")


def test_killed_during_a_stop(service: Service) -> None:
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


def test_the_keeper_is_killed(service: Service) -> None:
    service.start()
    submit(service, "orphan", "sleep 2; exit 5")
    service.wait("orphan", "started")
    kill_keeper(service)
    job = service.wait("orphan")
    assert starts(service, "orphan") == 1
    assert job["replicas"][0]["exit_code"] == 5, "the sandbox's status file or the kernel knows it"
    submit(service, "next", "true")
    assert service.wait("next")["state"] == "succeeded"


@pytest.mark.parametrize("place", ["keeper.claimed", "keeper.spawned", "keeper.ending"])
def test_the_keeper_is_killed_on_its_way(service: Service, place: str) -> None:
    service.start(TURNOUT_KILL_AT=place)
    submit(service, "one", "sleep 1")
    job = service.wait("one")
    assert starts(service, "one") <= 1
    if place == "keeper.claimed":
        assert (job["state"], job["reason"]) == ("failed", "node lost"), "it may have run; nobody can know"
        return
    assert starts(service, "one") == 1
    if place == "keeper.ending" and job["reason"] == "node lost":
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
    kill_keeper(service)
    service.kill()
    service.start()
    job = service.wait("orphan")
    assert starts(service, "orphan") == 1
    assert job["state"] == "failed"
    assert job["replicas"][0]["exit_code"] == 5


def test_both_are_killed_and_the_job_ends_before_they_are_back(service: Service) -> None:
    service.start()
    submit(service, "orphan", "sleep 0.7; exit 5")
    service.wait("orphan", "started")
    kill_keeper(service)
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


def test_creates_that_were_answered_are_there_after_a_kill_in_full_flight() -> None:
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
    """For what no event tells: what is left on disk after everyone has let go."""
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)
