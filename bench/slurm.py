"""Python programs that sleep for a second, on a real Slurm of four nodes: through the service, and by plain sbatch.

Needs root, and Slurm's daemons (Debian: slurmctld, slurmd, slurm-client, munge).
"""

import shutil
import statistics
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.floor import Floor
from bench.rates import run_jobs
from bench.service import running
from bench.table import Row, Table
from tests.slurm.daemons import Slurm

PYTHON = "/usr/bin/python3"
SLEEP = ("python", "-c", "import time; time.sleep(1)")
MACHINE = "1U1G0P"
SCRIPT = f"#!/bin/sh\nexec srun {PYTHON} -c 'import time; time.sleep(1)'\n"
AT_A_TIME = 8
"""As many commands as the service runs at a time."""


def slurm(table: Table, directory: Path, floor: Floor) -> None:
    if shutil.which("slurmctld") is None:
        raise RuntimeError("slurmctld is not installed")
    count, rounds = (20, 1) if table.quick else (200, 3)
    step = table.steps("slurm", 2 * rounds)
    ours, bare = list[float](), list[float]()
    with Slurm() as cluster:
        settings = (
            '[server]\nhost = "0.0.0.0"\n'
            f'[clusters.ap-beijing]\nengine = "slurm"\npython = "{PYTHON}"\n'
            f'[runner]\nurl = "http://{cluster.address}:{{port}}"\n'
        )
        with running(directory / "service", settings=settings, env=cluster.environment) as service:
            run_jobs(service, "warm-up", 4, SLEEP, MACHINE)
            for number in range(rounds):
                cluster.wait_idle()
                bare.append(_sbatch(cluster, count))
                step()
                cluster.wait_idle()
                ours.append(count / run_jobs(service, f"round-{number}", count, SLEEP, MACHINE))
                step()
    what = f"{count} one-second Python programs on Slurm, to sbatch with srun"
    table.add(Row("slurm", what, statistics.median(ours), "s", statistics.median(bare), target=1.3))


def _sbatch(cluster: Slurm, count: int) -> float:
    """Seconds from the first sbatch until no job waits or runs."""
    command = ["sbatch", "--parsable", "--ntasks=1", "--mem-per-cpu=1024M", "--output=/dev/null", "--chdir=/"]

    def submit(_: int) -> None:
        subprocess.run(
            command, env=cluster.environment, input=SCRIPT, text=True, check=True, capture_output=True
        )

    before = time.perf_counter()
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        list(pool.map(submit, range(count)))
    while cluster.run("squeue", "--noheader", "--states=PENDING,RUNNING", "--format=%i").strip():
        time.sleep(0.1)
    return time.perf_counter() - before
