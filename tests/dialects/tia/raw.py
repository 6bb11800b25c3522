"""Requests by hand, for what no SDK would send."""

import hashlib
import hmac
import http.client
import json
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tests.running import KEY, Service

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"


class Reply(NamedTuple):
    status: int
    content_type: str
    body: dict[str, Any]

    @property
    def error(self) -> dict[str, str]:
        return self.body["Error"]

    @property
    def code(self) -> str:
        return self.body["Error"]["Code"]


def call(service: Service, action: str, body: object = None, **more: Any) -> Reply:
    """A signed v3 POST. Bytes are sent as they are, anything else as JSON."""
    payload = body if isinstance(body, bytes) else json.dumps({} if body is None else body).encode()
    content_type = more.pop("content_type", JSON)
    headers = signed(service, payload, content_type) | {"X-TC-Action": action, "X-TC-Version": "2018-02-26"}
    return send(service, "POST", "/", headers | more.pop("headers", {}), payload)


def signed(service: Service, payload: bytes, content_type: str = JSON, method: str = "POST", query: str = ""):
    """The headers of a v3 request."""
    now = int(time.time())
    date = time.strftime("%Y-%m-%d", time.gmtime(now))
    host = f"127.0.0.1:{service.port}"
    digest = hashlib.sha256(payload).hexdigest()
    canonical = (
        f"{method}\n/\n{query}\ncontent-type:{content_type}\nhost:{host}\n\ncontent-type;host\n{digest}"
    )
    hashed = hashlib.sha256(canonical.encode()).hexdigest()
    key = b"TC3" + KEY.secret.encode()
    for part in (date, "tia", "tc3_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    to_sign = f"TC3-HMAC-SHA256\n{now}\n{date}/tia/tc3_request\n{hashed}"
    signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
    credential = f"{KEY.id}/{date}/tia/tc3_request"
    return {
        "Authorization": f"TC3-HMAC-SHA256 Credential={credential}, SignedHeaders=content-type;host, "
        f"Signature={signature}",
        "Content-Type": content_type,
        "X-TC-Timestamp": str(now),
    }


def send(
    service: Service,
    method: str,
    target: str = "/",
    headers: Mapping[str, str] | None = None,
    body: bytes | Iterable[bytes] | None = None,
) -> Reply:
    """What every answer has is checked here: status 200, exactly this content type, and a RequestId."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
    try:
        connection.request(method, target, body, dict(headers or {}))
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    reply = Reply(answer.status, answer.getheader("Content-Type", ""), json.loads(text)["Response"])
    assert (reply.status, reply.content_type) == (200, JSON)
    assert re.fullmatch(r"[0-9a-f-]{36}", reply.body["RequestId"])
    return reply
