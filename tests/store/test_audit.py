"""Audit lines in both databases."""

from tests.store.samples import creation, job
from turnout.job import AuditLine
from turnout.store import Store
from turnout.store.audit import AuditFilter


def line(at: int, who: str = "AKIDann", project: str = "vision", job: int = 0) -> AuditLine:
    return AuditLine(at, who, project, "192.0.2.7", "tia", "CreateJob", job, "train", 200, "")


async def test_lines_are_found_newest_first(store: Store) -> None:
    one = job("a")
    batch = creation(one)
    batch.audit = [line(1, job=one.id)]
    await store.commit(batch)
    await store.audit.add(line(2, who="root", project="speech"))
    await store.audit.add(line(3))

    async def times(**wanted: object) -> list[int]:
        return [found.at for found in await store.audit.find(AuditFilter(**wanted), 10)]  # type: ignore[arg-type]

    assert await times() == [3, 2, 1]
    assert await times(project="vision") == [3, 1]
    assert await times(who="root") == [2]
    assert await times(job=one.id) == [1]
    assert await times(since=2) == [3, 2]
    newest = (await store.audit.find(AuditFilter(), 1))[0]
    assert await times(before=newest.number) == [2, 1]
    assert await times(who="\0") == []


async def test_old_lines_are_removed_but_never_the_newest(store: Store) -> None:
    for at in (1, 2, 3, 4):
        await store.audit.add(line(at))
    assert await store.audit.expired(3) == 2
    assert await store.audit.remove(3) == 2
    assert await store.audit.remove(3) == 0
    assert [found.at for found in await store.audit.find(AuditFilter(), 10)] == [4, 3]
    while await store.audit.remove(100):
        pass
    assert [found.at for found in await store.audit.find(AuditFilter(), 10)] == [4]
