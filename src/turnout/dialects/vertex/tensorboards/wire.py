"""The messages of google.cloud.aiplatform.v1 about TensorBoard resources; see `wire`."""

# ruff: noqa: RUF012 (msgspec copies them)
from enum import IntEnum
from typing import ClassVar

from turnout.dialects.vertex.wire import EncryptionSpec, Int32, Int64, Message, Timestamp

_OUTPUT = frozenset({"name", "create_time", "update_time"})


class Tensorboard(Message):
    OUTPUT: ClassVar[frozenset[str]] = _OUTPUT | {
        "blob_storage_path_prefix",
        "run_count",
        "satisfies_pzs",
        "satisfies_pzi",
    }

    name: str = ""
    display_name: str = ""
    description: str = ""
    encryption_spec: EncryptionSpec | None = None
    blob_storage_path_prefix: str = ""
    run_count: Int32 = 0
    create_time: Timestamp | None = None
    update_time: Timestamp | None = None
    labels: dict[str, str] = {}
    etag: str = ""
    is_default: bool = False
    satisfies_pzs: bool = False
    satisfies_pzi: bool = False


class TensorboardExperiment(Message):
    OUTPUT: ClassVar[frozenset[str]] = _OUTPUT

    name: str = ""
    display_name: str = ""
    description: str = ""
    create_time: Timestamp | None = None
    update_time: Timestamp | None = None
    labels: dict[str, str] = {}
    etag: str = ""
    source: str = ""


class TensorboardRun(Message):
    OUTPUT: ClassVar[frozenset[str]] = _OUTPUT

    name: str = ""
    display_name: str = ""
    description: str = ""
    create_time: Timestamp | None = None
    update_time: Timestamp | None = None
    labels: dict[str, str] = {}
    etag: str = ""


class ValueType(IntEnum):
    VALUE_TYPE_UNSPECIFIED = 0
    SCALAR = 1
    TENSOR = 2
    BLOB_SEQUENCE = 3


class TensorboardTimeSeries(Message):
    class Metadata(Message):
        max_step: Int64 = 0
        max_wall_time: Timestamp | None = None
        max_blob_sequence_length: Int64 = 0

    OUTPUT: ClassVar[frozenset[str]] = _OUTPUT | {"metadata"}

    name: str = ""
    display_name: str = ""
    description: str = ""
    value_type: ValueType = ValueType.VALUE_TYPE_UNSPECIFIED
    create_time: Timestamp | None = None
    update_time: Timestamp | None = None
    etag: str = ""
    plugin_name: str = ""
    plugin_data: str = ""
    """Bytes in base64."""
    metadata: Metadata | None = None


class Scalar(Message):
    value: float = 0.0


class TensorboardTensor(Message):
    value: str = ""
    """Bytes in base64."""
    version_number: Int32 = 0


class TensorboardBlob(Message):
    id: str = ""
    data: str = ""
    """Bytes in base64."""


class TensorboardBlobSequence(Message):
    values: list[TensorboardBlob] = []


class TimeSeriesDataPoint(Message):
    ONEOFS: ClassVar[dict[str, tuple[str, ...]]] = {"value": ("scalar", "tensor", "blobs")}

    scalar: Scalar | None = None
    tensor: TensorboardTensor | None = None
    blobs: TensorboardBlobSequence | None = None
    wall_time: Timestamp | None = None
    step: Int64 = 0


class TimeSeriesData(Message):
    tensorboard_time_series_id: str = ""
    value_type: ValueType = ValueType.VALUE_TYPE_UNSPECIFIED
    values: list[TimeSeriesDataPoint] = []


class ReadResponse(Message):
    """The response of a read (`timeSeriesData`) and of an export (`timeSeriesDataPoints`)."""

    time_series_data: TimeSeriesData | None = None
    time_series_data_points: list[TimeSeriesDataPoint] = []
    next_page_token: str = ""


class BatchReadResponse(Message):
    time_series_data: list[TimeSeriesData] = []


class WriteRunDataRequest(Message):
    tensorboard_run: str = ""
    time_series_data: list[TimeSeriesData] = []


class WriteExperimentDataRequest(Message):
    OUTPUT: ClassVar[frozenset[str]] = frozenset({"tensorboard_experiment"})

    tensorboard_experiment: str = ""
    write_run_data_requests: list[WriteRunDataRequest] = []


class CreateRunRequest(Message):
    parent: str = ""
    tensorboard_run: TensorboardRun | None = None
    tensorboard_run_id: str = ""


class BatchCreateRunsRequest(Message):
    OUTPUT: ClassVar[frozenset[str]] = frozenset({"parent"})

    parent: str = ""
    requests: list[CreateRunRequest] = []


class CreateTimeSeriesRequest(Message):
    parent: str = ""
    tensorboard_time_series_id: str = ""
    tensorboard_time_series: TensorboardTimeSeries | None = None


class BatchCreateTimeSeriesRequest(Message):
    OUTPUT: ClassVar[frozenset[str]] = frozenset({"parent"})

    parent: str = ""
    requests: list[CreateTimeSeriesRequest] = []


class BatchResponse(Message):
    tensorboard_runs: list[TensorboardRun] = []
    tensorboard_time_series: list[TensorboardTimeSeries] = []


class ExportRequest(Message):
    OUTPUT: ClassVar[frozenset[str]] = frozenset({"tensorboard_time_series"})

    tensorboard_time_series: str = ""
    filter: str = ""
    page_size: Int32 = 0
    page_token: str = ""
    order_by: str = ""
