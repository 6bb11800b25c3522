"""Serves the listeners in the networks of gangs: a connection to one is a program of that gang."""

import asyncio
import copy
import logging
import socket
from collections.abc import Callable
from typing import cast

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.server import ServerState

from turnout.access.job_keys import SCOPE
from turnout.job import Attempt

_BACKLOG = 128
_MOST_CONNECTIONS = 512
"""Of one gang. Further ones are closed at once."""

_log = logging.getLogger(__name__)


class GangServers:
    """`config`: how the service serves HTTP, without TLS."""

    def __init__(self, app: ASGIApp, config: uvicorn.Config) -> None:
        if not config.loaded:
            config.load()
        self._app = app
        self._config = config
        self._open: dict[Attempt, list[_GangServer]] = {}
        """Several, if there were several supervisors."""
        self._waiting: list[tuple[Attempt, socket.socket]] | None = []
        """Listeners that came before `start`."""

    def start(self) -> None:
        """Call it when the controller knows which attempts are live."""
        waiting, self._waiting = self._waiting or [], None
        for attempt, listener in waiting:
            self.opened(attempt, listener)

    def opened(self, attempt: Attempt, listener: socket.socket) -> None:
        """A program of the gang connects."""
        if self._waiting is not None:
            self._waiting.append((attempt, listener))
            return
        server = _GangServer(attempt, listener, self._app, self._config)
        self._open.setdefault(attempt, []).append(server)

    def ended(self, attempt: Attempt) -> None:
        """Closes what keeps the gang's network alive."""
        for server in self._open.pop(attempt, ()):
            server.close()

    def close(self) -> None:
        for attempt in list(self._open):
            self.ended(attempt)
        for _, listener in self._waiting or ():
            listener.close()


class _GangServer:
    def __init__(
        self, attempt: Attempt, listener: socket.socket, app: ASGIApp, config: uvicorn.Config
    ) -> None:
        async def of_attempt(scope: Scope, receive: Receive, send: Send) -> None:
            scope[SCOPE] = attempt
            await app(scope, receive, send)

        self._config = copy.copy(config)
        self._config.loaded_app = of_attempt
        self._state = ServerState()
        self._server: asyncio.Server | None = None
        self._listener = listener
        self._closed = False
        self._opening = asyncio.get_running_loop().create_task(self._listen(), name=f"gateway of {attempt}")

    def close(self) -> None:
        self._closed = True
        self._opening.cancel()
        if self._server:
            self._server.close()
        self._listener.close()
        for connection in list(self._state.connections):
            if transport := getattr(connection, "transport", None):
                transport.abort()

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(self._protocol, sock=self._listener, backlog=_BACKLOG)
        except OSError as error:
            _log.error("a gang's gateway cannot listen: %s", error)
            return
        if self._closed:
            server.close()
        self._server = server

    def _protocol(self) -> asyncio.Protocol:
        if len(self._state.connections) >= _MOST_CONNECTIONS:
            return _Refusing()
        make = cast(Callable[..., asyncio.Protocol], self._config.http_protocol_class)
        return make(config=self._config, server_state=self._state, app_state={})


class _Refusing(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()
