"""A job whose code, data and results are in a remote object store."""

import hashlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import psutil
import pytest

from tests.running import Service, children_with, running
from tests.stores import ADMIN, READER, S3, FaultyProxy, faulty_proxy, s3
from turnout.storage.remote.settings import RemoteSettings
from turnout.storage.remote.store import open_store

__all__ = ["s3"]

MOUNT = "cos://models-1250000000.cos.ap-beijing.myqcloud.com/code:/data/code"
BIG = 100 << 20


class Place:
    """A prefix of the store for one test."""

    def __init__(self, s3: S3) -> None:
        self.backing = s3.backing()
        self._store = open_store(msgspec.convert(self.backing, RemoteSettings))

    def config(self, sandbox: str, keys: tuple[str, str] = ADMIN, port: int = 0) -> str:
        backing = self.backing | {"key": keys[0], "secret": keys[1]}
        if port:
            backing["endpoint"] = f"http://127.0.0.1:{port}"
        lines = [f'{name} = "{value}"' for name, value in backing.items()]
        return "\n".join([f'[engines.local]\nsandbox = "{sandbox}"', "[storage.buckets.models]", *lines])

    def put(self, key: str, data: bytes) -> None:
        self._store.put(key, data)

    def delete(self, key: str) -> None:
        self._store.delete(key)

    def names(self) -> set[str]:
        return {one["path"] for page in self._store.list() for one in page}

    def everything(self) -> dict[str, bytes]:
        return {key: bytes(self._store.get(key).bytes()) for key in self.names()}


@pytest.fixture
def place(s3: S3) -> Place:
    return Place(s3)


@pytest.fixture(params=["bubblewrap", "none"])
def service(place: Place, request: pytest.FixtureRequest) -> Iterator[Service]:
    with running(place.config(request.param)) as one:
        yield one.start()


def run(service: Service, name: str, script: str) -> dict[str, Any]:
    service.create(name, "sh", "-c", script, PackageDir=[MOUNT])
    return service.wait(name)


def test_code_is_downloaded_and_results_are_uploaded(service: Service, place: Place):
    script = b"cat data/x; echo done > out.txt; mkdir -p a/b; cp data/x a/b/y"
    place.put("code/train.sh", script)
    place.put("code/data/x", b"from afar\n")
    place.put("other/z", b"not asked for")
    job = run(service, "there", "sh train.sh; rm data/x")
    assert (job["state"], job["message"]) == ("succeeded", "")
    assert [line.Log for line in service.logs("there")] == ["from afar"]
    assert place.everything() == {
        "code/train.sh": script,
        "code/data/x": b"from afar\n",  # deletions are not brought back
        "code/out.txt": b"done\n",
        "code/a/b/y": b"from afar\n",
        "other/z": b"not asked for",
    }
    _until(lambda: not list((service.data / "copies").iterdir()))


def test_results_of_failed_and_stopped_jobs_are_uploaded_too(service: Service, place: Place):
    place.put("code/x", b"x")
    assert run(service, "fails", "echo 1 > one; exit 3")["reason"] == "program failed"
    service.create("stops", "sh", "-c", "echo 2 > two; echo ready; sleep 1000", PackageDir=[MOUNT])
    _until(lambda: service.logs("stops"))
    service.delete("stops")
    _until(lambda: "code/two" in place.names())
    assert place.everything() == {"code/x": b"x", "code/one": b"1\n", "code/two": b"2\n"}


def test_results_that_cannot_be_stored_fail_the_job(place: Place):
    place.put("code/x", b"x")
    with running(place.config("none", READER)) as service:
        service.start()
        job = run(service, "mute", "echo 1 > one")
        [kept] = (service.data / "copies").glob("*/0/one")
        assert kept.read_text() == "1\n"  # it is nowhere else
        assert str(kept.parent.parent) in job["message"]
        service.delete("mute")
        _until(lambda: not kept.exists())
    assert (job["state"], job["reason"]) == ("failed", "staging failed")
    assert "cos://models-1250000000/code" in job["message"]
    assert "access denied" in job["message"]
    assert place.everything() == {"code/x": b"x"}


