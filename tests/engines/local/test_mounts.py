"""What lies in a mount was put there by other jobs, and leads nobody out of it."""

import asyncio
import os
from pathlib import Path

import pytest

from tests.engines.local.yard import Yard
from turnout.engines import Refused
from turnout.job import Cause, Mount
from turnout.storage import Bound, Storage

SWAP = """
import ctypes, os
os.mkdir('d')
open('d/own', 'w').close()
os.symlink(os.environ['TRAP'], 'l')
swap = ctypes.CDLL(None).renameat2
print('swapping')
while True:
    swap(-100, b'd', -100, b'l', 2)
"""


class Swapping:
    """Storage in which the last directory is swapped for a link as soon as it was looked at."""

    def __init__(self, storage: Storage, link_to: Path) -> None:
        self._storage = storage
        self._link_to = link_to

    def bind(self, source: str, project: str, read_only: bool) -> Bound:
        bound = self._storage.bind(source, project, read_only)
        bound.root.chmod(0o755)
        bound.path.rmdir()
        bound.path.symlink_to(self._link_to)
        return bound

    def transfer(self, source: str, project: str) -> None:
        return None

    def open_object(self, source: str, project: str) -> None:
        return None

    def near(self, source: str, project: str) -> None:
        return None


def storage(place: Path) -> Storage:
    data = place / "data"
    data.mkdir(mode=0o711)
    (place / "host" / "dir").mkdir(parents=True)
    return Storage(data / "buckets", [(place / "host", True)], data, None)


@pytest.mark.parametrize("sandbox", ["none", "bubblewrap"])
@pytest.mark.parametrize("source", ["cos://b/dir", "file://{place}/host/dir"])
async def test_a_directory_that_becomes_a_link_is_not_mounted(place: Path, sandbox: str, source: str):
    (place / "secret").mkdir()
    (place / "secret" / "key").write_text("")
    async with Yard(place, sandbox=sandbox, storage=Swapping(storage(place), place / "secret")) as yard:
        end = await yard.run("ls", mounts=(Mount(source.format(place=place), "/m"),))
        assert yard.out(end.attempt) == ""
        assert end.cause in {Cause.STAGING, Cause.NOT_FOUND}
        assert "Not a directory" in end.message


@pytest.mark.timeout(90)
async def test_a_link_that_is_swapped_without_pause_leads_nobody_out(place: Path):
    (place / "secret").mkdir()
    (place / "secret" / "key").write_text("")
    buckets = storage(place)
    top = buckets.bind("cos://b/", "default", False).path
    top.parent.chmod(0o755)
    top.chmod(0o777)
    async with Yard(place, sandbox="bubblewrap", storage=buckets) as yard:
        attacker = await yard.python(
            SWAP, mounts=(Mount("cos://b/", "/b"),), env={"TRAP": str(place / "secret")}
        )
        await yard.printed(attacker, "swapping")
        launched = 0
        while launched < 20:
            await asyncio.sleep(0.001)  # the swapping goes on meanwhile
            try:
                end = await yard.run("ls", mounts=(Mount("cos://b/d", "/m", read_only=True),))
            except Refused:
                continue
            assert yard.out(end.attempt) in {"", "own\n"}
            assert end.cause in {Cause.EXIT, Cause.STAGING}
            launched += 1


async def test_a_link_in_a_mount_makes_no_directory_outside_of_it(boxed_yard: Yard, place: Path):
    """Where bubblewrap makes a mount point in another mount, links lead it out, into its view of the host."""
    (place / "outside").mkdir()
    (place / "outside").chmod(0o777)
    for name in ("outer", "inner"):
        (place / name).mkdir()
        (place / name).chmod(0o777)
    (place / "outer" / "x").symlink_to(f"/oldroot{place}/outside")
    mounts = (Mount(f"file://{place}/outer", "/b"), Mount(f"file://{place}/inner", "/b/x/evil"))
    with pytest.raises(Refused, match="/b/x/evil lies within /b"):
        await boxed_yard.run("true", mounts=mounts)
    assert os.listdir(place / "outside") == []


async def test_a_link_below_the_mount_may_be_the_working_directory(bare_yard: Yard, place: Path):
    (place / "code" / "v1").mkdir(parents=True)
    (place / "code" / "now").symlink_to("v1")
    mount = Mount(f"file://{place}/code", "/code")
    end = await bare_yard.run("pwd", "-P", mounts=(mount,), working_dir="/code/now")
    assert bare_yard.out(end.attempt) == f"{place}/code/v1\n"


async def test_several_are_shown_each_at_its_target(boxed_yard: Yard, place: Path):
    for name in ("a", "b"):
        (place / name).mkdir()
        (place / name / f"in-{name}").write_text("")
    mounts = (Mount(f"file://{place}/a", "/m/a"), Mount(f"file://{place}/b", "/m/b", read_only=True))
    end = await boxed_yard.run("sh", "-c", "ls /m/a /m/b; touch /m/b/x", mounts=mounts)
    assert "in-a" in boxed_yard.out(end.attempt)
    assert "in-b" in boxed_yard.out(end.attempt)
    assert "Read-only file system" in boxed_yard.out(end.attempt, stream=1)
    assert [os.listdir(boxed_yard.paths.stage / name) for name in ("0", "1")] == [[], []]


async def test_names_that_are_no_attempts_are_none(bare_yard: Yard):
    end = await bare_yard.run("true")
    for name in ("x", "1", "a.b_c", "1.x_master-0", "9" * 30 + ".1_master-0", "9" * 19 + ".1_master-0"):
        (bare_yard.paths.attempts / name).mkdir()
    assert await bare_yard.engine.stored() == [end.attempt]
