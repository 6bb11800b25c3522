"""The limits and rules of the reference for the fields of a custom job."""

import re
import unicodedata
from collections.abc import Sequence
from typing import Protocol

from turnout.dialects.vertex.custom_jobs import machine_rules
from turnout.dialects.vertex.protobuf.codec import Decoded
from turnout.dialects.vertex.protobuf.field_path import FieldPath, quoted
from turnout.dialects.vertex.protobuf.times import SECOND, spell_duration
from turnout.dialects.vertex.wire import (
    ContainerSpec,
    CustomJob,
    CustomJobSpec,
    EncryptionSpec,
    EnvVar,
    LustreMount,
    NfsMount,
    PscInterfaceConfig,
    PythonPackageSpec,
    Scheduling,
    WorkerPoolSpec,
)

MAX_NAME = 128
MAX_LABELS = 64
MAX_LABEL = 64
MAX_POOLS = 4
MAX_REPLICAS = 1000
MAX_ENV = 100
MAX_PACKAGES = 100
MAX_ARGS_CHARACTERS = 100_000
"""Characters of all arguments of a pool together."""
MAX_WORD_BYTES = (128 << 10) - 1
"""Bytes: what the kernel takes for one argument, or one variable with its name."""
MAX_ENV_BYTES = 512 << 10
LONGEST_FLEX_START = 7 * 86_400 * SECOND

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MODULE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_IMAGE = re.compile(r"[^\s\x00-\x1f]{1,2000}")
_GS = re.compile(r"gs://[a-z0-9][a-z0-9._-]{0,61}[a-z0-9](?:/.*)?", re.DOTALL)
_PACKAGE = re.compile(r"gs://[a-z0-9][a-z0-9._-]{0,61}[a-z0-9]/.*[^/]", re.DOTALL)
_MOUNT_POINT = re.compile(r"[\w.@-]+(?:/[\w.@-]+)*")
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.:-]*[A-Za-z0-9])?")
_FORMS = {
    "network": "projects/{project}/global/networks/{network}",
    "tensorboard": "projects/{project}/locations/{location}/tensorboards/{tensorboard}",
    "experiment": "projects/{project}/locations/{location}/metadataStores/{store}/contexts/{experiment}",
    "experimentRun": "projects/{project}/locations/{location}/metadataStores/{store}/contexts/{experiment}-{run}",
    "networkAttachment": "projects/{project}/regions/{region}/networkAttachments/{attachment}",
    "kmsKeyName": "projects/{project}/locations/{location}/keyRings/{ring}/cryptoKeys/{key}",
}
_PATTERNS = {name: re.compile(re.sub(r"\{\w+\}", r"[^/\\s]+", form)) for name, form in _FORMS.items()}


def custom_job(decoded: Decoded[CustomJob], location: str) -> None:
    """Raises Invalid for the first error."""
    job, path = decoded
    common_fields(job, path, location)
    if job.job_spec is None:
        raise (path / "jobSpec").missing()
    job_spec(job.job_spec, path / "jobSpec")


class _Common(Protocol):
    display_name: str
    labels: dict[str, str]
    encryption_spec: EncryptionSpec | None


def common_fields(job: _Common, path: FieldPath, location: str) -> None:
    """Checks the fields that all kinds of jobs have."""
    display_name(job.display_name, path / "displayName")
    labels(job.labels, path / "labels")
    if job.encryption_spec:
        kms_key(job.encryption_spec.kms_key_name, path / "encryptionSpec" / "kmsKeyName", location)


def job_spec(spec: CustomJobSpec, path: FieldPath) -> None:
    _pools(spec.worker_pool_specs, path / "workerPoolSpecs")
    if spec.scheduling:
        _scheduling(spec.scheduling, spec.worker_pool_specs, path)
    if spec.base_output_directory:
        gcs_directory(
            spec.base_output_directory.output_uri_prefix, path / "baseOutputDirectory" / "outputUriPrefix"
        )
    for value, name in (
        (spec.network, "network"),
        (spec.tensorboard, "tensorboard"),
        (spec.experiment, "experiment"),
        (spec.experiment_run, "experimentRun"),
    ):
        resource_name(value, name, path / name)
    if spec.service_account and not re.fullmatch(r"[^\s@]+@[^\s@]+", spec.service_account):
        raise (path / "serviceAccount").invalid(
            f"{quoted(spec.service_account)} must be the e-mail address of an account."
        )
    if spec.psc_interface_config:
        _psc(spec.psc_interface_config, path / "pscInterfaceConfig")
    for name, values in (("reservedIpRanges", spec.reserved_ip_ranges), ("models", spec.models)):
        _check_items(values, path / name)


def is_empty(pool: WorkerPoolSpec) -> bool:
    """Whether the pool only keeps a position in the list, so that the pools after it keep their task types."""
    return pool == WorkerPoolSpec()


