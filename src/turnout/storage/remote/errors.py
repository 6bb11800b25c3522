"""Turns obstore's errors into ours, and says whether a retry can help."""

import re
from typing import NamedTuple

from turnout.errors import Denied, Misconfigured, NotFound, TimedOut, TurnoutError, Unsupported

_STATUS = re.compile(r"non-2xx status code: (\d{3})")
_CODE = re.compile(r"<Code>([A-Za-z0-9.]{1,80})</Code>")
_KIND = re.compile(r"HttpError \{\s*kind: (\w+)")
_HOST = re.compile(r"https?://[^/\s?,]+")
_TEMPORARY_KINDS = ("Connect", "Request", "Timeout", "Interrupted", "Decode", "Unknown")
_TEMPORARY_CODES = ("SlowDown", "RequestTimeout", "InternalError", "ServiceUnavailable")
_INVALID_KEY = re.compile(r"Path \"(.*?)\"", re.DOTALL)


class RemoteError(NamedTuple):
    error: TurnoutError
    retryable: bool
    """The error may be temporary."""


def explain(error: BaseException, url: str) -> RemoteError:
    """`url`: as the user knows it, for the message. The message contains only codes from the store's own text."""
    text = str(error)
    status = int(found[1]) if (found := _STATUS.search(text)) else 0
    code = found[1] if (found := _CODE.search(text)) else ""
    answer = f"{status} {code}".strip()
    if "token request" in text or "instance/service-accounts" in text or "/meta-data/" in text:
        return RemoteError(
            Denied(f"{url}: no credentials found, neither in the settings nor in the environment"), False
        )
    if status in (401, 403) or type(error).__name__ in ("PermissionDeniedError", "UnauthenticatedError"):
        return RemoteError(Denied(f"{url}: access denied by the store ({answer})"), code in _TEMPORARY_CODES)
    if code == "NoSuchBucket":
        return RemoteError(NotFound(f"{url}: there is no such bucket"), False)
    if isinstance(error, FileNotFoundError) or status == 404:
        return RemoteError(NotFound(f"{url}: there is no such object, or no such bucket"), False)
    if status in (408, 429) or status >= 500 or code in _TEMPORARY_CODES:
        return RemoteError(TimedOut(f"{url}: the store answers {answer}"), True)
    if status:
        return RemoteError(Unsupported(f"{url}: the store answers {answer}"), False)
    return _without_answer(text, url)


def _without_answer(text: str, url: str) -> RemoteError:
    if "BadScheme" in text:
        return RemoteError(
            Misconfigured(f"{url}: its endpoint is http://; set allow_http = true to allow that"), False
        )
    if found := _INVALID_KEY.search(text):
        key = found[1][:200]
        return RemoteError(
            Unsupported(f"{url}: the key {key!r} cannot be a file here (an empty part, `.`, `..`, …)"), False
        )
    host = found[0] if (found := _HOST.search(text)) else "the store"
    kind = found[1] if (found := _KIND.search(text)) else ""
    if "certificate" in text:
        return RemoteError(Misconfigured(f"{url}: the certificate of {host} is not trusted"), False)
    if kind == "Connect":
        why = (
            "there is no such host" if "dns error" in text else "the connection is refused or cannot be made"
        )
        return RemoteError(TimedOut(f"{url}: cannot connect to {host}: {why}"), True)
    if kind == "Timeout":
        return RemoteError(TimedOut(f"{url}: {host} does not answer in time"), True)
    if kind in _TEMPORARY_KINDS or "error decoding response body" in text or "error sending request" in text:
        return RemoteError(TimedOut(f"{url}: the connection to {host} broke"), True)
    return RemoteError(Unsupported(f"{url}: {text.partition(chr(10))[0][:200]}"), False)
