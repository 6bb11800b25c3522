"""The HTTP server: uvicorn as the service uses it, and what the process sets for itself."""

import asyncio
import gc
import resource
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp

from turnout.config import Settings

_LARGEST_MESSAGE = 256 << 10
"""What a browser may send in one WebSocket message."""
_MOST_FILES = 1 << 20
"""A higher limit is of no use, and programs that go through all possible descriptors would take seconds."""


class Server(uvicorn.Server):
    """Sleeps until a signal stops it, then calls `stopping`. uvicorn itself would check ten times a second."""

    def __init__(
        self,
        app: ASGIApp,
        protocol: type[asyncio.Protocol],
        settings: Settings,
        backlog: int,
        stopping: Callable[[], None],
    ) -> None:
        super().__init__(_uvicorn_config(app, protocol, settings, backlog))
        self._stopping = stopping
        self._loop = asyncio.get_running_loop()
        self._signalled = asyncio.Event()

    async def main_loop(self) -> None:
        await self._signalled.wait()
        self._stopping()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True
        self._loop.call_soon_threadsafe(self._signalled.set)


def raise_file_limit() -> None:
    """As many open files as the machine allows: every client that waits holds one. Jobs have their own limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, _MOST_FILES)), hard))


def tune_interpreter() -> None:
    """Call it when everything is open."""
    # Objects that exist by now stay alive, and requests leave few reference cycles behind.
    gc.freeze()
    # A collection stops everything, and takes a millisecond for a few thousand objects that stay alive.
    gc.set_threshold(5_000, 5, 20)
    # A thread that reads logs must let the event loop run after this many seconds.
    sys.setswitchinterval(0.0005)


def _uvicorn_config(
    app: ASGIApp, protocol: type[asyncio.Protocol], settings: Settings, backlog: int
) -> uvicorn.Config:
    certificate, key = settings.tls_files or (None, None)
    return http_config(
        app,
        protocol,
        ws=cast(type[asyncio.Protocol], _websockets),
        ws_max_size=_LARGEST_MESSAGE,
        ws_per_message_deflate=False,
        ws_ping_timeout=60,
        backlog=backlog,
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )


def http_config(
    app: ASGIApp, protocol: type[asyncio.Protocol], ws: type[asyncio.Protocol] | None = None, **more: Any
) -> uvicorn.Config:
    """How the service speaks HTTP. `ws`: for WebSockets. `more`: about them, and for TLS."""
    return uvicorn.Config(
        app,
        http=protocol,
        ws=ws or "none",
        lifespan="off",
        access_log=False,
        log_config=None,  # uvicorn logs like everything else
        log_level="warning",
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=1,
        **more,
    )


def _websockets(**details: Any) -> asyncio.Protocol:
    """Imports the protocol when the first shell is opened."""
    from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

    return WebSocketsSansIOProtocol(**details)
