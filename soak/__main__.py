"""`make soak`: runs for five minutes, or for `MINUTES`."""

import argparse
import logging
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from soak.check import blurred, check, check_trials
from soak.clock import Clock
from soak.faults import Faults, small_disk
from soak.load import FAR, INPUT, Load
from tests.running import Service, reachable_directory
from tests.stores import seaweed
from turnout.storage.remote.settings import RemoteSettings
from turnout.storage.remote.store import open_store

CONFIG = """
[engines.local]
overcommit = 50

[images]
"tests/anything:1" = "anything"
"python:*" = "anything"

[storage.buckets.{bucket}]
{lines}
"""


def main() -> None:
    reading = argparse.ArgumentParser(prog="soak", description=__doc__)
    reading.add_argument("--minutes", type=float, default=float(os.environ.get("MINUTES") or 5))
    reading.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    given = reading.parse_args()
    with reachable_directory() as directory:
        data = directory / "data"
        with small_disk(data):
            wrong = soak(data, given.minutes, given.seed)
    sys.exit(1 if wrong else 0)


def soak(data: Path, minutes: float, seed: int) -> list[str]:
    """Runs the test and prints a table. Returns what is wrong, job by job."""
    print(f"soak: {minutes:g} minutes, seed {seed}", flush=True)
    clock = Clock(data.parent)
    if not clock.env:
        print(
            "soak: the clock is not changed, because libfaketime is missing or does not work here", flush=True
        )
    os.environ["NO_PROXY"] = "127.0.0.1"
    logging.disable()  # SDKs log each broken connection
    stored = data.parent / "store"
    stored.mkdir()
    with seaweed(stored) as server:
        backing = server.backing()
        far = open_store(msgspec.convert(backing, RemoteSettings))
        far.put("in/data", INPUT.encode())
        lines = "\n".join(f'{name} = "{value}"' for name, value in backing.items())
        service = Service(data, CONFIG.format(bucket=FAR, lines=lines), clock.env)
        try:
            return _attack(service.start(), clock, minutes, seed, far)
        finally:
            service.clean()


def _attack(service: Service, clock: Clock, minutes: float, seed: int, far: Any) -> list[str]:
    load, faults = Load(service, seed), Faults(service, clock, seed)
    load.start()
    end = time.monotonic() + minutes * 60
    chance = random.Random(seed)
    while time.monotonic() < end:
        time.sleep(0.5 + chance.random() * 2)
        faults.look()
        faults.next()
    faults.look()
    load.stop()
    clock.step(0)
    return _report(service, load, faults, far)


def _report(service: Service, load: Load, faults: Faults, far: Any) -> list[str]:
    wrong = list(faults.own)
    counts: Counter[str] = Counter()
    for job in load.jobs:
        counts[job.api] += 1
        try:
            why = check(service, job, faults.full, far)
        except Exception as error:  # noqa: BLE001 - the other checks go on
            why = f"it cannot be checked: {error}"
        if why:
            wrong.append(f"{job.api} {job.name} ({job.id or 'no response'}): {why}")
    for search in load.searches:
        try:
            found = check_trials(service, search, faults.full)
        except Exception as error:  # noqa: BLE001 - the other checks go on
            found = [f"it cannot be checked: {error}"]
        wrong += [f"search {search.name} ({search.id}): {why}" for why in found]
    rows = [(f"jobs through {api}", count) for api, count in sorted(counts.items())]
    rows += [("searches", len(load.searches)), ("creates without a response", load.refused)]
    rows += [(kind, faults.done[kind]) for kind in faults.kinds]
    for what, ones in (("jobs", load.jobs), ("searches", load.searches)):
        partly = sum(blurred(one, faults.full) for one in ones)
        rows += [(f"{what} checked in full", len(ones) - partly)]
        rows += [(f"{what} checked in part (disk full)", partly)]
    rows += [("wrong", len(wrong))]
    for name, count in rows:
        print(f"{name:38} {count:6}")
    for one in wrong:
        print(f"WRONG: {one}")
    sys.stdout.flush()
    return wrong


if __name__ == "__main__":
    main()
