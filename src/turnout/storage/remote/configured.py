"""The buckets in remote object stores, from the settings of the service."""

import msgspec

from turnout import config
from turnout.storage.remote.settings import RemoteBuckets, RemoteSettings, check


def remote_buckets(settings: config.StorageSettings, open_to_all: bool = False) -> RemoteBuckets:
    """`open_to_all`: buckets that belong to one project are open to the others too. Raises Misconfigured."""
    buckets, schemes = settings.buckets, settings.schemes
    private = {name: bucket.project for name, bucket in buckets.items() if bucket.project}
    private |= {f"{name}://": bucket.project for name, bucket in schemes.items() if bucket.project}
    found = RemoteBuckets(
        {name: _remote(bucket, f"s3://{name}") for name, bucket in buckets.items()},
        {name: _remote(bucket, f"{name}://") for name, bucket in schemes.items()},
        {} if open_to_all else private,
        config.usual_credentials(),
    )
    for kind, remotes in (("buckets", found.buckets), ("schemes", found.schemes)):
        for name, remote in remotes.items():
            check(remote, f"[storage.{kind}.{name}]")
    return found


def _remote(bucket: config.RemoteBucket, default_url: str) -> RemoteSettings:
    fields = msgspec.to_builtins(bucket)
    del fields["project"]
    return RemoteSettings(**fields | {"url": bucket.url or default_url})
