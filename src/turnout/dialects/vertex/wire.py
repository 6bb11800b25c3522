"""The messages of google.cloud.aiplatform.v1 that make up a custom job, as their .proto files have them.

Attributes are the fields as the .proto file names and orders them. As in proto3, a field that is not set has the zero
value of its type; only messages and optional fields (`Duration | None`) can be absent. `schema` reads these
classes; nothing else lists the fields.
"""

from enum import IntEnum
from typing import Annotated, Any, ClassVar

import msgspec

Int32 = Annotated[int, "int32"]
Int64 = Annotated[int, "int64"]
Duration = Annotated[int, "duration"]
"""Nanoseconds."""
Timestamp = Annotated[int, "timestamp"]
"""Nanoseconds since 1970."""
AnyMessage = Annotated[dict[str, Any], "any"]
Value = Annotated[Any, "value"]
"""google.protobuf.Value: any JSON."""
Struct = Annotated[dict[str, Any], "struct"]
"""google.protobuf.Struct, and messages that are stored as they were sent."""


class Message(msgspec.Struct, rename="camel"):
    OUTPUT: ClassVar[frozenset[str]] = frozenset()
    """Fields that only the service sets: ignored in requests."""
    ONEOFS: ClassVar[dict[str, tuple[str, ...]]] = {}
    """Fields of which at most one is set."""


class JobState(IntEnum):
    JOB_STATE_UNSPECIFIED = 0
    JOB_STATE_QUEUED = 1
    JOB_STATE_PENDING = 2
    JOB_STATE_RUNNING = 3
    JOB_STATE_SUCCEEDED = 4
    JOB_STATE_FAILED = 5
    JOB_STATE_CANCELLING = 6
    JOB_STATE_CANCELLED = 7
    JOB_STATE_PAUSED = 8
    JOB_STATE_EXPIRED = 9
    JOB_STATE_UPDATING = 10
    JOB_STATE_PARTIALLY_SUCCEEDED = 11


class AcceleratorType(IntEnum):
    ACCELERATOR_TYPE_UNSPECIFIED = 0
    NVIDIA_TESLA_K80 = 1
    NVIDIA_TESLA_P100 = 2
    NVIDIA_TESLA_V100 = 3
    NVIDIA_TESLA_P4 = 4
    NVIDIA_TESLA_T4 = 5
    TPU_V2 = 6
    TPU_V3 = 7
    NVIDIA_TESLA_A100 = 8
    NVIDIA_A100_80GB = 9
    TPU_V4_POD = 10
    NVIDIA_L4 = 11
    TPU_V5_LITEPOD = 12
    NVIDIA_H100_80GB = 13
    NVIDIA_H100_MEGA_80GB = 14
    NVIDIA_H200_141GB = 15
    NVIDIA_B200 = 16
    NVIDIA_GB200 = 17
    NVIDIA_RTX_PRO_6000 = 18


class Status(Message):
    code: Int32 = 0
    message: str = ""
    details: list[AnyMessage] = []


class EnvVar(Message):
    name: str = ""
    value: str = ""


class ContainerSpec(Message):
    image_uri: str = ""
    command: list[str] = []
    args: list[str] = []
    env: list[EnvVar] = []


class PythonPackageSpec(Message):
    executor_image_uri: str = ""
    package_uris: list[str] = []
    python_module: str = ""
    args: list[str] = []
    env: list[EnvVar] = []


class ReservationAffinity(Message):
    class Type(IntEnum):
        TYPE_UNSPECIFIED = 0
        NO_RESERVATION = 1
        ANY_RESERVATION = 2
        SPECIFIC_RESERVATION = 3

    reservation_affinity_type: Type = Type.TYPE_UNSPECIFIED
    key: str = ""
    values: list[str] = []


class MachineSpec(Message):
    machine_type: str = ""
    accelerator_type: AcceleratorType = AcceleratorType.ACCELERATOR_TYPE_UNSPECIFIED
    accelerator_count: Int32 = 0
    gpu_partition_size: str = ""
    tpu_topology: str = ""
    reservation_affinity: ReservationAffinity | None = None


class NfsMount(Message):
    server: str = ""
    path: str = ""
    mount_point: str = ""


class LustreMount(Message):
    instance_ip: str = ""
    volume_handle: str = ""
    filesystem: str = ""
    mount_point: str = ""


class DiskSpec(Message):
    boot_disk_type: str = ""
    boot_disk_size_gb: Int32 = 0


class WorkerPoolSpec(Message):
    ONEOFS: ClassVar[dict[str, tuple[str, ...]]] = {"task": ("container_spec", "python_package_spec")}

    container_spec: ContainerSpec | None = None
    python_package_spec: PythonPackageSpec | None = None
    machine_spec: MachineSpec | None = None
    replica_count: Int64 = 0
    nfs_mounts: list[NfsMount] = []
    lustre_mounts: list[LustreMount] = []
    disk_spec: DiskSpec | None = None


class Scheduling(Message):
    class Strategy(IntEnum):
        STRATEGY_UNSPECIFIED = 0
        ON_DEMAND = 1
        LOW_COST = 2
        STANDARD = 3
        SPOT = 4
        FLEX_START = 6

    timeout: Duration | None = None
    restart_job_on_worker_restart: bool = False
    strategy: Strategy = Strategy.STRATEGY_UNSPECIFIED
    disable_retries: bool = False
    max_wait_duration: Duration | None = None


class DnsPeeringConfig(Message):
    domain: str = ""
    target_project: str = ""
    target_network: str = ""


class PscInterfaceConfig(Message):
    network_attachment: str = ""
    dns_peering_configs: list[DnsPeeringConfig] = []


class GcsDestination(Message):
    output_uri_prefix: str = ""


class CustomJobSpec(Message):
    persistent_resource_id: str = ""
    worker_pool_specs: list[WorkerPoolSpec] = []
    scheduling: Scheduling | None = None
    service_account: str = ""
    network: str = ""
    reserved_ip_ranges: list[str] = []
    psc_interface_config: PscInterfaceConfig | None = None
    base_output_directory: GcsDestination | None = None
    protected_artifact_location_id: str = ""
    tensorboard: str = ""
    enable_web_access: bool = False
    enable_dashboard_access: bool = False
    experiment: str = ""
    experiment_run: str = ""
    models: list[str] = []


class EncryptionSpec(Message):
    kms_key_name: str = ""


class CustomJob(Message):
    OUTPUT: ClassVar[frozenset[str]] = frozenset(
        {
            "name",
            "state",
            "create_time",
            "start_time",
            "end_time",
            "update_time",
            "error",
            "web_access_uris",
            "satisfies_pzs",
            "satisfies_pzi",
        }
    )

    name: str = ""
    display_name: str = ""
    job_spec: CustomJobSpec | None = None
    state: JobState = JobState.JOB_STATE_UNSPECIFIED
    create_time: Timestamp | None = None
    start_time: Timestamp | None = None
    end_time: Timestamp | None = None
    update_time: Timestamp | None = None
    error: Status | None = None
    labels: dict[str, str] = {}
    encryption_spec: EncryptionSpec | None = None
    web_access_uris: dict[str, str] = {}
    satisfies_pzs: bool = False
    satisfies_pzi: bool = False
