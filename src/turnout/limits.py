"""The settings in `[limits]`: what jobs may use, and how long their data is kept."""

import msgspec

from turnout.errors import Misconfigured

_LEAST_BODY_BYTES = 48 << 20
"""One sender may use a quarter of it, which is enough for the largest body that any API allows."""
_LEAST_DISK = 1 << 20
_MOST_DAYS = 36_500
_LEAST_LOG = 64 << 10
_MOST_POINTS = 100_000
_MOST_NAMES = 10_000
_MOST_PROCESSES = 256
_LEAST_MEMORY = 256 << 20


class Limits(msgspec.Struct, forbid_unknown_fields=True):
    log_bytes: int = 1 << 30

    # How long the data of ended jobs is kept; 0: forever.
    deleted_days: float = 7
    """The rows of a deleted job."""
    finished_days: float = 0
    """Ended jobs: after this time the service deletes them, as their owners could."""
    log_days: float = 30
    """Logs, and other files of an attempt."""
    event_days: float = 0
    sample_days: float = 90
    """The resource usage of replicas."""
    measurement_days: float = 0
    """Intermediate measurements of trials. Their final values stay."""
    attempt_days: float = 0
    """The rows of attempts before the last."""
    audit_days: float = 365
    """The audit trail."""
    delivery_days: float = 7
    """Messages to webhooks that were given up."""
    operation_days: float = 30
    """Stored operations of Vertex."""
    upload_days: float = 7
    """Abandoned uploads; complete ones are deleted after an hour."""
    aside_days: float = 90
    """Unreadable records that were set aside, and caches of search workers."""
    runtime_days: float = 30
    """Environments of runtimes that are no longer in the settings and that no job has used since."""
    supervisor_log_bytes: int = 16 << 20
    """The largest size of the supervisor's log. Beyond it, only the newest lines are kept."""

    body_bytes: int = 64 << 20
    """The memory for the bodies of all current requests."""
    disk: int = 100 << 30
    """How many bytes a replica may have in its workspace and /tmp; a job may ask for less. 0: what each asks for."""
    processes: int = 4096
    """How many processes and threads a replica may have."""
    open_files: int = 4096
    """How many files a replica's process may have open, unless it raises that itself."""
    code_bytes: int = 5 << 30
    """How large the code of a ModelArts job may be."""
    code_files: int = 1000
    code_depth: int = 32
    """How deep its directories may be nested."""
    sample_seconds: float = 60
    """How often the resource usage of replicas is measured; 0: never."""
    hang_seconds: float = 1800
    """How long a ModelArts job with hang-retry may do nothing."""
    metric_points: int = 1000
    """The number of values that are kept of each metric of a trial, besides the first, the last and the best."""
    metric_names: int = 100
    """The most metrics of a trial."""
    search_processes: int = 4
    """How many processes all hyper-parameter searches share."""
    search_memory: int = 1 << 30
    """How many bytes each of them may use."""
    image_bytes: int = 64 << 30
    """How large an unpacked image may be."""
    image_files: int = 1_000_000
    """How many files it may have."""
    image_cache_bytes: int = 200 << 30
    """How large the cache of images may be. Beyond it, images that no job uses go, the longest unused ones first."""


def check(limits: Limits) -> None:
    """Raises Misconfigured."""
    for name in Limits.__struct_fields__:
        if name.endswith("_days") and not 0 <= getattr(limits, name) <= _MOST_DAYS:
            raise Misconfigured(f"[limits] {name} must be 0 (forever) or a number of days up to {_MOST_DAYS}")
    if limits.body_bytes < _LEAST_BODY_BYTES:
        raise Misconfigured(f"[limits] body_bytes must be {_LEAST_BODY_BYTES} or more")
    if limits.supervisor_log_bytes < _LEAST_LOG:
        raise Misconfigured(f"[limits] supervisor_log_bytes must be {_LEAST_LOG} or more")
    if limits.disk and limits.disk < _LEAST_DISK:
        raise Misconfigured(
            f"[limits] disk must be 0 (each job gets what it asks for) or at least {_LEAST_DISK} bytes"
        )
    if limits.sample_seconds < 0:
        raise Misconfigured("[limits] sample_seconds must be 0 (never) or more")
    if not 1 <= limits.search_processes <= _MOST_PROCESSES:
        raise Misconfigured(f"[limits] search_processes must be from 1 to {_MOST_PROCESSES}")
    if limits.search_memory < _LEAST_MEMORY:
        raise Misconfigured(
            f"[limits] search_memory must be at least {_LEAST_MEMORY}: the libraries need that much"
        )
    for name in ("image_bytes", "image_files", "image_cache_bytes"):
        if getattr(limits, name) < 1:
            raise Misconfigured(f"[limits] {name} must be more than 0")
    if not 10 <= limits.metric_points <= _MOST_POINTS:
        raise Misconfigured(f"[limits] metric_points must be from 10 to {_MOST_POINTS}")
    if not 1 <= limits.metric_names <= _MOST_NAMES:
        raise Misconfigured(f"[limits] metric_names must be from 1 to {_MOST_NAMES}")
