"""The two ends of a flood, each in a separate process.

`python -m bench.sender PORT CONNECTIONS FILE…` sends the requests in the files again and again, one of
them on each connection; `python -m bench.sender PORT` is a sink, which reads everything and answers at once.
"""

import asyncio
import contextlib
import itertools
import sys
from pathlib import Path

import uvloop

_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
_PAUSE = 0.02
"""Seconds before a connection that was refused or closed is opened again."""


async def send(port: int, connections: int, requests: list[bytes]) -> None:
    await asyncio.gather(*(_keep_sending(port, requests[n % len(requests)]) for n in range(connections)))


async def _keep_sending(port: int, request: bytes) -> None:
    while True:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, ValueError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                while True:
                    writer.write(request)
                    await writer.drain()
                    await _read_answer(reader)
            finally:
                writer.close()
        await asyncio.sleep(_PAUSE)


async def _read_answer(reader: asyncio.StreamReader) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    size = int(head.partition(b"content-length: ")[2].partition(b"\r")[0])
    while size:
        size -= len(await reader.readexactly(min(size, 1 << 16)))


async def sink(port: int) -> None:
    server = await asyncio.start_server(_swallow, "127.0.0.1", port)
    await server.serve_forever()


async def _swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        for _ in itertools.count():
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            size = int(head.partition(b"content-length: ")[2].partition(b"\r")[0] or 0)
            while size:
                size -= len(await reader.readexactly(min(size, 1 << 16)))
            writer.write(_ANSWER)
            await writer.drain()
    writer.close()


if __name__ == "__main__":
    to, *rest = sys.argv[1:]
    if rest:
        uvloop.run(send(int(to), int(rest[0]), [Path(name).read_bytes() for name in rest[1:]]))
    else:
        uvloop.run(sink(int(to)))
