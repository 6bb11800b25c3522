"""In: an object, or a range of a big one, straight from its socket.

Through obstore's stream and its buffers the same takes twice the time of a core. Obstore signs the address, and it is
asked for whatever does not come in this way: it knows what the store's answer means, and insists.
"""

import encodings.idna  # noqa: F401 - the library would load it at the first name of a host, when it is too late
import http.client
import ssl
from collections import deque
from collections.abc import Generator, Mapping
from datetime import timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies

from turnout.runner.stage.sums import bare

if TYPE_CHECKING:
    from datetime import datetime

    from typing_extensions import Buffer

    from turnout.storage.remote import Store

_VALID = timedelta(minutes=15)
_SILENCE = 30.0
_PROXIES = {"http", "https", "all"}
_META = "x-amz-meta-"
_TROUBLE = (OSError, ValueError, http.client.HTTPException)

Connection = http.client.HTTPConnection


class Whole(NamedTuple):
    data: "Buffer"
    etag: str
    modified: "datetime"
    attributes: Mapping[str, str]


class Direct:
    """The way to one store. Threads may use it."""

    def __init__(self, store: "Store") -> None:
        self._store = store
        self._idle: deque[Connection] = deque()
        # Obstore knows how to go by a proxy.
        self._works = not _PROXIES & getproxies().keys()
        """Until nothing has come in this way."""

    def whole(self, key: str, most: int) -> Whole | None:
        """None: it has to go by obstore."""
        url = _signed(self._store, key) if self._works else None
        if not url:
            return None
        found = connection = None
        try:
            connection, answer = self._ask(url, {})
            found = _all(answer, most)
        except _TROUBLE:
            pass
        self._done(connection, again=found is not None)
        self._works = self._works and found is not None
        return found

    def range(self, key: str, etag: str | None, start: int, end: int, chunk: int) -> Generator[bytes]:
        """As much of it as comes without any trouble; perhaps nothing."""
        url = _signed(self._store, key) if self._works else None
        if not url:
            return
        headers = {"Range": f"bytes={start}-{end - 1}"}
        if etag:
            headers["If-Match"] = etag
        came, connection = 0, None
        try:
            connection, answer = self._ask(url, headers)
            same = bare(answer.headers["ETag"]) == bare(etag) and answer.length == end - start
            if answer.status == http.client.PARTIAL_CONTENT and same:
                while data := answer.read(chunk):
                    came += len(data)
                    yield data
        except _TROUBLE:
            pass
        finally:
            self._done(connection, again=came == end - start)
        self._works = self._works and came > 0

    def close(self) -> None:
        while self._idle:
            self._idle.popleft().close()

    def _ask(self, url: SplitResult, headers: dict[str, str]) -> tuple[Connection, http.client.HTTPResponse]:
        """Over a connection that was used before, if there is one that was not closed over there. Raises _TROUBLE."""
        while True:
            connection, used = self._connected(url)
            try:
                return connection, _answer(connection, url, headers)
            except BaseException as error:
                connection.close()
                if not used or not isinstance(error, ConnectionError):
                    raise

    def _connected(self, url: SplitResult) -> tuple[Connection, bool]:
        try:
            return self._idle.pop(), True
        except IndexError:
            return _connection(url), False

    def _done(self, connection: Connection | None, again: bool) -> None:
        if connection and again:
            self._idle.append(connection)
        elif connection:
            connection.close()


def _answer(connection: Connection, url: SplitResult, headers: dict[str, str]) -> http.client.HTTPResponse:
    headers = headers | {"Accept-Encoding": "identity"}
    connection.request("GET", f"{url.path}?{url.query}", headers=headers)
    return connection.getresponse()


def _all(answer: http.client.HTTPResponse, most: int) -> Whole | None:
    if answer.status != http.client.OK or answer.length is None or answer.length > most:
        return None
    said, size = answer.headers, answer.length
    data = answer.read(size)
    if len(data) != size or answer.will_close or not said["Last-Modified"]:
        return None
    attributes = {
        name.lower().removeprefix(_META): text
        for name, text in said.items()
        if name.lower().startswith(_META)
    }
    return Whole(data, said["ETag"] or "", parsedate_to_datetime(said["Last-Modified"]), attributes)


def _signed(store: "Store", key: str) -> SplitResult | None:
    """Only S3's addresses can be signed without asking anybody. None: it has to go by obstore."""
    from obstore import sign
    from obstore.store import S3Store

    if not isinstance(store, S3Store):
        return None
    try:
        return urlsplit(sign(store, "GET", key, _VALID))
    except Exception:  # noqa: BLE001 - obstore's, which have no common root but this
        return None


def _connection(url: SplitResult) -> Connection:
    if url.scheme == "https":
        return http.client.HTTPSConnection(url.netloc, timeout=_SILENCE, context=ssl.create_default_context())
    return http.client.HTTPConnection(url.netloc, timeout=_SILENCE)
