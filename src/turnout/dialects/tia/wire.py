"""TI-A's documents. The only place that spells its field names."""

from typing import Annotated

from msgspec import Meta, Struct

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class JobFields(Struct, rename="pascal", omit_defaults=True, kw_only=True):
    """What a caller says about a job; kept as it was sent, and given back with every answer."""

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
    """What is not known yet is left out, as the documented samples do."""

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


class Answer(Struct, rename="pascal"):
    """The inside of every `Response`; DeleteJob's has nothing else."""

    request_id: str


class JobAnswer(Answer):
    job: Job


class JobsAnswer(Answer):
    jobs: list[Job]


class LogsAnswer(Answer):
    context: str
    logs: list[Log]
    listover: bool


class ErrorAnswer(Answer):
    error: Error


class Envelope(Struct, rename="pascal"):
    response: Answer


BOOLEANS = ("Debug", "Update")
"""Parameters of the API that are true or false."""

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
"""Parameters that any action may carry beside its own."""
