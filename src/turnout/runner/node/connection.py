"""Calls of the runner gateway: repeated until they succeed, over TLS whose certificate may be pinned.

Every call is idempotent, so one whose answer was lost is made again. Each thread has its own connection.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from typing import Any, Dict, Optional

from .diagnostics import say
from .errors import Fenced, Gone, Refused, Unreachable
from .http1 import Answer, Connection
from .settings import Settings, split_endpoint

_FIRST_PAUSE, _LONGEST_PAUSE, _LONGEST_HURRIED = 0.2, 15.0, 1.0
_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 20.0
_POLL_SECONDS = 25.0
_AGAIN = (408, 425, 429)
_MOST_MESSAGE = 500

Document = Dict[str, Any]


class WrongCertificate(OSError):
    def __str__(self) -> str:
        return "the certificate of the service is not the one of TURNOUT_FINGERPRINT"


class Gateway:
    """The runner gateway of the service. All methods raise Fenced, Gone, Refused or Unreachable."""

    def __init__(self, settings: Settings, instance: str) -> None:
        self.endpoint = split_endpoint(settings.endpoint)
        self._fingerprint = settings.fingerprint
        self._path = f"{self.endpoint.path}/runner/v1/{settings.attempt}/{settings.replica}/"
        self.headers = {"Authorization": f"Bearer {settings.token}", "X-Turnout-Runner": instance}
        self._patience = settings.patience
        self._deadline: Optional[float] = None
        self._hurried = threading.Event()
        self._local = threading.local()
        self._away = False

    def hurry(self, seconds: float) -> None:
        """From now on all calls together have this time. Calls that wait try again at once."""
        self._deadline = time.monotonic() + seconds
        self._hurried.set()

    def call(self, name: str, body: Document, poll: bool = False) -> Document:
        """`poll`: the service may wait for a while before it answers."""
        data = json.dumps(body).encode()
        return self.send(name, data, {"Content-Type": "application/json"}, poll)

    def send(
        self, name: str, data: bytes, headers: Optional[Dict[str, str]] = None, poll: bool = False
    ) -> Document:
        """Like `call`, with a body of any kind."""
        begun, pause = time.monotonic(), _FIRST_PAUSE
        timeout = _ANSWER_SECONDS + (_POLL_SECONDS if poll else 0)
        while True:
            try:
                answer = self.request("POST", self._path + name, data, headers or {}, timeout)
                if answer.status == 200:
                    found = json.loads(answer.body.decode() or "{}")
                    if isinstance(found, dict):
                        self._reached()
                        return found
                trouble = f"it answered {answer.status}"
                _raise_if_final(name, answer)
            except (OSError, ValueError) as error:
                trouble = describe(error)
            self._missed(name, trouble)
            self._wait(name, begun, pause, trouble)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def request(self, method: str, path: str, data: bytes, headers: Dict[str, str], timeout: float) -> Answer:
        """One try. Raises OSError."""
        reused = self._connected()
        try:
            return self._exchange(method, path, data, headers, timeout)
        except OSError:
            self.disconnect()
            if not reused:
                raise
        # The service closes connections that were quiet for a while.
        try:
            return self._exchange(method, path, data, headers, timeout)
        except OSError:
            self.disconnect()
            raise

    def secure(self, plain: socket.socket) -> socket.socket:
        """Makes a TLS connection to the service of a plain one. Nothing is sent before its certificate was checked."""
        import ssl  # not every service has TLS

        if not self._fingerprint:
            return ssl.create_default_context().wrap_socket(plain, server_hostname=self.endpoint.host)
        import hashlib
        import hmac

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        secured = context.wrap_socket(plain, server_hostname=self.endpoint.host)
        certificate = secured.getpeercert(binary_form=True) or b""
        if not hmac.compare_digest(hashlib.sha256(certificate).hexdigest(), self._fingerprint):
            secured.close()
            raise WrongCertificate
        return secured

    def disconnect(self) -> None:
        """Closes the connection of this thread."""
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._local.connection = None

    def _connected(self) -> bool:
        connection = getattr(self._local, "connection", None)
        return connection is not None and not connection.closed

    def _exchange(
        self, method: str, path: str, data: bytes, headers: Dict[str, str], timeout: float
    ) -> Answer:
        if not self._connected():
            wrap = self.secure if self.endpoint.scheme == "https" else None
            host, port = self.endpoint.host, self.endpoint.port
            self._local.connection = Connection(host, port, _CONNECT_SECONDS, wrap)
        connection: Connection = self._local.connection
        return connection.exchange(method, path, data, {**headers, **self.headers}, timeout)

    def _wait(self, name: str, begun: float, pause: float, trouble: str) -> None:
        now = time.monotonic()
        until = begun + self._patience
        if self._deadline is not None:
            until = min(until, self._deadline)
            pause = min(pause, _LONGEST_HURRIED)
        if now >= until:
            raise Unreachable(f"the service did not take `{name}` for {now - begun:.0f} s: {trouble}")
        pause = min(pause * (0.5 + os.urandom(1)[0] / 510), max(until - now, 0.01))
        if self._hurried.is_set():
            time.sleep(pause)
        else:
            self._hurried.wait(pause)

    def _missed(self, name: str, trouble: str) -> None:
        if not self._away:
            self._away = True
            say(f"the service cannot be reached (`{name}`: {trouble}); trying again")

    def _reached(self) -> None:
        if self._away:
            self._away = False
            say("the service can be reached again")


def describe(error: BaseException) -> str:
    """A short text without the details of a request: those may contain a signature."""
    if isinstance(error, WrongCertificate):
        return str(error)
    ssl = sys.modules.get("ssl")
    if ssl and isinstance(error, ssl.SSLError):
        return f"TLS: {getattr(error, 'reason', '') or error.__class__.__name__}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, socket.timeout):
        return "no answer in time"
    return error.__class__.__name__


def _raise_if_final(name: str, answer: Answer) -> None:
    status = answer.status
    if status >= 500 or status in _AGAIN or status == 200:
        return
    if status == 409:
        raise Fenced(f"another runner holds this replica (`{name}`)")
    if status in (404, 410):
        raise Gone(f"the attempt does not exist any more (`{name}`)")
    message = answer.body[:_MOST_MESSAGE].decode(errors="replace").strip()
    raise Refused(f"the service refuses `{name}` with {status}: {message}")
