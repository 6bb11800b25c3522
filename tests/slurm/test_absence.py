"""The service is away, or cannot be reached: programs go on, and their ends and lines arrive later."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.running import running
from tests.slurm.daemons import Slurm
from tests.slurm.test_faults import begin, counting, eventually, numbers, runner_of
from tests.slurm.test_service import ended, lines, submit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def forgetful() -> Iterator[Slurm]:
    """Two seconds after a job has ended, it forgets the job at its next clean-up, which is once in a minute."""
    with Slurm(min_job_age=2) as one:
        yield one


def test_slurm_forgets_jobs_while_the_service_is_away(forgetful: Slurm, place: Path):
    slurm = forgetful
    with running(env={"SLURM_CONF": slurm.environment["SLURM_CONF"]}) as service:
        begin(service, slurm)
        submit(service, "finishes", *counting(place / "finishes", 50, 7))
        submit(service, "killed", "sh", "-c", "echo up; sleep 600")
        submit(service, "cancelled", "sh", "-c", "echo up; sleep 600")
        for name in ("finishes", "killed", "cancelled"):
            eventually(lambda name=name: lines(service, name))
        handles = {
            name: slurm_job(slurm, service.native(f"/jobs/{name}")["id"]) for name in ("killed", "cancelled")
        }
        killed = runner_of(service, "killed")
        service.kill()
        killed.kill()
        slurm.run("scancel", handles["cancelled"])
        slurm.wait(lambda: not known(slurm, *handles.values()), 180)
        begin(service, slurm)
        job = ended(service, "finishes")
        assert job["replicas"][0]["exit_code"] == 7, job
        assert lines(service, "finishes") == numbers(50)
        assert (place / "finishes").read_text() == "run\n"
        for name, handle in handles.items():
            job = ended(service, name)
            assert (job["state"], job["reason"]) == ("failed", "node lost"), job
            # The runner of the cancelled job may have said that it was ended, but Slurm does not know why any more.
            reasons = (f"the cluster does not know {handle} any more", "the cluster ended its runner")
            assert any(reason in job["message"] for reason in reasons), job
            assert lines(service, name) == ["up"]


def slurm_job(slurm: Slurm, job: str) -> str:
    return slurm.run("squeue", "--noheader", f"--name=turnout-{job}.1", "--format=%i").strip()


def known(slurm: Slurm, *handles: str) -> set[str]:
    return set(handles) & set(slurm.run("squeue", "--noheader", "--states=all", "--format=%i").split())


def test_nodes_do_not_reach_the_service_for_a_minute(slurm: Slurm, place: Path):
    """Nor does the service reach Slurm. The nodes and the controller still reach each other."""
    with running(env={"SLURM_CONF": slurm.environment["SLURM_CONF"]}) as service:
        begin(service, slurm)
        submit(service, "ends-meanwhile", *counting(place / "meanwhile", 300, 5))
        submit(service, "goes-on", *counting(place / "goes-on", 800, 6))
        names = {"ends-meanwhile": (300, 5, "meanwhile"), "goes-on": (800, 6, "goes-on")}
        for name in names:
            eventually(lambda name=name: len(lines(service, name)) > 10)
        slurm.hide_service()
        try:
            time.sleep(1)
            before = {name: lines(service, name) for name in names}
            time.sleep(60)
            assert {name: lines(service, name) for name in names} == before
            assert service.native("/jobs/ends-meanwhile")["state"] == "running"
        finally:
            slurm.hide_service(hidden=False)
        for name, (count, code, runs) in names.items():
            job = ended(service, name)
            assert job["replicas"][0]["exit_code"] == code, job
            assert lines(service, name) == numbers(count)
            assert (place / runs).read_text() == "run\n"
    slurm.wait_idle()
