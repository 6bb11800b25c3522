"""The runner gateway against callers that are not what they say, and calls that come twice or make no sense."""

import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.engines.remote.harness import RemoteHarness
from turnout.job import Attempt, Mount, Submitted

ONE, OTHER = "1" * 32, "2" * 32
ARRIVAL = {"address": "127.0.0.1", "ports": [20000, 20001], "home": "/tmp/x", "python": "/usr/bin/python3"}


class Caller:
    """Calls like a runner, or almost."""

    def __init__(self, remote: RemoteHarness, attempt: Attempt) -> None:
        self.attempt = attempt
        self.token = remote.engine._attempts[attempt].token
        self.handle = next(iter(remote.cluster.jobs))
        self._base = f"http://127.0.0.1:{remote.port}/runner/v1"

    async def __call__(
        self, call: str, body: Any = None, *, instance: str = ONE, token: str = "", replica: str = "master-0"
    ) -> httpx.Response:
        data = body if isinstance(body, bytes) else json.dumps({} if body is None else body).encode()
        async with httpx.AsyncClient(base_url=self._base, timeout=60) as client:
            return await client.post(
                f"/{self.attempt}/{replica}/{call}", content=data, headers=self.headers(instance, token)
            )

    async def raw(self, method: str, path: str, content: bytes = b"", **headers: str) -> httpx.Response:
        url = f"/{self.attempt}/master-0/{path}"
        async with httpx.AsyncClient(base_url=self._base, timeout=60) as client:
            return await client.request(method, url, content=content, headers=self.headers(ONE, "") | headers)

    def headers(self, instance: str, token: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {token or self.token}", "X-Turnout-Runner": instance}

    async def claim(self, instance: str = ONE) -> httpx.Response:
        return await self("claim", {"engine_id": self.handle, "node": "n1"}, instance=instance)


@pytest.fixture
async def remote(tmp_path: Path) -> AsyncIterator[RemoteHarness]:
    async with RemoteHarness(tmp_path) as one:
        one.cluster.full = True  # no runner starts: the tests are the runners
        yield one


async def start(remote: RemoteHarness, **details: Any) -> Caller:
    attempt = await remote.start("true", **details)
    await remote.wait(lambda report: isinstance(report, Submitted) and report.attempt == attempt)
    return Caller(remote, attempt)


@pytest.fixture
async def caller(remote: RemoteHarness) -> Caller:
    return await start(remote)


async def test_only_the_token_of_the_attempt_opens_it(caller: Caller, remote: RemoteHarness):
    other = await start(remote)
    assert (await caller("claim", {}, token="wrong")).status_code == 401
    assert (await caller("claim", {}, token=other.token)).status_code == 401
    assert (await caller.claim()).json()["granted"] is True


async def test_an_attempt_that_is_not_there(caller: Caller):
    caller.attempt = Attempt(5, 1)
    assert (await caller("claim", {})).status_code == 410


async def test_a_replica_is_granted_once(caller: Caller):
    assert (await caller.claim()).status_code == 200
    assert (await caller.claim()).status_code == 200, "the same runner may ask again"
    fenced = await caller.claim(OTHER)
    assert (fenced.status_code, fenced.json()) == (409, {"error": "another runner has master-0"})
    for call, body in (("arrive", ARRIVAL), ("wait", {}), ("tell", b"{}\n"), ("saved", {}), ("stage", {})):
        assert (await caller(call, body, instance=OTHER)).status_code == 409, call


async def test_a_second_gang_of_the_same_attempt_is_fenced(caller: Caller):
    caller.handle = "another job of the cluster"
    assert (await caller.claim()).status_code == 409


async def test_what_makes_no_sense(caller: Caller):
    await caller.claim()
    assert (await caller("dance", {})).status_code == 404
    assert (await caller("claim", {}, replica="worker-9")).status_code == 404
    assert (await caller("claim", {}, replica="no-number")).status_code == 404
    assert (await caller("claim", {}, instance="x")).status_code == 404
    for call, body in (
        ("arrive", {"address": "a"}),
        ("arrive", ARRIVAL | {"ports": [1]}),
        ("started", {"restarts": "many"}),
        ("ended", b"not json"),
        ("ended", {"restarts": 0, "at": 1, "cause": "boredom"}),
        ("tell", b'{"pieces": [{"stream": 0, "offset": 0, "size": 9}]}\nshort'),
        ("tell", b'{"pieces": [{"stream": 7, "offset": 0, "size": 0}]}\n'),
        ("stage", {"op": "steal", "mount": 0}),
    ):
        answer = await caller(call, body)
        assert (answer.status_code, "error" in answer.json()) == (400, True), (call, body, answer.text)
    assert (await caller("tell", b"x" * (3 << 20))).status_code == 413


async def test_log_bytes_that_come_twice_or_too_early(caller: Caller, remote: RemoteHarness):
    await caller.claim()

    async def tell(offset: int, data: bytes) -> list[int]:
        head = {"pieces": [{"stream": 0, "offset": offset, "size": len(data)}], "marks": []}
        return (await caller("tell", json.dumps(head).encode() + b"\n" + data)).json()["sizes"]

    assert await tell(0, b"hello ") == [6, 0]
    assert await tell(0, b"hello ") == [6, 0]
    assert await tell(3, b"lo world") == [11, 0]
    assert await tell(50, b"too early") == [11, 0]
    assert remote.output(caller.attempt) == "hello world"


async def test_objects_stay_in_their_mounts(remote: RemoteHarness):
    mounts = (
        Mount("s3://bucket/in/", "/in", read_only=True),
        Mount("s3://bucket/out/", "/out", fetch=False, output=True),
    )
    caller = await start(remote, mounts=mounts)
    await caller.claim()
    assert (await caller.raw("PUT", "objects/1/a/b.txt", b"data")).status_code == 200
    assert (remote.paths.buckets / "bucket/out/a/b.txt").read_bytes() == b"data"
    assert (await caller.raw("GET", "objects/1/a/b.txt")).content == b"data"
    part = await caller.raw("GET", "objects/1/a/b.txt", Range="bytes=1-2")
    assert (part.status_code, part.content) == (206, b"at")
    assert (await caller.raw("PUT", "objects/0/a", b"data")).status_code == 400
    for key in ("..%2Fin%2Fx", "%2E%2E/in/x", "a/%2E%2E/%2E%2E/x", "a//b"):
        assert (await caller.raw("PUT", f"objects/1/{key}", b"data")).status_code in (400, 404), key
    assert (await caller.raw("GET", "objects/9/x")).status_code == 404
    assert (await caller.raw("GET", "objects/1/missing")).status_code == 404
    wrong = await caller.raw("GET", "objects/1/a/b.txt", Authorization="Bearer x")
    assert wrong.status_code == 401
    listed = (await caller("stage", {"op": "list", "mount": 0})).json()
    assert "s3://bucket/in/" in listed["missing"]


async def test_the_runner_itself_needs_no_token(caller: Caller, remote: RemoteHarness):
    digest = remote.engine.calls.archive[1]
    url = f"http://127.0.0.1:{remote.port}/runner/v1"
    async with httpx.AsyncClient() as client:
        assert (await client.get(f"{url}/ping")).json() == {"turnout": True}
        archive = (await client.get(f"{url}/{digest}.pyz")).content
        assert hashlib.sha256(archive).hexdigest() == digest
        assert (await client.get(f"{url}/{'0' * 64}.pyz")).status_code == 404
