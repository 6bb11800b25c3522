"""OBS URLs of data, and paths inside the container at which the program finds it."""

import re

from turnout.dialects.modelarts import errors
from turnout.dialects.modelarts.errors import invalid, quoted

HOME = "/home/ma-user"
CACHE = "/cache"
ROOT = f"{HOME}/modelarts"
"""MA_MOUNT_PATH"""
JOB_DIR = f"{ROOT}/user-job-dir"
"""MA_JOB_DIR"""
CODE = f"{HOME}/.turnout/code"
"""The mount of the code. The start script copies the code from here."""
FRAMEWORK = f"{HOME}/.turnout/framework"
SCRATCH = (HOME, CACHE)
RESERVED = (f"{HOME}/.turnout", "/opt/turnout")
"""Directories that the service adds to a container."""
MAX_NAME_BYTES = 255
"""The kernel's limit for a directory name, in bytes."""

SYSTEM_DIRS = frozenset(
    {"bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "sbin", "sys", "usr"}
)
"""Top-level directories in which nothing can be mounted, because the operating system needs them."""

_SCHEMES = ("obs", "s3", "cos", "gs", "file")
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def source(text: str, field: str, code: str = errors.BAD_OBS_PATH) -> str:
    """Normalizes `/bucket/dir/` and `obs://bucket/dir/` to `obs://bucket/dir`. Accepts the URLs of other stores too."""
    url = f"obs:/{text}" if text.startswith("/") else text
    scheme, separator, rest = url.partition("://")
    parts = [part for part in rest.split("/") if part not in ("", ".")]
    if not separator or scheme not in _SCHEMES or not parts or (scheme == "file") != rest.startswith("/"):
        raise invalid(
            code, field, f": {quoted(text)} must be a path such as obs://bucket/dir/ or /bucket/dir/."
        )
    if ".." in parts:
        raise invalid(code, field, f": {quoted(text)} must not contain `..`.")
    if _FORBIDDEN.search(text):
        raise invalid(
            code, field, f": {quoted(text)} must not have control characters or bytes that are not text."
        )
    return f"{scheme}://{'/' if scheme == 'file' else ''}{'/'.join(parts)}"


def path(text: str, field: str, code: str) -> str:
    """An absolute path inside the container, without doubled and trailing slashes."""
    parts = [part for part in text.split("/") if part not in ("", ".")]
    is_wrong = ".." in parts or _FORBIDDEN.search(text) or len(text) > 1024
    if not text.startswith("/") or is_wrong or any(len(part.encode()) > MAX_NAME_BYTES for part in parts):
        rule = f"an absolute path such as {HOME}/data, without `..`, with names of at most {MAX_NAME_BYTES} bytes"
        raise invalid(code, field, f": {quoted(text)} must be {rule}.")
    return "/" + "/".join(parts)


def mount_point(text: str, field: str, code: str) -> str:
    """A path at which a directory can be mounted."""
    target = path(text, field, code)
    if target.split("/")[1] in SYSTEM_DIRS:
        raise invalid(
            code,
            field,
            f": {quoted(text)} is in a directory of the operating system; use one such as {HOME}/data.",
        )
    taken = next((own for own in (CACHE, JOB_DIR, *RESERVED) if covers(target, own)), None)
    taken = taken or next((own for own in RESERVED if covers(own, target)), None)
    if taken or target in (ROOT, f"{ROOT}/inputs", f"{ROOT}/outputs"):
        raise invalid(
            code,
            field,
            f": {quoted(text)} would hide {taken or target}, which the platform uses; use one such as {HOME}/data.",
        )
    return target


def covers(outer: str, inner: str) -> bool:
    return outer == "/" or inner == outer or inner.startswith(f"{outer}/")
