"""Signatures of S3 requests, with S3's error codes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from turnout.access import Key, Keys, sigv2, sigv4
from turnout.access.sigv4 import UNSIGNED, ChunkSigner, HttpRequest, Problem, SignatureError
from turnout.gateways.s3.errors import S3Error

CODES: dict[Problem, str] = {
    Problem.BAD_HEADER: "AuthorizationHeaderMalformed",
    Problem.BAD_QUERY: "AuthorizationQueryParametersError",
    Problem.EXPIRED: "AccessDenied",
    Problem.MISMATCH: "SignatureDoesNotMatch",
    Problem.NOT_SIGNED: "AccessDenied",
    Problem.NO_PAYLOAD_HASH: "InvalidRequest",
    Problem.NO_TIME: "AccessDenied",
    Problem.OLD_VERSION: "InvalidRequest",
    Problem.SKEWED: "RequestTimeTooSkewed",
    Problem.UNKNOWN_KEY: "InvalidAccessKeyId",
    Problem.UNSIGNED_HEADERS: "AccessDenied",
}


class Verified(NamedTuple):
    request: HttpRequest
    """With the headers that a presigned URL contains."""
    key: Key
    payload: str
    chunks: ChunkSigner | None


def verify(keys: Keys, request: HttpRequest, now: float) -> Verified:
    """Raises S3Error."""
    with problems_as_codes():
        if request.param(sigv2.KEY_ID) is not None and request.param("X-Amz-Signature") is None:
            key, request = sigv2.verify(keys.find, request, now)
            return Verified(request, key, UNSIGNED, None)
        return Verified(request, *sigv4.verify(keys.find, request, "s3", now))


@contextmanager
def problems_as_codes() -> Iterator[None]:
    try:
        yield
    except SignatureError as error:
        raise S3Error(CODES[error.problem], error.message) from None
