"""The mounts of a job: `/gcs/<bucket>`, `/mnt/nfs/<mount point>`, and its packages.

The cloud mounts every bucket that the job's account can reach. This service mounts those that the job names: in
its output directory, its packages, its arguments and its variables. A bucket in a remote object store has to be
copied, so only the directories that the job names are mounted.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from turnout.dialects.vertex.custom_jobs import package_command
from turnout.dialects.vertex.installation import Installation
from turnout.dialects.vertex.protobuf.field_path import FieldPath
from turnout.dialects.vertex.wire import CustomJobSpec, WorkerPoolSpec
from turnout.errors import Unsupported
from turnout.job import Mount

GCS = "/gcs"
NFS = "/mnt/nfs"
MAX_BUCKETS = 32

_NAMED = re.compile(
    r"(gs:/|/gcs)/([a-z0-9][a-z0-9._-]{0,61}[a-z0-9])(?=$|[/\s\"',;:)\]}])(/[^\s\"',;:)\]}]*)?"
)


class TranslatedMounts(NamedTuple):
    mounts: tuple[Mount, ...]
    notes: tuple[str, ...] = ()


def job_mounts(spec: CustomJobSpec, installation: Installation, path: FieldPath) -> TranslatedMounts:
    """Raises Invalid, or Unsupported for Lustre."""
    notes: list[str] = []
    mounts = _buckets(spec, installation, notes)
    for uri, name in package_directories(spec).items():
        target = f"{package_command.DIRECTORY}/{name}"
        mounts[target] = Mount(uri, target, read_only=True)
    for index, pool in enumerate(spec.worker_pool_specs):
        _add_nfs(mounts, pool, path / "workerPoolSpecs" / index)
    return TranslatedMounts(tuple(mounts.values()), tuple(notes))


def package_fields(spec: CustomJobSpec, path: FieldPath) -> dict[str, str]:
    """The field of each package of the job, by its URI."""
    fields: dict[str, str] = {}
    for index, pool in enumerate(spec.worker_pool_specs):
        package_uris = path / "workerPoolSpecs" / index / "pythonPackageSpec" / "packageUris"
        for number, uri in enumerate(
            pool.python_package_spec.package_uris if pool.python_package_spec else ()
        ):
            fields.setdefault(uri, (package_uris / number).as_sent)
    return fields


def package_directories(spec: CustomJobSpec) -> dict[str, str]:
    """The directory of each package of the job, by its URI."""
    uris = dict.fromkeys(
        uri
        for pool in spec.worker_pool_specs
        for uri in (pool.python_package_spec.package_uris if pool.python_package_spec else ())
    )
    return {uri: str(number) for number, uri in enumerate(uris)}


def _buckets(spec: CustomJobSpec, installation: Installation, notes: list[str]) -> dict[str, Mount]:
    """The mounts of buckets by target, the output directory first."""
    paths = dict.fromkeys(_named_paths(spec))
    buckets = list(dict.fromkeys(bucket for bucket, *_ in paths))
    if len(buckets) > MAX_BUCKETS:
        notes.append(f"the job names {len(buckets)} buckets; only the first {MAX_BUCKETS} are at {GCS}")
    output = _output_bucket(spec)
    mounts: dict[str, Mount] = {}
    for bucket in buckets[:MAX_BUCKETS]:
        directories = _copied_directories(bucket, paths) if installation.remote(bucket) else [""]
        for directory in directories:
            bucket_path = f"{bucket}/{directory}".rstrip("/")
            target = f"{GCS}/{bucket_path}"
            mounts[target] = Mount(f"gs://{bucket_path}", target, output=bucket == output)
    return mounts


class _NamedPath(NamedTuple):
    bucket: str
    path: str
    mounted: bool
    """True for paths below /gcs and the output directory; False for URIs that the program opens itself."""


def _named_paths(spec: CustomJobSpec) -> Iterator[_NamedPath]:
    if spec.base_output_directory:
        _, _, path = spec.base_output_directory.output_uri_prefix.removeprefix("gs://").partition("/")
        yield _NamedPath(_output_bucket(spec), f"{path}/", mounted=True)
    for pool in spec.worker_pool_specs:
        for text in _searched_texts(pool):
            for scheme, bucket, path in _NAMED.findall(text):
                if ".." not in bucket and ".." not in path.split("/"):
                    yield _NamedPath(bucket, path, mounted=scheme == GCS)


def _output_bucket(spec: CustomJobSpec) -> str:
    if spec.base_output_directory is None:
        return ""
    return spec.base_output_directory.output_uri_prefix.removeprefix("gs://").partition("/")[0]


def _searched_texts(pool: WorkerPoolSpec) -> Iterator[str]:
    if pool.python_package_spec:
        yield from pool.python_package_spec.package_uris
        yield from pool.python_package_spec.args
        yield from (variable.value for variable in pool.python_package_spec.env)
    if pool.container_spec:
        yield from pool.container_spec.command
        yield from pool.container_spec.args
        yield from (variable.value for variable in pool.container_spec.env)


def _copied_directories(bucket: str, paths: dict[_NamedPath, None]) -> list[str]:
    """The directories to copy, none within another. A last name with a dot is a file."""
    directories: set[str] = set()
    for named in paths:
        if named.bucket != bucket or not named.mounted:
            continue
        parts = [part for part in named.path.split("/") if part not in ("", ".")]
        if parts and "." in parts[-1] and not named.path.endswith("/"):
            parts.pop()
        directories.add("/".join(parts))
    if "" in directories:
        return [""]
    nested = {inner for inner in directories for outer in directories if inner.startswith(f"{outer}/")}
    return sorted(directories - nested)


def _add_nfs(mounts: dict[str, Mount], pool: WorkerPoolSpec, path: FieldPath) -> None:
    if pool.lustre_mounts:
        field = (path / "lustreMounts").as_sent
        raise Unsupported(
            f"{field}: Lustre cannot be mounted here; nfsMounts and /gcs/<bucket> can.", field=field
        )
    for index, nfs in enumerate(pool.nfs_mounts):
        mount = Mount(f"nfs://{nfs.server}{nfs.path}", f"{NFS}/{nfs.mount_point}")
        clash = mounts.get(mount.target) not in (None, mount) or any(
            target.startswith(f"{mount.target}/") or mount.target.startswith(f"{target}/")
            for target in mounts
        )
        if clash:
            raise (path / "nfsMounts" / index / "mountPoint").invalid(
                f"{mount.target} overlaps another mount of the job: all pools share their mounts here."
            )
        mounts[mount.target] = mount
