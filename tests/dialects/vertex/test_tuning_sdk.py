"""Hyperparameter tuning jobs through Google's own clients, really run."""

import time
from typing import Any

import pytest
from google.api_core.exceptions import BadRequest, NotFound
from google.cloud import aiplatform, aiplatform_v1
from google.cloud.aiplatform import hyperparameter_tuning as parameters
from google.oauth2.credentials import Credentials

from tests.dialects.vertex.driving import LOCATION, PROJECT, Cloud
from tests.running import KEY, Service
from turnout.access import make_token

Client = aiplatform_v1.JobServiceClient

HYPERTUNE = """
import json, os, sys, time
told = dict(one[2:].split("=") for one in sys.argv[1:])
path = os.environ["CLOUD_ML_HP_METRIC_FILE"]
with open(path, "w") as file:
    for step in (1, 2):
        value = step - (float(told["lr"]) - 0.3) ** 2
        line = {"timestamp": time.time(), "trial": os.environ["CLOUD_ML_TRIAL_ID"], "accuracy": str(value)}
        file.write(json.dumps(line | {"global_step": str(step), "checkpoint_path": ""}) + "\\n")
print("model:", os.environ["AIP_MODEL_DIR"], told["units"])
"""


def pools(*command: str) -> list[dict[str, Any]]:
    container = {"image_uri": "python:3.11", "command": list(command)}
    return [
        {"machine_spec": {"machine_type": "n1-standard-4"}, "replica_count": 1, "container_spec": container}
    ]


def tuning(name: str, *command: str, **fields: Any) -> dict[str, Any]:
    study = {
        "metrics": [{"metric_id": "accuracy", "goal": "MAXIMIZE"}],
        "parameters": [
            {"parameter_id": "lr", "double_value_spec": {"min_value": 0, "max_value": 1}},
            {"parameter_id": "units", "discrete_value_spec": {"values": [16, 32]}},
        ],
    }
    return {
        "display_name": name,
        "study_spec": study,
        "max_trial_count": 4,
        "parallel_trial_count": 2,
        "trial_job_spec": {
            "worker_pool_specs": pools(*command),
            "base_output_directory": {"output_uri_prefix": f"gs://tuned/{name}"},
        },
    } | fields


def finished(client: Client, name: str) -> aiplatform_v1.HyperparameterTuningJob:
    deadline = time.monotonic() + 120
    while not (job := client.get_hyperparameter_tuning_job(name=name)).end_time:
        assert time.monotonic() < deadline, job
        time.sleep(0.2)
    return job


def test_a_tuning_job_from_its_start_to_its_end(cloud: Cloud):
    client = cloud.client()
    made = client.create_hyperparameter_tuning_job(
        parent=cloud.parent,
        hyperparameter_tuning_job=aiplatform_v1.HyperparameterTuningJob(
            tuning("whole", "python3", "-c", HYPERTUNE)
        ),
    )
    assert made.name.startswith(f"{cloud.parent}/hyperparameterTuningJobs/")
    job = finished(client, made.name)
    assert job.state == aiplatform_v1.JobState.JOB_STATE_SUCCEEDED
    assert [trial.id for trial in job.trials] == ["1", "2", "3", "4"]
    for trial in job.trials:
        values: dict[str, Any] = {one.parameter_id: one.value for one in trial.parameters}
        (metric,) = trial.final_measurement.metrics
        assert trial.state == aiplatform_v1.Trial.State.SUCCEEDED
        assert metric.metric_id == "accuracy"
        assert metric.value == pytest.approx(2 - (values["lr"] - 0.3) ** 2)
        assert (trial.final_measurement.step_count, len(trial.measurements)) == (2, 2)
        begun, ended = map(str, (trial.start_time, trial.end_time))
        assert begun <= ended
        child = client.get_custom_job(name=trial.custom_job)
        assert child.state == aiplatform_v1.JobState.JOB_STATE_SUCCEEDED
        assert child.job_spec.base_output_directory.output_uri_prefix == f"gs://tuned/whole/{trial.id}"
        assert child.job_spec.worker_pool_specs[0].container_spec.args[1] in ("--units=16", "--units=32")
    children = {trial.custom_job for trial in job.trials}
    assert not children & {one.name for one in client.list_custom_jobs(parent=cloud.parent)}
    listed = list(client.list_hyperparameter_tuning_jobs(parent=cloud.parent))
    assert [(one.name, len(one.trials)) for one in listed if one.name == made.name] == [(made.name, 0)]
    client.delete_hyperparameter_tuning_job(name=made.name).result()
    with pytest.raises(NotFound):
        client.get_hyperparameter_tuning_job(name=made.name)


