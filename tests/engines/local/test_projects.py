"""Jobs of different projects run as different users if the service is root, so they cannot reach each other's files."""

import asyncio
import os
import signal
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.engines.local.escapes import harness_with_buckets
from tests.engines.local.harness import MASTER, EngineHarness, accounts_in
from tests.storage.binding import bind
from turnout.engines.local.users import ownership
from turnout.engines.local.users.account import Accounts, job_uids
from turnout.errors import Misconfigured
from turnout.job import Mount

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives each project a user")

KILL_SETGID_SETUID = 0xE0


@pytest.fixture(params=["none", "bubblewrap"])
async def harness(base_dir: Path, request: pytest.FixtureRequest) -> AsyncIterator[EngineHarness]:
    async with harness_with_buckets(base_dir, request.param) as one:
        yield one


def owner_and_mode(path: Path) -> tuple[int, int, int]:
    found = path.lstat()
    return found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)


def status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


async def test_each_project_keeps_its_own_uid(harness: EngineHarness):
    found: dict[str, str] = {}
    for project in ("a", "b", "a"):
        end = await harness.run("id", "-u", project=project)
        uid = harness.output(end.attempt)
        assert found.setdefault(project, uid) == uid
    assert len(set(found.values())) == 2
    assert {int(uid) for uid in found.values()} <= set(job_uids("auto")[1:])
    again = accounts_in(harness.base_dir)
    assert {project: again.of(project).uid for project in "ba"} == {
        name: int(uid) for name, uid in found.items()
    }
    assert again.of("c").uid not in {int(uid) for uid in found.values()}
    assert owner_and_mode(harness.paths.users)[1:] == (0, 0o600)


async def test_the_supervisor_has_no_capabilities_but_setuid_setgid_and_kill(harness: EngineHarness):
    attempt = await harness.start("sleep", "1000", project="a")
    job = await executed((await harness.started(attempt)).pid)
    mine = await at_rest(harness.supervisor, harness.accounts.supervisor.uid)
    assert mine["Groups"] == ""
    for kind in ("CapPrm", "CapEff", "CapBnd"):
        assert int(mine[kind], 16) == KILL_SETGID_SETUID
    assert int(mine["CapInh"], 16) == int(mine["CapAmb"], 16) == 0
    user = harness.accounts.of("a")
    assert set(job["Uid"].split()) == set(job["Gid"].split()) == {str(user.uid)}
    assert job["Groups"].split() == [str(harness.accounts.uids.start)]
    for kind in ("CapPrm", "CapEff", "CapInh", "CapAmb"):
        assert int(job[kind], 16) == 0


async def at_rest(pid: int, uid: int) -> dict[str, str]:
    """The supervisor's status while it does nothing for a job: to make a job's files it takes that job's uid."""
    for _ in range(200):
        found = status(pid)
        if set(found["Uid"].split()) == {str(uid)}:
            return found
        await asyncio.sleep(0.01)
    raise AssertionError(f"the supervisor keeps the uids {found['Uid']}")


async def executed(pid: int) -> dict[str, str]:
    """Its status after exec. A spawn returns just before the kernel has removed the child's last rights."""
    for _ in range(100):
        if int(status(pid)["CapEff"], 16) == 0:
            break
        await asyncio.sleep(0.01)
    return status(pid)


async def test_owners_and_modes_of_files(harness: EngineHarness):
    attempt = await harness.start("sleep", "1000", project="a")
    await harness.started(attempt)
    supervisor, user = harness.accounts.supervisor, harness.accounts.of("a")
    data, home = harness.paths.data, harness.paths.replica(attempt, MASTER)
    assert owner_and_mode(harness.paths.attempts) == (supervisor.uid, supervisor.gid, 0o711)
    assert owner_and_mode(harness.paths.attempts / ".gone") == (supervisor.uid, supervisor.gid, 0o700)
    assert owner_and_mode(harness.paths.supervisor) == (supervisor.uid, supervisor.gid, 0o711)
    for name in ("socket", "lock", "log", "journal"):
        uid, _, mode = owner_and_mode(harness.paths.supervisor / name)
        assert (uid in (0, supervisor.uid), mode) == (True, 0o600)
    assert owner_and_mode(home) == (supervisor.uid, user.gid, 0o750)
    assert owner_and_mode(home / "stdout") == (supervisor.uid, user.gid, 0o660)
    assert owner_and_mode(home / "space") == (supervisor.uid, user.gid, 0o770)
    assert owner_and_mode(home / "space/work")[:2] == (user.uid, user.gid)
    assert owner_and_mode(data)[2] & 0o077 == 0o011


SHARE = """
import os, pathlib, sys
os.chdir(os.environ["TURNOUT_MOUNT_0"])
for name in ("file", "directory/file"):
    pathlib.Path(name).parent.mkdir(exist_ok=True)
    with open(name, "a") as file:
        file.write(sys.argv[1])
"""


async def test_every_project_can_write_to_a_public_bucket(harness: EngineHarness):
    bind(harness.engine._storage, "cos://of-all", "default", False)
    mounts = (Mount("cos://of-all", "/all"),)
    for project in ("a", "b", "default"):
        end = await harness.run("python", "-c", SHARE, project, project=project, mounts=mounts)
        assert end.code == 0, harness.output(end.attempt, stream=1)
    bucket = harness.paths.buckets / "of-all"
    assert [(bucket / name).read_text() for name in ("file", "directory/file")] == ["abdefault"] * 2
    assert owner_and_mode(bucket)[1:] == (harness.accounts.uids.start, 0o2770)


