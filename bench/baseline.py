"""The floor of `creates`: Starlette, msgspec and SQLite FULL with group commit.

No signature, no job, no process: it decodes a body, stores it and answers. `python -m bench.baseline PORT FILE`.
"""

import asyncio
import sqlite3
import sys
from concurrent.futures import ThreadPoolExecutor

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


class CreateJob(msgspec.Struct, rename="pascal"):
    name: str
    cluster: str
    runtime_version: str
    command: list[str]
    args: list[str]
    scale_tier: str = ""
    master_type: str = ""


class Rows:
    """Group commit: collects rows during a commit, and writes all of them in the next one."""

    def __init__(self, path: str) -> None:
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        for pragma in ("journal_mode = WAL", "synchronous = FULL"):
            self._database.execute(f"PRAGMA {pragma}")
        self._database.execute("CREATE TABLE jobs (id INTEGER PRIMARY KEY, name TEXT UNIQUE, document BLOB)")
        self._thread = ThreadPoolExecutor(1)
        self._rows: list[tuple[str, bytes]] = []
        self._next: asyncio.Future[None] | None = None
        self._committing = False

    async def add(self, name: str, document: bytes) -> None:
        self._rows.append((name, document))
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        answer = self._next
        if not self._committing:
            self._committing = True
            self._task = asyncio.create_task(self._commit())
        await asyncio.shield(answer)

    async def _commit(self) -> None:
        while self._next is not None:
            rows, answer = self._rows, self._next
            self._rows, self._next = [], None
            await asyncio.get_running_loop().run_in_executor(self._thread, self._write, rows)
            answer.set_result(None)
        self._committing = False

    def _write(self, rows: list[tuple[str, bytes]]) -> None:
        self._database.execute("BEGIN IMMEDIATE")
        self._database.executemany("INSERT INTO jobs (name, document) VALUES (?, ?)", rows)
        self._database.execute("COMMIT")


def main(port: int, path: str) -> None:
    rows = Rows(path)
    decode = msgspec.json.Decoder(CreateJob).decode
    encode = msgspec.json.Encoder().encode

    async def create(request: Request) -> Response:
        job = decode(await request.body())
        await rows.add(job.name, encode(job))
        return Response(encode(job), media_type="application/json")

    async def health(_: Request) -> Response:
        return Response(b"{}", media_type="application/json")

    app = Starlette(routes=[Route("/", create, methods=["POST"]), Route("/healthz", health)])
    uvicorn.run(
        app,
        port=port,
        loop="uvloop",
        http="httptools",
        ws="none",
        access_log=False,
        log_level="warning",
        server_header=False,
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
