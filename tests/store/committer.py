"""Commits for ever and prints each id once its commit was answered: `committer.py <database> <url>`."""

import asyncio
import itertools
import sys
from pathlib import Path

from tests.store.samples import creation, gang, job
from turnout.job import EventKind, State
from turnout.job.events import Event
from turnout.store import Batch, Store


async def main(database: Path, url: str) -> None:
    store = Store.open(url, database)
    start = await store.last_id()
    for number in itertools.count():
        jobs = [job(at=(start >> 20) * 10**6 + 10**7 * (number + 1)) for _ in range(1 + number % 4)]
        await store.commit(creation(*jobs))
        for one in jobs:
            one.state, one.attempt = State.RUNNING, 1
        await store.commit(
            Batch(
                jobs=jobs,
                attempts=[replica for one in jobs for replica in gang(one)],
                events=[Event(one.id, one.created, EventKind.STARTED, "started") for one in jobs],
            )
        )
        print(*(one.id for one in jobs), sep="\n", flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