@pytest.fixture
def cramped(place: Place) -> Iterator[Service]:
    """A service whose disk has 24 MB."""
    with running(place.config("none")) as service:
        service.data.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m,mode=711", "tmpfs", service.data], check=True)
        try:
            yield service.start()
        finally:
            service.clean()
            subprocess.run(["umount", "-l", service.data], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
def test_a_full_disk_fails_the_job_that_does_not_fit_and_no_other(cramped: Service, place: Place):
    place.put("code/big", bytes(40 << 20))
    job = run(cramped, "large", "echo never")
    assert (job["state"], job["reason"]) == ("failed", "staging failed")
    assert "no space is left for" in job["message"]
    assert "it needs 41.9 MB" in job["message"]
    _until(lambda: not list((cramped.data / "copies").iterdir()))
    place.delete("code/big")
    place.put("code/x", b"x")
    assert run(cramped, "small", "echo fits > note")["state"] == "succeeded"
    assert place.everything() == {"code/x": b"x", "code/note": b"fits\n"}


def test_only_the_stager_has_the_secrets(service: Service, place: Place):
    place.put("code/x", b"x")
    script = (
        "env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | sort -u; echo end"
    )
    assert run(service, "spy", script)["state"] == "succeeded"
    said = "\n".join(line.Log for line in service.logs("spy"))
    assert "end" in said
    assert ADMIN[1] not in said
    assert ADMIN[1] not in service.log.read_text()
    for path in service.data.rglob("*"):
        if path.is_file():
            assert ADMIN[1].encode() not in path.read_bytes(), path


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["service", "stager", "both"])
def test_killed_during_a_download(s3: S3, place: Place, victim: str):
    content = os.urandom(1 << 20) * (BIG >> 20)
    place.put("code/big", content)
    with (
        faulty_proxy(s3.port, after=4 << 20) as proxy,
        running(place.config("none", port=proxy.port)) as service,
    ):
        service.start()
        service.create("big", "sh", "-c", "cp big twin", PackageDir=[MOUNT])
        _kill_halfway(service, victim, proxy)
        assert service.wait("big")["state"] == "succeeded"
    assert place.everything() == {"code/big": content, "code/twin": content}


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["service", "stager", "both"])
def test_killed_during_an_upload(s3: S3, place: Place, victim: str):
    place.put("code/x", b"x")
    make = f"head -c {BIG} /dev/urandom > big; sha256sum big > sum"
    faults = {"after": 4 << 20, "upwards": True}
    with faulty_proxy(s3.port, **faults) as proxy, running(place.config("none", port=proxy.port)) as service:
        service.start()
        service.create("big", "sh", "-c", make, PackageDir=[MOUNT])
        _kill_halfway(service, victim, proxy)
        job = service.wait("big")
        assert (job["state"], job["attempt"]) == ("succeeded", 1)
    stored = place.everything()
    assert stored["code/sum"].split()[0].decode() == hashlib.sha256(stored["code/big"]).hexdigest()


def _kill_halfway(service: Service, victim: str, proxy: FaultyProxy) -> None:
    assert proxy.reached.wait(60)
    proxy.flowing.clear()
    _kill(service, victim)
    proxy.flowing.set()


def _kill(service: Service, victim: str) -> None:
    if victim in ("stager", "both"):
        for process in _stagers(service):
            process.send_signal(signal.SIGKILL)
    if victim in ("service", "both"):
        service.kill()
        service.start()


def _stagers(service: Service) -> list[psutil.Process]:
    assert service.process
    return children_with(service.process.pid, "runner.stager")


def _until(happens: Callable[[], Any]) -> None:
    end = time.monotonic() + 60
    while not happens():
        assert time.monotonic() < end
        time.sleep(0.01)
