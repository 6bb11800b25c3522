"""`turnout cp` with a bucket in a remote object store works as with an embedded one."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.running import KEY, Service, reachable_directory, running


@pytest.fixture(scope="module")
def store() -> Iterator[tuple[str, Path]]:
    """rclone's S3 server: its address, and the directory that contains its buckets."""
    rclone = Path(sys.executable).with_name("rclone")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    with reachable_directory() as directory:
        (directory / "real").mkdir()
        words = [
            "serve",
            "s3",
            "--addr",
            address,
            "--auth-key",
            "access-id,secret-enough",
            "--vfs-cache-mode=off",
        ]
        environment = os.environ | {"RCLONE_CONFIG": str(directory / "none.conf")}
        process = subprocess.Popen([rclone, *words, directory], env=environment, stderr=subprocess.DEVNULL)
        try:
            _wait_for(address)
            yield f"http://{address}", directory / "real"
        finally:
            process.terminate()
            process.wait(20)


@pytest.fixture(scope="module")
def service(store) -> Iterator[Service]:
    endpoint, _ = store
    config = f"""
        [storage.buckets.far]
        url = "s3://real/below"
        endpoint = "{endpoint}"
        region = "us-east-1"
        key = "access-id"
        secret = "secret-enough"
        allow_http = true
        [storage.buckets.closed]
        url = "s3://real"
        endpoint = "{endpoint}"
        region = "us-east-1"
        key = "access-id"
        secret = "another-secret"
        allow_http = true
    """
    with running("\n".join(line.strip() for line in config.splitlines())) as one:
        yield one.start()


@pytest.fixture
def run(run_turnout, service, monkeypatch, tmp_path):
    monkeypatch.setenv("TURNOUT_ENDPOINT", service.endpoint)
    monkeypatch.setenv("TURNOUT_KEY", f"{KEY.id}:{KEY.secret}")
    monkeypatch.chdir(tmp_path)
    return run_turnout


def test_a_tree_is_uploaded_and_downloaded(run, store, tmp_path):
    _, real = store
    (tmp_path / "tree" / "sub").mkdir(parents=True)
    (tmp_path / "tree" / "small").write_text("small")
    (tmp_path / "tree" / "sub" / "large").write_bytes(os.urandom(20 << 20))
    assert run("cp", "-r", "tree", "cos://far/tree") == (0, "", "")
    assert (real / "below" / "tree" / "small").read_text() == "small"
    assert run("ls", "cos://far/tree").out == "small\nsub/\n"
    assert run("ls", "-r", "gs://far").out == "tree/small\ntree/sub/large\n"
    assert run("cp", "-r", "obs://far/tree", "back") == (0, "", "")
    assert (tmp_path / "back" / "sub" / "large").read_bytes() == (
        tmp_path / "tree" / "sub" / "large"
    ).read_bytes()
    assert run("cp", "obs://far/tree/sub/large", "gs://embedded/large") == (0, "", "")
    assert run("cp", "gs://embedded/large", "obs://far/again") == (0, "", "")
    assert (real / "below" / "again").stat().st_size == 20 << 20
    assert run("rm", "-r", "cos://far/tree") == (0, "", "")
    assert run("ls", "-r", "gs://far").out == "again\n"


def test_a_missing_object_and_a_store_that_denies_access(run, tmp_path):
    (tmp_path / "a").write_text("a")
    assert run("cp", "cos://far/none", "x").err == "turnout: cos://far/none does not exist\n"
    outcome = run("cp", "a", "cos://closed/a")
    assert outcome.code == 1
    assert "cos://closed/a" in outcome.err
    assert "access denied by the store" in outcome.err
    assert "secret" not in outcome.err


def _wait_for(address: str) -> None:
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + 20
    while True:
        try:
            socket.create_connection((host, int(port))).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
