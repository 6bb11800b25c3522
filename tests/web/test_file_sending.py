"""Parts of files that the server sends itself: to slow clients, to those that leave, of files that become shorter."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import uvicorn
from starlette.types import Message, Receive, Scope, Send

from tests.web.test_protocol import until
from turnout.service.download import file_message, sends_files
from turnout.storage.streams import PlainPart
from turnout.web import protocol
from turnout.web.protocol import LimitedProtocol

SIZE = 24 << 20
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class Application:
    """Sends a part of the file, as large as it announces."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.start, self.end = 5, SIZE
        self.begun = self.ended = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert sends_files(scope)
        file = os.open(self.path, os.O_RDONLY)
        self.begun += 1
        size = self.end - self.start
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _length(size)})
            await send(file_message(PlainPart("", file, self.start, self.end)))
        finally:
            os.close(file)
            self.ended += 1


def _length(size: int) -> list[tuple[bytes, bytes]]:
    return [(b"content-length", str(size).encode())]


@pytest.fixture
async def application(tmp_path: Path) -> Application:
    path = tmp_path / "file"
    with path.open("wb") as file:
        for _ in range(SIZE >> 20):
            file.write(os.urandom(1 << 20))
    return Application(path)


@contextlib.asynccontextmanager
async def connected(application: Application) -> AsyncIterator[socket.socket]:
    """A connection whose client has sent a request."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
        config = uvicorn.Config(
            application, http=LimitedProtocol, ws="none", lifespan="off", log_level="critical", loop="uvloop"
        )
        server = uvicorn.Server(config)
        task = asyncio.create_task(server.serve([listener]))
        client.setblocking(False)
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_connect(client, listener.getsockname())
            await loop.sock_sendall(client, GET)
            yield client
        finally:
            server.should_exit = server.force_exit = True
            await task


async def received(client: socket.socket, size: int, pause: float = 0) -> bytes:
    """So many bytes, or those until the end."""
    loop, data = asyncio.get_running_loop(), bytearray()
    async with asyncio.timeout(60):
        while len(data) < size:
            piece = await loop.sock_recv(client, min(1 << 20, size - len(data)))
            if not piece:
                break
            data += piece
            await asyncio.sleep(pause)
    return bytes(data)


async def head(client: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\r\n\r\n"):
        data += await received(client, 1)
    return data


@pytest.mark.parametrize("pause", [0, 0.02], ids=["quick", "slow"])
async def test_the_part_arrives_and_the_connection_goes_on(application: Application, pause: float):
    content = application.path.read_bytes()
    async with connected(application) as client:
        for start, end in ((5, SIZE), (0, 1), (1 << 20, 3 << 20)):
            application.start, application.end = start, end
            if application.ended:
                await asyncio.get_running_loop().sock_sendall(client, GET)
            assert f"content-length: {end - start}\r\n".encode() in await head(client)
            assert await received(client, end - start, pause) == content[start:end]
            await until(lambda: application.ended == application.begun)


async def test_pipelined_requests_are_answered_in_their_order(application: Application):
    content = application.path.read_bytes()
    async with connected(application) as client:
        await asyncio.get_running_loop().sock_sendall(client, GET * 3)
        for _ in range(4):
            await head(client)
            assert await received(client, SIZE - 5) == content[5:]


async def test_a_refused_request_writes_nothing_into_the_file_before_it(application: Application):
    content, data = application.path.read_bytes()[5:], bytearray()
    loop = asyncio.get_running_loop()
    async with connected(application) as client:
        await head(client)
        await loop.sock_sendall(client, b"no request\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            while piece := await loop.sock_recv(client, 1 << 20):
                data += piece
        await until(lambda: application.ended == 1)
    assert len(data) < len(content)
    assert content.startswith(data)


async def test_a_client_that_leaves_ends_the_sending(application: Application):
    async with connected(application) as client:
        await received(client, 1000)
        client.close()
        await until(lambda: application.ended == 1)


async def test_a_client_that_reads_nothing_is_disconnected(
    application: Application, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(protocol, "STALLED_SECONDS", 0.3)
    async with connected(application) as client:
        await until(lambda: application.ended == 1)
        assert len(await received(client, SIZE)) < SIZE - 5


async def test_a_client_that_reads_slowly_is_not(application: Application, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(protocol, "STALLED_SECONDS", 2)
    application.end = 6 << 20
    async with connected(application) as client:
        await head(client)
        assert len(await received(client, application.end - 5, 0.4)) == application.end - 5
    assert application.ended == 1


async def test_a_file_that_becomes_shorter_ends_the_connection(application: Application):
    async with connected(application) as client:
        await until(lambda: application.begun == 1)
        os.truncate(application.path, 10 << 20)
        assert len(await received(client, SIZE)) < SIZE - 5
        await until(lambda: application.ended == 1)


async def test_a_part_that_is_not_as_long_as_announced_is_an_error(tmp_path: Path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    raised: list[BaseException] = []

    async def wrong(scope: Scope, receive: Receive, send: Send) -> None:
        with path.open("rb") as file:
            try:
                await send({"type": "http.response.start", "status": 200, "headers": _length(50)})
                await send(file_message(PlainPart("", file.fileno(), 0, 100)))
            except RuntimeError as error:
                raised.append(error)
                message: Message = {"type": "http.response.body", "body": b"y" * 50}
                await send(message)

    async with connected(wrong) as client:  # type: ignore[arg-type]
        await head(client)
        assert await received(client, 50) == b"y" * 50
    assert len(raised) == 1
