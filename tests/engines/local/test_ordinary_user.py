"""The service runs as an ordinary user, and so does everything that it starts."""

import json
import os
import pwd
import shutil
from pathlib import Path

import google_crc32c
import msgspec
import pytest

from tests.engines.local.harness import IN_IMAGE, EngineHarness, running_processes
from tests.ordinary import run_as_nobody
from turnout.engines.local.users.account import Account, check_access, own_account, supervisor_account
from turnout.errors import Misconfigured
from turnout.job import Cause

ROOT = Path(__file__).parents[3]

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def readable_code(base_dir: Path) -> Path:
    """A copy of the code that an ordinary user can read, because this checkout may be in a private home."""
    code = base_dir / "code"
    for package in (msgspec, google_crc32c):
        shutil.copytree(Path(str(package.__file__)).parent, code / package.__name__)
    shutil.copytree(ROOT / "src" / "turnout", code / "turnout")
    shutil.copytree(ROOT / "tests", code / "tests", ignore=shutil.ignore_patterns("conftest.py"))
    return code


@as_root
@pytest.mark.parametrize("sandbox", ["none", "bubblewrap", pytest.param(IN_IMAGE, marks=pytest.mark.slow)])
def test_everything_works_as_an_ordinary_user(base_dir: Path, readable_code: Path, sandbox: str):
    nobody = pwd.getpwnam("nobody")
    home = base_dir / "home"
    home.mkdir()
    os.chown(home, nobody.pw_uid, nobody.pw_gid)
    done = run_as_nobody("tests.engines.local.run_as_user", home, sandbox, code=readable_code)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    # In an image it is the image's user.
    uid = 0 if sandbox == IN_IMAGE else nobody.pw_uid
    assert results["code"][:3] == ["exit", 3, f"{uid}\n"]
    assert results["limited"][0] == "time limit"
    assert results["memory"][:2] == ["exit", 1]
    assert "MemoryError" in results["memory"][3]
    assert results["daemon"][:2] == ["exit", 0]
    if sandbox != "none":
        assert results["seccomp"][2].split() == ["Seccomp:", "2"]
    assert results["adopted"][:2] == ["exit", 6]
    assert results["network"] == (sandbox != "none")
    assert results["loopback"] == (1 if results["network"] else 0)
    assert not running_processes("3000.11")
    # No directory that a job could write to is given to another job.
    for shared, (arrived, found, victims) in zip((False, True), results["escapes"], strict=True):
        assert (found, victims) == (False, ["0 ['secret'] [] 7\n"])
        assert arrived == (shared or sandbox == "none")
    # All jobs are one user here, so only the sandbox isolates them.
    assert all(bool(attacks) == (sandbox == "none") for attacks in results["attacks"])


@as_root
async def test_a_root_service_runs_jobs_as_other_users(harness: EngineHarness):
    """`test_projects` checks which."""
    end = await harness.run("sh", "-c", "id -u; id -G")
    uid, groups = harness.output(end.attempt).splitlines()
    assert int(uid) not in (0, supervisor_account("turnout-job").uid)
    assert "0" not in groups.split()


@as_root
async def test_a_data_directory_that_jobs_cannot_reach_is_refused(base_dir: Path):
    closed = base_dir / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(Misconfigured, match=f"cannot enter {closed} .*chmod o\\+x {closed}"):
        await EngineHarness(closed, sandbox="none").__aenter__()


@as_root
def test_the_user_is_never_root():
    with pytest.raises(Misconfigured, match="never runs as root"):
        supervisor_account("root")


def test_blocked_is_the_first_part_that_a_user_cannot_pass(base_dir: Path):
    stranger = Account("stranger", 54321, 54321, other=True)
    (base_dir / "open").mkdir(mode=0o755)
    (base_dir / "open" / "shut").mkdir(mode=0o750)
    (base_dir / "open" / "shut" / "x").touch()
    assert stranger.blocked(base_dir / "open") is None
    assert stranger.blocked(base_dir / "open" / "shut" / "x") == base_dir / "open" / "shut"
    assert stranger.blocked(base_dir / "missing") == base_dir / "missing"
    check_access(own_account(), base_dir / "open" / "shut")


async def test_a_signal_to_the_services_group_leaves_jobs_alone(base_dir: Path):
    """The supervisor has a session of its own: Ctrl-C in the service's terminal does not reach it."""
    async with EngineHarness(base_dir, sandbox="none") as harness:
        attempt = await harness.start("sleep", "1000")
        started = await harness.started(attempt)
        assert os.getsid(harness.supervisor) == harness.supervisor != os.getsid(0)
        assert os.getsid(started.pid) == started.pid
        await harness.engine.stop(attempt, 5)
        assert (await harness.ended(attempt)).cause == Cause.STOPPED
