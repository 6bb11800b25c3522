"""Calls a service over one persistent connection: signed TI-A calls, and the native API with a bearer token."""

import base64
import hashlib
import hmac
import http.client
import json
import re
import ssl
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from turnout.errors import Invalid, Misconfigured, TurnoutError

Document = dict[str, Any]
Body = bytes | Iterable[bytes] | None

ANSWER_SECONDS = 30
SILENCE_SECONDS = 80
RETRY_SECONDS = 60
"""How long a command waits for a service that does not answer, because it may be restarting."""
RESTART_SECONDS = 2
"""If the service answers again within this time, the user gets no message."""
IDLE_SECONDS = 2
"""A connection that was idle for longer is reopened, because the service closes idle connections."""


class EndpointUnreachable(TurnoutError):
    """There is no service at the endpoint, or the connection broke."""


class Rejected(TurnoutError):
    """The service answered with an error; `code` is its code."""


class Credentials(NamedTuple):
    id: str
    secret: str

    @classmethod
    def parse(cls, text: str, source: str) -> "Credentials":
        id, colon, secret = text.strip().partition(":")
        if not (id and colon and secret):
            raise Misconfigured(f"{source} must be <id>:<secret>")
        return cls(id, secret)


ANONYMOUS = Credentials("nobody", "nothing")
"""Used when no key is known: a service with --no-auth accepts any."""


class StreamEvent(NamedTuple):
    """One event of a stream. A later request continues after `id`."""

    kind: str
    id: str
    data: Any


