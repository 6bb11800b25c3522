"""`python -m bench [--quick] [--strict] [--against FILE] [NAME…]`"""

import argparse
import datetime
import os
import platform
import pwd
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil

from bench import (
    against,
    floods,
    image,
    inside,
    kubernetes,
    network,
    output,
    page,
    peers,
    rates,
    ray,
    runners,
    scale,
    search,
    sizes,
    slurm,
    staging,
    starts,
    trials,
    vertex,
)
from bench.floor import Floor, floor
from bench.service import file_system, job_user, working_directory
from bench.table import Row, Table

MEASURES: dict[str, Callable[[Table, Path, Floor], None]] = {
    "start": starts.start,
    "sandbox": starts.sandboxed,
    "image": image.image,
    "network": network.network,
    "limited": starts.limited,
    "mounted": starts.mounted,
    "end": starts.end,
    "jobs": rates.jobs,
    "creates": rates.creates,
    "describe": sizes.describe,
    "idle": sizes.idle,
    "output": output.output,
    "page": page.page,
    "staging": staging.staging,
    "inside-s3": inside.s3,
    "inside-gcs": inside.gcs,
    "search": search.search,
    "scale": scale.scale,
    "trials": trials.trials,
    "vertex": vertex.vertex,
    "flood-bodies": floods.bodies,
    "flood-logs": floods.logs,
    "flood-metrics": floods.metrics,
    "flood-filters": floods.filters,
    "flood-searches": floods.searches,
    "task-spooler": peers.task_spooler,
    "huey": peers.huey,
    "slurm": slurm.slurm,
    "kubernetes": kubernetes.kubernetes,
    "ray": ray.ray,
    "runners": runners.runners,
}
ONLY_IF_NAMED = ("search", "scale", "slurm", "kubernetes", "ray", "runners")
"""`search` takes half an hour, `scale` ten minutes; `slurm` needs root and Slurm; `kubernetes` needs root and kubectl;
`ray` installs Ray; `runners` takes all cores.
"""


class Results(msgspec.Struct):
    at: str
    quick: bool
    machine: dict[str, str | int]
    rows: list[Row]


def main() -> None:
    arguments = _arguments()
    table = Table(arguments.quick)
    failed = False
    with working_directory(arguments.directory) as directory, table.progress:
        machine = _machine(directory)
        table.note(", ".join(f"{name} {value}" for name, value in machine.items()))
        if machine["disk"] == "tmpfs":
            sys.exit(
                f"bench: {arguments.directory} is in memory (tmpfs); use --directory to name one on a disk"
            )
        table.head()
        with floor(directory / "floor", _existing_user()) as bare:
            for name in arguments.names or [name for name in MEASURES if name not in ONLY_IF_NAMED]:
                failed |= not _measure(name, table, directory, bare)
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    results = Results(now, table.quick, machine, table.rows)
    arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=2) + b"\n")
    if arguments.against:
        against.show(table, msgspec.json.decode(arguments.against.read_bytes(), type=Results).rows)
    missed = [row.name for row in table.rows if row.ok is False]
    if failed or (arguments.strict and missed):
        sys.exit(1)


def _measure(name: str, table: Table, directory: Path, bare: Floor) -> bool:
    """Returns False if it fails, so that the others still run."""
    here = directory / name
    here.mkdir()
    try:
        MEASURES[name](table, here, bare)
    except Exception as error:  # noqa: BLE001 - printed, and the exit code is 1
        table.note(f"{name}: could not be measured: {error!r}")
        return False
    return True


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Compare Turnout with floors: the bare operations on the same machine.",
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"of {', '.join(MEASURES)}; default: all but {', '.join(ONLY_IF_NAMED)}",
    )
    parser.add_argument("--quick", action="store_true", help="smaller counts, noisier numbers")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument(
        "--directory", default="/var/tmp", help="directory for the data during the run, on a disk"
    )
    parser.add_argument(
        "--json", type=Path, default=Path("bench-results.json"), help="file to write the results to"
    )
    parser.add_argument(
        "--against", type=Path, metavar="FILE", help="results of an earlier run to compare with"
    )
    arguments = parser.parse_args()
    if arguments.against and not arguments.against.is_file():
        parser.error(f"there is no file {arguments.against}")
    for name in arguments.names:
        if name not in MEASURES:
            parser.error(f"{name} is not a benchmark; there are {', '.join(MEASURES)}")
    return arguments


def _existing_user() -> str:
    """The user that jobs run as. Empty if the first start of a service has not created it yet."""
    name = job_user()
    try:
        pwd.getpwnam(name)
    except KeyError:
        return ""
    return name


def _machine(directory: Path) -> dict[str, str | int]:
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "kernel": platform.release(),
        "Python": platform.python_version(),
        "disk": file_system(directory),
    }


if __name__ == "__main__":
    main()
