"""Signatures of requests to S3, OBS and COS, with their error codes, which are the same."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from turnout.access import FindsKeys, Key, cos_signature, sigv2, sigv4
from turnout.access.sigv4 import EMPTY_SHA256, UNSIGNED, ChunkSigner, HttpRequest, Problem, SignatureError
from turnout.gateways.s3.apis import COS, OBS, OBS_AS_S3, S3, StorageApi
from turnout.gateways.s3.errors import S3Error

CODES: dict[Problem, str] = {
    Problem.BAD_HEADER: "AuthorizationHeaderMalformed",
    Problem.BAD_QUERY: "AuthorizationQueryParametersError",
    Problem.EXPIRED: "AccessDenied",
    Problem.MISMATCH: "SignatureDoesNotMatch",
    Problem.NOT_SIGNED: "AccessDenied",
    Problem.NO_PAYLOAD_HASH: "InvalidRequest",
    Problem.NO_TIME: "AccessDenied",
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


_SESSIONS = ("x-amz-security-token", "x-obs-security-token", "x-cos-security-token")


def verify(
    keys: FindsKeys, request: HttpRequest, now: float, api: StorageApi = S3, bucket: str = ""
) -> Verified:
    """`bucket`: the one in the host. Raises S3Error."""
    with problems_as_codes():
        if not request.header("authorization") and not request.query:
            raise SignatureError(Problem.NOT_SIGNED, "Access denied: the request is not signed.")
        verified = _verified(keys, request, now, api, bucket)
    session = _session(verified.request)
    if session and not keys.accepts_session(verified.key.id, session):
        raise S3Error("InvalidToken", "The provided token is malformed or otherwise invalid.")
    return verified


def _verified(keys: FindsKeys, request: HttpRequest, now: float, api: StorageApi, bucket: str) -> Verified:
    if api is COS:
        return Verified(request, cos_signature.verify(keys.find, request, now, bucket), UNSIGNED, None)
    if api is OBS or _is_version_2(request):
        scheme = sigv2.OBS if api is OBS else sigv2.AWS
        key, request = sigv2.verify(keys.find, request, now, scheme, bucket)
        return Verified(request, key, UNSIGNED, None)
    found = Verified(request, *sigv4.verify(keys.find, request, "s3", now))
    if api is OBS_AS_S3 and found.payload == EMPTY_SHA256:
        # Huawei's Go programs send the digest of an empty body with every body.
        return found._replace(payload=UNSIGNED)
    return found


def _session(request: HttpRequest) -> str:
    """The session token of temporary keys, in a header or in a presigned URL; empty: there is none."""
    pairs = (*request.headers, *request.query)
    return next((value for name, value in pairs if name.lower() in _SESSIONS), "")


def _is_version_2(request: HttpRequest) -> bool:
    in_url = sigv2.is_presigned(sigv2.AWS, request) and request.param("X-Amz-Signature") is None
    return in_url or request.header("authorization").strip().startswith(f"{sigv2.AWS.authorization} ")


@contextmanager
def problems_as_codes() -> Iterator[None]:
    try:
        yield
    except SignatureError as error:
        raise S3Error(CODES[error.problem], error.message) from None
