"""The messages of google.cloud.aiplatform.v1 about persistent resources; see `wire`."""

# ruff: noqa: RUF012 (msgspec copies them)
from enum import IntEnum
from typing import ClassVar

from turnout.dialects.vertex.wire import (
    DiskSpec,
    EncryptionSpec,
    Int64,
    MachineSpec,
    Message,
    PscInterfaceConfig,
    Status,
    Timestamp,
)


class RayMetricSpec(Message):
    disabled: bool = False


class RayLogsSpec(Message):
    disabled: bool = False


class RaySpec(Message):
    image_uri: str = ""
    resource_pool_images: dict[str, str] = {}
    head_node_resource_pool_id: str = ""
    ray_metric_spec: RayMetricSpec | None = None
    ray_logs_spec: RayLogsSpec | None = None


class ServiceAccountSpec(Message):
    enable_custom_service_account: bool = False
    service_account: str = ""


class ResourceRuntimeSpec(Message):
    service_account_spec: ServiceAccountSpec | None = None
    ray_spec: RaySpec | None = None


class ResourceRuntime(Message):
    access_uris: dict[str, str] = {}


class ResourcePool(Message):
    class AutoscalingSpec(Message):
        min_replica_count: Int64 | None = None
        max_replica_count: Int64 | None = None

    OUTPUT: ClassVar[frozenset[str]] = frozenset({"used_replica_count"})

    id: str = ""
    machine_spec: MachineSpec | None = None
    replica_count: Int64 | None = None
    disk_spec: DiskSpec | None = None
    used_replica_count: Int64 = 0
    autoscaling_spec: AutoscalingSpec | None = None


class PersistentResource(Message):
    class State(IntEnum):
        STATE_UNSPECIFIED = 0
        PROVISIONING = 1
        RUNNING = 3
        STOPPING = 4
        ERROR = 5
        REBOOTING = 6
        UPDATING = 7

    OUTPUT: ClassVar[frozenset[str]] = frozenset(
        {"name", "state", "error", "create_time", "start_time", "update_time", "resource_runtime"}
    )

    name: str = ""
    display_name: str = ""
    resource_pools: list[ResourcePool] = []
    state: State = State.STATE_UNSPECIFIED
    error: Status | None = None
    create_time: Timestamp | None = None
    start_time: Timestamp | None = None
    update_time: Timestamp | None = None
    labels: dict[str, str] = {}
    network: str = ""
    psc_interface_config: PscInterfaceConfig | None = None
    encryption_spec: EncryptionSpec | None = None
    resource_runtime_spec: ResourceRuntimeSpec | None = None
    resource_runtime: ResourceRuntime | None = None
    reserved_ip_ranges: list[str] = []
