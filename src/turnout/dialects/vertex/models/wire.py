"""The messages of google.cloud.aiplatform.v1 about models; see `wire`."""

# ruff: noqa: RUF012 (msgspec copies them)
from enum import IntEnum
from typing import ClassVar

import msgspec

from turnout.dialects.vertex.wire import (
    Duration,
    EncryptionSpec,
    EnvVar,
    GcsDestination,
    Int32,
    Int64,
    Message,
    Struct,
    Timestamp,
    Value,
)


class PredictSchemata(Message):
    instance_schema_uri: str = ""
    parameters_schema_uri: str = ""
    prediction_schema_uri: str = ""


class Port(Message):
    container_port: Int32 = 0


class Probe(Message):
    ONEOFS: ClassVar[dict[str, tuple[str, ...]]] = {"probe_type": ("exec_", "http_get", "grpc", "tcp_socket")}

    class ExecAction(Message):
        command: list[str] = []

    class HttpHeader(Message):
        name: str = ""
        value: str = ""

    class HttpGetAction(Message):
        path: str = ""
        port: Int32 = 0
        host: str = ""
        scheme: str = ""
        http_headers: "list[Probe.HttpHeader]" = []

    class GrpcAction(Message):
        port: Int32 = 0
        service: str = ""

    class TcpSocketAction(Message):
        port: Int32 = 0
        host: str = ""

    exec_: ExecAction | None = msgspec.field(default=None, name="exec")
    http_get: HttpGetAction | None = None
    grpc: GrpcAction | None = None
    tcp_socket: TcpSocketAction | None = None
    period_seconds: Int32 = 0
    timeout_seconds: Int32 = 0
    failure_threshold: Int32 = 0
    success_threshold: Int32 = 0
    initial_delay_seconds: Int32 = 0


class ModelContainerSpec(Message):
    image_uri: str = ""
    command: list[str] = []
    args: list[str] = []
    env: list[EnvVar] = []
    ports: list[Port] = []
    predict_route: str = ""
    health_route: str = ""
    invoke_route_prefix: str = ""
    grpc_ports: list[Port] = []
    deployment_timeout: Duration | None = None
    shared_memory_size_mb: Int64 = 0
    startup_probe: Probe | None = None
    health_probe: Probe | None = None
    liveness_probe: Probe | None = None


class ModelSourceInfo(Message):
    class ModelSourceType(IntEnum):
        MODEL_SOURCE_TYPE_UNSPECIFIED = 0
        AUTOML = 1
        CUSTOM = 2
        BQML = 3
        MODEL_GARDEN = 4
        GENIE = 5
        CUSTOM_TEXT_EMBEDDING = 6
        MARKETPLACE = 7

    source_type: ModelSourceType = ModelSourceType.MODEL_SOURCE_TYPE_UNSPECIFIED
    copy: bool = False


class ModelGardenSource(Message):
    public_model_name: str = ""
    version_id: str = ""
    skip_hf_model_cache: bool = False


class GenieSource(Message):
    base_model_uri: str = ""


class Checkpoint(Message):
    checkpoint_id: str = ""
    epoch: Int64 = 0
    step: Int64 = 0


class DeployedModelRef(Message):
    endpoint: str = ""
    deployed_model_id: str = ""


class Model(Message):
    class DeploymentResourcesType(IntEnum):
        DEPLOYMENT_RESOURCES_TYPE_UNSPECIFIED = 0
        DEDICATED_RESOURCES = 1
        AUTOMATIC_RESOURCES = 2
        SHARED_RESOURCES = 3

    class ExportFormat(Message):
        class ExportableContent(IntEnum):
            EXPORTABLE_CONTENT_UNSPECIFIED = 0
            ARTIFACT = 1
            IMAGE = 2

        id: str = ""
        exportable_contents: list[ExportableContent] = []

    class DataStats(Message):
        training_data_items_count: Int64 = 0
        validation_data_items_count: Int64 = 0
        test_data_items_count: Int64 = 0
        training_annotations_count: Int64 = 0
        validation_annotations_count: Int64 = 0
        test_annotations_count: Int64 = 0

    class OriginalModelInfo(Message):
        model: str = ""

    class BaseModelSource(Message):
        ONEOFS: ClassVar[dict[str, tuple[str, ...]]] = {"source": ("model_garden_source", "genie_source")}

        model_garden_source: ModelGardenSource | None = None
        genie_source: GenieSource | None = None

    OUTPUT: ClassVar[frozenset[str]] = frozenset(
        {
            "name",
            "version_id",
            "version_create_time",
            "version_update_time",
            "supported_export_formats",
            "training_pipeline",
            "pipeline_job",
            "supported_deployment_resources_types",
            "supported_input_storage_formats",
            "supported_output_storage_formats",
            "create_time",
            "update_time",
            "deployed_models",
            "data_stats",
            "model_source_info",
            "original_model_info",
            "metadata_artifact",
            "satisfies_pzs",
            "satisfies_pzi",
            "checkpoints",
        }
    )

    name: str = ""
    version_id: str = ""
    version_aliases: list[str] = []
    version_create_time: Timestamp | None = None
    version_update_time: Timestamp | None = None
    display_name: str = ""
    description: str = ""
    version_description: str = ""
    default_checkpoint_id: str = ""
    predict_schemata: PredictSchemata | None = None
    metadata_schema_uri: str = ""
    metadata: Value | None = None
    supported_export_formats: list[ExportFormat] = []
    training_pipeline: str = ""
    pipeline_job: str = ""
    container_spec: ModelContainerSpec | None = None
    artifact_uri: str = ""
    supported_deployment_resources_types: list[DeploymentResourcesType] = []
    supported_input_storage_formats: list[str] = []
    supported_output_storage_formats: list[str] = []
    create_time: Timestamp | None = None
    update_time: Timestamp | None = None
    deployed_models: list[DeployedModelRef] = []
    explanation_spec: Struct | None = None
    etag: str = ""
    labels: dict[str, str] = {}
    data_stats: DataStats | None = None
    encryption_spec: EncryptionSpec | None = None
    model_source_info: ModelSourceInfo | None = None
    original_model_info: OriginalModelInfo | None = None
    metadata_artifact: str = ""
    base_model_source: BaseModelSource | None = None
    satisfies_pzs: bool = False
    satisfies_pzi: bool = False
    checkpoints: list[Checkpoint] = []


class UploadModelRequest(Message):
    OUTPUT: ClassVar[frozenset[str]] = frozenset({"parent"})

    parent: str = ""
    parent_model: str = ""
    model_id: str = ""
    model: Model | None = None
    service_account: str = ""


class CopyModelRequest(Message):
    OUTPUT: ClassVar[frozenset[str]] = frozenset({"parent"})
    ONEOFS: ClassVar[dict[str, tuple[str, ...]]] = {"destination_model": ("model_id", "parent_model")}

    model_id: str = ""
    parent_model: str = ""
    parent: str = ""
    source_model: str = ""
    encryption_spec: EncryptionSpec | None = None
    custom_service_account: str = ""


class ContainerRegistryDestination(Message):
    output_uri: str = ""


class ExportModelRequest(Message):
    class OutputConfig(Message):
        export_format_id: str = ""
        artifact_destination: GcsDestination | None = None
        image_destination: ContainerRegistryDestination | None = None

    OUTPUT: ClassVar[frozenset[str]] = frozenset({"name"})

    name: str = ""
    output_config: OutputConfig | None = None


class MergeVersionAliasesRequest(Message):
    OUTPUT: ClassVar[frozenset[str]] = frozenset({"name"})

    name: str = ""
    version_aliases: list[str] = []
