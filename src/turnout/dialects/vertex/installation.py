"""The parts of an installation that the translation of a job depends on."""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from turnout import config


class Installation(NamedTuple):
    project: str
    location: str
    cluster: str
    """The cluster of jobs that name no persistent resource."""
    clusters: Collection[str] = ()
    images: Mapping[str, str] = {}
    """`[images]` of the settings: image → runtime."""
    runtimes: Mapping[str, config.RuntimeSettings] = {}
    remote: Callable[[str], bool] = lambda bucket: False
    """Whether a gs:// bucket is in a remote object store, so that its mounted directories are copied."""
    keys: Collection[str] | None = None
    """Names of the keys in the key ring; None: not checked."""
    disk: int = 0
    """The largest disk of a replica, in bytes; 0: no limit."""

    @staticmethod
    def of(settings: config.Settings, project: str, location: str) -> "Installation":
        """All locations use the first cluster."""
        clusters = settings.all_clusters()
        remote = settings.storage
        return Installation(
            project,
            location,
            next(iter(clusters)),
            clusters,
            settings.images,
            settings.runtimes,
            lambda bucket: bucket in remote.buckets or "gs" in remote.schemes,
            settings.keyring,
            settings.limits.disk,
        )
