"""Signed requests: objects to files and files to objects, a piece at a time.

Their URLs and headers open the user's data. They are never printed.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
from typing import Any, BinaryIO, Callable, Dict, Iterator, NamedTuple, Optional, Tuple
from urllib.parse import urlsplit

from .connection import Gateway, describe

_SECONDS = 60.0
_PIECE = 1 << 20
_EXPIRED = (400, 401, 403)
_MISSING = (404, 410)
_AGAIN = (408, 425, 429)


class TransferError(Exception):
    """It may work when it is tried again."""


class Expired(TransferError):
    """A new signed request is needed."""


class Changed(Exception):
    """What is transferred changed meanwhile."""


class Missing(Exception):
    """The object is not there any more."""


class DiskError(Exception):
    """The file cannot be written."""


class Denied(Exception):
    """The store does not accept the request, and will not."""


class SignedRequest(NamedTuple):
    method: str
    url: str
    headers: Dict[str, str]

    @staticmethod
    def decode(document: Dict[str, Any]) -> SignedRequest:
        return SignedRequest(document["method"], document["url"], dict(document.get("headers") or {}))


class ServiceConnection(http.client.HTTPConnection):
    """A connection to the service itself."""

    def __init__(self, gateway: Gateway) -> None:
        super().__init__(gateway.endpoint.host, gateway.endpoint.port, timeout=_SECONDS)
        self._gateway = gateway

    def connect(self) -> None:
        super().connect()
        if self._gateway.endpoint.scheme == "https":
            assert isinstance(self.sock, socket.socket)
            self.sock = self._gateway.secure(self.sock)


class Transfers:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def get(self, request: SignedRequest, fd: int, start: int, end: int, whole: int) -> Iterator[int]:
        """Writes the bytes from `start` to `end` of an object of `whole` bytes into the file, at the same place.

        Yields after each piece how many have come. Raises TransferError, Changed, Missing, Denied or DiskError.
        """
        headers = dict(request.headers)
        if (start, end) != (0, whole):
            headers["Range"] = f"bytes={start}-{end - 1}"
        with self._response(request, headers, None) as response:
            if not _is_right(response, start, whole):
                raise Changed
            # A store that does not know ranges sends all.
            at = start if response.status == 206 else 0
            for data in _pieces(response):
                fresh = data[max(start - at, 0) : max(end - at, 0)]
                at += len(data)
                if fresh:
                    _write(fd, fresh, start)
                    start += len(fresh)
                    yield start
        if start < end:
            raise TransferError("the object ended too early")

    def put(
        self, request: SignedRequest, file: BinaryIO, size: int, is_unchanged: Callable[[], bool]
    ) -> None:
        """Uploads the file. `is_unchanged` is called before the last byte is sent: if it says no, nothing is stored.

        Raises TransferError, Changed or Denied.
        """
        headers = {name: value for name, value in request.headers.items() if name.lower() != "content-length"}
        headers["Content-Length"] = str(size)
        with self._response(request, headers, _checked(file, size, is_unchanged)):
            pass

    @contextlib.contextmanager
    def _response(
        self, request: SignedRequest, headers: Dict[str, str], body: Optional[Iterator[bytes]]
    ) -> Iterator[http.client.HTTPResponse]:
        connection, path = self._connect(request)
        if request.url.startswith("/"):
            headers = {**headers, **self._gateway.headers}
        try:
            connection.connect()
            if connection.sock:
                connection.sock.settimeout(_SECONDS)
            connection.request(request.method, path, body=body, headers=headers)
            response = connection.getresponse()
            if response.status not in (200, 201, 204, 206):
                response.read(_PIECE)
                _raise(response.status)
            yield response
            if body is not None:
                response.read(_PIECE)
        except http.client.HTTPException as error:
            raise TransferError(describe(error)) from None
        except OSError as error:
            raise TransferError(describe(error)) from None
        finally:
            connection.close()

    def _connect(self, request: SignedRequest) -> Tuple[http.client.HTTPConnection, str]:
        if request.url.startswith("/"):
            return ServiceConnection(self._gateway), self._gateway.endpoint.path + request.url
        url = urlsplit(request.url)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise Denied("its address is neither http nor https")
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        path = url.path or "/"
        return kind(url.hostname, url.port, timeout=_SECONDS), f"{path}?{url.query}" if url.query else path


def _raise(status: int) -> None:
    if status in _EXPIRED:
        raise Expired(f"the store answered {status}")
    if status in _MISSING:
        raise Missing
    if status in (412, 416):
        raise Changed
    if status >= 500 or status in _AGAIN:
        raise TransferError(f"the store answered {status}")
    raise Denied(f"the store answered {status}")


def _is_right(response: http.client.HTTPResponse, start: int, whole: int) -> bool:
    if response.status == 206:
        text = response.headers.get("Content-Range", "")
        return text.startswith(f"bytes {start}-") and text.rpartition("/")[2] in (str(whole), "*")
    return response.headers.get("Content-Length", str(whole)) == str(whole)


def _write(fd: int, data: bytes, at: int) -> None:
    try:
        while data:
            wrote = os.pwrite(fd, data, at)
            data, at = data[wrote:], at + wrote
    except OSError as error:
        raise DiskError(error.strerror) from None


def _pieces(response: http.client.HTTPResponse) -> Iterator[bytes]:
    while True:
        data = response.read(_PIECE)
        if not data:
            return
        yield data


def _checked(file: BinaryIO, size: int, is_unchanged: Callable[[], bool]) -> Iterator[bytes]:
    left = size
    while left:
        data = file.read(min(_PIECE, left))
        left -= len(data)
        if not data or (not left and not is_unchanged()):
            raise Changed
        yield data
