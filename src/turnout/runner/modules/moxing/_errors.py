"""The exceptions of moxing."""

from __future__ import annotations

import errno
from typing import Any, Dict, Optional


class Response:
    """What the store answered, with the names of the OBS SDK."""

    def __init__(
        self,
        status: int,
        reason: str,
        code: str = "",
        message: str = "",
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        header = headers or {}
        self.status = status
        self.reason = reason
        self.errorCode = code or None
        self.errorMessage = message or None
        self.requestId = header.get("x-amz-request-id") or header.get("x-obs-request-id")
        self.header = list(header.items())
        self.body: Any = None

    def __repr__(self) -> str:
        said = ": ".join(part for part in (self.errorCode, self.errorMessage) if part)
        return f"status {self.status} {self.reason}{', ' + said if said else ''}, request {self.requestId}"


class _MoxFileBaseRespException(Exception):
    def __init__(self, resp: Response, *args: Any) -> None:
        super().__init__(resp, *args)
        self.resp = resp

    def __str__(self) -> str:
        return " ".join(str(arg) for arg in (*self.args[1:], f"({self.resp})"))


class MoxFileRespException(_MoxFileBaseRespException):
    """The store refused the request."""


class MoxFileReadException(_MoxFileBaseRespException):
    """The connection broke while an object was being read, as often as `retry` allows."""


class MoxFileNotExistsException(FileNotFoundError):
    """There is no such file or directory."""


class MoxFileNameDuplicateException(Exception):
    """A file and a directory would have the same local name, which an object store allows."""


class MissingObject(MoxFileRespException, MoxFileNotExistsException):
    """A request for an object that does not exist."""

    def __init__(self, resp: Response, *args: Any) -> None:
        super().__init__(resp, *args)
        self.errno = errno.ENOENT
        self.strerror = "No such file or directory"


def not_exists(url: str) -> MoxFileNotExistsException:
    return MoxFileNotExistsException(errno.ENOENT, "No such file or directory", url)
