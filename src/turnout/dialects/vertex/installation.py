"""The parts of an installation that the translation of a job depends on."""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from turnout import config
from turnout.service.images import ImageRules


class Installation(NamedTuple):
    project: str
    location: str
    cluster: str
    """The cluster of jobs that name no persistent resource."""
    clusters: Collection[str] = ()
    resources: Mapping[str, str] = {}
    """The cluster of the persistent resource that the job names, if it was created through the API."""
    rules: ImageRules = ImageRules()
    """What stands for images."""
    runtimes: Mapping[str, config.RuntimeSettings] = {}
    remote: Callable[[str], bool] = lambda bucket: False
    """Whether a gs:// bucket is in a remote object store, so that its mounted directories are copied."""
    keys: Collection[str] | None = None
    """Names of the keys in the key ring; None: not checked."""
    disk: int = 0
    """The largest disk of a replica, in bytes; 0: no limit."""

    @staticmethod
    def of(
        settings: config.Settings, project: str, location: str, rules: ImageRules | None = None
    ) -> "Installation":
        """All locations use the first cluster."""
        clusters = settings.all_clusters()
        remote = settings.storage
        return Installation(
            project,
            location,
            next(iter(clusters)),
            clusters,
            rules=rules or ImageRules.of(settings),
            runtimes=settings.runtimes,
            remote=lambda bucket: bucket in remote.buckets or "gs" in remote.schemes,
            keys=settings.keyring,
            disk=settings.limits.disk,
        )
