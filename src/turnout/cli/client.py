"""Talks to a service: signed TI-A calls, and the native API with a bearer token, on one connection that is kept."""

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
PATIENCE_SECONDS = 60
"""How long a waiting command sits out a service that is being restarted."""
RESTART_SECONDS = 2
"""A service that is away no longer than this is not worth a word."""
IDLE_SECONDS = 2
"""A connection that rested longer is opened anew: the service closes idle ones."""


class Unreachable(TurnoutError):
    """There is no service at the endpoint, or it went away in the middle."""


class Rejected(TurnoutError):
    """The service answered with an error; `code` is its code."""


class Key(NamedTuple):
    id: str
    secret: str

    @classmethod
    def parse(cls, text: str, where: str) -> "Key":
        id, colon, secret = text.strip().partition(":")
        if not (id and colon and secret):
            raise Misconfigured(f"{where} must be <id>:<secret>")
        return cls(id, secret)


NOBODY = Key("nobody", "nothing")
"""What is sent when no key is known: a service with --no-auth takes any."""


class Event(NamedTuple):
    """One event of a stream. `id` is where to go on after it."""

    kind: str
    id: str
    data: Any


class Client:
    def __init__(self, endpoint: str, key: Key) -> None:
        url = urlsplit(endpoint if "://" in endpoint else f"http://{endpoint}")
        if not re.fullmatch(r"https?://[^/?#@\s]+/?", url.geturl()) or not _has_fair_port(url):
            raise Invalid(f"{endpoint!r} is not an endpoint: one looks like http://127.0.0.1:8470")
        self.endpoint = f"{url.scheme}://{url.netloc}"
        self.key = key
        self.tell: Callable[[str], None] = lambda _: None
        """Is told once when a service that is waited for stays away."""
        self._host = url.netloc
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(url.netloc, timeout=ANSWER_SECONDS)
        self._used = time.monotonic()
        weakref.finalize(self, self._connection.close)

    def call(self, action: str, fields: Document, region: str = "") -> Document:
        """One signed TI-A call: the content of its `Response`."""
        body = json.dumps(fields).encode()
        headers = sign(self.key, self._host, action, body, int(time.time())) | {"X-TC-Region": region}
        answer = self._read(self._ask("POST", "/", body, headers)).get("Response")
        if not isinstance(answer, dict):
            raise Rejected(f"{self.endpoint} answers, but not as a Turnout service does")
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
        """One call of the native API that changes something. It may take as long as it goes on moving."""
        return self._read(self._native(path, query, SILENCE_SECONDS, method, body, headers))

    def open(
        self, *path: str, headers: dict[str, str] | None = None, **query: str
    ) -> http.client.HTTPResponse:
        """One call whose answer is bytes: read them all with `piece`, or close the connection."""
        response = self._native(path, query, SILENCE_SECONDS, headers=headers)
        if response.status >= 300:
            self._read(response)
        return response

    def piece(self, response: http.client.HTTPResponse, size: int) -> bytes:
        try:
            data = response.read(size)
            if not data:
                raise ConnectionResetError("the connection broke off")
            return data
        except (OSError, http.client.HTTPException) as error:
            raise self._gone(error) from None
        finally:
            self._used = time.monotonic()

    def close(self) -> None:
        """What is left of an answer would be taken for the next one."""
        self._connection.close()

    def wait(self, job: str, until: str, seconds: float = 50) -> Document:
        """The job as soon as it has `started` or `ended`, or as it is when the time is up.

        A service that is away meanwhile, as for a restart, is waited for too, and its first answer returned at once.
        """
        patience = Patience(self.tell)
        while True:
            query = {"for": until, "timeout": str(seconds)}
            try:
                return self.get("jobs", job, "wait", within=seconds + ANSWER_SECONDS, **query)
            except Unreachable as error:
                patience.rest(error)
                seconds = 0

    def follow(self, job: str, to_the_end: bool = True) -> Iterator[list[Document]]:
        """The log's lines from its beginning to the job's end, or if not `to_the_end` those that are there.

        A broken connection loses none and doubles none.
        """
        cursor, patience = "", Patience(self.tell)
        follow = "true" if to_the_end else ""
        while True:
            try:
                for event in self._events(("jobs", job, "logs"), {"follow": follow, "from": cursor}):
                    if event.kind == "end":
                        return
                    cursor, patience = event.id, Patience(self.tell)
                    yield event.data
                patience = Patience(self.tell)
            except Unreachable as error:
                patience.rest(error)

    def _events(self, path: tuple[str, ...], query: dict[str, str]) -> Iterator[Event]:
        """Stops after a long silence, which a connection that is gone without a word looks like: just ask again."""
        response = self._native(path, query, SILENCE_SECONDS)
        if response.status != 200:
            self._read(response)
        try:
            yield from _parsed(response)
        except TimeoutError:
            return
        except (OSError, http.client.HTTPException) as error:
            raise self._gone(error) from None
        finally:
            self._connection.close()  # what is left of the stream would be taken for the next answer

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
        given = urlencode({name: value for name, value in query.items() if value})
        proof = {"Authorization": f"Bearer {token(self.key, int(time.time()) + 600)}"}
        target = f"{target}?{given}" if given else target
        return self._ask(method, target, body, (headers or {}) | proof, timeout)

    def _ask(
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
            raise self._gone(error) from None
        finally:
            self._used = time.monotonic()

    def _read(self, response: http.client.HTTPResponse) -> Document:
        try:
            raw = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise self._gone(error) from None
        self._used = time.monotonic()
        try:
            answer = json.loads(raw)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise Rejected(
                f"{self.endpoint} answers, but not as a Turnout service does (HTTP {response.status}): "
                "is --endpoint or TURNOUT_ENDPOINT right?"
            )
        if response.status >= 400:
            error = answer.get("error") or {}
            message = error.get("message", f"HTTP {response.status}")
            raise self._rejection(error.get("code", ""), message, show_code=False)
        return answer

    def _gone(self, error: Exception) -> Unreachable:
        self._connection.close()
        if isinstance(error, ssl.SSLError) and error.reason in _PLAIN:
            plain = self.endpoint.replace("https", "http", 1)
            return Unreachable(
                f"{self.endpoint} speaks plain http: use {plain} with --endpoint or TURNOUT_ENDPOINT"
            )
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return Unreachable(
            f"cannot reach {self.endpoint} ({reason.lower()}): start the service with `turnout serve`, "
            "or name another one with --endpoint or TURNOUT_ENDPOINT"
        )

    def _rejection(self, code: str, message: str, *, show_code: bool = True) -> Rejected:
        """A cloud's code is shown: people look it up. What our own API calls an error says nothing more."""
        if not code.startswith("AuthFailure") and code != "Unauthenticated":
            return Rejected(f"{message} ({code})" if code and show_code else message, code=code)
        if self.key == NOBODY:
            message = "the service wants a key, and none is given"
        elif code in _WRONG_KEY:
            message = "no such key, or a wrong secret"
        advice = "give the right key with `tictl login --si <id> --sk <secret>` or TURNOUT_KEY=<id>:<secret>"
        return Rejected(f"{message.rstrip('.')} ({code}); {advice}", code=code)


_PLAIN = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "UNEXPECTED_EOF_WHILE_READING")
"""What the other side's words look like when they are no TLS."""
_WRONG_KEY = ("AuthFailure.SecretIdNotFound", "AuthFailure.SignatureFailure")