def display_name(name: str, path: FieldPath) -> None:
    if not name:
        raise path.missing()
    if len(name) > MAX_NAME:
        raise path.invalid(f"it has {len(name)} characters; at most {MAX_NAME} are allowed.")
    if "\0" in name:
        raise path.invalid("it has a NUL character.")


def labels(labels: dict[str, str], path: FieldPath) -> None:
    if len(labels) > MAX_LABELS:
        raise path.invalid(f"there are {len(labels)}; at most {MAX_LABELS} are allowed.")
    for key, value in labels.items():
        for part, text in (("key", key), ("value", value)):
            if len(text) > MAX_LABEL or not all(map(_in_label, text)) or (part == "key" and not text):
                raise path.invalid(
                    f"the {part} {quoted(text)} must be lower-case letters, digits, '_' and '-', "
                    f"{'1 to' if part == 'key' else 'at most'} {MAX_LABEL} characters."
                )


def _in_label(character: str) -> bool:
    """International letters are allowed; letters of scripts without case count as lower case."""
    return character in "_-" or (
        unicodedata.category(character) in ("Ll", "Lo", "Lm", "Mn", "Mc", "Nd") and not character.isupper()
    )


def _pools(pools: Sequence[WorkerPoolSpec], path: FieldPath) -> None:
    if not pools:
        raise path.missing(": at least one worker pool")
    if len(pools) > MAX_POOLS:
        raise path.invalid(
            f"there are {len(pools)}; at most {MAX_POOLS} are allowed: the primary replica, workers, "
            "parameter servers and evaluators."
        )
    for index, pool in enumerate(pools):
        if index == 0 or not is_empty(pool):
            _pool(pool, path / index, index)


def _pool(pool: WorkerPoolSpec, path: FieldPath, index: int) -> None:
    if pool.container_spec:
        _container(pool.container_spec, path / "containerSpec")
    elif pool.python_package_spec:
        _package(pool.python_package_spec, path / "pythonPackageSpec")
    else:
        raise (path / "containerSpec").missing(", or pythonPackageSpec: the pool has nothing to run")
    count = path / "replicaCount"
    if pool.replica_count < 0 or pool.replica_count > MAX_REPLICAS:
        raise count.invalid(f"it must be from 1 to {MAX_REPLICAS}, not {pool.replica_count}.")
    if index == 0 and pool.replica_count > 1:
        raise count.invalid(
            f"the first pool has exactly one replica, the primary, not {pool.replica_count}; "
            "put the others into the second pool."
        )
    machine_rules.check(pool, path)
    for number, mount in enumerate(pool.nfs_mounts):
        _nfs(mount, path / "nfsMounts" / number)
    for number, mount in enumerate(pool.lustre_mounts):
        _lustre(mount, path / "lustreMounts" / number)


def _container(spec: ContainerSpec, path: FieldPath) -> None:
    image(spec.image_uri, path / "imageUri")
    arguments(spec.command, path / "command")
    if spec.command and not spec.command[0]:
        raise (path / "command" / 0).invalid("it is empty: it names the program to run.")
    arguments(spec.args, path / "args")
    environment(spec.env, path / "env")


def _package(spec: PythonPackageSpec, path: FieldPath) -> None:
    image(spec.executor_image_uri, path / "executorImageUri")
    packages = path / "packageUris"
    if not spec.package_uris:
        raise packages.missing()
    if len(spec.package_uris) > MAX_PACKAGES:
        raise packages.invalid(f"there are {len(spec.package_uris)}; at most {MAX_PACKAGES} are allowed.")
    for index, uri in enumerate(spec.package_uris):
        if not _PACKAGE.fullmatch(uri) or ".." in uri.split("/") or not uri.isprintable():
            raise (packages / index).invalid(
                f"{quoted(uri)} must name a package in a bucket, gs://bucket/dir/trainer-0.1.tar.gz."
            )
    if not spec.python_module:
        raise (path / "pythonModule").missing()
    if not _MODULE.fullmatch(spec.python_module):
        raise (path / "pythonModule").invalid(
            f"{quoted(spec.python_module)} must be the name of a module, such as trainer.task."
        )
    arguments(spec.args, path / "args")
    environment(spec.env, path / "env")


def image(uri: str, path: FieldPath) -> None:
    if not uri:
        raise path.missing()
    if not _IMAGE.fullmatch(uri):
        raise path.invalid(f"{quoted(uri)} must name an image, such as gcr.io/project/image:tag.")


def arguments(words: Sequence[str], path: FieldPath) -> None:
    if sum(map(len, words)) > MAX_ARGS_CHARACTERS:
        raise path.invalid(f"they have more than {MAX_ARGS_CHARACTERS} characters together.")
    for index, word in enumerate(words):
        if "\0" in word:
            raise (path / index).invalid("it has a NUL character.")
        if len(word.encode()) > MAX_WORD_BYTES:
            raise (path / index).invalid(f"it is longer than {MAX_WORD_BYTES} bytes.")


