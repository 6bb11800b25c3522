"""The messages of google.cloud.aiplatform.v1 about metadata stores; see `wire`."""

# ruff: noqa: RUF012 (msgspec copies them)
from enum import IntEnum
from typing import ClassVar

from turnout.dialects.vertex.wire import EncryptionSpec, Int64, Message, Struct, Timestamp

_TIMES = frozenset({"name", "create_time", "update_time"})


class MetadataStore(Message):
    class MetadataStoreState(Message):
        disk_utilization_bytes: Int64 = 0

    class DataplexConfig(Message):
        enabled_pipelines_lineage: bool = False

    OUTPUT: ClassVar[frozenset[str]] = _TIMES | {"state"}

    name: str = ""
    create_time: Timestamp | None = None
    update_time: Timestamp | None = None
    encryption_spec: EncryptionSpec | None = None
    description: str = ""
    state: MetadataStoreState | None = None
    dataplex_config: DataplexConfig | None = None


class Context(Message):
    OUTPUT: ClassVar[frozenset[str]] = _TIMES | {"parent_contexts"}

    name: str = ""
    display_name: str = ""
    etag: str = ""
    labels: dict[str, str] = {}
    create_time: Timestamp | None = None
    update_time: Timestamp | None = None
    parent_contexts: list[str] = []
    schema_title: str = ""
    schema_version: str = ""
    metadata: Struct | None = None
    description: str = ""


class Execution(Message):
    class State(IntEnum):
        STATE_UNSPECIFIED = 0
        NEW = 1
        RUNNING = 2
        COMPLETE = 3
        FAILED = 4
        CACHED = 5
        CANCELLED = 6

    OUTPUT: ClassVar[frozenset[str]] = _TIMES

    name: str = ""
    display_name: str = ""
    state: State = State.STATE_UNSPECIFIED
    etag: str = ""
    labels: dict[str, str] = {}
    create_time: Timestamp | None = None
    update_time: Timestamp | None = None
    schema_title: str = ""
    schema_version: str = ""
    metadata: Struct | None = None
    description: str = ""


class Artifact(Message):
    class State(IntEnum):
        STATE_UNSPECIFIED = 0
        PENDING = 1
        LIVE = 2

    OUTPUT: ClassVar[frozenset[str]] = _TIMES

    name: str = ""
    display_name: str = ""
    uri: str = ""
    etag: str = ""
    labels: dict[str, str] = {}
    create_time: Timestamp | None = None
    update_time: Timestamp | None = None
    state: State = State.STATE_UNSPECIFIED
    schema_title: str = ""
    schema_version: str = ""
    metadata: Struct | None = None
    description: str = ""


class Event(Message):
    class Type(IntEnum):
        TYPE_UNSPECIFIED = 0
        INPUT = 1
        OUTPUT = 2

    OUTPUT: ClassVar[frozenset[str]] = frozenset({"execution", "event_time"})

    artifact: str = ""
    execution: str = ""
    event_time: Timestamp | None = None
    type: Type = Type.TYPE_UNSPECIFIED
    labels: dict[str, str] = {}


class LineageSubgraph(Message):
    artifacts: list[Artifact] = []
    executions: list[Execution] = []
    events: list[Event] = []


class ContextChildrenRequest(Message):
    """The request of addContextChildren and removeContextChildren."""

    OUTPUT: ClassVar[frozenset[str]] = frozenset({"context"})

    context: str = ""
    child_contexts: list[str] = []


class AddContextArtifactsAndExecutionsRequest(Message):
    OUTPUT: ClassVar[frozenset[str]] = frozenset({"context"})

    context: str = ""
    artifacts: list[str] = []
    executions: list[str] = []


class AddExecutionEventsRequest(Message):
    OUTPUT: ClassVar[frozenset[str]] = frozenset({"execution"})

    execution: str = ""
    events: list[Event] = []
