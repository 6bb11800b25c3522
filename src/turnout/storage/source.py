"""Parses the source of a mount, such as `cos://bucket/dir`, by its text alone."""

import re
from pathlib import PurePosixPath
from typing import NamedTuple

from turnout.errors import Invalid

BUCKET_SCHEMES = ("cos", "obs", "gs", "s3")
MOUNTED_SCHEMES = ("nfs", "cephfs")

_BUCKET = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?")
_COS_HOST = re.compile(r"\.cos(?:-internal)?\.[a-z0-9-]+\.(?:myqcloud\.com|tencentcos\.cn)")
_APPID = re.compile(r"-1(?:2[5-9]|[34][0-9])[0-9]{7}")
"""Account numbers of Tencent. The range ends below today's Unix times, which also occur in bucket names."""
UNFIT = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
"""Characters that neither a source nor an object's key may have."""
MAX_NAME = 255
MAX_PATH = 3000


class InBucket(NamedTuple):
    scheme: str
    bucket: str
    parts: tuple[str, ...]


class OnHost(NamedTuple):
    path: PurePosixPath


class Mounted(NamedTuple):
    """A file system of a server, which the kernel mounts. The engine does that."""

    source: str
    scheme: str
    server: str
    directory: str


Source = InBucket | OnHost | Mounted


def parse(source: str) -> Source:
    """Takes the text literally: percent signs are not decoded. Raises Invalid."""
    scheme, separator, rest = source.partition("://")
    if not separator or scheme not in (*BUCKET_SCHEMES, *MOUNTED_SCHEMES, "file"):
        known = ", ".join(f"{name}://" for name in (*BUCKET_SCHEMES, "file", *MOUNTED_SCHEMES))
        raise Invalid(f"{source!r} must begin with one of {known}")
    if UNFIT.search(source):
        raise Invalid(f"{source!r} has a control character or is not valid UTF-8")
    if len(source.encode()) > MAX_PATH:
        raise Invalid(f"{source[:60]!r}… is longer than {MAX_PATH} bytes")
    if scheme in MOUNTED_SCHEMES:
        server, _, directory = rest.partition("/")
        return Mounted(source, scheme, server.removesuffix(":"), directory)
    if scheme == "file":
        return _on_host(source, rest)
    return _in_bucket(source, scheme, rest)


def parse_object(url: str) -> tuple[str, str, str]:
    """Scheme, bucket and key of an object's URL. The key is taken literally, unlike the path of a mount."""
    scheme, separator, rest = url.partition("://")
    host, _, key = rest.partition("/")
    bucket = _bucket(scheme, host)
    if scheme not in BUCKET_SCHEMES or not separator or not bucket:
        known = ", ".join(f"{name}://" for name in BUCKET_SCHEMES)
        raise Invalid(f"{url!r} must begin with one of {known} and the name of a bucket")
    return scheme, bucket, key


def without_account(bucket: str) -> str:
    """`data` for `data-1250000000`, its name at Tencent. A name without an account number is returned as it is."""
    found = _APPID.search(bucket)
    return bucket[: found.start()] if found and found.end() == len(bucket) and found.start() else bucket


def check_bucket(source: str, bucket: str) -> None:
    if not _BUCKET.fullmatch(bucket) or ".." in bucket:
        raise Invalid(
            f"{source!r}: {bucket!r} cannot be the name of a bucket, which has 1 to 63 lower-case letters, digits,"
            " dots, hyphens and underscores, and begins and ends with a letter or digit"
        )


def _on_host(source: str, rest: str) -> OnHost:
    if not rest.startswith("/"):
        raise Invalid(f"{source!r} must have an absolute path, with three slashes: file:///dir")
    return OnHost(PurePosixPath("/", *_parts(source, rest)))


def _in_bucket(source: str, scheme: str, rest: str) -> InBucket:
    host, _, key = rest.partition("/")
    bucket = _bucket(scheme, host)
    check_bucket(source, bucket)
    return InBucket(scheme, bucket, _parts(source, key))


def _bucket(scheme: str, host: str) -> str:
    """`cos://data-1250000000.cos.ap-beijing.myqcloud.com` is the bucket data-1250000000."""
    found = _COS_HOST.search(host) if scheme == "cos" else None
    return host[: found.start()] if found and found.end() == len(host) else host


def _parts(source: str, path: str) -> tuple[str, ...]:
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if ".." in parts:
        raise Invalid(f"{source!r} must not have `..` in its path")
    if any(len(part.encode()) > MAX_NAME for part in parts):
        raise Invalid(f"{source[:60]!r}… has a name of more than {MAX_NAME} bytes")
    return parts