async def test_the_next_supervisor_takes_over_the_jobs_of_all_projects(harness: EngineHarness):
    attempts = [
        await harness.start("sh", "-c", f"echo begin; sleep 2; exit {code}", project=project)
        for code, project in ((3, "a"), (4, "b"))
    ]
    for attempt in attempts:
        await harness.wait_for_output(attempt, "begin")
    await harness.kill_supervisor()
    assert [(await harness.ended(attempt)).code for attempt in attempts] == [3, 4]


async def test_the_next_supervisor_ends_processes_that_a_job_left_behind(harness: EngineHarness):
    attempt = await harness.start("sh", "-c", "setsid sleep 3000.77 & echo begin; sleep 1", project="a")
    await harness.wait_for_output(attempt, "begin")
    await harness.kill_supervisor()
    await harness.ended(attempt)
    assert not [pid for pid in os.listdir("/proc") if pid.isdecimal() and _runs(pid, b"3000.77")]


def _runs(pid: str, word: bytes) -> bool:
    try:
        return word in Path("/proc", pid, "cmdline").read_bytes()
    except OSError:
        return False


async def test_a_supervisor_with_other_uids_is_replaced_and_its_jobs_are_adopted(base_dir: Path):
    """Like one of an earlier version: it would start jobs with uids that are not allowed any more."""
    other = Accounts(
        accounts_in(base_dir).supervisor, range(2_100_100_000, 2_100_100_010), base_dir / "other"
    )
    first = EngineHarness(base_dir, sandbox="bubblewrap", accounts=other)
    await first.__aenter__()
    attempt = await first.start("sh", "-c", "echo begin; sleep 2; id -u; exit 5")
    await first.wait_for_output(attempt, "begin")
    await first.disconnect()
    async with EngineHarness(base_dir, sandbox="bubblewrap") as harness:
        assert harness.supervisor != first.supervisor
        end = await harness.run("id", "-u")
        assert int(harness.output(end.attempt)) == harness.accounts.of("default").uid
        assert (await harness.ended(attempt)).code == 5
        assert harness.output(attempt) == "begin\n2100100001\n"


async def test_owners_of_an_earlier_versions_directories_are_corrected(base_dir: Path):
    """There everything belonged to the one user of all jobs, and was mostly open to other users of the machine."""
    users = accounts_in(base_dir)
    old = users.supervisor
    async with EngineHarness(base_dir, sandbox="none", accounts=users) as harness:
        end = await harness.run("echo", "hello", project="a")
    home = harness.paths.replica(end.attempt, MASTER)
    for path in (harness.paths.attempts, harness.paths.supervisor, home):
        path.chmod(0o700)
    secret = base_dir / "secret"
    secret.write_text("secret")
    secret.chmod(0o600)
    (home / "stderr").unlink()
    (home / "stderr").symlink_to(secret)
    for path in (home, home / "stdout", home / "marks"):
        os.chown(path, old.uid, old.gid)
    async with EngineHarness(base_dir, sandbox="none", accounts=users) as harness:
        assert owner_and_mode(home) == (old.uid, old.gid, 0o750)
        assert owner_and_mode(home / "stdout") == (old.uid, old.gid, 0o660)
        assert harness.output(end.attempt) == "hello\n"
        assert (await harness.run("true", project="b")).code == 0
    assert owner_and_mode(secret) == (0, 0, 0o600)


async def test_links_in_the_supervisors_directory_are_not_followed(base_dir: Path):
    """Jobs of earlier versions ran as the supervisor's user, so without a sandbox they could make such links."""
    users = accounts_in(base_dir)
    async with EngineHarness(base_dir, sandbox="none", accounts=users) as harness:
        await harness.run("true")
    precious = base_dir / "precious"
    precious.mkdir()
    (precious / "file").write_text("precious")
    await asyncio.to_thread(os.waitpid, harness.supervisor, 0)
    for name in ("lock", "log"):
        place_of_it = harness.paths.supervisor / name
        place_of_it.unlink()
        place_of_it.symlink_to(precious / "file")
        with pytest.raises(OSError, match="Too many levels of symbolic links"):
            harness.engine._supervisor_process.start()
        place_of_it.unlink()
    gone = harness.paths.attempts / ".gone"
    gone.rename(base_dir / "gone")
    gone.symlink_to(precious)
    async with EngineHarness(base_dir, sandbox="none", accounts=users) as harness:
        end = await harness.run("true")
        await harness.engine.forget(end.attempt)
        await harness.engine.remove([end.attempt])
    assert (precious / "file").read_text() == "precious"


@pytest.mark.parametrize(
    "wanted",
    ["", "1", "5-4", "0-70000", "100-200", "60000-70000", "2100000000-2147483648", "3000-3000", "a-b"],
)
def test_an_invalid_range_of_uids_is_refused(wanted: str):
    with pytest.raises(Misconfigured, match=r"\[engines.local\] uids"):
        job_uids(wanted)


def test_a_used_up_range_of_uids_is_an_error(base_dir: Path):
    users = accounts_in(base_dir)
    small = type(users)(users.supervisor, range(5000, 5002), base_dir / "users")
    assert small.of("a").uid == 5001
    with pytest.raises(Misconfigured, match="no uid left for the project 'b'"):
        small.of("b")


def test_jobs_of_an_earlier_version_are_recognised_by_their_user(base_dir: Path):
    supervisor = accounts_in(base_dir).supervisor
    pid = os.fork()
    if pid == 0:
        os.setresgid(supervisor.gid, supervisor.gid, supervisor.gid)
        os.setresuid(supervisor.uid, supervisor.uid, supervisor.uid)
        os.execve("/bin/sleep", ["sleep", "1000"], {"TURNOUT_REPLICA": "1.1/master-0"})
    try:
        while b"sleep" not in Path(f"/proc/{pid}/cmdline").read_bytes():
            pass
        assert ownership.earlier_jobs_run(supervisor)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
