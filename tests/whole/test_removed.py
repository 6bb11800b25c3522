"""Files of a running service are removed: it notices, creates them again, and starts new jobs."""

import asyncio
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from tencentcloud.common.exception.tencent_cloud_sdk_exception import TencentCloudSDKException

from tests.running import Service, free_port, running
from turnout import data_directory
from turnout.data_directory import Lock, Removals
from turnout.paths import Paths

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
NOBODY = 65534


@pytest.fixture(params=["none", "bubblewrap", pytest.param("an ordinary user", marks=as_root)])
def service(request: pytest.FixtureRequest) -> Iterator[Service]:
    user = NOBODY if request.param == "an ordinary user" else None
    sandbox = "none" if user else request.param
    with running(f'[engines.local]\nsandbox = "{sandbox}"\n', user=user) as one:
        yield one.start()


def healthz(service: Service, word: str, times: int = 1) -> str:
    """Waits until the text appears this many times."""
    deadline = time.monotonic() + 20
    while True:
        with urllib.request.urlopen(service.endpoint + "/healthz", timeout=10) as answer:
            text = answer.read().decode()
        if text.count(word) >= times:
            return text
        assert time.monotonic() < deadline, f"{text}\n{service.log.read_text()}"
        time.sleep(0.02)


def unhealthy(service: Service) -> str:
    """Returns the text as soon as it appears."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(service.endpoint + "/healthz", timeout=10):
                time.sleep(0.02)
        except urllib.error.HTTPError as error:
            return f"{error.code}: {error.read().decode()}"
    raise AssertionError(service.log.read_text())


def doctor(data: Path) -> dict[str, str]:
    command = [sys.executable, "-m", "turnout.cli.main", "doctor", "--data", str(data), "--output", "json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)["data directory"]


def kind(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)


def remove(directory: Path) -> None:
    """Also removes what is created in it meanwhile."""
    gone = directory.with_name("gone")
    directory.rename(gone)
    shutil.rmtree(gone)


def test_attempts_is_created_again_and_new_jobs_start(service: Service):
    attempts = service.data / "attempts"
    was = kind(attempts)
    service.create("before", "sh", "-c", "while [ ! -e /tmp/never ]; do sleep 0.05; done")
    service.wait("before", until="started")
    assert healthz(service, "ok") == "ok\n"
    for number in range(2):
        remove(attempts)
        # At once: it waits until there is a place for it.
        service.create(f"after-{number}", "sh", "-c", "echo here; exit 0")
        job = service.wait(f"after-{number}")
        assert job["state"] == "succeeded", (job, (service.data / "keeper" / "log").read_text())
        assert [line.Log for line in service.logs(f"after-{number}")] == ["here"]
        healthz(service, "attempts was removed", number + 1)
    assert kind(attempts) == was
    assert f"warning: {attempts} was removed" in healthz(service, "warning")
    assert f"{attempts} was removed while the service ran" in service.log.read_text()
    found = doctor(service.data)
    assert found["status"] == "warn"
    assert f"{attempts} was removed" in found["found"]
    service.delete("before")


@pytest.mark.slow
def test_a_removed_lock_lets_no_second_service_in(service: Service):
    lock = service.data / "lock"
    for number in range(2):
        if number:
            other = service.data / "other"
            other.touch()
            os.chown(other, service.data.stat().st_uid, -1)
            other.replace(lock)
        else:
            lock.unlink()
        second = Service.__new__(Service)
        second.__dict__ |= service.__dict__ | {"log": service.data.parent / "second.log"}
        second.port = free_port()
        second.start(wait=False)
        assert second.process is not None
        assert second.process.wait(30) != 0
        assert "another turnout serve" in second.log.read_text()
        second.log.unlink()
        assert f"warning: {lock} was removed" in healthz(service, "lock was removed", number + 1)
    assert str(lock) in doctor(service.data)["found"]
    service.create("job", "true")
    assert service.wait("job")["state"] == "succeeded"
    assert service.terminate() == 0
    service.start()


@pytest.mark.parametrize("name", ["turnout.db", "turnout.db-wal"])
def test_without_its_database_the_service_refuses_new_jobs_and_says_why(service: Service, name: str):
    service.create("before", "sh", "-c", "while [ ! -e go ]; do sleep 0.05; done; exit 3")
    service.wait("before", until="started")
    database = service.data / name
    assert (service.data / "turnout.db-wal").exists()
    database.unlink()
    why = f"{database} was removed while the service ran: no new jobs are accepted"
    assert unhealthy(service).startswith(f"503: not ok: {why}")
    with pytest.raises(TencentCloudSDKException, match="no new jobs are accepted"):
        service.create("after", "true")
    assert service.native("/jobs/before")["state"] == "running"
    service.delete("before")
    assert why in service.log.read_text()
    assert why in doctor(service.data)["found"]


@pytest.mark.parametrize("name", ["journal", "socket"])
def test_removed_files_of_the_supervisor_are_reported(service: Service, name: str):
    service.create("before", "sleep", "1000")
    service.wait("before", until="started")
    removed = service.data / "keeper" / name
    removed.unlink()
    assert f"warning: {removed} was removed while the service ran" in healthz(service, "was removed")
    assert str(removed) in doctor(service.data)["found"]
    service.create("after", "true")
    assert service.wait("after")["state"] == "succeeded"
    if name == "journal":
        # Made again with what it must hold.
        os.kill(int((service.data / "keeper" / "lock").read_text()), signal.SIGKILL)
        healthz(service, "ok")
        assert service.native("/jobs/before")["state"] == "running"
    service.delete("before")


async def test_removed_files_are_noticed_without_inotify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        data_directory, "_libc", SimpleNamespace(inotify_init1=refused, inotify_add_watch=refused)
    )
    monkeypatch.setattr(data_directory, "_CHECK_SECONDS", 0.01)
    paths = Paths(tmp_path)
    paths.attempts.mkdir(mode=0o750)
    with Lock(paths) as lock:
        removals = Removals(paths, lock)
        removals.watch()
        paths.attempts.rmdir()
        async with asyncio.timeout(20):
            while not removals.warnings:  # noqa: ASYNC110 nobody tells of it
                await asyncio.sleep(0.01)
        assert stat.S_IMODE(paths.attempts.stat().st_mode) == 0o750
        removals.close()


def refused(*_: object) -> int:
    return -1
