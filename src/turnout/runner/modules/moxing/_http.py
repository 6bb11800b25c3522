"""Signed requests: connections that are kept for the next one, and retries after errors that may be temporary."""

from __future__ import annotations

import atexit
import http.client
import logging
import os
import random
import ssl
import threading
import time
from types import MappingProxyType
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple
from xml.etree import ElementTree

from ._errors import MissingObject, MoxFileReadException, MoxFileRespException, Response
from ._settings import Endpoint, endpoint, options
from ._sign import encode, query_string, sign

log = logging.getLogger("moxing")

AGENT = "obs-sdk-moxing"
"""The gateway answers clients of OBS with OBS' words."""
_AGAIN = frozenset({408, 429, 500, 502, 503, 504})
_LONGEST_WAIT = 5.0
_WINDOW = 1 << 18

Write = Callable[[memoryview], object]
_NONE: Mapping[str, str] = MappingProxyType({})


class Reply(NamedTuple):
    status: int
    headers: Dict[str, str]
    """Names in lower case."""
    body: bytes


class Request(NamedTuple):
    method: str
    bucket: str
    key: str = ""
    query: Mapping[str, str] = _NONE
    headers: Mapping[str, str] = _NONE
    body: bytes = b""
    write: Optional[Write] = None
    """Called with the pieces of the reply's body, if it succeeds."""

    @property
    def name(self) -> str:
        return f"{self.method} {self.bucket}/{self.key}"


class _Broken(Exception):
    """The reply's body ended too early, after this many bytes."""

    def __init__(self, received: int, reply: Reply, reason: str) -> None:
        super().__init__(reason)
        self.received, self.reply = received, reply


class _Connections:
    """Idle connections. A forked process makes its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._idle: Dict[Tuple[bool, str, int], List[http.client.HTTPConnection]] = {}

    def take(self, to: Endpoint, host: str) -> Tuple[http.client.HTTPConnection, bool]:
        """A connection, and whether it is a new one."""
        if self._process != os.getpid():
            self.__init__()
        with self._lock:
            idle = self._idle.get((to.secure, host, to.port))
            if idle:
                return idle.pop(), False
        if not to.secure:
            return http.client.HTTPConnection(host, to.port, timeout=options.client_timeout), True
        context = ssl.create_default_context()
        if not to.verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return http.client.HTTPSConnection(
            host, to.port, timeout=options.client_timeout, context=context
        ), True

    def give_back(self, to: Endpoint, host: str, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            self._idle.setdefault((to.secure, host, to.port), []).append(connection)

    def close(self) -> None:
        while self._idle:
            for connection in self._idle.popitem()[1]:
                connection.close()


_connections = _Connections()
atexit.register(_connections.close)


def call(request: Request) -> Reply:
    """Raises MissingObject, MoxFileRespException or OSError."""
    return _tries(request, _once)


def receive(request: Request, write: Write) -> Reply:
    """The same for a GET whose body is passed on in pieces. What arrived before a break is not asked for again.

    `request.headers` may have a `range` of the form `bytes=start-end`. Raises MoxFileReadException too.
    """
    done = 0

    def once(wanted: Request, to: Endpoint) -> Reply:
        nonlocal done
        if done:
            headers = dict(wanted.headers)
            first, _, last = headers.get("range", "bytes=0-")[len("bytes=") :].partition("-")
            headers["range"] = f"bytes={int(first) + done}-{last}"
            wanted = wanted._replace(headers=headers)
        try:
            return _once(wanted, to)
        except _Broken as broken:
            done += broken.received
            etag = broken.reply.headers.get("etag")
            if etag:
                headers = dict(request.headers)
                headers["if-match"] = etag
                raise _Again(request._replace(headers=headers), broken) from broken
            raise

    return _tries(request._replace(write=write), once)


class _Again(Exception):
    def __init__(self, request: Request, cause: _Broken) -> None:
        super().__init__(str(cause))
        self.headers, self.cause = request.headers, cause


def _tries(request: Request, once: Callable[[Request, Endpoint], Reply]) -> Reply:
    to = endpoint()
    wait = options.retry_wait
    for left in range(options.retry - 1, -1, -1):
        problem: Exception
        try:
            reply = once(request, to)
            if reply.status < 300:
                return reply
            problem = _error(request, reply)
            if reply.status not in _AGAIN:
                raise problem
        except _Again as again:
            request, broken = request._replace(headers=again.headers), again.cause
            problem = MoxFileReadException(Response(broken.reply.status, "OK"), request.name, str(broken))
        except _Broken as broken:
            problem = MoxFileReadException(Response(broken.reply.status, "OK"), request.name, str(broken))
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, (MissingObject, ssl.SSLCertVerificationError)):
                raise
            problem = error
        if not left:
            log.error("%s failed: %s", request.name, problem)
            raise problem
        log.warning("Retry=%d, Wait=%.1f: %s: %s", left, wait, request.name, problem)
        time.sleep(wait * random.uniform(0.75, 1))
        wait = min(2 * wait, _LONGEST_WAIT)
    raise AssertionError


def _once(request: Request, to: Endpoint) -> Reply:
    path, host = _target(to, request)
    headers = dict(request.headers)
    headers["host"] = host if to.is_default_port else f"{host}:{to.port}"
    headers["user-agent"] = AGENT
    query = query_string(request.query)
    signed = sign(to, request.method, path, query, headers)
    signed["content-length"] = str(len(request.body))
    url = f"{path}?{query}" if query else path
    while True:
        connection, is_new = _connections.take(to, host)
        try:
            connection.request(request.method, url, request.body or None, signed)
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            # The server has closed an idle connection meanwhile: that is not a failed try.
            if is_new or isinstance(error, TimeoutError):
                raise
            continue
        break
    kept = False
    try:
        reply = Reply(response.status, {name.lower(): value for name, value in response.getheaders()}, b"")
        if request.write and response.status < 300:
            _pass_on(response, request.write, reply)
        else:
            reply = reply._replace(body=response.read())
        kept = not response.will_close
        return reply
    finally:
        if kept:
            _connections.give_back(to, host, connection)
        else:
            connection.close()


def _pass_on(response: http.client.HTTPResponse, write: Write, reply: Reply) -> None:
    expected = int(reply.headers.get("content-length", -1))
    buffer = memoryview(bytearray(_WINDOW if expected < 0 else max(1, min(_WINDOW, expected))))
    received = 0
    while True:
        try:
            size = response.readinto(buffer)
        except (OSError, http.client.HTTPException) as error:
            raise _Broken(received, reply, str(error) or type(error).__name__) from error
        if not size:
            break
        write(buffer[:size])
        received += size
    if received < expected:
        raise _Broken(received, reply, f"the connection broke after {received} of {expected} bytes")


def _target(to: Endpoint, request: Request) -> Tuple[str, str]:
    key = encode(request.key, safe="/")
    if to.path_style:
        return f"/{encode(request.bucket)}/{key}" if key else f"/{encode(request.bucket)}", to.host
    return f"/{key}", f"{request.bucket}.{to.host}"


def _error(request: Request, reply: Reply) -> Exception:
    code = message = ""
    try:
        for element in ElementTree.fromstring(reply.body) if reply.body else ():
            tag = element.tag.rpartition("}")[2]
            if tag == "Code":
                code = element.text or ""
            elif tag == "Message":
                message = element.text or ""
    except ElementTree.ParseError:
        message = reply.body[:200].decode("utf-8", "replace")
    response = Response(
        reply.status, http.client.responses.get(reply.status, ""), code, message, reply.headers
    )
    kind = MissingObject if reply.status == 404 else MoxFileRespException
    return kind(response, request.name)
