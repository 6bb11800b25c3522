"""What a job is translated for: where it was sent, and what this installation has."""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from turnout import config


class Place(NamedTuple):
    project: str
    location: str
    cluster: str
    """Where jobs run that name no persistent resource."""
    clusters: Collection[str] = ()
    images: Mapping[str, str] = {}
    """`[images]` of the settings: image → runtime."""
    runtimes: Mapping[str, config.Runtime] = {}
    remote: Callable[[str], bool] = lambda bucket: False
    """Whether a bucket of gs:// lies in a real object store, so that what is mounted of it has to be copied."""
    keys: Collection[str] | None = None
    """Names of the keys that the ring has; None: not known here."""

    @staticmethod
    def of(settings: config.Settings, project: str, location: str) -> "Place":
        """Any location is the first of the clusters."""
        clusters = settings.all_clusters()
        remote = settings.storage
        return Place(
            project,
            location,
            next(iter(clusters)),
            clusters,
            settings.images,
            settings.runtimes,
            lambda bucket: bucket in remote.buckets or "gs" in remote.schemes,
            settings.keyring,
        )
