"""TI-A's requests and responses. No other module spells its field names."""

from typing import Annotated

from msgspec import Meta, Struct

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class JobFields(Struct, rename="pascal", omit_defaults=True, kw_only=True):
    """The fields of a job in a request; stored unchanged and part of every response."""

    name: str
    cluster: str
    runtime_version: str
    package_dir: list[str] | None = None
    command: list[str] | None = None
    args: list[str] | None = None
    scale_tier: str | None = None
    master_type: str | None = None
    worker_type: str | None = None
    parameter_server_type: str | None = None
    worker_count: Count | None = None
    parameter_server_count: Count | None = None
    debug: bool | None = None
    runtime_conf: list[str] | None = None


class CreateJob(JobFields, forbid_unknown_fields=True): ...


class DescribeJob(Struct, rename="pascal", forbid_unknown_fields=True):
    name: str
    cluster: str


class DeleteJob(DescribeJob): ...


class ListJobs(Struct, rename="pascal", forbid_unknown_fields=True):
    cluster: str
    limit: Count | None = None
    offset: Count | None = None


class QueryLogs(Struct, rename="pascal", forbid_unknown_fields=True):
    job_name: str
    cluster: str
    start_time: str
    end_time: str
    limit: Count
    context: str | None = None


class Job(JobFields):
    """Fields without a value are omitted, as in the documented samples."""

    create_time: str | None = None
    start_time: str | None = None
    end_time: str | None = None
    state: str | None = None
    message: str | None = None
    app_id: int | None = None
    uin: str | None = None
    id: str | None = None


class Log(Struct, rename="pascal"):
    container_name: str
    log: str
    namespace: str
    pod_id: str
    pod_name: str
    time: str


class Error(Struct, rename="pascal"):
    code: str
    message: str


class Response(Struct, rename="pascal"):
    """The content of every `Response`; DeleteJob returns nothing else."""

    request_id: str


class JobResponse(Response):
    job: Job


class JobsResponse(Response):
    jobs: list[Job]


class LogsResponse(Response):
    context: str
    logs: list[Log]
    listover: bool


class ErrorResponse(Response):
    error: Error


class Envelope(Struct, rename="pascal"):
    response: Response


BOOLEANS = ("Debug", "Update")
"""The boolean parameters of the API."""

COMMON = frozenset(
    {
        "Action",
        "Version",
        "Region",
        "Timestamp",
        "Nonce",
        "SecretId",
        "Signature",
        "SignatureMethod",
        "Token",
        "Language",
        "RequestClient",
    }
)
"""Parameters that every action accepts."""
