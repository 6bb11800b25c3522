"""What all other parts are made of: settings, keys, the store and the storage."""

from functools import partial
from typing import NamedTuple

from turnout import config, memory, pools
from turnout.access import JobKeys, Keys
from turnout.access.job_keys import open_secret
from turnout.access.peers import user_name
from turnout.bodies import Bodies
from turnout.child_processes.bootstrap import Identity
from turnout.child_processes.nobody import nobody
from turnout.config import Settings
from turnout.control.sweep import Files
from turnout.engines.local.cleanup import leftovers
from turnout.engines.local.users import ownership
from turnout.engines.local.users.account import Accounts, accounts
from turnout.gateways import gcs
from turnout.gateways.s3 import abandoned as abandoned_s3
from turnout.images import ImageCache
from turnout.paths import Paths
from turnout.service import Audit
from turnout.storage import Owners, Storage
from turnout.storage.remote.configured import remote_buckets
from turnout.store import Store
from turnout.vault import KeyRing, open_ring
from turnout.web import tls


class Base(NamedTuple):
    settings: Settings
    paths: Paths
    keys: Keys
    job_keys: JobKeys
    ring: KeyRing
    store: Store
    users: Accounts
    """The users that run jobs."""
    storage: Storage
    audit: Audit
    bodies: Bodies
    images: ImageCache


async def open_base(settings: Settings, paths: Paths, keys: Keys) -> Base:
    ring = await pools.service.run(pools.OWN, open_ring, settings.keyring)
    store = Store.open(settings.store.url, paths.database, ring)
    store.unreadable.keep_in(paths.unreadable)
    await keys.open(store)
    if settings.no_auth:
        keys.local_user = user_name()
    users = await pools.service.run(pools.OWN, accounts, settings.engines.local, paths.users)
    storage = await pools.service.run(pools.OWN, _open_storage, settings, paths, users, ring)
    bodies = Bodies(settings.limits.body_bytes, memory.give_back)
    job_keys = JobKeys(keys, await pools.service.run(pools.OWN, open_secret, paths.job_secret))
    images = _image_cache(settings, paths, users)
    await images.open()
    return Base(settings, paths, keys, job_keys, ring, store, users, storage, Audit(store), bodies, images)


async def close_base(base: Base) -> None:
    await base.images.close()
    await base.store.close()
    await pools.close()
    base.ring.close()


def _open_storage(settings: Settings, paths: Paths, users: Accounts, ring: KeyRing) -> Storage:
    owners = Owners(*ownership.bucket_owners(users)) if users.uids else None
    sources = (paths.buckets, settings.host_paths(), paths.data)
    remote = remote_buckets(settings.storage, open_to_all=settings.no_auth)
    storage = Storage(*sources, owners, users.blocked, remote, ring, open_to_all=settings.no_auth)
    storage.open()
    storage.embedded.sweep()
    return storage


def _image_cache(settings: Settings, paths: Paths, users: Accounts) -> ImageCache:
    """As root, layers are unpacked by a user that nothing else belongs to, and that no process but this one has."""
    owner = Identity(users.anyone.uid, users.supervisor.gid) if users.uids else None
    proxies = config.proxy_environment()
    return ImageCache(paths.images, settings.registries, settings.limits, owner, nobody(), proxies)


def swept_files(base: Base) -> list[Files]:
    """What the sweep deletes that is not in the store."""
    uploads, paths = base.storage.embedded.uploads, base.paths
    return [
        Files("uploads to GCS", "upload_days", partial(gcs.clear, uploads)),
        Files("uploads to S3", "upload_days", partial(abandoned_s3.clear, uploads)),
        Files("files set aside, and caches", "aside_days", partial(leftovers.clear, paths)),
        Files("the supervisor's log", "supervisor_log_bytes", partial(leftovers.trim_log, paths)),
    ]


def certificate(settings: Settings) -> tls.CertificatePair | None:
    return tls.read(*settings.tls_files) if settings.tls_files else None
