"""ModelArts' documents as structs: jobs, algorithms and their parts.

A field has the widest type of those in the reference's tables, its examples and the SDK. `null` counts as absent.
Unknown fields are ignored: newer SDKs send more, and an answer that a client posts back has read-only ones.
"""

from typing import Any

from msgspec import Struct

Scalar = str | int | float | bool
"""The documentation has text. Clients also send numbers and booleans."""


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
    """The body of an update of a job."""

    description: str | None = None
    spec: UpdateSpec | None = None
    endpoints: Endpoints | None = None
    metadata: UpdateMetadata | None = None


class I18n(Struct, omit_defaults=True):
    language: str | None = None
    description: str | None = None


class Constraint(Struct, omit_defaults=True):
    type: str | None = None
    editable: bool | None = None
    required: bool | None = None
    sensitive: bool | None = None
    valid_type: str | None = None
    valid_range: list[Scalar] | None = None


class Parameter(Struct, omit_defaults=True):
    name: str | None = None
    value: Scalar | None = None
    description: str | None = None
    constraint: Constraint | None = None
    i18n_description: I18n | None = None


class RewardAttr(Struct, omit_defaults=True):
    name: str | None = None
    mode: str | None = None
    regex: str | None = None


class SearchParam(Struct, omit_defaults=True):
    name: str | None = None
    param_type: str | None = None
    lower_bound: Scalar | None = None
    upper_bound: Scalar | None = None
    discrete_points_num: Scalar | None = None
    discrete_values: list[Scalar] | str | None = None


class AlgoParam(Struct, omit_defaults=True):
    key: str | None = None
    value: Scalar | None = None
    type: str | None = None


class AlgoConfig(Struct, omit_defaults=True):
    name: str | None = None
    params: list[AlgoParam] | None = None


class AutoSearch(Struct, omit_defaults=True):
    skip_search_params: str | None = None
    reward_attrs: list[RewardAttr] | None = None
    search_params: list[SearchParam] | None = None
    algo_configs: list[AlgoConfig] | None = None


class Policies(Struct, omit_defaults=True):
    auto_search: AutoSearch | None = None


class Obs(Struct, omit_defaults=True):
    obs_url: str | None = None


class Dataset(Struct, omit_defaults=True):
    id: str | None = None
    version_id: str | None = None
    obs_url: str | None = None
    service_type: str | None = None
    name: str | None = None
    dataset_proportion: int | None = None


class Remote(Struct, omit_defaults=True):
    dataset: Dataset | None = None
    obs: Obs | None = None


class RemoteConstraint(Struct, omit_defaults=True):
    data_type: str | None = None
    attributes: str | list[Any] | dict[str, Any] | None = None


class Channel(Struct, omit_defaults=True):
    """An input or an output, of a job or of an algorithm."""

    name: str | None = None
    description: str | None = None
    local_dir: str | None = None
    access_method: str | None = None
    remote: Remote | None = None
    remote_constraint: list[RemoteConstraint] | None = None
    """The name of the field in a job."""
    remote_constraints: list[RemoteConstraint] | None = None
    """The name of the field in an algorithm."""


class Engine(Struct, omit_defaults=True):
    engine_id: str | None = None
    engine_name: str | None = None
    engine_version: str | None = None
    image_url: str | None = None
    install_sys_packages: bool | None = None
    image_repo_id: str | None = None
    run_user: str | int | None = None


class SummaryPfs(Struct, omit_defaults=True):
    pfs_path: str | None = None


class SummaryDir(Struct, omit_defaults=True):
    pfs: SummaryPfs | None = None


class SummaryJob(Struct, omit_defaults=True):
    job_id: str | None = None


class SummaryNfs(Struct, omit_defaults=True):
    nfs_path: str | None = None


class SummarySource(Struct, omit_defaults=True):
    job: SummaryJob | None = None
    nfs: SummaryNfs | None = None


class Summary(Struct, omit_defaults=True):
    log_type: str | None = None
    log_dir: SummaryDir | None = None
    data_sources: list[SummarySource] | None = None


class Run(Struct, omit_defaults=True, kw_only=True):
    """The fields that the algorithm of a job and of a task share."""

    code_dir: str | None = None
    boot_file: str | None = None
    engine: Engine | None = None
    inputs: list[Channel] | Channel | None = None
    outputs: list[Channel] | Channel | None = None
    local_code_dir: str | None = None
    working_dir: str | None = None
    environments: dict[str, str] | list[dict[str, str]] | None = None


class JobAlgorithm(Run, omit_defaults=True, kw_only=True):
    id: str | None = None
    name: str | None = None
    subscription_id: str | None = None
    item_version_id: str | None = None
    autosearch_config_path: str | None = None
    autosearch_framework_path: str | None = None
    command: str | None = None
    parameters: list[Parameter] | None = None
    policies: Policies | None = None
    summary: Summary | None = None


class TaskConfig(Struct, omit_defaults=True):
    parameters: list[Parameter] | None = None
    inputs: list[Channel] | Channel | None = None
    outputs: list[Channel] | Channel | None = None
    engine: Engine | None = None


class TaskAlgorithm(Run, omit_defaults=True, kw_only=True):
    job_config: TaskConfig | None = None
    command: str | None = None


class TaskResource(Struct, omit_defaults=True):
    flavor_id: str | None = None
    node_count: int | None = None
    pool_id: str | None = None


class Task(Struct, omit_defaults=True):
    role: str | None = None
    algorithm: TaskAlgorithm | None = None
    task_resource: TaskResource | None = None
    log_export_path: LogPath | None = None


class Experiment(Struct, omit_defaults=True):
    id: str | None = None
    name: str | None = None
    description: str | None = None


class Metadata(Struct, omit_defaults=True):
    """The server sets `id`, `create_time` and `user_name`."""

    name: str
    workspace_id: str | None = None
    description: str | None = None
    annotations: dict[str, str] | None = None
    training_experiment_reference: Experiment | None = None


class Job(Struct, omit_defaults=True):
    kind: str
    metadata: Metadata
    algorithm: JobAlgorithm | None = None
    tasks: list[Task] | None = None
    spec: Spec | None = None
    endpoints: Endpoints | None = None
    train_type: str | None = None
    ftjob_config: dict[str, Any] | None = None


class AlgorithmTag(Struct, omit_defaults=True):
    key: str | None = None
    value: Scalar | None = None


class AlgorithmMetadata(Struct, omit_defaults=True):
    """The server sets `id`."""

    name: str
    description: str | None = None
    workspace_id: str | None = None
    ai_project: str | None = None
    tags: list[AlgorithmTag] | None = None


class AlgorithmConfig(Struct, omit_defaults=True):
    code_dir: str | None = None
    boot_file: str | None = None
    command: str | None = None
    parameters: list[Parameter] | None = None
    inputs: list[Channel] | None = None
    outputs: list[Channel] | None = None
    engine: Engine | None = None
    parameters_customization: bool | None = None


class Requirement(Struct, omit_defaults=True):
    key: str | None = None
    values: list[str] | None = None
    value: list[str] | None = None
    """The name of the field in answers."""
    operator: str | None = None


class AdvancedConfig(Struct, omit_defaults=True):
    auto_search: AutoSearch | None = None


class Algorithm(Struct, omit_defaults=True):
    metadata: AlgorithmMetadata
    job_config: AlgorithmConfig | None = None
    resource_requirements: list[Requirement] | None = None
    advanced_config: AdvancedConfig | None = None
