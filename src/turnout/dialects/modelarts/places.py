"""Where data is and where the program finds it: OBS urls and paths inside the container."""

import re

from turnout.dialects.modelarts import faults
from turnout.dialects.modelarts.faults import shown, wrong

HOME = "/home/ma-user"
CACHE = "/cache"
ROOT = f"{HOME}/modelarts"
"""MA_MOUNT_PATH"""
JOB_DIR = f"{ROOT}/user-job-dir"
"""MA_JOB_DIR"""
CODE = f"{HOME}/.turnout/code"
"""Where the code is mounted, to be copied from."""
FRAMEWORK = f"{HOME}/.turnout/framework"
SCRATCH = (HOME, CACHE)
OWN = (f"{HOME}/.turnout", "/opt/turnout")
"""What the service puts into a container itself."""
LONGEST_NAME = 255
"""Of a directory, in bytes, as the kernel has it."""

SYSTEM = frozenset({"bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "sbin", "sys", "usr"})
"""Top directories that nothing is mounted in: the program's own system needs them as they are."""

_SCHEMES = ("obs", "s3", "cos", "gs", "file")
_UNFIT = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def source(text: str, field: str, number: int = faults.BAD_OBS_PATH) -> str:
    """`/bucket/dir/` and `obs://bucket/dir/` as `obs://bucket/dir`. Other stores' urls are taken too."""
    url = f"obs:/{text}" if text.startswith("/") else text
    scheme, separator, rest = url.partition("://")
    parts = [part for part in rest.split("/") if part not in ("", ".")]
    if not separator or scheme not in _SCHEMES or not parts or (scheme == "file") != rest.startswith("/"):
        raise wrong(
            number, field, f": {shown(text)} must be a path such as obs://bucket/dir/ or /bucket/dir/."
        )
    if ".." in parts:
        raise wrong(number, field, f": {shown(text)} must not lead upwards with `..`.")
    if _UNFIT.search(text):
        raise wrong(number, field, f": {shown(text)} has a control character or bytes that are no text.")
    return f"{scheme}://{'/' if scheme == 'file' else ''}{'/'.join(parts)}"


def path(text: str, field: str, number: int) -> str:
    """An absolute path inside the container, without doubled and trailing slashes."""
    parts = [part for part in text.split("/") if part not in ("", ".")]
    unfit = ".." in parts or _UNFIT.search(text) or len(text) > 1024
    if not text.startswith("/") or unfit or any(len(part.encode()) > LONGEST_NAME for part in parts):
        rule = (
            f"an absolute path such as {HOME}/data, without `..`, its names of at most {LONGEST_NAME} bytes"
        )
        raise wrong(number, field, f": {shown(text)} must be {rule}.")
    return "/" + "/".join(parts)


def mount_point(text: str, field: str, number: int) -> str:
    """A path at which a directory may appear."""
    target = path(text, field, number)
    if target.split("/")[1] in SYSTEM:
        raise wrong(
            number, field, f": {shown(text)} is inside a directory that the system needs; use {HOME}/data."
        )
    taken = next((own for own in (CACHE, JOB_DIR, *OWN) if covers(target, own)), None)
    taken = taken or next((own for own in OWN if covers(own, target)), None)
    if taken or target in (ROOT, f"{ROOT}/inputs", f"{ROOT}/outputs"):
        raise wrong(
            number,
            field,
            f": {shown(text)} would hide {taken or target}, which the platform uses; use {HOME}/data.",
        )
    return target


def covers(outer: str, inner: str) -> bool:
    return outer == "/" or inner == outer or inner.startswith(f"{outer}/")
