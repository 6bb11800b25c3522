"""The directory of a source, as the engine binds it."""

from turnout.engines.local.data.staging import MountSources
from turnout.storage import Directory, EmbeddedPath, HostPath


def bind(storage: MountSources, source: str, project: str, read_only: bool) -> Directory:
    path = storage.locate(source, project)
    assert isinstance(path, EmbeddedPath | HostPath)
    return path.bind(read_only)
