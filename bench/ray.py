"""Gangs of one second on a real Ray: through the service, and the same actors by a bare Ray script.

Also what the service needs more memory for, with the engine configured. The first run installs Ray.
"""

import statistics
import time
from pathlib import Path

import psutil

from bench.client import flood
from bench.floor import Floor
from bench.service import Service, running
from bench.table import Row, Table
from tests.ray.daemons import Ray

SLEEP = ("python", "-c", "import time; time.sleep(1)")
MACHINE = "1U1G0P"

# As the service does it: a placement group for each gang, a detached actor in it, and a process below the actor.
SCRIPT = """
import subprocess, sys, time
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as Strategy

class Actor:
    def run(self):
        return subprocess.run(["python3", "-c", "import time; time.sleep(1)"]).returncode

gangs = {}
began = time.perf_counter()
for number in range(int(sys.argv[1])):
    bundle = {"CPU": 1, "memory": 1 << 30}
    group = ray.util.placement_group([bundle], name=f"bare-{number}", lifetime="detached")
    options = {"num_cpus": 1, "memory": 1 << 30, "lifetime": "detached", "name": f"bare-{number}", "max_restarts": 0}
    actor = ray.remote(Actor).options(scheduling_strategy=Strategy(group, 0), **options).remote()
    gangs[actor.run.remote()] = group
while gangs:
    [done], _ = ray.wait(list(gangs), num_returns=1)
    assert ray.get(done) == 0
    ray.util.remove_placement_group(gangs.pop(done))
print(time.perf_counter() - began)
"""


def ray(table: Table, directory: Path, floor: Floor) -> None:
    count, rounds = (10, 1) if table.quick else (30, 3)
    step = table.steps("ray", 2 * rounds + 1)
    ours, bare = list[float](), list[float]()
    with Ray() as cluster:
        where = f'address = "{cluster.address}"\npython = "{cluster.python}"\n'
        settings = f'[clusters.ap-beijing]\nengine = "ray"\n{where}'
        with running(directory / "without") as service:
            without = _resident(service)
        with running(directory / "service", settings=settings) as service:
            cluster.wait(lambda: _bridge(service))
            _run_gangs(service, "warm-up", 4)
            step()
            for number in range(rounds):
                bare.append(float(cluster.run(SCRIPT, str(count))))
                step()
                ours.append(_run_gangs(service, f"round-{number}", count))
                cluster.wait(lambda: not cluster.groups())
                step()
            bridge = _bridge(service)
        with running(directory / "with", settings=settings) as service:
            cluster.wait(lambda: _bridge(service))
            more = _resident(service) - without
    what = f"{count} one-second gangs on Ray, to the same actors by a script"
    table.add(Row("ray", what, statistics.median(ours), "s", statistics.median(bare), target=1.2))
    table.add(
        Row("ray", "the service with the engine, beyond without", more, "MB", target=15, judged="measured")
    )
    table.add(Row("ray", "the bridge process: resident", bridge, "MB", judged="measured"))


def _run_gangs(service: Service, prefix: str, count: int) -> float:
    """Seconds from the first request until the last has ended."""
    names = [f"{prefix}-{number}" for number in range(count)]
    before = time.perf_counter()
    flood(service.port, [service.requests.create(name, SLEEP, MACHINE) for name in names])
    for name in names:
        service.wait(name)
    return time.perf_counter() - before


def _resident(service: Service) -> float:
    """MB, after it has come to rest."""
    assert service.process is not None
    time.sleep(3)
    return psutil.Process(service.process.pid).memory_info().rss / 1e6


def _bridge(service: Service) -> float:
    """MB of the bridge; 0 if it is not there yet."""
    assert service.process is not None
    for child in psutil.Process(service.process.pid).children():
        if any("ray_bridge" in part for part in child.cmdline()):
            return child.memory_info().rss / 1e6
    return 0
