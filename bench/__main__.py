"""`python -m bench [--quick] [--strict] [NAME…]`"""

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

from bench import output, peers, rates, search, sizes, staging, starts, trials, vertex
from bench.floor import Floor, floor
from bench.service import file_system, job_user, working_directory
from bench.table import Row, Table

MEASURES: dict[str, Callable[[Table, Path, Floor], None]] = {
    "start": starts.start,
    "sandbox": starts.sandboxed,
    "limited": starts.limited,
    "mounted": starts.mounted,
    "end": starts.end,
    "jobs": rates.jobs,
    "creates": rates.creates,
    "describe": sizes.describe,
    "idle": sizes.idle,
    "output": output.output,
    "staging": staging.staging,
    "search": search.search,
    "trials": trials.trials,
    "vertex": vertex.vertex,
    "task-spooler": peers.task_spooler,
    "huey": peers.huey,
}
LONG = ("search",)
"""Half an hour: only if it is asked for."""


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
            sys.exit(f"bench: {arguments.directory} is in memory; --directory names a place on a disk")
        table.head()
        with floor(directory / "floor", _existing_user()) as bare:
            for name in arguments.names or [name for name in MEASURES if name not in LONG]:
                failed |= not _measure(name, table, directory, bare)
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    results = Results(now, table.quick, machine, table.rows)
    arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=2) + b"\n")
    missed = [row.name for row in table.rows if row.ok is False]
    if failed or (arguments.strict and missed):
        sys.exit(1)


def _measure(name: str, table: Table, directory: Path, bare: Floor) -> bool:
    """One that cannot be taken does not keep the others from being taken."""
    here = directory / name
    here.mkdir()
    try:
        MEASURES[name](table, here, bare)
    except Exception as error:  # noqa: BLE001 - told, and the exit code says so
        table.note(f"{name}: could not be measured: {error!r}")
        return False
    return True


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Turnout beside its bare floors.")
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"of {', '.join(MEASURES)}; default: all but {', '.join(LONG)}",
    )
    parser.add_argument("--quick", action="store_true", help="smaller counts, noisier numbers")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument("--directory", default="/var/tmp", help="where data is kept meanwhile: on a disk")
    parser.add_argument("--json", type=Path, default=Path("bench-results.json"), help="where results go")
    arguments = parser.parse_args()
    for name in arguments.names:
        if name not in MEASURES:
            parser.error(f"there is no {name}; there are {', '.join(MEASURES)}")
    return arguments


def _existing_user() -> str:
    """Whom jobs run as; the service makes the account when it first starts."""
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