class Client:
    def __init__(self, endpoint: str, key: Credentials) -> None:
        url = urlsplit(endpoint if "://" in endpoint else f"http://{endpoint}")
        if not re.fullmatch(r"https?://[^/?#@\s]+/?", url.geturl()) or not _has_valid_port(url):
            raise Invalid(f"{endpoint!r} is not an endpoint: it must look like http://127.0.0.1:8470")
        self.endpoint = f"{url.scheme}://{url.netloc}"
        self.key = key
        self.project = ""
        """The project that root acts in; empty: the key's own."""
        self.notify: Callable[[str], None] = lambda _: None
        """Called once if the service stays unreachable while a command waits for it."""
        self._host = url.netloc
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(url.netloc, timeout=ANSWER_SECONDS)
        self._used = time.monotonic()
        weakref.finalize(self, self._connection.close)

    def call(self, action: str, fields: Document, region: str = "") -> Document:
        """One signed TI-A call. Returns the content of its `Response`."""
        body = json.dumps(fields).encode()
        headers = sign(self.key, self._host, action, body, int(time.time())) | {"X-TC-Region": region}
        if self.project:
            headers["X-Turnout-Project"] = self.project
        answer = self._read(self._request("POST", "/", body, headers)).get("Response")
        if not isinstance(answer, dict):
            raise Rejected(f"{self.endpoint} is not a Turnout service")
        if "Error" in answer:
            raise self._rejection(answer["Error"].get("Code", ""), answer["Error"].get("Message", ""))
        return answer

    def get(self, *path: str, within: float = ANSWER_SECONDS, **query: str) -> Document:
        """One call of the native API: `get("jobs", "test-job", cluster="ap-beijing")`."""
        return self._read(self._native(path, query, within))

    def send(
        self,
        method: str,
        *path: str,
        query: dict[str, str],
        body: Body = None,
        headers: dict[str, str] | None = None,
    ) -> Document:
        """One call of the native API that changes something. It has no time limit as long as data flows."""
        return self._read(self._native(path, query, SILENCE_SECONDS, method, body, headers))

    def open(
        self, *path: str, headers: dict[str, str] | None = None, **query: str
    ) -> http.client.HTTPResponse:
        """One call whose response is bytes. Read all of them with `piece`, or close the connection."""
        response = self._native(path, query, SILENCE_SECONDS, headers=headers)
        if response.status >= 300:
            self._read(response)
        return response

    def piece(self, response: http.client.HTTPResponse, size: int) -> bytes:
        try:
            data = response.read(size)
            if not data:
                raise ConnectionResetError("the connection was closed early")
            return data
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from None
        finally:
            self._used = time.monotonic()

    def close(self) -> None:
        """Call it if a response was not read to its end. Otherwise the rest would be read as the next response."""
        self._connection.close()

    def wait(self, job: str, until: str, seconds: float = 50) -> Document:
        """Returns the job when it has `started` or `ended`, or when the time is up.

        If the service goes away, this waits for it to return, and then returns the job at once.
        """
        window = RetryWindow(self.notify)
        while True:
            query = {"for": until, "timeout": str(seconds)}
            try:
                return self.get("jobs", job, "wait", within=seconds + ANSWER_SECONDS, **query)
            except EndpointUnreachable as error:
                window.pause(error)
                seconds = 0

    def follow(self, job: str, until_end: bool = True) -> Iterator[list[Document]]:
        """All lines of the log until the job ends, or without `until_end` only those that exist now.

        A broken connection neither loses nor repeats a line.
        """
        cursor, window = "", RetryWindow(self.notify)
        follow = "true" if until_end else ""
        while True:
            try:
                for event in self._events(("jobs", job, "logs"), {"follow": follow, "from": cursor}):
                    if event.kind == "end":
                        return
                    cursor, window = event.id, RetryWindow(self.notify)
                    yield event.data
                window = RetryWindow(self.notify)
            except EndpointUnreachable as error:
                window.pause(error)

    def changes(self) -> Iterator[None]:
        """Yields at once, and whenever a job has changed that the key may see. Continues after a broken connection."""
        last, window = "", RetryWindow(self.notify)
        while True:
            try:
                for event in self._events(("changes",), {"from": last}):
                    last, window = event.id, RetryWindow(self.notify)
                    yield
            except EndpointUnreachable as error:
                window.pause(error)

    def sweep(self, dry_run: bool) -> list[Document]:
        """What the sweep deleted, by kind; with `dry_run`, what it would delete."""
        return list(self._results(("sweep",), {"dry_run": "true" if dry_run else "false"}))

    def check_cluster(self, name: str) -> Iterator[Document]:
        """What works on the cluster and what does not, as it is found out."""
        return self._results(("clusters", name, "check"), {})

    def make_runtime(self, name: str) -> Iterator[Document]:
        """The lines that say how far the environment of a runtime is, until it is ready."""
        return self._results(("runtimes", name, "make"), {})

    def check_runtime(self, name: str) -> Iterator[Document]:
        """What works of a runtime and what does not, as it is found out."""
        return self._results(("runtimes", name, "check"), {})

    def bring_image(self, how: str, query: dict[str, str]) -> Iterator[Document]:
        """The progress of a `pull` or `import`, with the digest in the last document."""
        return self._results(("images", how), query)

    def _results(self, path: tuple[str, ...], query: dict[str, str]) -> Iterator[Document]:
        """The events of a POST that takes long, until its end."""
        for event in self._events(path, query, "POST"):
            if event.kind == "error":
                raise Rejected(event.data["message"])
            if event.kind == "end":
                return
            yield event.data
        raise EndpointUnreachable(f"{self.endpoint} has not answered for {SILENCE_SECONDS} seconds")

    def _events(
        self, path: tuple[str, ...], query: dict[str, str], method: str = "GET"
    ) -> Iterator[StreamEvent]:
        """Returns after a long silence, because the connection may be dead: call it again."""
        response = self._native(path, query, SILENCE_SECONDS, method)
        if response.status != 200:
            self._read(response)
        try:
            yield from _parsed(response)
        except TimeoutError:
            return
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from None
        finally:
            self._connection.close()  # otherwise the rest of the stream would be read as the next response

    def _native(
        self,
        path: tuple[str, ...],
        query: dict[str, str],
        timeout: float,
        method: str = "GET",
        body: Body = None,
        headers: dict[str, str] | None = None,
    ) -> http.client.HTTPResponse:
        target = "/turnout/v1/" + "/".join(quote(part, safe="") for part in path)
        query = {"project": self.project} | query
        given = urlencode({name: value for name, value in query.items() if value})
        authorization = {"Authorization": f"Bearer {token(self.key, int(time.time()) + 600)}"}
        target = f"{target}?{given}" if given else target
        return self._request(method, target, body, (headers or {}) | authorization, timeout)

    def _request(
        self,
        method: str,
        target: str,
        body: Body,
        headers: dict[str, str],
        timeout: float = ANSWER_SECONDS,
    ) -> http.client.HTTPResponse:
        connection = self._connection
        if time.monotonic() - self._used > IDLE_SECONDS:
            connection.close()
        connection.timeout = timeout
        try:
            if connection.sock is not None:
                connection.sock.settimeout(timeout)
            connection.request(method, target, body, headers, encode_chunked="Transfer-Encoding" in headers)
            return connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from None
        finally:
            self._used = time.monotonic()

    def _read(self, response: http.client.HTTPResponse) -> Document:
        try:
            raw = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from None
        self._used = time.monotonic()
        try:
            answer = json.loads(raw)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise Rejected(
                f"{self.endpoint} is not a Turnout service (HTTP {response.status}): "
                "check --endpoint or TURNOUT_ENDPOINT"
            )
        if response.status >= 400:
            error = answer.get("error") or {}
            message = error.get("message", f"HTTP {response.status}")
            raise self._rejection(error.get("code", ""), message, show_code=False)
        return answer

    def _unreachable(self, error: Exception) -> EndpointUnreachable:
        self._connection.close()
        if isinstance(error, ssl.SSLError) and error.reason in _NOT_TLS:
            plain = self.endpoint.replace("https", "http", 1)
            return EndpointUnreachable(
                f"{self.endpoint} speaks plain http: use {plain} with --endpoint or TURNOUT_ENDPOINT"
            )
        if isinstance(error, ssl.SSLCertVerificationError):
            return EndpointUnreachable(
                f"the certificate of {self.endpoint} cannot be trusted ({error.verify_message.rstrip('.')}): "
                "name its authority with SSL_CERT_FILE=<file.pem>, and use a host name that the certificate has"
            )
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return EndpointUnreachable(
            f"cannot reach {self.endpoint} ({reason.lower()}): start the service with `turnout serve`, "
            "or set another endpoint with --endpoint or TURNOUT_ENDPOINT"
        )

    def _rejection(self, code: str, message: str, *, show_code: bool = True) -> Rejected:
        """Shows the code of a cloud's API, because people look it up. A native code adds nothing to the message."""
        if not code.startswith("AuthFailure") and code != "Unauthenticated":
            return Rejected(f"{message} ({code})" if code and show_code else message, code=code)
        if self.key == ANONYMOUS:
            message = "the service needs a key, and none was given"
        elif code in _WRONG_KEY:
            message = "no such key, or a wrong secret"
        advice = "give a key with `tictl login --si <id> --sk <secret>` or TURNOUT_KEY=<id>:<secret>"
        return Rejected(f"{message.rstrip('.')} ({code}); {advice}", code=code)


