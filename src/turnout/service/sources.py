"""Checks the sources of a job's mounts before the job is created."""

import asyncio
from collections.abc import Sequence

from turnout.errors import Denied, Invalid, TurnoutError
from turnout.job import Mount
from turnout.storage import EmbeddedPath, HostPath, Presence, RemotePath, Storage
from turnout.storage.objects import Objects

STORE_SECONDS = 2.0
"""How long a check of a remote store may hold a create."""


class Sources:
    def __init__(self, storage: Storage, objects: Objects) -> None:
        self._storage = storage
        self._objects = objects

    async def check(self, project: str, mounts: Sequence[tuple[str, Mount]]) -> list[str]:
        """Checks that what the job reads exists. Makes nothing. Returns notes for the user.

        `mounts`: each with the name of its field. The error of the first bad one has that name in `field`: NotFound,
        Denied for another project's bucket or one that the store refuses, Invalid, or TimedOut for a directory of the
        host. A remote store that does not answer is noted; the source is looked for again before the start.
        """
        results = await asyncio.gather(
            *(self._check(project, mount) for _, mount in mounts), return_exceptions=True
        )
        for (field, _), result in zip(mounts, results, strict=True):
            if isinstance(result, TurnoutError):
                result.field = field
            if isinstance(result, BaseException):
                raise result
        return [note for note in dict.fromkeys(results) if isinstance(note, str) and note]

    async def _check(self, project: str, mount: Mount) -> str:
        source = mount.source
        match self._storage.locate(source, project):
            case HostPath():
                return await self._storage.check_host(source, mount.read_only, project, mount.files)
            case EmbeddedPath() as path:
                found = await self._objects.presence(source, path, project)
                if found is Presence.OBJECT and not mount.read_only:
                    raise Invalid(f"{source!r} is an object, and not a directory that can be written to")
                return _note_if_missing(mount, found)
            case RemotePath() as path:
                return await self._check_remote(project, mount, path)
            case _:
                return ""

    async def _check_remote(self, project: str, mount: Mount, path: RemotePath) -> str:
        again = "it is looked for again before the job starts" if mount.required else ""
        try:
            async with asyncio.timeout(STORE_SECONDS):
                found = await self._objects.presence(mount.source, path, project)
        except TimeoutError:
            return unchecked_note(mount.source, f"the store did not answer within {STORE_SECONDS:g} s", again)
        except Denied:
            if mount.required:
                raise
            return ""  # a key may be allowed to write and not to list
        except TurnoutError as error:
            return unchecked_note(mount.source, error.message, again)
        if found is Presence.NO_BUCKET and not mount.required:
            return (
                f"{mount.source!r}: there is no such bucket in the store; the job starts with an empty directory, and"
                " what it writes there cannot be stored until the bucket exists"
            )
        return _note_if_missing(mount, found)


def unchecked_note(source: str, why: str, consequence: str = "") -> str:
    """The note about a source whose store does not answer."""
    return f"{source!r} could not be checked: {why}" + (f"; {consequence}" if consequence else "")


def _note_if_missing(mount: Mount, found: Presence) -> str:
    """Returns a note about what is missing and will be made. Raises NotFound if it must exist."""
    source = mount.source
    if found.exists:
        return ""
    if mount.required:
        raise found.missing(source)
    if found is Presence.EMPTY:
        # An output needs no note: its directory often does not exist yet.
        return (
            "" if mount.output else f"there is nothing at {source!r}: the job starts with an empty directory"
        )
    if mount.output:
        return f"{source!r}: there is no such bucket; it is made when the job starts"
    return (
        f"{source!r}: there is no such bucket; the job starts with an empty directory, and the first file that it"
        " writes there makes the bucket"
    )
