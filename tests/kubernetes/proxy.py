"""A proxy before the API server that can be told to misbehave."""

import asyncio
import json
import ssl
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

STATUS = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}


class FaultyProxy:
    def __init__(self, server: str, certificate: Path) -> None:
        self._server = urlsplit(server)
        self._context = ssl.create_default_context(cafile=str(certificate))
        self._connections: set[asyncio.StreamWriter] = set()
        self.answer = 0
        """The status of every answer; 0: the server's own."""
        self.delay = 0.0
        """Seconds before each answer."""
        self.expire_watches = 0
        """So many watches get 410."""
        self.requests: list[str] = []

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._listener.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Breaks all connections, also those of watches."""
        for writer in self._connections:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.decode().split("\r\n")
            size = next(
                (int(line.split()[1]) for line in lines if line.lower().startswith("content-length")), 0
            )
            body = await reader.readexactly(size)
            self.requests.append(lines[0])
            await asyncio.sleep(self.delay)
            if self.answer:
                writer.write(_answer(self.answer, {**STATUS, "code": self.answer, "message": "told to fail"}))
            elif "watch=1" in lines[0] and self.expire_watches:
                self.expire_watches -= 1
                gone = {**STATUS, "code": 410, "reason": "Expired", "message": "too old resource version"}
                writer.write(_answer(200, {"type": "ERROR", "object": gone}))
            else:
                await self._pass_on(lines, body, writer)
            await writer.drain()
        except (OSError, EOFError):
            pass
        finally:
            self._connections.discard(writer)
            writer.close()

    async def _pass_on(self, lines: list[str], body: bytes, writer: asyncio.StreamWriter) -> None:
        upstream, sender = await asyncio.open_connection(
            self._server.hostname, self._server.port, ssl=self._context
        )
        self._connections.add(sender)
        sender.write("\r\n".join([lines[0], "Connection: close", *lines[1:]]).encode() + body)
        while data := await upstream.read(65536):
            writer.write(data)
            await writer.drain()
        self._connections.discard(sender)
        sender.close()


def _answer(code: int, document: object) -> bytes:
    body = json.dumps(document).encode() + b"\n"
    head = f"HTTP/1.1 {code} Told\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + body
