"""The service as an ordinary user: everything runs as that user."""

import json
import os
import pwd
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from tests.engines.local.yard import Yard, alive
from turnout.engines.local.account import Account, check_way, job_user, own
from turnout.errors import Misconfigured
from turnout.job import Cause

ROOT = Path(__file__).parents[3]

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def elsewhere(place: Path) -> Path:
    """Our code and what it needs, where an ordinary user can read it; this checkout may lie in a closed home."""
    code = place / "code"
    shutil.copytree(Path(msgspec.__file__).parent, code / "msgspec")
    shutil.copytree(ROOT / "src" / "turnout", code / "turnout")
    shutil.copytree(ROOT / "tests", code / "tests", ignore=shutil.ignore_patterns("conftest.py"))
    return code


@as_root
@pytest.mark.parametrize("sandbox", ["none", "bubblewrap"])
def test_an_ordinary_user(place: Path, elsewhere: Path, sandbox: str):
    nobody = pwd.getpwnam("nobody")
    home = place / "home"
    home.mkdir()
    os.chown(home, nobody.pw_uid, nobody.pw_gid)
    done = subprocess.run(
        ["/usr/bin/python3", "-m", "tests.engines.local.as_user", str(home), sandbox],
        user=nobody.pw_uid, group=nobody.pw_gid, extra_groups=[], capture_output=True, text=True, cwd=elsewhere,
        env={"PYTHONPATH": str(elsewhere), "PATH": "/usr/bin:/bin", "HOME": str(home)}, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["code"][:3] == ["exit", 3, f"{nobody.pw_uid}\n"]
    assert told["limited"][0] == "time limit"
    assert told["memory"][:2] == ["exit", 1]
    assert "MemoryError" in told["memory"][3]
    assert told["daemon"][:2] == ["exit", 0]
    assert told["adopted"][:2] == ["exit", 6]
    assert not alive("3000.11")


@as_root
async def test_a_root_service_runs_jobs_as_another_user(yard: Yard):
    end = await yard.run("sh", "-c", "id -u; id -G")
    uid, groups = yard.out(end.attempt).splitlines()
    account = job_user("turnout-job")
    assert int(uid) == account.uid != 0
    assert "0" not in groups.split()
    assert Path(f"/proc/{yard.keeper}").stat().st_uid in {0, account.uid}
    status = dict(line.split(":", 1) for line in Path(f"/proc/{yard.keeper}/status").read_text().splitlines())
    assert set(status["Uid"].split()) == {uid}
    assert status["Groups"].split() == []


@as_root
async def test_a_data_directory_that_jobs_cannot_reach_is_refused(place: Path):
    closed = place / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(Misconfigured, match=f"cannot get through {closed} .*chmod o\\+x {closed}"):
        await Yard(closed, sandbox="none").__aenter__()


@as_root
def test_the_user_is_never_root():
    with pytest.raises(Misconfigured, match="never run as root"):
        job_user("root")


def test_the_way_to_a_file(place: Path):
    stranger = Account("stranger", 54321, 54321, other=True)
    (place / "open").mkdir(mode=0o755)
    (place / "open" / "shut").mkdir(mode=0o750)
    (place / "open" / "shut" / "x").touch()
    assert stranger.blocked(place / "open") is None
    assert stranger.blocked(place / "open" / "shut" / "x") == place / "open" / "shut"
    assert stranger.blocked(place / "missing") == place / "missing"
    check_way(own(), place / "open" / "shut")


async def test_a_signal_to_the_services_group_leaves_jobs_alone(place: Path):
    """The keeper has a session of its own: Control-C in the service's terminal does not reach it."""
    async with Yard(place, sandbox="none") as yard:
        attempt = await yard.start("sleep", "1000")
        started = await yard.started(attempt)
        assert os.getsid(yard.keeper) == yard.keeper != os.getsid(0)
        assert os.getsid(started.pid) == started.pid
        await yard.engine.stop(attempt, 5)
        assert (await yard.ended(attempt)).cause == Cause.STOPPED
