"""Decodes the body of a request, which may be aws-chunked, and verifies its length, signatures and checksums.

It is pure computation, for a thread. The body is not verified before `finish` has returned.
"""

import base64
import binascii
import hashlib
import hmac
import re
import zlib
from collections.abc import Iterable
from typing import Protocol

from turnout.access.sigv4 import EMPTY_SHA256, UNSIGNED, ChunkSigner, HttpRequest
from turnout.gateways.s3.errors import S3Error

STREAMING = "STREAMING-"
MAX_BODY = 5 << 30
"""S3's limit for one PUT or part."""

_HASH = re.compile(r"[0-9a-f]{64}")
_CHUNK = re.compile(rb"([0-9a-fA-F]{1,9})(?:;chunk-signature=([0-9a-f]{64}))?\s*")
_MAX_LINE = 4096
_MAX_TRAILER = 16384
_SIGNED = ("STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER")
_UNSIGNED_TRAILER = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"


class BodyWriter(Protocol):
    """Receives the bytes and computes two of their checksums."""

    def write(self, data: bytes, /) -> None: ...
    @property
    def md5(self) -> str | None: ...
    @property
    def crc32c(self) -> str: ...


class Body:
    def __init__(
        self, request: HttpRequest, payload: str, chain: ChunkSigner | None, target: BodyWriter
    ) -> None:
        """`chain`: None if signatures are not verified. Raises S3Error for contradictory headers."""
        self._payload = payload
        self._target = target
        self.length = _length(request, payload)
        """Of the decoded body; None if the request does not say."""
        self._size = 0
        self._sha256 = hashlib.sha256() if _HASH.fullmatch(payload) and payload != EMPTY_SHA256 else None
        self._chunks = _Chunks(chain if payload in _SIGNED else None) if _is_chunked(payload) else None
        self._given = {name: value for name, value in request.headers if _is_sum(name)}
        announced = request.header("x-amz-trailer").lower().split(",")
        self._announced = [name.strip() for name in announced if name.strip()]
        self._md5 = _decoded(request.header("content-md5"), 16) if request.header("content-md5") else b""
        self._sums = {name: _CHECKSUMS[name]() for name in _checkable((*self._given, *self._announced))}

    def feed(self, data: bytes) -> None:
        for piece in self._chunks.feed(data) if self._chunks else (data,):
            self._size += len(piece)
            if self._size > (MAX_BODY if self.length is None else self.length):
                raise S3Error("EntityTooLarge", "The body is longer than its declared length, or than 5 GiB.")
            if self._sha256:
                self._sha256.update(piece)
            for checksum in self._sums.values():
                checksum.update(piece)
            self._target.write(piece)

    def finish(self) -> dict[str, str]:
        """The checksums that the client gave, as header names and values. Raises S3Error if one does not match."""
        if self._chunks:
            self._given |= self._trailers(self._chunks.finish())
        if self.length is not None and self._size != self.length:
            raise S3Error("IncompleteBody", "The body is shorter than its declared length.")
        if _HASH.fullmatch(self._payload):
            actual = self._sha256.hexdigest() if self._sha256 else EMPTY_SHA256 if not self._size else ""
            if not hmac.compare_digest(actual, self._payload):
                raise S3Error("XAmzContentSHA256Mismatch", "The body does not match x-amz-content-sha256.")
        if self._md5 and self._target.md5 != self._md5.hex():
            raise S3Error("BadDigest", "The Content-MD5 that you gave does not match what was received.")
        return self._check_sums()

    def _trailers(self, received: dict[str, str]) -> dict[str, str]:
        """A checksum that was not announced was not computed while the body arrived, so it cannot be verified."""
        unannounced = [name for name in received if name not in self._announced]
        if unannounced:
            raise S3Error(
                "MalformedTrailerError", f"The trailer {unannounced[0]} was not announced in x-amz-trailer."
            )
        return received

    def _check_sums(self) -> dict[str, str]:
        verified: dict[str, str] = {}
        missing = [name for name in self._announced if name in self._sums and name not in self._given]
        if missing:
            raise S3Error("InvalidRequest", f"The trailer {missing[0]} was announced but is missing.")
        for name, checksum in self._sums.items():
            digest = base64.b64encode(checksum.digest()).decode()
            if name == _CRC32C:
                digest = self._target.crc32c
            if digest != self._given[name]:
                raise S3Error("BadDigest", f"The {name} that you gave does not match what was received.")
            verified[name] = digest
        return verified


