"""What the program finds where Vertex promises it: `/gcs/<bucket>`, `/mnt/nfs/<mount point>`, and its packages.

The cloud mounts every bucket that the job's account can reach. Here those are mounted that the job names anywhere: in
its output directory, its packages, its arguments and its variables. Of a bucket in a real object store, which has to be
copied, only the directories are taken that are named.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from turnout.dialects.vertex import package
from turnout.dialects.vertex.place import Place
from turnout.dialects.vertex.spelling import At
from turnout.dialects.vertex.wire import CustomJobSpec, WorkerPoolSpec
from turnout.errors import Unsupported
from turnout.job import Mount

GCS = "/gcs"
NFS = "/mnt/nfs"
MAX_BUCKETS = 32

_NAMED = re.compile(
    r"(gs:/|/gcs)/([a-z0-9][a-z0-9._-]{0,61}[a-z0-9])(?=$|[/\s\"',;:)\]}])(/[^\s\"',;:)\]}]*)?"
)


class Mounts(NamedTuple):
    mounts: tuple[Mount, ...]
    notes: tuple[str, ...] = ()


def of_job(spec: CustomJobSpec, place: Place, at: At) -> Mounts:
    """Raises Invalid, or Unsupported for Lustre."""
    notes: list[str] = []
    found = _buckets(spec, place, notes)
    for uri, name in packages(spec).items():
        target = f"{package.DIRECTORY}/{name}"
        found[target] = Mount(uri, target, read_only=True)
    for index, pool in enumerate(spec.worker_pool_specs):
        _add_nfs(found, pool, at / "workerPoolSpecs" / index)
    return Mounts(tuple(found.values()), tuple(notes))


def packages(spec: CustomJobSpec) -> dict[str, str]:
    """The name of the directory in which each package of the job lies, by its URI."""
    uris = dict.fromkeys(
        uri
        for pool in spec.worker_pool_specs
        for uri in (pool.python_package_spec.package_uris if pool.python_package_spec else ())
    )
    return {uri: str(number) for number, uri in enumerate(uris)}


def _buckets(spec: CustomJobSpec, place: Place, notes: list[str]) -> dict[str, Mount]:
    """By target, the output directory first."""
    named = dict.fromkeys(_places(spec))
    buckets = list(dict.fromkeys(bucket for bucket, *_ in named))
    if len(buckets) > MAX_BUCKETS:
        notes.append(f"the job names {len(buckets)} buckets; only the first {MAX_BUCKETS} are at {GCS}")
    found: dict[str, Mount] = {}
    for bucket in buckets[:MAX_BUCKETS]:
        directories = _directories(bucket, named) if place.remote(bucket) else [""]
        for directory in directories:
            where = f"{bucket}/{directory}".rstrip("/")
            found[f"{GCS}/{where}"] = Mount(f"gs://{where}", f"{GCS}/{where}")
    return found


class _Named(NamedTuple):
    bucket: str
    path: str
    mounted: bool
    """By its path below /gcs, or as the place for results; else as a URI that the program opens itself."""


def _places(spec: CustomJobSpec) -> Iterator[_Named]:
    if spec.base_output_directory:
        bucket, _, path = spec.base_output_directory.output_uri_prefix.removeprefix("gs://").partition("/")
        yield _Named(bucket, f"{path}/", mounted=True)
    for pool in spec.worker_pool_specs:
        for text in _texts(pool):
            for scheme, bucket, path in _NAMED.findall(text):
                if ".." not in bucket and ".." not in path.split("/"):
                    yield _Named(bucket, path, mounted=scheme == GCS)


def _texts(pool: WorkerPoolSpec) -> Iterator[str]:
    if pool.python_package_spec:
        yield from pool.python_package_spec.package_uris
        yield from pool.python_package_spec.args
        yield from (variable.value for variable in pool.python_package_spec.env)
    if pool.container_spec:
        yield from pool.container_spec.command
        yield from pool.container_spec.args
        yield from (variable.value for variable in pool.container_spec.env)


def _directories(bucket: str, named: dict[_Named, None]) -> list[str]:
    """What is to be copied of it, none within another. A name with a dot at the end of a path is a file's."""
    wanted: set[str] = set()
    for one in named:
        if one.bucket != bucket or not one.mounted:
            continue
        parts = [part for part in one.path.split("/") if part not in ("", ".")]
        if parts and "." in parts[-1] and not one.path.endswith("/"):
            parts.pop()
        wanted.add("/".join(parts))
    if "" in wanted:
        return [""]
    return sorted(one for one in wanted if not any(one.startswith(f"{other}/") for other in wanted))


def _add_nfs(found: dict[str, Mount], pool: WorkerPoolSpec, at: At) -> None:
    if pool.lustre_mounts:
        where = (at / "lustreMounts").spelt
        raise Unsupported(
            f"{where}: Lustre cannot be mounted here; nfsMounts and /gcs/<bucket> can.", field=where
        )
    for index, nfs in enumerate(pool.nfs_mounts):
        mount = Mount(f"nfs://{nfs.server}{nfs.path}", f"{NFS}/{nfs.mount_point}")
        clash = found.get(mount.target) not in (None, mount) or any(
            target.startswith(f"{mount.target}/") or mount.target.startswith(f"{target}/") for target in found
        )
        if clash:
            raise (at / "nfsMounts" / index / "mountPoint").wrong(
                f"{mount.target} is, holds or lies within another mount of the job: all pools share them here."
            )
        found[mount.target] = mount
