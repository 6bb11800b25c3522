"""A job's `spec` and annotations: volumes, log export, retries, the time limit and the priority."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import PurePosixPath

from turnout import config
from turnout.dialects.modelarts import errors, locations, wire
from turnout.dialects.modelarts.errors import invalid, quoted
from turnout.job import LogExport, Mount, Notify, Policy, Reason, Retry

LOG_NAME = "modelarts-job-{id}-{replica}.log"
MAX_VOLUMES = 8
HOUR = 3600
MAX_HOURS = 1 << 20
MAX_RETRIES = 3
"""How often a job is retried after a failure of any kind, or a hang."""

RETRY_NUM = "fault-tolerance/job-retry-num"
ALWAYS_RETRY = "fault-tolerance/job-unconditional-retry"
HANG_RETRY = "fault-tolerance/hang-retry"

PLATFORM_FAULTS = (Reason.NODE_LOST, Reason.KILLED, Reason.STAGING_FAILED)
_PROGRAM_FAULTS = (Reason.PROGRAM_FAILED, Reason.PROGRAM_NOT_FOUND, Reason.OUT_OF_MEMORY, Reason.DISK_LIMIT)
ANY_FAILURE = (*PLATFORM_FAULTS, *_PROGRAM_FAULTS)

EVENTS = {
    "JobStarted": "running",
    "JobCompleted": "succeeded",
    "JobFailed": "failed",
    "JobTerminated": "stopped",
    "JobRestarted": "restarted",
    "JobHanged": "hung",
    "JobPreempted": "preempted",
}
"""And what webhooks call them."""


def volumes(requested: Sequence[wire.Volume] | None, pool: str) -> list[Mount]:
    field = "spec.volumes"
    if requested and len(requested) > MAX_VOLUMES:
        raise invalid(
            errors.INVALID, field, f" has {len(requested)} volumes; at most {MAX_VOLUMES} are allowed."
        )
    return [_volume(volume, pool, f"{field}[{index}]") for index, volume in enumerate(requested or ())]


def log_export(
    paths: Iterable[wire.LogPath | None], settings: config.Settings, notes: list[str]
) -> LogExport | None:
    """The log paths of the job and of its tasks must be the same."""
    given = [path for path in paths if path is not None]
    if any(path.obs_url and path.host_path for path in given):
        notes.append("log_export_path.host_path has no effect: the logs go to log_export_path.obs_url")
    found = {_log_target(path, settings) for path in given} - {""}
    if len(found) > 1:
        detail = f" must be the same for all tasks, not {' and '.join(sorted(found))}."
        raise invalid(errors.INVALID, "log_export_path", detail)
    return LogExport(to=found.pop(), name=LOG_NAME) if found else None


def policy(requested: wire.Spec, annotations: Mapping[str, str], settings: config.Settings) -> Policy:
    schedule = requested.schedule_policy or wire.SchedulePolicy()
    check_priority(schedule.priority, "spec.schedule_policy.priority")
    check_notification(requested.notification, "spec.notification")
    hours = _hours(requested.auto_stop, "spec.auto_stop")
    _hours(requested.reserved_time, "spec.reserved_time")
    hang_retry = _flag(annotations, HANG_RETRY)
    return Policy(
        retries=_retries(annotations, hang_retry),
        time_limit=None if hours is None else hours * HOUR,
        hang_seconds=settings.limits.hang_seconds if hang_retry else None,
        priority=schedule.priority or 1,
        preemptible=bool(schedule.preemptible),
    )


def check_priority(priority: int | None, field: str) -> None:
    if priority is not None and not 1 <= priority <= 3:
        raise invalid(errors.INVALID, field, f" must be from 1 to 3, not {quoted(priority)}.")


def check_notification(notification: wire.Notification | None, field: str) -> None:
    for index, event in enumerate((notification and notification.events) or ()):
        if event not in EVENTS:
            detail = f": {quoted(event)} must be one of {', '.join(EVENTS)}."
            raise invalid(errors.INVALID, f"{field}.events[{index}]", detail)


def notify(
    notification: wire.Notification | None, settings: config.Settings, notes: list[str]
) -> Notify | None:
    """The last part of the topic's URN is the name of a webhook in the settings."""
    if notification is None or not notification.topic_urn:
        return None
    topic = notification.topic_urn.rpartition(":")[2]
    if topic not in settings.webhooks:
        notes.append(f"notification has no effect: there is no webhook {topic} in the settings")
        return None
    return Notify(topic, tuple(EVENTS[event] for event in notification.events or EVENTS))


def check_no_overlap(mounts: Sequence[Mount]) -> None:
    """Raises Invalid for a mount inside another: links in the outer one could redirect the inner one."""
    ordered = sorted(mounts, key=lambda mount: mount.target + "/")
    for outer, inner in pairwise(ordered):
        if not locations.covers(outer.target, inner.target):
            continue
        if outer.target == inner.target:
            detail = f": {inner.target} is used for both {outer.source} and {inner.source}; use different directories."
        else:
            detail = (
                f": {inner.target} is inside {outer.target}; use directories that do not contain each other."
            )
        raise invalid(errors.BAD_CHANNEL, "local_dir", detail)


