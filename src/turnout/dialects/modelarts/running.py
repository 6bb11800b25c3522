"""A job's `spec` and annotations: volumes, log export, and the rules for starting over and ending."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import PurePosixPath

from turnout import config
from turnout.dialects.modelarts import faults, places, wire_spec
from turnout.dialects.modelarts.faults import shown, wrong
from turnout.job import LogExport, Mount, Policy, Reason, Retry

LOG_NAME = "modelarts-job-{id}-{replica}.log"
MAX_VOLUMES = 8
HOUR = 3600
MAX_HOURS = 1 << 20
IN_A_ROW = 3
"""How often a job is started over that failed for whatever reason, or hung."""

RETRY_NUM = "fault-tolerance/job-retry-num"
ALWAYS_RETRY = "fault-tolerance/job-unconditional-retry"
HANG_RETRY = "fault-tolerance/hang-retry"

PLATFORM_FAULTS = (Reason.NODE_LOST, Reason.KILLED, Reason.STAGING_FAILED)
ANY_FAILURE = (*PLATFORM_FAULTS, Reason.PROGRAM_FAILED, Reason.PROGRAM_NOT_FOUND, Reason.OUT_OF_MEMORY)

EVENTS = (
    "JobStarted",
    "JobCompleted",
    "JobFailed",
    "JobTerminated",
    "JobRestarted",
    "JobHanged",
    "JobPreempted",
)


def volumes(asked: Sequence[wire_spec.Volume] | None, pool: str) -> list[Mount]:
    field = "spec.volumes"
    if asked and len(asked) > MAX_VOLUMES:
        raise wrong(faults.BAD_PARAM, field, f" has {len(asked)} volumes; {MAX_VOLUMES} are possible.")
    return [_volume(volume, pool, f"{field}[{index}]") for index, volume in enumerate(asked or ())]


def log_export(paths: Iterable[wire_spec.LogPath | None], settings: config.Settings) -> LogExport | None:
    """Of the job and of its tasks: all that say something must say the same."""
    found = {_log_target(path, settings) for path in paths if path is not None} - {""}
    if len(found) > 1:
        told = f": the logs go to one place, not to {' and '.join(sorted(found))}."
        raise wrong(faults.BAD_PARAM, "log_export_path", told)
    return LogExport(to=found.pop(), name=LOG_NAME) if found else None


def policy(asked: wire_spec.Spec, annotations: Mapping[str, str], settings: config.Settings) -> Policy:
    schedule = asked.schedule_policy or wire_spec.SchedulePolicy()
    check_priority(schedule.priority, "spec.schedule_policy.priority")
    check_notification(asked.notification, "spec.notification")
    hours = _hours(asked.auto_stop, "spec.auto_stop")
    _hours(asked.reserved_time, "spec.reserved_time")
    hangs = _flag(annotations, HANG_RETRY)
    return Policy(
        retries=_retries(annotations, hangs),
        time_limit=None if hours is None else hours * HOUR,
        hang_seconds=settings.limits.hang_seconds if hangs else None,
        priority=schedule.priority or 1,
        preemptible=bool(schedule.preemptible),
    )


def check_priority(priority: int | None, field: str) -> None:
    if priority is not None and not 1 <= priority <= 3:
        raise wrong(faults.BAD_PARAM, field, f" must be from 1 to 3, not {shown(priority)}.")


def check_notification(notification: wire_spec.Notification | None, field: str) -> None:
    for index, event in enumerate((notification and notification.events) or ()):
        if event not in EVENTS:
            told = f": {shown(event)} must be one of {', '.join(EVENTS)}."
            raise wrong(faults.BAD_PARAM, f"{field}.events[{index}]", told)


def check_apart(mounts: Sequence[Mount]) -> None:
    """No mount inside another: links that jobs leave in the outer one would decide where the inner one goes."""
    ordered = sorted(mounts, key=lambda mount: mount.target + "/")
    for outer, inner in pairwise(ordered):
        if not places.covers(outer.target, inner.target):
            continue
        if outer.target == inner.target:
            told = (
                f": {inner.target} is the place of both {outer.source} and {inner.source}; give each its own."
            )
        else:
            told = f": {inner.target} is inside {outer.target}; put them side by side."
        raise wrong(faults.BAD_CHANNEL, "local_dir", told)


def _volume(volume: wire_spec.Volume, pool: str, place: str) -> Mount:
    given = [name for name in ("nfs", "pfs", "obs") if getattr(volume, name) is not None]
    if len(given) != 1:
        raise wrong(faults.BAD_PARAM, place, " must have one of nfs, pfs and obs.")
    if volume.nfs is not None:
        return _nfs(volume.nfs, pool, f"{place}.nfs")
    if volume.pfs is not None:
        source = _source(volume.pfs.pfs_path, f"{place}.pfs.pfs_path")
        return Mount(source, _local_path(volume.pfs.local_path, f"{place}.pfs.local_path"))
    obs = volume.obs or wire_spec.ObsVolume()
    return Mount(
        _source(obs.obs_path, f"{place}.obs.obs_path"), _local_path(obs.local_path, f"{place}.obs.local_path")
    )


def _nfs(nfs: wire_spec.Nfs, pool: str, place: str) -> Mount:
    if not pool:
        raise wrong(faults.BAD_PARAM, place, " is for dedicated pools; say spec.resource.pool_id.")
    where = f"{place}.nfs_server_path"
    host, separator, path = (nfs.nfs_server_path or "").partition(":/")
    if not host or not separator or not all(c.isascii() and (c.isalnum() or c in ".-_:[]") for c in host):
        told = f": {shown(nfs.nfs_server_path)} must be a server and a path, such as 192.168.0.82:/."
        raise wrong(faults.BAD_PARAM, where, told)
    directory = places.path(f"/{path}", where, faults.BAD_PARAM)
    target = _local_path(nfs.local_path, f"{place}.local_path")
    return Mount(f"nfs://{host}{directory}", target, read_only=bool(nfs.read_only))


def _source(text: str | None, field: str) -> str:
    if not text:
        raise wrong(faults.BAD_PARAM, field, " is missing.")
    return places.source(text, field)


def _local_path(text: str | None, field: str) -> str:
    if not text:
        raise wrong(faults.BAD_PARAM, field, " is missing.")
    return places.mount_point(text, field, faults.BAD_PARAM)


def _log_target(path: wire_spec.LogPath, settings: config.Settings) -> str:
    field = "log_export_path"
    if path.obs_url and path.host_path:
        raise wrong(faults.BAD_PARAM, field, " must have one of obs_url and host_path, not both.")
    if path.obs_url:
        return places.source(path.obs_url, f"{field}.obs_url")
    if not path.host_path:
        return ""
    target = places.path(path.host_path, f"{field}.host_path", faults.BAD_PARAM)
    writable = [root for root, may_write in settings.host_paths() if may_write]
    if not any(PurePosixPath(target).is_relative_to(root) for root in writable):
        told = f"{', '.join(map(str, writable)) or 'which has none that may be written to'}"
        raise wrong(
            faults.BAD_PARAM,
            f"{field}.host_path",
            f": {shown(path.host_path)} must be inside one of `[storage] host_paths`, {told}.",
        )
    return f"file://{target}"


def _hours(asked: wire_spec.Hours | None, field: str) -> int | None:
    if asked is None:
        return None
    if asked.time_unit != "HOURS":
        raise wrong(faults.BAD_PARAM, f"{field}.time_unit", f": {shown(asked.time_unit)} must be HOURS.")
    if asked.duration is None or not 1 <= asked.duration <= MAX_HOURS:
        told = f" must be from 1 to {MAX_HOURS}, not {shown(asked.duration)}."
        raise wrong(faults.BAD_PARAM, f"{field}.duration", told)
    return asked.duration


def _retries(annotations: Mapping[str, str], hangs: bool) -> tuple[Retry, ...]:
    text = annotations.get(RETRY_NUM, "0")
    if not (text.isascii() and text.isdecimal() and len(text) <= 3 and int(text) <= 128):
        told = f": {shown(text)} must be a number from 1 to 128, as text."
        raise wrong(faults.BAD_PARAM, f"metadata.annotations.{RETRY_NUM}", told)
    retries = [Retry(PLATFORM_FAULTS, int(text))] if int(text) else []
    if _flag(annotations, ALWAYS_RETRY):
        told = {reason for retry in retries for reason in retry.on}
        retries.append(Retry(tuple(reason for reason in ANY_FAILURE if reason not in told), IN_A_ROW))
    if hangs:
        retries.append(Retry((Reason.HUNG,), IN_A_ROW))
    return tuple(retries)


def _flag(annotations: Mapping[str, str], key: str) -> bool:
    text = annotations.get(key, "").lower()
    if text not in ("", "true", "false"):
        told = f": {shown(annotations[key])} must be true or false, as text."
        raise wrong(faults.BAD_PARAM, f"metadata.annotations.{key}", told)
    return text == "true"
