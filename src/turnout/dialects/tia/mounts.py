"""PackageDir: what is mounted where.

cos://<bucket>-<appid>.<host>/<remote>:<local>
nfs://<host>:<remote>:<local>
cephfs://[<user>:<secret>@]<monitor>[,<monitor>...]:<remote>:<local>
file://<directory>:<local>[:ro]          (ours, for local use)
"""

import re
from collections.abc import Callable, Sequence

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
"""Top directories that nothing is mounted in: the program's own system needs them as they are."""

_COS = re.compile(r"([a-z0-9][a-z0-9-]*)-[0-9]+(?:\.[A-Za-z0-9-]+)+(?::[0-9]+)?/([^:]*):([^:]*)")
_NFS = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):(/[^:]*):([^:]*)")
_CEPHFS = re.compile(r"((?:[^:@/,]+:[^:@/,]+@)?[A-Za-z0-9.:_\[\],-]+):(/[^:]*):([^:]*)")
_FILE = re.compile(r"(/[^:]*):([^:]*?)(:ro)?")


def parse_all(entries: Sequence[str] | None) -> tuple[Mount, ...]:
    """The sample's `[""]` means none."""
    if entries and len(entries) > MAX_MOUNTS:
        raise Invalid(
            f"PackageDir has {len(entries)} entries; {MAX_MOUNTS} are possible.", field="PackageDir"
        )
    mounts: list[Mount] = []
    for index, entry in enumerate(entries or ()):
        if not entry:
            continue
        field = f"PackageDir.{index}"
        mount = parse(entry, field)
        for other in mounts:
            _check_apart(mount.target, other.target, field)
        mounts.append(mount)
    return tuple(mounts)


def _check_apart(target: str, other: str, field: str) -> None:
    if target == other:
        raise Invalid(f"{field}: {target} is already the mount point of another.", field=field)
    # Links that jobs leave in the outer one would decide where the inner one goes.
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
        raise Invalid(f"{field}: {entry!r} has a control character or bytes that are no text.", field=field)
    mount = reader(rest)
    if mount is None:
        raise Invalid(f"{field}: {entry!r} must have the form {FORMS[scheme]}.", field=field)
    if ".." in mount.source.split("/"):
        raise Invalid(f"{field}: {entry!r} must not lead upwards with `..`.", field=field)
    target = _mount_point(mount.target, field)
    return Mount(mount.source, target, mount.read_only)


def _cos(rest: str) -> Mount | None:
    match = _COS.fullmatch(rest)
    return match and Mount(f"cos://{match[1]}/{match[2].strip('/')}", match[3])


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
    """Without doubled and trailing slashes; the caller's document keeps its own spelling."""
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if not text.startswith("/") or not parts:
        raise Invalid(
            f"{field}: the mount point {text!r} must be an absolute path below /, such as /data.", field=field
        )
    if ".." in parts:
        raise Invalid(f"{field}: the mount point {text!r} must not lead upwards with `..`.", field=field)
    if parts[0] in SYSTEM:
        raise Invalid(
            f"{field}: the mount point {text!r} is inside /{parts[0]}, which the system needs; use /data or the like.",
            field=field,
        )
    return "/" + "/".join(parts)
