"""Translates training pipelines to the job model; `render` is the reverse."""

from typing import Any, cast

import msgspec

from turnout.dialects.vertex import translate
from turnout.dialects.vertex.custom_jobs import validate as jobs
from turnout.dialects.vertex.installation import Installation
from turnout.dialects.vertex.models import validate as models
from turnout.dialects.vertex.pipelines import backing
from turnout.dialects.vertex.pipelines.wire import CustomTask, TrainingPipeline, TuningTask
from turnout.dialects.vertex.protobuf import codec
from turnout.dialects.vertex.protobuf.codec import Decoded
from turnout.dialects.vertex.protobuf.field_path import FieldPath, quoted
from turnout.dialects.vertex.tuning.wire import HyperparameterTuningJob
from turnout.dialects.vertex.wire import CustomJob, CustomJobSpec
from turnout.errors import Unsupported
from turnout.job import NewJob

NAME = "pipeline_name"
TASK = "pipeline_task"
MODEL = "pipeline_model"
"""The labels of a pipeline's job. MODEL is there if the pipeline makes a model."""
PENDING, MADE, FAILED = "pending", "made", "failed"
"""The values of MODEL. A model that is pending is made when the job has succeeded."""


def new_job(
    decoded: Decoded[TrainingPipeline],
    task: Decoded[CustomTask] | Decoded[TuningTask],
    installation: Installation,
) -> NewJob:
    """After `check_supported`. Checks everything except the sources of mounts, and the models that it names."""
    pipeline, path = decoded
    jobs.common_fields(pipeline, path, installation.location)
    new = _job(pipeline, path, task, installation)
    if pipeline.model_to_upload:
        models.model(pipeline.model_to_upload, path / "modelToUpload", installation.location)
        _check_output(trial_or_job_spec(task.message), task)
    own = {NAME: pipeline.display_name, TASK: pipeline.training_task_definition}
    if pipeline.model_to_upload:
        own[MODEL] = PENDING
    document = msgspec.json.encode(codec.encode(pipeline))
    return msgspec.structs.replace(new, document=document, labels=new.labels | own)


def trial_or_job_spec(task: CustomTask | TuningTask) -> CustomJobSpec:
    if isinstance(task, CustomTask):
        return task
    return task.trial_job_spec or CustomJobSpec()


def check_supported(pipeline: TrainingPipeline, path: FieldPath) -> None:
    """Raises Unsupported or Invalid."""
    if not pipeline.training_task_definition:
        raise (path / "trainingTaskDefinition").missing()
    if pipeline.training_task_definition not in backing.DEFINITIONS:
        name = (path / "trainingTaskDefinition").as_sent
        raise Unsupported(
            f"{name}: {quoted(pipeline.training_task_definition)} is not supported: this service runs your own "
            f"programs, with {' or '.join(backing.DEFINITIONS)}.",
            field=name,
        )
    if pipeline.training_task_inputs is None:
        raise (path / "trainingTaskInputs").missing()
    if pipeline.input_data_config:
        name = (path / "inputDataConfig").as_sent
        raise Unsupported(
            f"{name} is not supported, because there are no managed datasets: let the program read the files of the "
            "bucket below /gcs/<bucket>, or give it their gs:// names as arguments.",
            field=name,
        )
    if not pipeline.model_to_upload and (pipeline.model_id or pipeline.parent_model):
        raise (path / "modelToUpload").missing(" with modelId and parentModel")
    if pipeline.model_id and pipeline.parent_model:
        raise (path / "modelId").invalid("a new version of parentModel has the id of that model: omit one.")


def _job(
    pipeline: TrainingPipeline,
    path: FieldPath,
    task: Decoded[CustomTask] | Decoded[TuningTask],
    installation: Installation,
) -> NewJob:
    job = backing.of_task(task.message)
    job.display_name = backing.display_name(pipeline.display_name, pipeline.training_task_definition)
    job.labels, job.encryption_spec = pipeline.labels, pipeline.encryption_spec
    if isinstance(job, CustomJob):
        assert job.job_spec is not None
        jobs.job_spec(job.job_spec, task.path)
        scope = translate.scope(installation.location)
        return translate.assemble(Decoded(job, path), installation, scope, job.job_spec, task.path, {})
    tuning = cast("Decoded[HyperparameterTuningJob]", Decoded[Any](job, task.path))
    return translate.tuning_search(tuning, path, installation)


def _check_output(spec: CustomJobSpec, task: Decoded[Any]) -> None:
    if spec.base_output_directory:
        return
    path = task.path / "trialJobSpec" if isinstance(task.message, TuningTask) else task.path
    raise (path / "baseOutputDirectory").missing(
        " with modelToUpload: the model's artifacts are what the program writes to AIP_MODEL_DIR"
    )
