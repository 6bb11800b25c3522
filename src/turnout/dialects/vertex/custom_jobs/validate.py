"""What can be wrong with a custom job whose fields have the right types: the limits and rules of the reference."""

import re
import unicodedata
from collections.abc import Sequence

from turnout.dialects.vertex import machine_rules
from turnout.dialects.vertex.decode import Decoded
from turnout.dialects.vertex.spelling import At, shown
from turnout.dialects.vertex.times import SECOND, spell_duration
from turnout.dialects.vertex.wire import (
    ContainerSpec,
    CustomJob,
    CustomJobSpec,
    EnvVar,
    LustreMount,
    NfsMount,
    PscInterfaceConfig,
    PythonPackageSpec,
    Scheduling,
    WorkerPoolSpec,
)
from turnout.dialects.vertex.wire_tuning import HyperparameterTuningJob

MAX_NAME = 128
MAX_LABELS = 64
MAX_LABEL = 64
MAX_POOLS = 4
MAX_REPLICAS = 1000
MAX_ENV = 100
MAX_PACKAGES = 100
MAX_ARGS = 100_000
"""Characters of all arguments of a pool together."""
MAX_WORD = (128 << 10) - 1
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
    """Raises Invalid for the first thing that is wrong."""
    job, at = decoded
    head(job, at, location)
    if job.job_spec is None:
        raise (at / "jobSpec").missing()
    job_spec(job.job_spec, at / "jobSpec")


def head(job: CustomJob | HyperparameterTuningJob, at: At, location: str) -> None:
    """What jobs of all kinds have."""
    _display_name(job.display_name, at / "displayName")
    _labels(job.labels, at / "labels")
    if job.encryption_spec:
        _kms_key(job.encryption_spec.kms_key_name, at / "encryptionSpec" / "kmsKeyName", location)


def job_spec(spec: CustomJobSpec, at: At) -> None:
    _pools(spec.worker_pool_specs, at / "workerPoolSpecs")
    if spec.scheduling:
        _scheduling(spec.scheduling, spec.worker_pool_specs, at)
    if spec.base_output_directory:
        _gs(spec.base_output_directory.output_uri_prefix, at / "baseOutputDirectory" / "outputUriPrefix")
    for value, name in (
        (spec.network, "network"),
        (spec.tensorboard, "tensorboard"),
        (spec.experiment, "experiment"),
        (spec.experiment_run, "experimentRun"),
    ):
        _form(value, name, at / name)
    if spec.service_account and not re.fullmatch(r"[^\s@]+@[^\s@]+", spec.service_account):
        raise (at / "serviceAccount").wrong(
            f"{shown(spec.service_account)} must be the e-mail address of an account."
        )
    if spec.psc_interface_config:
        _psc(spec.psc_interface_config, at / "pscInterfaceConfig")
    for name, values in (("reservedIpRanges", spec.reserved_ip_ranges), ("models", spec.models)):
        _filled(values, at / name)


def is_empty(pool: WorkerPoolSpec) -> bool:
    """It only keeps a position."""
    return pool == WorkerPoolSpec()


def _display_name(name: str, at: At) -> None:
    if not name:
        raise at.missing()
    if len(name) > MAX_NAME:
        raise at.wrong(f"it has {len(name)} characters; {MAX_NAME} are possible.")
    if "\0" in name:
        raise at.wrong("it has a NUL character.")


def _labels(labels: dict[str, str], at: At) -> None:
    if len(labels) > MAX_LABELS:
        raise at.wrong(f"there are {len(labels)}; {MAX_LABELS} are possible.")
    for key, value in labels.items():
        for what, text in (("key", key), ("value", value)):
            if len(text) > MAX_LABEL or not all(map(_in_label, text)) or (what == "key" and not text):
                raise at.wrong(
                    f"the {what} {shown(text)} must be lower-case letters, digits, '_' and '-', "
                    f"{'1 to' if what == 'key' else 'at most'} {MAX_LABEL} characters."
                )


def _in_label(character: str) -> bool:
    """International letters are fine; those of scripts without upper case count as lower."""
    return character in "_-" or (
        unicodedata.category(character) in ("Ll", "Lo", "Lm", "Mn", "Mc", "Nd") and not character.isupper()
    )