def sign(key: Key, host: str, action: str, body: bytes, at: int) -> dict[str, str]:
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


def token(key: Key, expiry: int) -> str:
    """A bearer token for the native API, good until `expiry` (Unix seconds, at most an hour ahead)."""
    id = base64.urlsafe_b64encode(key.id.encode()).decode().rstrip("=")
    proof = hmac.digest(key.secret.encode(), f"turnout-token:{key.id}:{expiry}".encode(), "sha256")
    return f"tk1.{id}.{expiry}.{proof.hex()}"


def _has_fair_port(url: SplitResult) -> bool:
    try:
        return url.port != 0
    except ValueError:
        return False


class Patience:
    """With a service that was there a moment ago."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._since = 0.0
        self._told = False

    def rest(self, error: TurnoutError) -> None:
        """Gives up when it has been away too long."""
        now = time.monotonic()
        self._since = self._since or now
        if now - self._since > PATIENCE_SECONDS:
            raise error
        if now - self._since >= RESTART_SECONDS and not self._told:
            self._tell(f"the service does not answer, waiting for it ({PATIENCE_SECONDS} s)")
            self._told = True
        # Nothing tells when a service is back, so one has to look.
        time.sleep(0.2)


def _parsed(response: http.client.HTTPResponse) -> Iterator[Event]:
    """The server-sent events of a stream that does not end by itself."""
    pending = b""
    while chunk := response.read1(1 << 16):
        *blocks, pending = (pending + chunk).split(b"\n\n")
        yield from (event for block in blocks if (event := _event(block.decode())))
    raise ConnectionResetError("the stream broke off")


def _event(block: str) -> Event | None:
    fields = {"event": "message", "id": "", "data": ""}
    for line in block.splitlines():
        name, _, value = line.partition(":")
        if name in fields:
            fields[name] = value.removeprefix(" ")
    return Event(fields["event"], fields["id"], json.loads(fields["data"])) if fields["data"] else None
