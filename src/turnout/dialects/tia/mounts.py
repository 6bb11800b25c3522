"""Parses PackageDir, the mounts of a job.

cos://<bucket>-<appid>.<host>/<remote>:<local>
nfs://<host>:<remote>:<local>
cephfs://[<user>:<secret>@]<monitor>[,<monitor>...]:<remote>:<local>
file://<directory>:<local>[:ro]          (Turnout's own)
"""

import re
from collections.abc import Callable, Sequence

import msgspec

from turnout.errors import Invalid
from turnout.job import Mount

FORMS = {
    "cos": "cos://<bucket>-<appid>.<host>/<directory>:<mount point>",
    "nfs": "nfs://<host>:<directory>:<mount point>",
    "cephfs": "cephfs://[<user>:<secret>@]<monitor>[,<monitor>]:<directory>:<mount point>",
    "file": "file://<directory>:<mount point>[:ro]",
}

MAX_MOUNTS = 64
SYSTEM = frozenset({"bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "sbin", "sys", "usr"})
"""Top-level directories that cannot hold a mount point, because the system needs them."""

_COS = re.compile(r"([a-z0-9][a-z0-9-]*)-([0-9]+)(?:\.[A-Za-z0-9-]+)+(?::[0-9]+)?/([^:]*):([^:]*)")
_NFS = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):(/[^:]*):([^:]*)")
_CEPHFS = re.compile(r"((?:[^:@/,]+:[^:@/,]+@)?[A-Za-z0-9.:_\[\],-]+):(/[^:]*):([^:]*)")
_FILE = re.compile(r"(/[^:]*):([^:]*?)(:ro)?")


def parse_all(entries: Sequence[str] | None) -> tuple[Mount, ...]:
    """The documentation's sample sends `[""]` for no mounts."""
    if entries and len(entries) > MAX_MOUNTS:
        raise Invalid(
            f"PackageDir has {len(entries)} entries; at most {MAX_MOUNTS} are allowed.", field="PackageDir"
        )
    mounts: list[Mount] = []
    for index, entry in enumerate(entries or ()):
        if not entry:
            continue
        field = f"PackageDir.{index}"
        mount = parse(entry, field)
        for other in mounts:
            _check_apart(mount.target, other.target, field)
        # The first mount is the working directory, with code, data and results. The job reads it, so it must exist.
        is_package = not mounts and mount.source.startswith("cos://")
        mounts.append(msgspec.structs.replace(mount, package=True) if is_package else mount)
    return tuple(mounts)


def _check_apart(target: str, other: str, field: str) -> None:
    if target == other:
        raise Invalid(f"{field}: {target} is already the mount point of another entry.", field=field)
    # A symbolic link in the outer mount could redirect the inner one.
    if target.startswith(other + "/") or other.startswith(target + "/"):
        inner, outer = max(target, other, key=len), min(target, other, key=len)
        raise Invalid(
            f"{field}: the mount point {inner} is inside {outer}, another mount point; put them side by side.",
            field=field,
        )


def parse(entry: str, field: str = "PackageDir") -> Mount:
    scheme, separator, rest = entry.partition("://")
    reader = _READERS.get(scheme)
    if not separator or reader is None:
        raise Invalid(f"{field}: {entry!r} must be one of {'; '.join(FORMS.values())}.", field=field)
    if not entry.isprintable():
        raise Invalid(f"{field}: {entry!r} has a control character or is not valid UTF-8.", field=field)
    mount = reader(rest)
    if mount is None:
        raise Invalid(f"{field}: {entry!r} must have the form {FORMS[scheme]}.", field=field)
    if ".." in mount.source.split("/"):
        raise Invalid(f"{field}: {entry!r} must not contain `..`.", field=field)
    target = _mount_point(mount.target, field)
    return Mount(mount.source, target, mount.read_only)


def _cos(rest: str) -> Mount | None:
    match = _COS.fullmatch(rest)
    if match is None:
        return None
    bucket, number, directory, target = match.groups()
    # Accounts have numbers of ten digits. Storage knows such a bucket by both names.
    full_name = f"{bucket}-{number}" if len(number) == 10 else bucket
    return Mount(f"cos://{full_name}/{directory.strip('/')}", target)


def _nfs(rest: str) -> Mount | None:
    match = _NFS.fullmatch(rest)
    return match and Mount(f"nfs://{match[1]}{match[2]}", match[3])


def _cephfs(rest: str) -> Mount | None:
    match = _CEPHFS.fullmatch(rest)
    return match and Mount(f"cephfs://{match[1]}{match[2]}", match[3])


def _file(rest: str) -> Mount | None:
    match = _FILE.fullmatch(rest)
    return match and Mount(f"file://{match[1]}", match[2], read_only=match[3] is not None)


_READERS: dict[str, Callable[[str], Mount | None]] = {
    "cos": _cos,
    "nfs": _nfs,
    "cephfs": _cephfs,
    "file": _file,
}


def _mount_point(text: str, field: str) -> str:
    """The path without doubled and trailing slashes. The stored document keeps the caller's spelling."""
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if not text.startswith("/") or not parts:
        raise Invalid(
            f"{field}: the mount point {text!r} must be an absolute path below /, such as /data.", field=field
        )
    if ".." in parts:
        raise Invalid(f"{field}: the mount point {text!r} must not contain `..`.", field=field)
    if parts[0] in SYSTEM:
        raise Invalid(
            f"{field}: the mount point {text!r} is inside /{parts[0]}, which the system needs; use /data or the like.",
            field=field,
        )
    return "/" + "/".join(parts)