def _pools(pools: Sequence[WorkerPoolSpec], at: At) -> None:
    if not pools:
        raise at.missing(": at least one worker pool")
    if len(pools) > MAX_POOLS:
        raise at.wrong(
            f"there are {len(pools)}; {MAX_POOLS} are possible: the primary replica, workers, "
            "parameter servers and evaluators."
        )
    for index, pool in enumerate(pools):
        if index == 0 or not is_empty(pool):
            _pool(pool, at / index, index)


def _pool(pool: WorkerPoolSpec, at: At, index: int) -> None:
    if pool.container_spec:
        _container(pool.container_spec, at / "containerSpec")
    elif pool.python_package_spec:
        _package(pool.python_package_spec, at / "pythonPackageSpec")
    else:
        raise (at / "containerSpec").missing(", or pythonPackageSpec: the pool has nothing to run")
    count = at / "replicaCount"
    if pool.replica_count < 0 or pool.replica_count > MAX_REPLICAS:
        raise count.wrong(f"it must be from 1 to {MAX_REPLICAS}, not {pool.replica_count}.")
    if index == 0 and pool.replica_count > 1:
        raise count.wrong(
            f"the first pool has exactly one replica, the primary, not {pool.replica_count}; "
            "put the others into the second pool."
        )
    machine_rules.check(pool, at)
    for number, mount in enumerate(pool.nfs_mounts):
        _nfs(mount, at / "nfsMounts" / number)
    for number, mount in enumerate(pool.lustre_mounts):
        _lustre(mount, at / "lustreMounts" / number)


def _container(spec: ContainerSpec, at: At) -> None:
    _image(spec.image_uri, at / "imageUri")
    _words(spec.command, at / "command")
    if spec.command and not spec.command[0]:
        raise (at / "command" / 0).wrong("it is empty: it names the program to run.")
    _words(spec.args, at / "args")
    _env(spec.env, at / "env")


def _package(spec: PythonPackageSpec, at: At) -> None:
    _image(spec.executor_image_uri, at / "executorImageUri")
    packages = at / "packageUris"
    if not spec.package_uris:
        raise packages.missing()
    if len(spec.package_uris) > MAX_PACKAGES:
        raise packages.wrong(f"there are {len(spec.package_uris)}; {MAX_PACKAGES} are possible.")
    for index, uri in enumerate(spec.package_uris):
        if not _PACKAGE.fullmatch(uri) or ".." in uri.split("/") or not uri.isprintable():
            raise (packages / index).wrong(
                f"{shown(uri)} must name a package in a bucket, gs://bucket/dir/trainer-0.1.tar.gz."
            )
    if not spec.python_module:
        raise (at / "pythonModule").missing()
    if not _MODULE.fullmatch(spec.python_module):
        raise (at / "pythonModule").wrong(
            f"{shown(spec.python_module)} must be the name of a module, such as trainer.task."
        )
    _words(spec.args, at / "args")
    _env(spec.env, at / "env")


def _image(uri: str, at: At) -> None:
    if not uri:
        raise at.missing()
    if not _IMAGE.fullmatch(uri):
        raise at.wrong(f"{shown(uri)} must name an image, such as gcr.io/project/image:tag.")


def _words(words: Sequence[str], at: At) -> None:
    if sum(map(len, words)) > MAX_ARGS:
        raise at.wrong(f"they have more than {MAX_ARGS} characters together.")
    for index, word in enumerate(words):
        if "\0" in word:
            raise (at / index).wrong("it has a NUL character.")
        if len(word.encode()) > MAX_WORD:
            raise (at / index).wrong(f"it is longer than {MAX_WORD} bytes.")


def _env(env: Sequence[EnvVar], at: At) -> None:
    if len(env) > MAX_ENV:
        raise at.wrong(f"there are {len(env)} variables; {MAX_ENV} are possible.")
    total = 0
    for index, variable in enumerate(env):
        if not variable.name:
            raise (at / index / "name").missing()
        if not _NAME.fullmatch(variable.name):
            raise (at / index / "name").wrong(
                f"{shown(variable.name)} must be letters, digits and '_', and not begin with a digit."
            )
        if "\0" in variable.value:
            raise (at / index / "value").wrong("it has a NUL character.")
        size = len(variable.name) + 1 + len(variable.value.encode())
        total += size
        if size > MAX_WORD:
            raise (at / index / "value").wrong(f"it is longer than {MAX_WORD} bytes with its name.")
    if total > MAX_ENV_BYTES:
        raise at.wrong(f"the variables have {total} bytes together; {MAX_ENV_BYTES} are possible.")