_NOT_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "UNEXPECTED_EOF_WHILE_READING")
"""The errors of a peer that does not speak TLS."""
_WRONG_KEY = ("AuthFailure.SecretIdNotFound", "AuthFailure.SignatureFailure")


def sign(key: Credentials, host: str, action: str, body: bytes, at: int) -> dict[str, str]:
    """The headers of a TC3-HMAC-SHA256 request."""
    day = time.strftime("%Y-%m-%d", time.gmtime(at))
    scope = f"{day}/tia/tc3_request"
    digest = hashlib.sha256(body).hexdigest()
    canonical = (
        f"POST\n/\n\ncontent-type:application/json\nhost:{host.lower()}\n\ncontent-type;host\n{digest}"
    )
    text = f"TC3-HMAC-SHA256\n{at}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    chain = f"TC3{key.secret}".encode()
    for part in (day, "tia", "tc3_request", text):
        chain = hmac.digest(chain, part.encode(), "sha256")
    return {
        "Authorization": f"TC3-HMAC-SHA256 Credential={key.id}/{scope}, "
        f"SignedHeaders=content-type;host, Signature={chain.hex()}",
        "Content-Type": "application/json",
        "Host": host,
        "X-TC-Action": action,
        "X-TC-Version": "2018-02-26",
        "X-TC-Timestamp": str(at),
        "X-TC-Language": "en-US",
    }


def token(key: Credentials, expiry: int) -> str:
    """A bearer token, valid until `expiry` (Unix seconds, at most an hour ahead)."""
    id = base64.urlsafe_b64encode(key.id.encode()).decode().rstrip("=")
    proof = hmac.digest(key.secret.encode(), f"turnout-token:{key.id}:{expiry}".encode(), "sha256")
    return f"tk1.{id}.{expiry}.{proof.hex()}"


def _has_valid_port(url: SplitResult) -> bool:
    try:
        return url.port != 0
    except ValueError:
        return False


class RetryWindow:
    """Waits a limited time for a service that was reachable before."""

    def __init__(self, notify: Callable[[str], None]) -> None:
        self._notify = notify
        self._since = 0.0
        self._notified = False

    def pause(self, error: TurnoutError) -> None:
        """Sleeps a moment. Raises `error` if the service has been away too long."""
        now = time.monotonic()
        self._since = self._since or now
        if now - self._since > RETRY_SECONDS:
            raise error
        if now - self._since >= RESTART_SECONDS and not self._notified:
            self._notify(f"the service does not answer; waiting up to {RETRY_SECONDS} s for it")
            self._notified = True
        # No event announces that the service is back, so this polls.
        time.sleep(0.2)


def _parsed(response: http.client.HTTPResponse) -> Iterator[StreamEvent]:
    """The server-sent events of a stream that does not end by itself."""
    pending = b""
    while chunk := response.read1(1 << 16):
        *blocks, pending = (pending + chunk).split(b"\n\n")
        yield from (event for block in blocks if (event := _event(block.decode())))
    raise ConnectionResetError("the stream was closed early")


def _event(block: str) -> StreamEvent | None:
    fields = {"event": "message", "id": "", "data": ""}
    for line in block.splitlines():
        name, _, value = line.partition(":")
        if name in fields:
            fields[name] = value.removeprefix(" ")
    return StreamEvent(fields["event"], fields["id"], json.loads(fields["data"])) if fields["data"] else None