def environment(env: Sequence[EnvVar], path: FieldPath) -> None:
    if len(env) > MAX_ENV:
        raise path.invalid(f"there are {len(env)} variables; at most {MAX_ENV} are allowed.")
    total = 0
    for index, variable in enumerate(env):
        if not variable.name:
            raise (path / index / "name").missing()
        if not _NAME.fullmatch(variable.name):
            raise (path / index / "name").invalid(
                f"{quoted(variable.name)} must be letters, digits and '_', and not begin with a digit."
            )
        if "\0" in variable.value:
            raise (path / index / "value").invalid("it has a NUL character.")
        size = len(variable.name) + 1 + len(variable.value.encode())
        total += size
        if size > MAX_WORD_BYTES:
            raise (path / index / "value").invalid(f"it is longer than {MAX_WORD_BYTES} bytes with its name.")
    if total > MAX_ENV_BYTES:
        raise path.invalid(f"the variables have {total} bytes together; at most {MAX_ENV_BYTES} are allowed.")


def _nfs(mount: NfsMount, path: FieldPath) -> None:
    _required(mount.server, path / "server")
    if not _HOST.fullmatch(mount.server):
        raise (path / "server").invalid(f"{quoted(mount.server)} must be an address or a host's name.")
    _required(mount.path, path / "path")
    if not mount.path.startswith("/") or ".." in mount.path.split("/") or not mount.path.isprintable():
        raise (path / "path").invalid(
            f"{quoted(mount.path)} must be an absolute path on the server, without '..'."
        )
    _mount_point(mount.mount_point, path / "mountPoint")


def _lustre(mount: LustreMount, path: FieldPath) -> None:
    _required(mount.instance_ip, path / "instanceIp")
    _required(mount.volume_handle, path / "volumeHandle")
    _required(mount.filesystem, path / "filesystem")
    _mount_point(mount.mount_point, path / "mountPoint")


def _mount_point(point: str, path: FieldPath) -> None:
    _required(point, path)
    if not _MOUNT_POINT.fullmatch(point) or any(part in (".", "..") for part in point.split("/")):
        raise path.invalid(
            f"{quoted(point)} must be a relative path such as data, of letters, digits, '.', '_', '@' and '-'."
        )


def _scheduling(scheduling: Scheduling, pools: Sequence[WorkerPoolSpec], spec_path: FieldPath) -> None:
    path = spec_path / "scheduling"
    for name, value in (("timeout", scheduling.timeout), ("maxWaitDuration", scheduling.max_wait_duration)):
        if value is not None and value < 0:
            raise (path / name).invalid(f"it must be at least 0s, not {spell_duration(value)}.")
    if scheduling.strategy is not Scheduling.Strategy.FLEX_START:
        return
    if (scheduling.timeout or 0) > LONGEST_FLEX_START:
        raise (path / "timeout").invalid(
            f"with FLEX_START it is at most {spell_duration(LONGEST_FLEX_START)}, not "
            f"{spell_duration(scheduling.timeout or 0)}."
        )
    machines = [(index, pool.machine_spec) for index, pool in enumerate(pools) if not is_empty(pool)]
    for index, machine in machines:
        if machine != machines[0][1]:
            raise (spec_path / "workerPoolSpecs" / index / "machineSpec").invalid(
                "with FLEX_START all pools have the same machines as the first."
            )


def gcs_directory(uri: str, path: FieldPath) -> None:
    _required(uri, path)
    if not _GS.fullmatch(uri) or ".." in uri.split("/") or not uri.isprintable():
        raise path.invalid(f"{quoted(uri)} must be a directory in a bucket, such as gs://bucket/dir.")


def _psc(config: PscInterfaceConfig, path: FieldPath) -> None:
    # A bare name is an attachment in the project itself.
    if "/" in config.network_attachment:
        resource_name(config.network_attachment, "networkAttachment", path / "networkAttachment")
    for index, peering in enumerate(config.dns_peering_configs):
        peering_path = path / "dnsPeeringConfigs" / index
        _required(peering.domain, peering_path / "domain")
        if not peering.domain.endswith("."):
            raise (peering_path / "domain").invalid(f"{quoted(peering.domain)} must end with a dot.")
        _required(peering.target_project, peering_path / "targetProject")
        _required(peering.target_network, peering_path / "targetNetwork")


def kms_key(name: str, path: FieldPath, location: str) -> None:
    _required(name, path)
    resource_name(name, "kmsKeyName", path)
    if name.split("/")[3] != location:
        raise path.invalid(
            f"the key is in {name.split('/')[3]}, the job in {location}: they must be in one location."
        )


def resource_name(value: str, form: str, path: FieldPath) -> None:
    """An empty value counts as not set."""
    if value and not _PATTERNS[form].fullmatch(value):
        raise path.invalid(f"{quoted(value)} must have the form {_FORMS[form]}.")


def _check_items(values: Sequence[str], path: FieldPath) -> None:
    for index, value in enumerate(values):
        _required(value, path / index)


def _required(value: str, path: FieldPath) -> None:
    if not value:
        raise path.missing()
