"""kill -9 at any moment: what was answered is there, and nothing is there by half."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.store.samples import gang
from tests.store.servers import Server
from turnout.job import All, Page, State
from turnout.store import Store

ROUNDS = 6
ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "sqlite":
        return ""
    server: Server = request.getfixturevalue("postgres")
    return server.database()


async def test_what_was_answered_survives(url: str, tmp_path: Path):
    database = tmp_path / "turnout.db"
    answered: set[int] = set()
    for number in range(ROUNDS):
        answered |= commit_until_killed(database, url, after=random.Random(number).randrange(1, 60))
        store = Store.open(url, database)
        found = await store.find(All(), Page(100_000))
        assert answered <= {job.id for job in found}
        assert len(found) - len(answered) <= 4 * (number + 1), (
            "a batch that was not answered may be there, whole"
        )
        members = await store.replicas(found)
        for job in found:
            begun = job.state is State.RUNNING
            assert members[job.id] == (gang(job) if begun else [])
            assert len(await store.events(job.id)) == (2 if begun else 1)
            assert await store.spec(job.id)
        assert await store.last_id() == max(job.id for job in found)
        await store.close()


def commit_until_killed(database: Path, url: str, after: int) -> set[int]:
    """The ids that were answered; the kill comes at once after line `after`, wherever the process is by then."""
    command = [sys.executable, "-m", "tests.store.committer", str(database), url]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        lines = [process.stdout.readline() for _ in range(after)]
        process.kill()
        lines += process.stdout.readlines()
    return {int(line) for line in lines if line.endswith("\n")}