class _Chunks:
    def __init__(self, chain: ChunkSigner | None) -> None:
        self._chain = chain
        self._buffer = b""
        self._remaining = 0
        self._expects = "size"
        self._sha256 = hashlib.sha256()
        self._signature = ""
        self._trailer: dict[str, str] = {}
        self._ended = False

    def feed(self, data: bytes) -> list[bytes]:
        pieces: list[bytes] = []
        data, at = self._buffer + data, 0
        while at < len(data):
            if self._expects == "data":
                piece = data[at : at + self._remaining]
                pieces.append(piece)
                if self._chain:
                    self._sha256.update(piece)
                at += len(piece)
                self._remaining -= len(piece)
                if not self._remaining:
                    self._expects = "end"
                continue
            end = data.find(b"\n", at)
            if end < 0:
                break
            self._line(data[at:end].rstrip(b"\r"))
            at = end + 1
        self._buffer = data[at:]
        if len(self._buffer) > _MAX_LINE:
            raise _malformed()
        return pieces

    def finish(self) -> dict[str, str]:
        if self._expects == "trailer" and self._buffer:
            self._line(self._buffer.rstrip(b"\r"))  # some clients leave out the last line break
        if self._expects not in ("trailer", "over"):
            raise S3Error("IncompleteBody", "The body ended in the middle of a chunk.")
        signature = self._trailer.pop("x-amz-trailer-signature", "")
        if self._chain and self._trailer:
            text = "".join(f"{name}:{value}\n" for name, value in self._trailer.items())
            self._compare(self._chain.next("TRAILER", hashlib.sha256(text.encode()).hexdigest()), signature)
        return self._trailer

    def _line(self, line: bytes) -> None:
        if self._expects == "size":
            self._begin(line)
        elif self._expects == "end":
            if line:
                raise _malformed()
            self._close_chunk()
            self._expects = "size"
        elif not line:
            self._expects = "over"
        elif self._expects == "trailer":
            name, _, value = line.decode("latin-1").partition(":")
            self._trailer[name.strip().lower()] = value.strip()
            if sum(map(len, self._trailer.values())) + 64 * len(self._trailer) > _MAX_TRAILER:
                raise _malformed()
        else:
            raise _malformed()

    def _begin(self, line: bytes) -> None:
        match = _CHUNK.fullmatch(line)
        if match is None or (self._chain and not match[2]):
            raise _malformed()
        self._remaining = int(match[1], 16)
        self._signature = (match[2] or b"").decode()
        self._expects = "data"
        if not self._remaining:
            self._close_chunk()
            self._expects = "trailer"

    def _close_chunk(self) -> None:
        if self._chain:
            self._compare(
                self._chain.next("PAYLOAD", EMPTY_SHA256, self._sha256.hexdigest()), self._signature
            )
            self._chain = self._chain._replace(signature=self._signature)
            self._sha256 = hashlib.sha256()

    def _compare(self, expected: str, given: str) -> None:
        if not hmac.compare_digest(expected.encode(), given.encode()):
            raise S3Error("SignatureDoesNotMatch", "The signature of a chunk of the body does not match.")


class _Crc32:
    def __init__(self) -> None:
        self._value = 0

    def update(self, data: bytes) -> None:
        self._value = zlib.crc32(data, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(4, "big")


class _ComputedByTarget:
    """A checksum that the target computes."""

    def update(self, data: bytes) -> None:
        del data

    def digest(self) -> bytes:
        return b""


class _Crc64Nvme:
    def __init__(self) -> None:
        # Imported only if a client uses this checksum.
        from anycrc import Model

        self._crc = Model("CRC64-NVME")
        self._value = self._crc.calc(b"")

    def update(self, data: bytes) -> None:
        self._value = self._crc.calc(data, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(8, "big")


_CHECKSUM = "x-amz-checksum-"
_CRC32C = f"{_CHECKSUM}crc32c"
_CHECKSUMS = {
    f"{_CHECKSUM}crc32": _Crc32,
    _CRC32C: _ComputedByTarget,
    f"{_CHECKSUM}crc64nvme": _Crc64Nvme,
    f"{_CHECKSUM}sha1": hashlib.sha1,
    f"{_CHECKSUM}sha256": hashlib.sha256,
}
_NO_SUMS = (f"{_CHECKSUM}algorithm", f"{_CHECKSUM}mode", f"{_CHECKSUM}type")


def _is_sum(name: str) -> bool:
    return name.startswith(_CHECKSUM) and name not in _NO_SUMS


def _checkable(names: Iterable[str]) -> list[str]:
    """The names that are checksums. Raises S3Error for a checksum that the service does not support."""
    found = [name for name in names if _is_sum(name)]
    for name in found:
        if name not in _CHECKSUMS:
            known = ", ".join(header.removeprefix(_CHECKSUM) for header in _CHECKSUMS)
            raise S3Error("InvalidRequest", f"{name} is not supported: use one of {known}.")
    return found


def _is_chunked(payload: str) -> bool:
    if not payload.startswith(STREAMING):
        return False
    if payload not in (*_SIGNED, _UNSIGNED_TRAILER):
        raise S3Error("NotImplemented", f"x-amz-content-sha256: {payload} is not supported.")
    return True


def _length(request: HttpRequest, payload: str) -> int | None:
    chunked = payload.startswith(STREAMING)
    text = request.header("x-amz-decoded-content-length" if chunked else "content-length")
    if not text and not chunked and not request.header("transfer-encoding"):
        return 0
    if not text.isascii() or not text.isdecimal():
        raise S3Error("MissingContentLength", "The length of the body must be given.")
    if len(text) > 15 or int(text) > MAX_BODY:
        raise S3Error("EntityTooLarge", "More than 5 GiB must be uploaded in parts.")
    if not payload.startswith(STREAMING) and payload != UNSIGNED and not _HASH.fullmatch(payload):
        raise S3Error("InvalidArgument", "x-amz-content-sha256 must be a SHA-256 in hex or UNSIGNED-PAYLOAD.")
    return int(text)


def _decoded(text: str, size: int) -> bytes:
    try:
        digest = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        digest = b""
    if len(digest) != size:
        raise S3Error("InvalidDigest", "The Content-MD5 that you gave is not the base64 of an MD5.")
    return digest


def _malformed() -> S3Error:
    return S3Error("InvalidRequest", "The body is not in aws-chunked form.")
