"""ModelArts' documents. With `wire_spec`, the only place that spells the field names of requests.

What a field may be is the widest that its tables, its examples and the SDK know. `null` is as good as absent, and a
field that is not known is passed over: newer SDKs send more, and answers that are posted back have read-only ones.
"""

from typing import Any

from msgspec import Struct

from turnout.dialects.modelarts.wire_spec import Endpoints, LogPath, Spec

Scalar = str | int | float | bool
"""Spelt as text by the documentation, sent as numbers and truth values by people."""


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
    attributes: str | list[dict[str, str]] | None = None


class Channel(Struct, omit_defaults=True):
    """An input or an output, of a job or of an algorithm."""

    name: str | None = None
    description: str | None = None
    local_dir: str | None = None
    access_method: str | None = None
    remote: Remote | None = None
    remote_constraint: list[RemoteConstraint] | None = None
    """Jobs spell it so."""
    remote_constraints: list[RemoteConstraint] | None = None
    """Algorithms spell it so."""


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
    """What a job's algorithm and a task's have in common."""

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
    """`id`, `create_time` and `user_name` are the server's to say."""

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


class AlgorithmMetadata(Struct, omit_defaults=True):
    """`id` is the server's to say, whatever a request has."""

    name: str
    description: str | None = None
    workspace_id: str | None = None
    ai_project: str | None = None


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
    """What answers call it."""
    operator: str | None = None


class AdvancedConfig(Struct, omit_defaults=True):
    auto_search: AutoSearch | None = None


class Algorithm(Struct, omit_defaults=True):
    metadata: AlgorithmMetadata
    job_config: AlgorithmConfig | None = None
    resource_requirements: list[Requirement] | None = None
    advanced_config: AdvancedConfig | None = None
