"""What a source says, by its text alone."""

import re
from pathlib import PurePosixPath
from typing import NamedTuple

from turnout.errors import Invalid

BUCKET_SCHEMES = ("cos", "obs", "gs", "s3")
MOUNTED_SCHEMES = ("nfs", "cephfs")
"""Those that the kernel mounts: engines see to them."""

_BUCKET = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?")
UNFIT = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
LONGEST_NAME = 255
LONGEST_PATH = 3000


class InBucket(NamedTuple):
    bucket: str
    parts: tuple[str, ...]


class OnHost(NamedTuple):
    path: PurePosixPath


class Elsewhere(NamedTuple):
    scheme: str


Source = InBucket | OnHost | Elsewhere


def parse(source: str) -> Source:
    """The text is taken as it is: nothing in it is percent-encoded. Raises Invalid."""
    scheme, separator, rest = source.partition("://")
    if not separator or scheme not in (*BUCKET_SCHEMES, *MOUNTED_SCHEMES, "file"):
        known = ", ".join(f"{name}://" for name in (*BUCKET_SCHEMES, "file", *MOUNTED_SCHEMES))
        raise Invalid(f"{source!r} does not say where it is: it must begin with one of {known}")
    if UNFIT.search(source):
        raise Invalid(f"{source!r} has a control character or bytes that are no text")
    if len(source.encode()) > LONGEST_PATH:
        raise Invalid(f"{source[:60]!r}… is longer than {LONGEST_PATH} bytes")
    if scheme in MOUNTED_SCHEMES:
        return Elsewhere(scheme)
    if scheme == "file":
        return _on_host(source, rest)
    return _in_bucket(source, rest)


def check_bucket(source: str, bucket: str) -> None:
    if not _BUCKET.fullmatch(bucket) or ".." in bucket:
        raise Invalid(
            f"{source!r}: a bucket's name has 1 to 63 lower-case letters, digits, dots, hyphens and underscores,"
            f" a letter or digit first and last; {bucket!r} is none"
        )


def _on_host(source: str, rest: str) -> OnHost:
    if not rest.startswith("/"):
        raise Invalid(f"{source!r} must have an absolute path, with three slashes: file:///dir")
    return OnHost(PurePosixPath("/", *_parts(source, rest)))


def _in_bucket(source: str, rest: str) -> InBucket:
    bucket, _, key = rest.partition("/")
    check_bucket(source, bucket)
    return InBucket(bucket, _parts(source, key))


def _parts(source: str, path: str) -> tuple[str, ...]:
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if ".." in parts:
        raise Invalid(f"{source!r} must not lead upwards with `..`: spell the path out")
    if any(len(part.encode()) > LONGEST_NAME for part in parts):
        raise Invalid(f"{source[:60]!r}… has a name of more than {LONGEST_NAME} bytes in it")
    return parts
