"""The `spec` of a training job, and what is about how it is run rather than what."""

from typing import Any

from msgspec import Struct


class CustomFlavor(Struct, omit_defaults=True):
    cpu_core_num: float | None = None
    mem_size: float | None = None
    accelerator_num: float | None = None


class Resource(Struct, omit_defaults=True):
    flavor_id: str | None = None
    node_count: int | None = None
    pool_id: str | None = None
    pool_group_id: str | None = None
    main_container_customized_flavor: CustomFlavor | None = None


class Nfs(Struct, omit_defaults=True):
    nfs_server_path: str | None = None
    local_path: str | None = None
    read_only: bool | None = None


class Pfs(Struct, omit_defaults=True):
    pfs_path: str | None = None
    local_path: str | None = None


class ObsVolume(Struct, omit_defaults=True):
    obs_path: str | None = None
    local_path: str | None = None


class Volume(Struct, omit_defaults=True):
    nfs: Nfs | None = None
    pfs: Pfs | None = None
    obs: ObsVolume | None = None


class LogPath(Struct, omit_defaults=True):
    obs_url: str | None = None
    host_path: str | None = None


class Hours(Struct, omit_defaults=True):
    """`auto_stop` and `reserved_time`."""

    time_unit: str | None = None
    duration: int | None = None


class Retention(Struct, omit_defaults=True):
    policy: str | None = None


class SchedulePolicy(Struct, omit_defaults=True):
    required_affinity: dict[str, Any] | None = None
    preferred_affinity: dict[str, Any] | None = None
    priority: int | None = None
    preemptible: bool | None = None


class LogConfig(Struct, omit_defaults=True):
    version: str | None = None
    rotation_enabled: bool | None = None


class Notification(Struct, omit_defaults=True):
    topic_urn: str | None = None
    events: list[str] | None = None


class Exec(Struct, omit_defaults=True):
    command: list[str] | None = None


class HttpGet(Struct, omit_defaults=True):
    path: str | None = None
    port: int | None = None


class CustomMetric(Struct, omit_defaults=True):
    exec: Exec | None = None
    http_get: HttpGet | None = None


class OutputModel(Struct, omit_defaults=True):
    obs: ObsVolume | None = None


class Spec(Struct, omit_defaults=True):
    resource: Resource | None = None
    volumes: list[Volume] | None = None
    log_export_path: LogPath | None = None
    auto_stop: Hours | None = None
    retention: Retention | None = None
    schedule_policy: SchedulePolicy | None = None
    log_export_config: LogConfig | None = None
    notification: Notification | None = None
    custom_metrics: list[CustomMetric] | None = None
    output_model: OutputModel | None = None
    asset_model: dict[str, Any] | None = None
    asset_id: str | None = None
    reserved_time: Hours | None = None
    runtime_type: str | None = None


class Ssh(Struct, omit_defaults=True):
    key_pair_names: list[str] | None = None


class Endpoints(Struct, omit_defaults=True):
    ssh: Ssh | None = None


class UpdateSpec(Struct, omit_defaults=True):
    notification: Notification | None = None
    schedule_policy: SchedulePolicy | None = None


class UpdateMetadata(Struct, omit_defaults=True):
    annotation: dict[str, str] | None = None


class Update(Struct, omit_defaults=True):
    """The body of a PUT."""

    description: str | None = None
    spec: UpdateSpec | None = None
    endpoints: Endpoints | None = None
    metadata: UpdateMetadata | None = None
