"""A host path on a file system that does not answer delays only its own jobs."""

import contextlib
import ctypes
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests
from tencentcloud.common.exception.tencent_cloud_sdk_exception import TencentCloudSDKException

from tests.running import Service, reachable_directory, running

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0 or not Path("/dev/fuse").exists(), reason="only root can mount, and it needs FUSE"
    ),
]
FORCE, DETACH = 1, 2
ON_GPU = {"ScaleTier": "CUSTOM", "MasterType": "1U1G1P"}


@contextlib.contextmanager
def silent(place: Path) -> Iterator[None]:
    """A file system whose server never answers."""
    libc = ctypes.CDLL(None, use_errno=True)
    server = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={server},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    try:
        assert libc.mount(b"silent", os.fsencode(place), b"fuse", 0, options) == 0, os.strerror(
            ctypes.get_errno()
        )
        yield
    finally:
        # Whoever waits for an answer gets an error.
        os.close(server)
        libc.umount2(os.fsencode(place), FORCE | DETACH)


@pytest.fixture
def host() -> Iterator[Path]:
    with reachable_directory() as directory:
        for name in ("hangs", "answers"):
            (directory / name).mkdir()
        yield directory


def create(service: Service, name: str, path: Path, **fields: str) -> str:
    try:
        service.create(name, "true", PackageDir=[f"file://{path}:/data"], **fields)
    except TencentCloudSDKException as error:
        return str(error)
    return "created"


def test_creates_with_a_hanging_path_do_not_delay_others(host: Path) -> None:
    settings = f'[storage]\nhost_paths = ["{host}"]\n'
    with running(settings) as service, ThreadPoolExecutor(8) as clients:
        service.start()
        with silent(host / "hangs"):
            hanging = [clients.submit(create, service, f"h{n}", host / "hangs" / "x") for n in range(8)]
            for _ in range(20):
                assert requests.get(service.endpoint + "/healthz", timeout=60).status_code == 200
            assert not any(one.done() for one in hanging)
            for told in (one.result() for one in hanging):
                assert "the file system does not answer" in told
        assert create(service, "after", host / "answers") == "created"
        assert service.wait("after")["state"] == "succeeded"


def test_a_job_whose_path_hangs_at_its_start_fails_and_others_start(host: Path) -> None:
    """The file system still answers when the job is created."""
    settings = f'[storage]\nhost_paths = ["{host}"]\n[engines.local]\ngpus = 1\n'
    with running(settings) as service:
        service.start()
        service.create("first", "sleep", "1000", **ON_GPU)
        service.wait("first", "started")
        assert create(service, "waits", host / "hangs", **ON_GPU) == "created"
        with silent(host / "hangs"):
            service.delete("first")
            service.create("other", "true")
            assert service.wait("other")["state"] == "succeeded"
            ended = service.wait("waits")
            assert ended["state"] == "failed"
            assert "does not answer" in str(ended)
