"""Hyperparameter tuning jobs through Google's own clients, really run."""

import time
from typing import Any

import pytest
from google.api_core.exceptions import BadRequest, NotFound
from google.cloud import aiplatform, aiplatform_v1, aiplatform_v1beta1
from google.cloud.aiplatform import hyperparameter_tuning as parameters
from google.oauth2.credentials import Credentials

from tests.dialects.vertex.driving import LOCATION, PROJECT, Cloud

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

WHO = """
import json, os, socket, time
print(os.environ["CLUSTER_SPEC"])
print(os.environ["TF_CONFIG"], flush=True)
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if os.environ["RANK"] == "0":
    with socket.create_server(("", address[1])) as server:
        server.accept()[0].recv(1)  # the worker is ended with this one, and has to have its say first
    print("TURNOUT_METRIC accuracy=" + os.environ["CLOUD_ML_TRIAL_ID"])
else:
    while True:
        try:
            socket.create_connection(address).sendall(b".")
            break
        except OSError:
            time.sleep(0.02)
"""

CURVE = """
import os, time
lame = os.environ["CLOUD_ML_TRIAL_ID"] == "6"
for step in range(1, 9):
    print(f"TURNOUT_METRIC accuracy={step - 10 * lame} step={step}", flush=True)
time.sleep(600 if lame else 0)
"""


