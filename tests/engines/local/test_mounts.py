"""Links that other jobs put into a mount do not lead out of it."""

import asyncio
import os
from pathlib import Path, PurePosixPath

import pytest

from tests.engines.local.harness import IN_IMAGE, EngineHarness, accounts_in, kinds, owners
from tests.storage.binding import bind
from turnout.engines import Refused
from turnout.engines.local.users.account import Accounts
from turnout.job import Cause, Mount
from turnout.storage import Bound, HostPath, Resolved, Storage
from turnout.storage.host import HostDirectory, HostPaths

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


class Swapping(HostPaths):
    """Storage in which the last directory is replaced by a link as soon as it was resolved."""

    def __init__(self, storage: Storage, link_to: Path) -> None:
        self._storage = storage
        self._link_to = link_to

    def resolve(
        self, source: str, project: str, *, read_only: bool, encrypted: bool, required: bool, make: bool
    ) -> Resolved:
        return Bound(self.locate(source, project))

    def locate(self, source: str, project: str) -> HostPath:
        self._project = project
        return HostPath(self, source, PurePosixPath())

    def find(self, source: str, path: PurePosixPath) -> HostDirectory:
        bound = bind(self._storage, source, self._project, False)
        bound.root.chmod(0o755)
        bound.path.rmdir()
        bound.path.symlink_to(self._link_to)
        return HostDirectory(bound.root, bound.parts, writable=True)


def storage(base_dir: Path, users: Accounts) -> Storage:
    data = base_dir / "data"
    (base_dir / "host" / "dir").mkdir(parents=True)
    return Storage(data / "buckets", [(base_dir / "host", True)], data, owners(users))


@pytest.mark.parametrize("sandbox", ["none", "bubblewrap", IN_IMAGE])
@pytest.mark.parametrize("source", ["cos://b/dir", "file://{base_dir}/host/dir"])
async def test_a_directory_that_was_replaced_by_a_link_is_not_mounted(
    base_dir: Path, sandbox: str, source: str
):
    (base_dir / "secret").mkdir()
    (base_dir / "secret" / "key").write_text("")
    users = accounts_in(base_dir)
    swapping = Swapping(storage(base_dir, users), base_dir / "secret")
    async with EngineHarness(base_dir, **kinds(sandbox), storage=swapping, accounts=users) as harness:
        end = await harness.run("ls", mounts=(Mount(source.format(base_dir=base_dir), "/m"),))
        assert harness.output(end.attempt) == ""
        assert end.cause in {Cause.STAGING, Cause.NOT_FOUND}
        assert "Not a directory" in end.message


@pytest.mark.timeout(90)
@pytest.mark.parametrize("sandbox", ["bubblewrap", IN_IMAGE])
async def test_a_link_that_is_swapped_constantly_does_not_lead_out_of_the_mount(base_dir: Path, sandbox: str):
    (base_dir / "secret").mkdir()
    (base_dir / "secret" / "key").write_text("")
    users = accounts_in(base_dir)
    buckets = storage(base_dir, users)
    top = bind(buckets, "cos://b/", "default", False).path
    top.parent.chmod(0o755)
    top.chmod(0o777)
    async with EngineHarness(base_dir, **kinds(sandbox), storage=buckets, accounts=users) as harness:
        attacker = await harness.python(
            SWAP, mounts=(Mount("cos://b/", "/b"),), env={"TRAP": str(base_dir / "secret")}
        )
        await harness.wait_for_output(attacker, "swapping")
        launched = 0
        while launched < 20:
            await asyncio.sleep(0.001)  # the swapping continues meanwhile
            try:
                end = await harness.run("ls", mounts=(Mount("cos://b/d", "/m", read_only=True),))
            except Refused:
                continue
            assert harness.output(end.attempt) in {"", "own\n"}
            assert end.cause in {Cause.EXIT, Cause.STAGING}
            launched += 1


async def test_a_link_in_a_mount_creates_no_directory_outside_of_it(sandboxed: EngineHarness, base_dir: Path):
    """When bubblewrap makes a mount point in another mount, it would follow links into its view of the host."""
    (base_dir / "outside").mkdir()
    (base_dir / "outside").chmod(0o777)
    for name in ("outer", "inner"):
        (base_dir / name).mkdir()
        (base_dir / name).chmod(0o777)
    (base_dir / "outer" / "x").symlink_to(f"/oldroot{base_dir}/outside")
    mounts = (Mount(f"file://{base_dir}/outer", "/b"), Mount(f"file://{base_dir}/inner", "/b/x/evil"))
    with pytest.raises(Refused, match="/b/x/evil lies within /b"):
        await sandboxed.run("true", mounts=mounts)
    assert os.listdir(base_dir / "outside") == []


async def test_a_link_below_the_mount_may_be_the_working_directory(
    unsandboxed: EngineHarness, base_dir: Path
):
    (base_dir / "code" / "v1").mkdir(parents=True)
    (base_dir / "code" / "now").symlink_to("v1")
    mount = Mount(f"file://{base_dir}/code", "/code")
    end = await unsandboxed.run("pwd", "-P", mounts=(mount,), working_dir="/code/now")
    assert unsandboxed.output(end.attempt) == f"{base_dir}/code/v1\n"


async def test_several_mounts_are_at_their_targets(sandboxed: EngineHarness, base_dir: Path):
    for name in ("a", "b"):
        (base_dir / name).mkdir()
        (base_dir / name / f"in-{name}").write_text("")
    mounts = (Mount(f"file://{base_dir}/a", "/m/a"), Mount(f"file://{base_dir}/b", "/m/b", read_only=True))
    end = await sandboxed.run("sh", "-c", "ls /m/a /m/b; touch /m/b/x", mounts=mounts)
    assert "in-a" in sandboxed.output(end.attempt)
    assert "in-b" in sandboxed.output(end.attempt)
    assert "Read-only file system" in sandboxed.output(end.attempt, stream=1)
    assert [os.listdir(sandboxed.paths.stage / name) for name in ("0", "1")] == [[], []]


async def test_other_names_in_the_attempts_directory_are_ignored(unsandboxed: EngineHarness):
    end = await unsandboxed.run("true")
    for name in ("x", "1", "a.b_c", "1.x_master-0", "9" * 30 + ".1_master-0", "9" * 19 + ".1_master-0"):
        (unsandboxed.paths.attempts / name).mkdir()
    assert await unsandboxed.engine.attempts_on_disk() == [end.attempt]
