"""Inbound: downloads an object, or a range of one, directly over HTTP.

obstore's stream takes twice the CPU time. obstore signs the URL, and it takes over whenever the direct download does
not succeed: it understands the store's errors, and retries.
"""

import encodings.idna  # noqa: F401 - http.client would import it later, when the process may not read it any more
import http.client
import ssl
from collections import deque
from collections.abc import Generator, Mapping
from datetime import timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies

from turnout.runner.stager.checksums import bare

if TYPE_CHECKING:
    from datetime import datetime

    from typing_extensions import Buffer

    from turnout.storage.remote.store import ObjectStore

_VALID = timedelta(minutes=15)
_SILENCE = 30.0
_PROXIES = {"http", "https", "all"}
_META = "x-amz-meta-"
_TROUBLE = (OSError, ValueError, http.client.HTTPException)

Connection = http.client.HTTPConnection


class WholeObject(NamedTuple):
    data: "Buffer"
    etag: str
    modified: "datetime"
    attributes: Mapping[str, str]


class DirectDownload:
    """Connections to one store, for any number of threads."""

    def __init__(self, store: "ObjectStore") -> None:
        self._store = store
        self._idle: deque[Connection] = deque()
        # obstore supports proxies; this does not.
        self._works = not _PROXIES & getproxies().keys()
        """False after a direct download without any data."""

    def whole(self, key: str, most: int) -> WholeObject | None:
        """None if obstore has to fetch the object instead."""
        url = _signed(self._store, key) if self._works else None
        if not url:
            return None
        found = connection = None
        try:
            connection, response = self._request(url, {})
            found = _read_whole(response, most)
        except _TROUBLE:
            pass
        self._release(connection, reusable=found is not None)
        self._works = self._works and found is not None
        return found

    def range(self, key: str, etag: str | None, start: int, end: int, chunk: int) -> Generator[bytes]:
        """Yields the range up to the first error, which may be at once."""
        url = _signed(self._store, key) if self._works else None
        if not url:
            return
        headers = {"Range": f"bytes={start}-{end - 1}"}
        if etag:
            headers["If-Match"] = etag
        received, connection = 0, None
        try:
            connection, response = self._request(url, headers)
            same = bare(response.headers["ETag"]) == bare(etag) and response.length == end - start
            if response.status == http.client.PARTIAL_CONTENT and same:
                while data := response.read(chunk):
                    received += len(data)
                    yield data
        except _TROUBLE:
            pass
        finally:
            self._release(connection, reusable=received == end - start)
        self._works = self._works and received > 0

    def close(self) -> None:
        while self._idle:
            self._idle.popleft().close()

    def _request(
        self, url: SplitResult, headers: dict[str, str]
    ) -> tuple[Connection, http.client.HTTPResponse]:
        """Reuses an idle connection unless the server has closed it. Raises _TROUBLE."""
        while True:
            connection, used = self._connection(url)
            try:
                return connection, _send_request(connection, url, headers)
            except BaseException as error:
                connection.close()
                if not used or not isinstance(error, ConnectionError):
                    raise

    def _connection(self, url: SplitResult) -> tuple[Connection, bool]:
        try:
            return self._idle.pop(), True
        except IndexError:
            return _new_connection(url), False

    def _release(self, connection: Connection | None, reusable: bool) -> None:
        if connection and reusable:
            self._idle.append(connection)
        elif connection:
            connection.close()


def _send_request(
    connection: Connection, url: SplitResult, headers: dict[str, str]
) -> http.client.HTTPResponse:
    headers = headers | {"Accept-Encoding": "identity"}
    connection.request("GET", f"{url.path}?{url.query}", headers=headers)
    return connection.getresponse()


def _read_whole(response: http.client.HTTPResponse, most: int) -> WholeObject | None:
    if response.status != http.client.OK or response.length is None or response.length > most:
        return None
    headers, size = response.headers, response.length
    data = response.read(size)
    if len(data) != size or response.will_close or not headers["Last-Modified"]:
        return None
    attributes = {
        name.lower().removeprefix(_META): text
        for name, text in headers.items()
        if name.lower().startswith(_META)
    }
    return WholeObject(
        data, headers["ETag"] or "", parsedate_to_datetime(headers["Last-Modified"]), attributes
    )


def _signed(store: "ObjectStore", key: str) -> SplitResult | None:
    """None if obstore has to fetch the object instead: only S3 URLs can be signed without a request."""
    from obstore import sign
    from obstore.store import S3Store

    if not isinstance(store, S3Store):
        return None
    try:
        return urlsplit(sign(store, "GET", key, _VALID))
    except Exception:  # noqa: BLE001 - obstore's errors have no other common base class
        return None


def _new_connection(url: SplitResult) -> Connection:
    if url.scheme == "https":
        return http.client.HTTPSConnection(url.netloc, timeout=_SILENCE, context=ssl.create_default_context())
    return http.client.HTTPConnection(url.netloc, timeout=_SILENCE)