def pools(*command: str) -> list[dict[str, Any]]:
    container = {"image_uri": "python:3.11", "command": list(command)}
    return [
        {"machine_spec": {"machine_type": "n4-highcpu-2"}, "replica_count": 1, "container_spec": container}
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


def created(client: Client, cloud: Cloud, asked: dict[str, Any]) -> aiplatform_v1.HyperparameterTuningJob:
    job = aiplatform_v1.HyperparameterTuningJob(asked)
    return client.create_hyperparameter_tuning_job(parent=cloud.parent, hyperparameter_tuning_job=job)


def finished(client: Client, name: str) -> aiplatform_v1.HyperparameterTuningJob:
    deadline = time.monotonic() + 120
    while not (job := client.get_hyperparameter_tuning_job(name=name)).end_time:
        assert time.monotonic() < deadline, job
        time.sleep(0.2)
    return job


def test_a_tuning_job_from_its_start_to_its_end(cloud: Cloud):
    client = cloud.client()
    made = created(client, cloud, tuning("whole", "python3", "-c", HYPERTUNE))
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


def test_a_trial_finds_its_number_in_both_maps(cloud: Cloud):
    client = cloud.client()
    asked = tuning("numbered", "python3", "-c", WHO, max_trial_count=2)
    asked["trial_job_spec"]["worker_pool_specs"] *= 2
    name = created(client, cloud, asked).name
    for trial in finished(client, name).trials:
        assert trial.final_measurement.metrics[0].value == float(trial.id)
        child = {"name": trial.custom_job}
        for pool, kind in enumerate(("chief", "worker")):
            found = cloud.entries(child, f' resource.labels.task_name="workerpool{pool}-0" severity="INFO"')
            spec, config = (one["jsonPayload"] for one in found["entries"] if "jsonPayload" in one)
            assert spec["task"] == {"type": f"workerpool{pool}", "index": 0, "trial": trial.id}
            assert config["task"] == {"type": kind, "index": 0, "trial": trial.id}
            assert spec["job"]["workerPoolSpecs"][pool]["containerSpec"]["args"]


@pytest.mark.parametrize("rule", ["median_automated_stopping_spec", "decay_curve_stopping_spec"])
def test_a_trial_that_does_badly_is_stopped(cloud: Cloud, rule: str):
    client = cloud.client()
    asked = tuning(rule, "python3", "-c", CURVE, max_trial_count=6, parallel_trial_count=1)
    asked["study_spec"][rule] = {}
    name = created(client, cloud, asked).name
    job = finished(client, name)
    assert rule in job.study_spec
    *fine, lame = job.trials
    assert [trial.state.name for trial in job.trials] == ["SUCCEEDED"] * 6
    assert [trial.final_measurement.step_count for trial in fine] == [8] * 5
    assert lame.final_measurement == lame.measurements[-1]
    assert client.get_custom_job(name=lame.custom_job).state.name == "JOB_STATE_CANCELLED"


def test_cancel_ends_the_trials(cloud: Cloud):
    client = cloud.client()
    asked = tuning("cancelled", "sh", "-c", "echo TURNOUT_METRIC accuracy=0.5 step=1; exec sleep 600")
    name = created(client, cloud, asked).name
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
    name = created(client, cloud, asked).name
    job = finished(client, name)
    assert job.state == aiplatform_v1.JobState.JOB_STATE_FAILED
    assert (job.error.code, "failed" in job.error.message) == (3, True)
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


@pytest.fixture
def sdk(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("google.cloud.aiplatform.jobs._JOB_WAIT_TIME", 0.05)
    monkeypatch.setattr("google.cloud.aiplatform.jobs._LOG_WAIT_TIME", 0.05)
    aiplatform.init(
        api_endpoint=cloud.service.endpoint,
        api_transport="rest",
        project=PROJECT,
        location=LOCATION,
        staging_bucket="gs://tuned-stage",
        credentials=Credentials(token=cloud.token()),
    )


def high(*command: str, **fields: Any) -> aiplatform.HyperparameterTuningJob:
    usual: dict[str, Any] = {
        "display_name": "high",
        "custom_job": aiplatform.CustomJob("inner", pools(*command)),
        "metric_spec": {"accuracy": "maximize"},
        "parameter_spec": {"units": parameters.IntegerParameterSpec(1, 3, "linear")},
        "max_trial_count": 3,
        "parallel_trial_count": 2,
    }
    return aiplatform.HyperparameterTuningJob(**(usual | fields))


def again(job: aiplatform.HyperparameterTuningJob) -> Any:
    """As the service has it now."""
    return aiplatform.HyperparameterTuningJob.get(job.resource_name)


def values_of(trial: Any) -> dict[str, Any]:
    return {one.parameter_id: one.value for one in trial.parameters}


@pytest.mark.usefixtures("sdk")
def test_every_kind_of_parameter(cloud: Cloud):
    momentum = parameters.DoubleParameterSpec(0.1, 0.9, "linear", parent_values=["yes"])
    nesterov = parameters.CategoricalParameterSpec(
        ["yes", "no"], conditional_parameter_spec={"momentum": momentum}, parent_values=["sgd"]
    )
    shape = parameters.DiscreteParameterSpec([0.5, 1], "unspecified", parent_values=[1, 2, 3])
    steps = parameters.IntegerParameterSpec(1, 4, "reverse_log", parent_values=[16, 32])
    tuned = high(
        "python3",
        "-c",
        'import json, sys; print(json.dumps({"told": sys.argv[1:]})); print("TURNOUT_METRIC loss=1")',
        metric_spec={"loss": "minimize"},
        parameter_spec={
            "lr": parameters.DoubleParameterSpec(1e-4, 1, "log"),
            "keep": parameters.DoubleParameterSpec(0.1, 0.9, "reverse_log"),
            "units": parameters.IntegerParameterSpec(
                1, 6, "log", conditional_parameter_spec={"shape": shape}
            ),
            "batch": parameters.DiscreteParameterSpec(
                [16, 32, 64.5], "linear", conditional_parameter_spec={"steps": steps}
            ),
            "optimizer": parameters.CategoricalParameterSpec(
                ["sgd", "adam"], conditional_parameter_spec={"nesterov": nesterov}
            ),
        },
        max_trial_count=8,
        parallel_trial_count=4,
    )
    tuned.run()
    for trial in tuned.trials:
        values = values_of(trial)
        assert ("shape" in values) == (values["units"] <= 3)
        assert ("steps" in values) == (values["batch"] != 64.5)
        assert ("nesterov" in values) == (values["optimizer"] == "sgd")
        assert ("momentum" in values) == (values.get("nesterov") == "yes")
        assert values["units"] in range(1, 7)
        assert values["batch"] in (16, 32, 64.5)
        assert 1e-4 <= values["lr"] <= 1
        (said,) = (
            one["jsonPayload"]["told"]
            for one in cloud.entries({"name": trial.custom_job})["entries"]
            if "jsonPayload" in one
        )
        told = dict(one.removeprefix("--").split("=") for one in said)
        assert told.keys() == values.keys()
        assert told["units"] == str(int(values["units"]))
        assert told["optimizer"] == values["optimizer"]
        assert float(told["lr"]) == values["lr"]


@pytest.mark.usefixtures("sdk")
@pytest.mark.parametrize(
    ("algorithm", "selection", "step"), [(None, "best", 2), ("random", "last", 3), ("grid", None, 3)]
)
def test_algorithms_and_which_measurement_counts(algorithm: str | None, selection: str | None, step: int):
    lines = "; ".join(
        f"echo TURNOUT_METRIC accuracy={said} step={at}" for at, said in ((1, 1), (2, 3), (3, 2))
    )
    tuned = high(
        "sh", "-c", lines,
        search_algorithm=algorithm,
        measurement_selection=selection,
        max_trial_count=5,
    )  # fmt: skip
    tuned.run()
    tried = [values_of(trial)["units"] for trial in tuned.trials]
    assert sorted(tried) == [1, 2, 3] if algorithm == "grid" else len(tried) == 5
    for trial in tuned.trials:
        assert [one.step_count for one in trial.measurements] == [1, 2, 3]
        assert trial.final_measurement == trial.measurements[step - 1]


@pytest.mark.usefixtures("sdk")
def test_a_high_level_job_from_its_start_to_its_end():
    tuned = high(
        "sh",
        "-c",
        "echo TURNOUT_METRIC accuracy=1; exec sleep 600",
        labels={"sdk": "high"},
        max_trial_count=4,
    )
    tuned.run(
        service_account="me@p1.iam.gserviceaccount.com",
        network="projects/1/global/networks/default",
        timeout=500,
        restart_job_on_worker_restart=True,
        enable_web_access=True,
        tensorboard="projects/1/locations/us-central1/tensorboards/2",
        scheduling_strategy=aiplatform_v1.Scheduling.Strategy.FLEX_START,
        max_wait_duration=60,
        sync=False,
    )
    tuned.wait_for_resource_creation()
    deadline = time.monotonic() + 60
    while (seen := again(tuned)) and sum(bool(trial.measurements) for trial in seen.trials) < 2:
        assert time.monotonic() < deadline, seen.to_dict()
        time.sleep(0.1)
    assert [(trial.id, trial.state.name) for trial in seen.trials] == [("1", "ACTIVE"), ("2", "ACTIVE")]
    assert all(list(trial.web_access_uris) == ["workerpool0-0"] for trial in seen.trials)
    listed: Any
    (listed,) = aiplatform.HyperparameterTuningJob.list(
        filter='labels.sdk="high" AND state="JOB_STATE_RUNNING"'
    )
    assert (listed.resource_name, listed.trials) == (tuned.resource_name, [])
    assert (seen.display_name, seen.labels, seen.network) == (
        "high", {"sdk": "high"}, "projects/1/global/networks/default",
    )  # fmt: skip
    spec = seen.to_dict()["trialJobSpec"]
    assert spec["scheduling"] == {
        "timeout": "500s", "restartJobOnWorkerRestart": True, "strategy": "FLEX_START", "maxWaitDuration": "60s",
    }  # fmt: skip
    assert (spec["serviceAccount"], spec["enableWebAccess"]) == ("me@p1.iam.gserviceaccount.com", True)
    assert seen.start_time
    assert (seen.end_time, seen.error.message) == (None, "")
    tuned.cancel()
    with pytest.raises(RuntimeError, match="CANCELED"):
        tuned.wait()
    seen = again(tuned)
    assert (seen.state.name, seen.error.code, seen.done()) == ("JOB_STATE_CANCELLED", 1, True)
    assert seen.start_time <= seen.end_time <= seen.update_time
    assert not any(trial.web_access_uris for trial in seen.trials)
    seen.delete()
    with pytest.raises(NotFound):
        again(tuned)


@pytest.mark.usefixtures("sdk")
def test_the_best_trial_is_one_call_away(cloud: Cloud):
    """No version of the resource has a field for it: clients look for it in the trials, or ask as they ask Vizier."""
    tuned = high("sh", "-c", 'echo TURNOUT_METRIC accuracy="${0#*=}"', search_algorithm="grid")
    tuned.run()
    best = max(tuned.trials, key=lambda trial: trial.final_measurement.metrics[0].value)
    assert (values_of(best), best.final_measurement.metrics[0].value) == ({"units": 3}, 3)
    for version in (aiplatform_v1, aiplatform_v1beta1):
        assert "optimal_trials" not in version.HyperparameterTuningJob.meta.fields
        vizier = version.VizierServiceClient(
            transport="rest",
            credentials=Credentials(token=cloud.token()),
            client_options={"api_endpoint": cloud.service.endpoint},
        )
        study = f"{cloud.parent}/studies/{tuned.name}"
        (optimal,) = vizier.list_optimal_trials({"parent": study}).optimal_trials
        assert (optimal.id, optimal.state.name, values_of(optimal)) == (best.id, "SUCCEEDED", {"units": 3})
        with pytest.raises(NotFound):
            vizier.list_optimal_trials({"parent": f"{cloud.parent}/studies/1234567890123456789"})


def test_both_versions_see_the_same_job(cloud: Cloud):
    beta = aiplatform_v1beta1.JobServiceClient(
        transport="rest",
        credentials=Credentials(token=cloud.token()),
        client_options={"api_endpoint": cloud.service.endpoint},
    )
    asked = tuning("beta", "sh", "-c", "echo TURNOUT_METRIC accuracy=1")
    job = aiplatform_v1beta1.HyperparameterTuningJob(asked)
    name = beta.create_hyperparameter_tuning_job(parent=cloud.parent, hyperparameter_tuning_job=job).name
    done = finished(cloud.client(), name)
    same = beta.get_hyperparameter_tuning_job(name=name)
    assert same.state.name == "JOB_STATE_SUCCEEDED"
    assert [type(one).to_dict(one) for one in same.trials] == [type(one).to_dict(one) for one in done.trials]
    assert [one.id for one in same.trials] == ["1", "2", "3", "4"]
    beta.delete_hyperparameter_tuning_job(name=name).result()
    with pytest.raises(NotFound):
        cloud.client().get_hyperparameter_tuning_job(name=name)
