"""What a store's refusals mean, in words for people, and whether asking again can help."""

import re
from typing import NamedTuple

from turnout.errors import Denied, Misconfigured, NotFound, TimedOut, TurnoutError, Unsupported

_STATUS = re.compile(r"non-2xx status code: (\d{3})")
_CODE = re.compile(r"<Code>([A-Za-z0-9.]{1,80})</Code>")
_KIND = re.compile(r"HttpError \{\s*kind: (\w+)")
_HOST = re.compile(r"https?://[^/\s?,]+")
_PASSING_KINDS = ("Connect", "Request", "Timeout", "Interrupted", "Decode", "Unknown")
_PASSING_CODES = ("SlowDown", "RequestTimeout", "InternalError", "ServiceUnavailable")
_ODD_KEY = re.compile(r"Path \"(.*?)\"", re.DOTALL)


class Trouble(NamedTuple):
    error: TurnoutError
    passing: bool
    """It may be over in a moment."""


def trouble(error: BaseException, url: str) -> Trouble:
    """`url`: what was asked for, as the user knows it. Of the store's own text only codes get in."""
    text = str(error)
    status = int(found[1]) if (found := _STATUS.search(text)) else 0
    code = found[1] if (found := _CODE.search(text)) else ""
    said = f"{status} {code}".strip()
    if "token request" in text or "instance/service-accounts" in text or "/meta-data/" in text:
        return Trouble(
            Denied(f"{url}: there are no credentials for it, neither in the settings nor around"), False
        )
    if status in (401, 403) or type(error).__name__ in ("PermissionDeniedError", "UnauthenticatedError"):
        return Trouble(Denied(f"{url}: the store does not permit it ({said})"), code in _PASSING_CODES)
    if code == "NoSuchBucket":
        return Trouble(NotFound(f"{url}: there is no such bucket"), False)
    if isinstance(error, FileNotFoundError) or status == 404:
        return Trouble(NotFound(f"{url}: there is no such object, or no such bucket"), False)
    if status in (408, 429) or status >= 500 or code in _PASSING_CODES:
        return Trouble(TimedOut(f"{url}: the store answers {said}"), True)
    if status:
        return Trouble(Unsupported(f"{url}: the store answers {said}"), False)
    return _without_answer(text, url)


def _without_answer(text: str, url: str) -> Trouble:
    if "BadScheme" in text:
        return Trouble(
            Misconfigured(f"{url}: its endpoint is http://, which allow_http would let pass"), False
        )
    if found := _ODD_KEY.search(text):
        key = found[1][:200]
        return Trouble(
            Unsupported(f"{url}: the key {key!r} cannot be a file here (an empty part, `.`, `..`, …)"), False
        )
    host = found[0] if (found := _HOST.search(text)) else "the store"
    kind = found[1] if (found := _KIND.search(text)) else ""
    if "certificate" in text:
        return Trouble(Misconfigured(f"{url}: the certificate of {host} is not trusted"), False)
    if kind == "Connect":
        why = (
            "there is no such host"
            if "dns error" in text
            else "the connection is refused or does not come about"
        )
        return Trouble(TimedOut(f"{url}: cannot connect to {host}: {why}"), True)
    if kind == "Timeout":
        return Trouble(TimedOut(f"{url}: {host} does not answer in time"), True)
    if kind in _PASSING_KINDS or "error decoding response body" in text or "error sending request" in text:
        return Trouble(TimedOut(f"{url}: the connection to {host} broke"), True)
    return Trouble(Unsupported(f"{url}: {text.partition(chr(10))[0][:200]}"), False)