def _nfs(mount: NfsMount, at: At) -> None:
    _required(mount.server, at / "server")
    if not _HOST.fullmatch(mount.server):
        raise (at / "server").wrong(f"{shown(mount.server)} must be an address or a host's name.")
    _required(mount.path, at / "path")
    if not mount.path.startswith("/") or ".." in mount.path.split("/") or not mount.path.isprintable():
        raise (at / "path").wrong(
            f"{shown(mount.path)} must be an absolute path on the server, without '..'."
        )
    _mount_point(mount.mount_point, at / "mountPoint")


def _lustre(mount: LustreMount, at: At) -> None:
    _required(mount.instance_ip, at / "instanceIp")
    _required(mount.volume_handle, at / "volumeHandle")
    _required(mount.filesystem, at / "filesystem")
    _mount_point(mount.mount_point, at / "mountPoint")


def _mount_point(point: str, at: At) -> None:
    _required(point, at)
    if not _MOUNT_POINT.fullmatch(point) or any(part in (".", "..") for part in point.split("/")):
        raise at.wrong(
            f"{shown(point)} must be a relative path such as data, of letters, digits, '.', '_', '@' and '-'."
        )


def _scheduling(scheduling: Scheduling, pools: Sequence[WorkerPoolSpec], spec_at: At) -> None:
    at = spec_at / "scheduling"
    for name, value in (("timeout", scheduling.timeout), ("maxWaitDuration", scheduling.max_wait_duration)):
        if value is not None and value < 0:
            raise (at / name).wrong(f"it must not be negative, as {spell_duration(value)} is.")
    if scheduling.strategy is not Scheduling.Strategy.FLEX_START:
        return
    if (scheduling.timeout or 0) > LONGEST_FLEX_START:
        raise (at / "timeout").wrong(
            f"with FLEX_START it is at most {spell_duration(LONGEST_FLEX_START)}, not "
            f"{spell_duration(scheduling.timeout or 0)}."
        )
    machines = [(index, pool.machine_spec) for index, pool in enumerate(pools) if not is_empty(pool)]
    for index, machine in machines:
        if machine != machines[0][1]:
            raise (spec_at / "workerPoolSpecs" / index / "machineSpec").wrong(
                "with FLEX_START all pools have the same machines as the first."
            )


def _gs(uri: str, at: At) -> None:
    _required(uri, at)
    if not _GS.fullmatch(uri) or ".." in uri.split("/") or not uri.isprintable():
        raise at.wrong(f"{shown(uri)} must be a directory in a bucket, such as gs://bucket/dir.")


def _psc(config: PscInterfaceConfig, at: At) -> None:
    # The attachment's bare name will do for one in the project itself.
    if "/" in config.network_attachment:
        _form(config.network_attachment, "networkAttachment", at / "networkAttachment")
    for index, peering in enumerate(config.dns_peering_configs):
        here = at / "dnsPeeringConfigs" / index
        _required(peering.domain, here / "domain")
        if not peering.domain.endswith("."):
            raise (here / "domain").wrong(f"{shown(peering.domain)} must end with a dot.")
        _required(peering.target_project, here / "targetProject")
        _required(peering.target_network, here / "targetNetwork")


def _kms_key(name: str, at: At, location: str) -> None:
    _required(name, at)
    _form(name, "kmsKeyName", at)
    if name.split("/")[3] != location:
        raise at.wrong(
            f"the key is in {name.split('/')[3]}, the job in {location}: they must be in one location."
        )


def _form(value: str, form: str, at: At) -> None:
    """Empty is not set."""
    if value and not _PATTERNS[form].fullmatch(value):
        raise at.wrong(f"{shown(value)} must have the form {_FORMS[form]}.")


def _filled(values: Sequence[str], at: At) -> None:
    for index, value in enumerate(values):
        _required(value, at / index)


def _required(value: str, at: At) -> None:
    if not value:
        raise at.missing()