def test_the_high_level_client(service: Service, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("google.cloud.aiplatform.jobs._JOB_WAIT_TIME", 0.05)
    monkeypatch.setattr("google.cloud.aiplatform.jobs._LOG_WAIT_TIME", 0.05)
    credentials = Credentials(token=make_token(KEY, time.time()))
    aiplatform.init(
        api_endpoint=service.endpoint,
        api_transport="rest",
        project=PROJECT,
        location=LOCATION,
        staging_bucket="gs://tuned-stage",
        credentials=credentials,
    )
    said = 'for told in "$@"; do case $told in --units=*) echo TURNOUT_METRIC loss=${told#*=};; esac; done'
    tuned = aiplatform.HyperparameterTuningJob(
        display_name="high",
        custom_job=aiplatform.CustomJob("inner", pools("sh", "-c", said, "sh")),
        metric_spec={"loss": "minimize"},
        parameter_spec={
            "optimizer": parameters.CategoricalParameterSpec(
                ["sgd", "adam"],
                conditional_parameter_spec={
                    "momentum": parameters.DoubleParameterSpec(0.1, 0.9, "linear", parent_values=["sgd"])
                },
            ),
            "units": parameters.IntegerParameterSpec(1, 8, "log"),
        },
        max_trial_count=5,
        parallel_trial_count=1,
        search_algorithm="random",
        labels={"sdk": "high"},
    )
    tuned.run()
    assert tuned.state.name == "JOB_STATE_SUCCEEDED"
    for trial in tuned.trials:
        values: dict[str, Any] = {one.parameter_id: one.value for one in trial.parameters}
        assert ("momentum" in values) == (values["optimizer"] == "sgd")
        assert trial.final_measurement.metrics[0].value == values["units"]
    (found,) = aiplatform.HyperparameterTuningJob.list(filter='labels.sdk="high"')
    assert found.resource_name == tuned.resource_name
    tuned.delete()


def test_cancel_ends_the_trials(cloud: Cloud):
    client = cloud.client()
    asked = tuning("cancelled", "sh", "-c", "echo TURNOUT_METRIC accuracy=0.5 step=1; exec sleep 600")
    name = client.create_hyperparameter_tuning_job(
        parent=cloud.parent, hyperparameter_tuning_job=aiplatform_v1.HyperparameterTuningJob(asked)
    ).name
    deadline = time.monotonic() + 60
    while not any(trial.measurements for trial in client.get_hyperparameter_tuning_job(name=name).trials):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    with pytest.raises(BadRequest, match="Cancel it first"):
        client.delete_hyperparameter_tuning_job(name=name)
    client.cancel_hyperparameter_tuning_job(name=name)
    job = finished(client, name)
    assert job.state == aiplatform_v1.JobState.JOB_STATE_CANCELLED
    ended = ("SUCCEEDED", "INFEASIBLE")
    assert all(trial.state.name in ended for trial in job.trials)


def test_trials_that_fail(cloud: Cloud):
    client = cloud.client()
    asked = tuning("failing", "sh", "-c", "exit 3", max_failed_trial_count=1)
    name = client.create_hyperparameter_tuning_job(
        parent=cloud.parent, hyperparameter_tuning_job=aiplatform_v1.HyperparameterTuningJob(asked)
    ).name
    job = finished(client, name)
    assert job.state == aiplatform_v1.JobState.JOB_STATE_FAILED
    assert "fail" in job.error.message
    assert job.trials[0].state == aiplatform_v1.Trial.State.INFEASIBLE
    assert job.trials[0].infeasible_reason


def test_a_custom_job_is_no_tuning_job(cloud: Cloud):
    client = cloud.client()
    custom = client.create_custom_job(
        parent=cloud.parent,
        custom_job=aiplatform_v1.CustomJob(
            {"display_name": "plain", "job_spec": {"worker_pool_specs": pools("true")}}
        ),
    )
    with pytest.raises(NotFound):
        client.get_hyperparameter_tuning_job(
            name=custom.name.replace("customJobs", "hyperparameterTuningJobs")
        )
