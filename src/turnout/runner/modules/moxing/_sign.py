"""AWS Signature Version 4, which OBS knows too."""

from __future__ import annotations

import hashlib
import hmac
import time
from functools import lru_cache
from typing import Dict, Mapping
from urllib.parse import quote

from ._settings import Endpoint

UNSIGNED = "UNSIGNED-PAYLOAD"


def encode(text: str, safe: str = "") -> str:
    return quote(text, safe="-_.~" + safe)


def query_string(query: Mapping[str, str]) -> str:
    return "&".join(f"{encode(name)}={encode(value)}" for name, value in sorted(query.items()))


def sign(
    endpoint: Endpoint, method: str, path: str, query: str, headers: Dict[str, str], payload: str = UNSIGNED
) -> Dict[str, str]:
    """The headers with those of the signature. `headers` has `host`, and all names are in lower case."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    signed = dict(headers)
    signed["x-amz-date"] = stamp
    signed["x-amz-content-sha256"] = payload
    if endpoint.token:
        signed["x-amz-security-token"] = endpoint.token
    names = sorted(name for name in signed if name != "content-length")
    lines = "".join(f"{name}:{signed[name].strip()}\n" for name in names)
    request = "\n".join((method, path, query, lines, ";".join(names), payload))
    scope = f"{stamp[:8]}/{endpoint.region}/s3/aws4_request"
    text = "\n".join(("AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(request.encode()).hexdigest()))
    key = _signing_key(endpoint.secret, stamp[:8], endpoint.region)
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    signed["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={endpoint.key}/{scope}, "
        f"SignedHeaders={';'.join(names)}, Signature={signature}"
    )
    return signed


@lru_cache(maxsize=4)
def _signing_key(secret: str, day: str, region: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (day, region, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key
