"""The page: what its first view loads with a large store, a page of the list of jobs, and many listeners to changes."""

import gzip
import re
import select
import socket
import statistics
import time
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path

import psutil

from bench.client import KEY
from bench.floor import Floor
from bench.service import Service
from bench.sizes import LARGE, fill
from bench.table import Row, Table
from turnout.access import make_token

LISTENERS = 200
TIMES = 20


def page(table: Table, directory: Path, floor: Floor) -> None:
    jobs = LARGE // 10 if table.quick else LARGE
    service = Service(directory / "service")
    step = table.steps("page", 4)
    try:
        fill(service, jobs)
        service.start()
        assert service.process is not None
        process = psutil.Process(service.process.pid)
        _ask(service, "/turnout/v1/jobs?limit=50")
        before = process.memory_info().rss
        first = _timed(lambda: _open(service))
        step()
        opened = _median(lambda: _open(service))
        step()
        listed = _median(lambda: _ask(service, "/turnout/v1/jobs?limit=50"))
        with _listener(service):
            resident = process.memory_info().rss
        step()
        heard, with_all = _hear(service, process)
        step()
    finally:
        service.clean()
    having = f"with {jobs:,} jobs"
    rows = (
        (f"first view, all its files and 50 jobs, {having}: the first time", first, "ms", 300),
        (f"first view, all its files and 50 jobs, {having}", opened, "ms", 300),
        (f"a page of 50 jobs, {having}", listed, "ms", None),
        (f"a change reaches {LISTENERS} listeners: the last one", heard, "ms", None),
        ("memory with the page open: resident", resident / 1e6, "MB", 60),
        ("memory that the page adds", max(0, resident - before) / 1e6, "MB", 5),
        (f"memory with {LISTENERS} listeners: resident", with_all / 1e6, "MB", None),
    )
    for what, value, unit, target in rows:
        table.add(Row("page", what, value, unit, target=target, judged="measured"))


def _open(service: Service) -> None:
    """What a browser with an empty cache loads, on one connection."""
    connection = HTTPConnection("127.0.0.1", service.port)
    index = _get(connection, "/", Accept="text/html")
    names = re.findall(r'(?:src|href)="(/turnout/page/[^"]+)"', index.decode())
    base = names[0].rpartition("/")[0].removesuffix("/parts")
    for name in (*names, f"{base}/views/jobs.js"):
        _get(connection, name)
    _get(connection, "/turnout/v1/jobs?limit=50", Authorization=f"Bearer {_token()}")
    connection.close()


def _ask(service: Service, path: str) -> bytes:
    connection = HTTPConnection("127.0.0.1", service.port)
    answer = _get(connection, path, Authorization=f"Bearer {_token()}")
    connection.close()
    return answer


def _get(connection: HTTPConnection, path: str, **headers: str) -> bytes:
    connection.request("GET", path, headers=headers | {"Accept-Encoding": "gzip"})
    answer = connection.getresponse()
    body = answer.read()
    if answer.status != 200:
        raise AssertionError(f"{path}: {answer.status} {body[:200]!r}")
    return gzip.decompress(body) if answer.getheader("Content-Encoding") == "gzip" else body


def _hear(service: Service, process: psutil.Process) -> tuple[float, float]:
    """Milliseconds from the answer to a create until the last listener has the change, and the memory meanwhile."""
    listeners = [_listener(service) for _ in range(LISTENERS)]
    for listener in listeners:
        _until(listener, b"event: ready")
    times: list[float] = []
    for number in range(TIMES):
        name = f"heard-{number}"
        before = time.perf_counter()
        service.line.ask(service.requests.create(name, ("/bin/true",)))
        for listener in listeners:
            _until(listener, name.encode())
        times.append((time.perf_counter() - before) * 1e3)
        service.wait(name)
        time.sleep(0.2)
        for listener in listeners:
            _drain(listener)
    resident = process.memory_info().rss
    for listener in listeners:
        listener.close()
    return statistics.median(times), resident


def _listener(service: Service) -> socket.socket:
    opened = socket.create_connection(("127.0.0.1", service.port))
    opened.sendall(service.requests.get("/turnout/v1/changes", _token()))
    return opened


def _until(listener: socket.socket, text: bytes) -> None:
    seen = b""
    while text not in seen:
        part = listener.recv(1 << 16)
        if not part:
            raise ConnectionError("the stream of changes ended")
        seen += part


def _drain(listener: socket.socket) -> None:
    while select.select([listener], [], [], 0)[0] and listener.recv(1 << 16):
        pass


def _token() -> str:
    return make_token(KEY, time.time())


def _median(call: Callable[[], object]) -> float:
    return statistics.median(_timed(call) for _ in range(TIMES))


def _timed(call: Callable[[], object]) -> float:
    before = time.perf_counter()
    call()
    return (time.perf_counter() - before) * 1e3