def _volume(volume: wire.Volume, pool: str, field_path: str) -> Mount:
    given = [name for name in ("nfs", "pfs", "obs") if getattr(volume, name) is not None]
    if len(given) != 1:
        raise invalid(errors.INVALID, field_path, " must have one of nfs, pfs and obs.")
    if volume.nfs is not None:
        return _nfs(volume.nfs, pool, f"{field_path}.nfs")
    if volume.pfs is not None:
        source = _source(volume.pfs.pfs_path, f"{field_path}.pfs.pfs_path")
        return Mount(source, _local_path(volume.pfs.local_path, f"{field_path}.pfs.local_path"))
    obs = volume.obs or wire.ObsVolume()
    return Mount(
        _source(obs.obs_path, f"{field_path}.obs.obs_path"),
        _local_path(obs.local_path, f"{field_path}.obs.local_path"),
    )


def _nfs(nfs: wire.Nfs, pool: str, field_path: str) -> Mount:
    if not pool:
        raise invalid(errors.INVALID, field_path, " needs a dedicated pool: set spec.resource.pool_id.")
    path_field = f"{field_path}.nfs_server_path"
    host, separator, path = (nfs.nfs_server_path or "").partition(":/")
    if not host or not separator or not all(c.isascii() and (c.isalnum() or c in ".-_:[]") for c in host):
        detail = f": {quoted(nfs.nfs_server_path)} must be a server and a path, such as 192.168.0.82:/."
        raise invalid(errors.INVALID, path_field, detail)
    directory = locations.path(f"/{path}", path_field, errors.INVALID)
    target = _local_path(nfs.local_path, f"{field_path}.local_path")
    return Mount(f"nfs://{host}{directory}", target, read_only=bool(nfs.read_only))


def _source(text: str | None, field: str) -> str:
    if not text:
        raise invalid(errors.INVALID, field, " is missing.")
    return locations.source(text, field)


def _local_path(text: str | None, field: str) -> str:
    if not text:
        raise invalid(errors.INVALID, field, " is missing.")
    return locations.mount_point(text, field, errors.INVALID)


def _log_target(path: wire.LogPath, settings: config.Settings) -> str:
    field = "log_export_path"
    if path.obs_url:
        return locations.source(path.obs_url, f"{field}.obs_url")
    if not path.host_path:
        return ""
    target = locations.path(path.host_path, f"{field}.host_path", errors.INVALID)
    writable = [root for root, may_write in settings.host_paths() if may_write]
    if not any(PurePosixPath(target).is_relative_to(root) for root in writable):
        detail = f"{', '.join(map(str, writable)) or 'which has no writable directory'}"
        raise invalid(
            errors.INVALID,
            f"{field}.host_path",
            f": {quoted(path.host_path)} must be inside one of `[storage] host_paths`, {detail}.",
        )
    return f"file://{target}"


def _hours(requested: wire.Hours | None, field: str) -> int | None:
    if requested is None:
        return None
    if requested.time_unit != "HOURS":
        raise invalid(errors.INVALID, f"{field}.time_unit", f": {quoted(requested.time_unit)} must be HOURS.")
    if requested.duration is None or not 1 <= requested.duration <= MAX_HOURS:
        detail = f" must be from 1 to {MAX_HOURS}, not {quoted(requested.duration)}."
        raise invalid(errors.INVALID, f"{field}.duration", detail)
    return requested.duration


def _retries(annotations: Mapping[str, str], hang_retry: bool) -> tuple[Retry, ...]:
    text = annotations.get(RETRY_NUM)
    if text is not None and not (re.fullmatch("[0-9]{1,3}", text) and 1 <= int(text) <= 128):
        detail = f": {quoted(text)} must be a number from 1 to 128, as text; leave it out for no retries."
        raise invalid(errors.INVALID, f"metadata.annotations.{RETRY_NUM}", detail)
    retries = [Retry(PLATFORM_FAULTS, int(text))] if text else []
    if _flag(annotations, ALWAYS_RETRY):
        covered = {reason for retry in retries for reason in retry.on}
        retries.append(Retry(tuple(reason for reason in ANY_FAILURE if reason not in covered), MAX_RETRIES))
    if hang_retry:
        retries.append(Retry((Reason.HUNG,), MAX_RETRIES))
    return tuple(retries)


def _flag(annotations: Mapping[str, str], key: str) -> bool:
    text = annotations.get(key, "").lower()
    if text not in ("", "true", "false"):
        detail = f": {quoted(annotations[key])} must be true or false, as text."
        raise invalid(errors.INVALID, f"metadata.annotations.{key}", detail)
    return text == "true"
