"""What kills, lost nodes and a lost head do to jobs: each runs once, ends as it ended, and loses no line."""

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.dialects.modelarts.driving import Cloud as Huawei
from tests.ray.daemons import Ray
from tests.ray.test_service import CLUSTER, CONFIG, ended, lines, submit
from tests.running import Service, running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

COUNT = """\
import sys, time
with open({runs!r}, "a") as file:
    file.write("run\\n")
for i in range({lines}):
    print(i, flush=True)
    time.sleep(0.1)
sys.exit({code})
"""


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A directory that programs see too: their /tmp is their own."""
    with tempfile.TemporaryDirectory(prefix="turnout-faults-", dir="/var/tmp") as directory:
        yield Path(directory)


@pytest.fixture(scope="module")
def service(ray: Ray) -> Iterator[Service]:
    with running(config=CONFIG.format(ray=ray)) as one:
        yield one.start()


def counting(runs: Path, lines: int, code: int) -> tuple[str, ...]:
    return ("python", "-c", COUNT.format(runs=str(runs), lines=lines, code=code))


def numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def eventually(condition: Callable[[], Any], seconds: float = 120) -> Any:
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.1)
    return found


def bridges(service: Service) -> list[psutil.Process]:
    assert service.process is not None
    children = psutil.Process(service.process.pid).children()
    return [child for child in children if any("ray_bridge" in part for part in child.cmdline())]


def runner_of(service: Service, name: str, which: str = "master-0") -> psutil.Process:
    address = f"{CLUSTER}/{service.native(f'/jobs/{name}')['id']}.1/{which}"
    for process in psutil.process_iter():
        try:
            line = process.cmdline()
            if line[-1:] == [address] and "-c" not in line:
                return process
        except psutil.Error:
            continue
    raise AssertionError(f"no process has the argument {address}")


def test_a_bridge_that_is_killed_again_and_again(service: Service, ray: Ray, place: Path):
    runs = place / "bridge"
    for number in range(3):
        # Two nodes of four CPUs: the third waits on Ray while the bridge is killed.
        large = {"ScaleTier": "CUSTOM", "MasterType": "4U1G0P"}
        submit(service, f"bridge-{number}", *counting(runs, 30, 5), **large)
        for bridge in bridges(service):
            bridge.kill()
        time.sleep(0.7)
    for number in range(3):
        job = ended(service, f"bridge-{number}")
        assert job["replicas"][0]["exit_code"] == 5, job
        assert lines(service, f"bridge-{number}") == numbers(30)
    assert runs.read_text() == "run\n" * 3
    eventually(lambda: not ray.groups())


def test_a_killed_service_finds_everything_again(service: Service, place: Path):
    runs = place / "service"
    submit(service, "survivor", *counting(runs, 50, 7))
    service.wait("survivor", "started", 120)
    service.kill()
    time.sleep(2)
    service.start()
    job = ended(service, "survivor")
    assert job["replicas"][0]["exit_code"] == 7
    assert lines(service, "survivor") == numbers(50)
    assert runs.read_text() == "run\n"


def test_an_actor_that_is_killed_by_hand_is_a_stop_from_outside(service: Service, ray: Ray, place: Path):
    beat = place / "beat"
    submit(service, "killed", "sh", "-c", f"echo up; (while sleep 0.1; do date +%N > {beat}; done); true")
    eventually(beat.exists)
    name = f"turnout-{service.native('/jobs/killed')['id']}.1/master-0"
    ray.run("ray.kill(ray.get_actor(sys.argv[1]))", name)
    job = ended(service, "killed")
    assert (job["state"], "killed by `ray.kill`" in job["message"]) == ("stopped", True), job
    last = beat.read_text()
    time.sleep(1)
    assert beat.read_text() == last, "its program went on"


def test_a_worker_process_and_a_runner_that_are_killed(service: Service, place: Path):
    """Also daemons of the program end with them."""
    kills = {"worker": lambda runner: runner.parent().parent().kill(), "runner": psutil.Process.kill}
    beats = {name: place / f"beat-{name}" for name in kills}
    for name, beat in beats.items():
        loop = f"(while sleep 0.1; do date +%N > {beat}; done)"
        submit(service, f"lost-{name}", "sh", "-c", f"echo up; setsid sh -c '{loop}' & sleep 600")
    for name, kill in kills.items():
        eventually(beats[name].exists)
        kill(runner_of(service, f"lost-{name}"))
    for name, beat in beats.items():
        job = ended(service, f"lost-{name}")
        assert (job["state"], job["reason"]) == ("failed", "node lost"), job
        last = beat.read_text()
        time.sleep(1)
        assert beat.read_text() == last, "a daemon of its program went on"


def test_a_node_that_is_lost_under_a_gang(service: Service, ray: Ray):
    huawei = Huawei(service)
    program = 'echo attempt $MA_SCHEDULE_CNT; [ "$MA_SCHEDULE_CNT" -gt 1 ] || sleep 600'
    made = huawei.create(
        "node-lost",
        program,
        metadata={"annotations": {"fault-tolerance/job-retry-num": "1"}},
        spec={"resource": {"pool_id": "pool-ray", "node_count": 2}},
    ).metadata.id
    for task in ("worker-0", "worker-1"):
        huawei.wait_for(made, "attempt 1", task, 120)
    lost = ray.workers[0]
    ray.kill(lost)
    ray.start(lost)
    job = ended(service, "node-lost")
    assert job["state"] == "succeeded", job
    first, second = huawei.details(made).status.running_records
    assert first.recover_records[0].fault_scenario == "node_fault", first
    assert second.end_reason == "job completed"


def test_a_head_that_is_lost(place: Path):
    """Without a store of its own, Ray loses everything with its head. The next head is an empty cluster."""
    with Ray(workers=1) as ray, running(config=CONFIG.format(ray=ray)) as service:
        service.start()
        runs = place / "head"
        submit(service, "headless", *counting(runs, 3000, 5))
        eventually(lambda: len(lines(service, "headless")) > 3)
        ray.process(ray.head, "gcs_server").kill()
        job = ended(service, "headless")
        assert (job["state"], job["reason"]) == ("failed", "node lost"), job
        assert "cannot be asked why: " in job["message"], job
        said = lines(service, "headless")
        assert said == numbers(len(said))
        clusters = {one["name"]: one["trouble"] for one in service.native("/clusters")["clusters"]}
        assert clusters[CLUSTER].startswith(("Ray", "the bridge to Ray")), clusters
        for node in reversed(ray.nodes):
            ray.kill(node.address)
        for node in ray.nodes:
            ray.start(node.address)
        submit(service, "after", *counting(runs, 1, 6))
        assert ended(service, "after")["replicas"][0]["exit_code"] == 6
        assert runs.read_text() == "run\n" * 2


def test_a_bridge_ends_with_its_service(service: Service):
    """Nothing is left on this machine, whatever killed the service."""
    found = eventually(lambda: bridges(service))
    assert service.process is not None
    os.kill(service.process.pid, signal.SIGKILL)
    service.process.wait()
    gone, alive = psutil.wait_procs(found, timeout=30)
    assert (len(gone), alive) == (len(found), [])
    service.start()
