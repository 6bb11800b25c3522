"""The SDK's three classes of training jobs, and the Models that they end with."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from google.api_core.exceptions import GoogleAPICallError, NotFound
from google.cloud import aiplatform, storage
from google.cloud.aiplatform_v1.types import Scheduling

from tests.dialects.vertex.driving import LOCATION, PROJECT, Cloud
from tests.dialects.vertex.test_sdk import initialise
from tests.running import Service

STAGE = "stage-of-pipelines"
TRAINER = "us-docker.pkg.dev/vertex-ai/training/sklearn-cpu.1-6:latest"
SERVING = "us-docker.pkg.dev/vertex-ai/prediction/sklearn-cpu.1-6:latest"
WRITE_MODEL = (
    'mkdir -p "/gcs/${AIP_MODEL_DIR#gs://}" && echo weights > "/gcs/${AIP_MODEL_DIR#gs://}model.bin"'
)


@pytest.fixture(scope="module", autouse=True)
def bucket(service: Service) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STORAGE_EMULATOR_HOST", service.endpoint)
        storage.Client(project=PROJECT, credentials=initialise(service, STAGE)).create_bucket(STAGE)


@pytest.fixture(autouse=True)
def sdk(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("google.cloud.aiplatform.training_jobs._JOB_WAIT_TIME", 0.05)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", service.endpoint)
    initialise(service, STAGE)


def container(name: str, script: str = WRITE_MODEL, **fields: Any) -> Any:
    return aiplatform.CustomContainerTrainingJob(
        name, container_uri="python:3.11", command=["/bin/sh", "-c", script], **fields
    )


def read(uri: str) -> str:
    client: Any = storage.Client(
        project=PROJECT, credentials=aiplatform.initializer.global_config.credentials
    )
    bucket, _, name = uri.removeprefix("gs://").partition("/")
    return client.bucket(bucket).blob(name).download_as_text()


def test_a_container_ends_with_a_model_whose_artifacts_are_in_the_bucket(cloud: Cloud):
    job = container("container", model_serving_container_image_uri=SERVING, labels={"team": "vision"})
    model = job.run(
        model_display_name="from a container",
        model_id="from_a_container",
        base_output_dir=f"gs://{STAGE}/container",
        service_account="me@p1.iam.gserviceaccount.com",
        environment_variables={"A": "b"},
        timeout=3600,
        restart_job_on_worker_restart=True,
        disable_retries=True,
    )
    assert model is not None
    assert job.state.name == "PIPELINE_STATE_SUCCEEDED"
    assert model.display_name == "from a container"
    assert (model.name, model.version_id, model.version_aliases) == ("from_a_container", "1", ["default"])
    assert model.uri == f"gs://{STAGE}/container/model"
    assert model.container_spec.image_uri == SERVING
    assert model.labels == {"team": "vision"}
    assert model.gca_resource.training_pipeline == job.resource_name
    assert read(f"{model.uri}/model.bin") == "weights\n"
    pipeline = cloud.get(job.resource_name)
    backing = cloud.get(pipeline["trainingTaskMetadata"]["backingCustomJob"])
    assert backing["displayName"] == "container-custom-job"
    assert backing["state"] == "JOB_STATE_SUCCEEDED"
    assert backing["jobSpec"]["scheduling"] == {
        "timeout": "3600s", "restartJobOnWorkerRestart": True, "disableRetries": True
    }  # fmt: skip
    assert pipeline["createTime"] <= pipeline["startTime"] <= backing["endTime"] <= pipeline["endTime"]
    assert aiplatform.CustomJob.get(backing["name"]).labels == {"team": "vision"}
    job.delete()
    with pytest.raises(NotFound):
        aiplatform.CustomContainerTrainingJob.get(job.resource_name)
    assert aiplatform.Model(model.resource_name).uri == model.uri


def test_a_second_run_adds_a_version(cloud: Cloud):
    fields = {"base_output_dir": f"gs://{STAGE}/versions", "model_display_name": "versions"}
    first = container("first", model_serving_container_image_uri=SERVING).run(**fields)
    second = container("second", model_serving_container_image_uri=SERVING).run(
        **fields,
        parent_model=first.resource_name,
        is_default_version=False,
        model_version_aliases=["candidate"],
        model_version_description="better",
    )
    assert (second.resource_name, second.version_id) == (first.resource_name, "2")
    assert (second.version_aliases, second.version_description) == (["candidate"], "better")
    assert aiplatform.Model(first.resource_name).version_id == "1"
    assert aiplatform.Model(f"{first.resource_name}@candidate").version_id == "2"


def test_a_script_is_packaged(tmp_path: Path):
    script = tmp_path / "task.py"
    script.write_text(
        "import os, sys, pathlib\n"
        "out = pathlib.Path('/gcs', os.environ['AIP_MODEL_DIR'].removeprefix('gs://'))\n"
        "out.mkdir(parents=True, exist_ok=True)\n"
        "(out / 'model.txt').write_text(' '.join(sys.argv[1:]))\n"
    )
    job = aiplatform.CustomTrainingJob(
        "script", str(script), TRAINER, model_serving_container_image_uri=SERVING
    )
    model = job.run(args=["--epochs", "3"], replica_count=1)
    assert model is not None
    assert model.display_name == "script-model"
    assert read(f"{model.uri}/model.txt") == "--epochs 3"


TRAINER_PACKAGE = """
import argparse, csv, json, os, pathlib

parser = argparse.ArgumentParser()
parser.add_argument("--data")
parser.add_argument("--epochs", type=int)
options = parser.parse_args()
rows = [(float(x), float(y)) for x, y in csv.reader(open(options.data))]
slope = intercept = 0.0
for epoch in range(options.epochs):
    errors = [(slope * x + intercept - y, x) for x, y in rows]
    slope -= 0.1 * sum(error * x for error, x in errors) / len(rows)
    intercept -= 0.1 * sum(error for error, _ in errors) / len(rows)
print("trained", options.epochs, "epochs")
directory = pathlib.Path("/gcs", os.environ["AIP_MODEL_DIR"].removeprefix("gs://"))
directory.mkdir(parents=True, exist_ok=True)
(directory / "model.json").write_text(json.dumps([slope, intercept]))
"""


def test_a_package_trains_a_model(tmp_path: Path, cloud: Cloud):
    """A line is fitted to points in the bucket."""
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer/__init__.py").write_text("")
    (tmp_path / "trainer/task.py").write_text(TRAINER_PACKAGE)
    (tmp_path / "setup.py").write_text(
        "from setuptools import setup; setup(name='trainer', version='1', packages=['trainer'])"
    )
    subprocess.run([sys.executable, "setup.py", "-q", "sdist"], cwd=tmp_path, check=True, capture_output=True)
    client: Any = storage.Client(
        project=PROJECT, credentials=aiplatform.initializer.global_config.credentials
    )
    bucket = client.bucket(STAGE)
    bucket.blob("trainer-1.tar.gz").upload_from_filename(str(tmp_path / "dist/trainer-1.tar.gz"))
    bucket.blob("points.csv").upload_from_string("".join(f"{x / 10},{2 * x / 10 + 1}\n" for x in range(20)))
    job = aiplatform.CustomPythonPackageTrainingJob(
        "package",
        f"gs://{STAGE}/trainer-1.tar.gz",
        "trainer.task",
        TRAINER,
        model_serving_container_image_uri=SERVING,
    )
    model: Any = job.run(args=["--data", f"/gcs/{STAGE}/points.csv", "--epochs", "2000"])
    assert json.loads(read(f"{model.uri}/model.json")) == pytest.approx([2.0, 1.0], abs=0.01)
    backing = cloud.get(cloud.get(job.resource_name)["trainingTaskMetadata"]["backingCustomJob"])
    assert "trained 2000 epochs" in [entry.get("textPayload") for entry in cloud.entries(backing)["entries"]]


def test_without_a_serving_image_there_is_no_model():
    assert container("no model").run(base_output_dir=f"gs://{STAGE}/no-model") is None


def test_submit_list_cancel():
    job = container("endless pipeline", "sleep 1000", labels={"kind": "endless"})
    job.submit(base_output_dir=f"gs://{STAGE}/endless")
    job.cancel()
    with pytest.raises(RuntimeError, match="CANCELED"):
        job._block_until_complete()
    assert job.state.name == "PIPELINE_STATE_CANCELLED"
    found: Any = aiplatform.CustomContainerTrainingJob.list(
        filter='display_name:"endless*" AND state="PIPELINE_STATE_CANCELLED" AND labels.kind="endless"'
    )
    assert [one.name for one in found] == [job.name]


def test_a_program_without_artifacts_fails_the_pipeline(cloud: Cloud):
    job = container("empty", "true", model_serving_container_image_uri=SERVING)
    with pytest.raises(RuntimeError, match=r"There are no files under .{1,2}gs://.*/model"):
        job.run(base_output_dir=f"gs://{STAGE}/empty")
    pipeline = cloud.get(job.resource_name)
    assert pipeline["state"] == "PIPELINE_STATE_FAILED"
    assert cloud.get(pipeline["trainingTaskMetadata"]["backingCustomJob"])["state"] == "JOB_STATE_SUCCEEDED"
    for state, there in (("FAILED", True), ("SUCCEEDED", False), ("RUNNING", False)):
        found: Any = aiplatform.CustomContainerTrainingJob.list(filter=f"state=PIPELINE_STATE_{state}")
        assert (job.name in [one.name for one in found]) is there


def test_a_failing_program_shows_its_log():
    job = container("fails", "echo the data is bad; exit 9")
    with pytest.raises(RuntimeError, match=r"(?s)non-zero status of 9\..*the data is bad"):
        job.run(base_output_dir=f"gs://{STAGE}/fails")


def test_what_cannot_be_done_is_refused(cloud: Cloud):
    task = {"workerPoolSpecs": [{"machineSpec": {"machineType": "n1-standard-4"}, "containerSpec": {
        "imageUri": "python:3.11", "command": ["true"]}}]}  # fmt: skip
    definition = "gs://google-cloud-aiplatform/schema/trainingjob/definition/custom_task_1.0.0.yaml"
    pipeline = {"displayName": "x", "trainingTaskDefinition": definition, "trainingTaskInputs": task}

    def refusal(**changes: Any) -> tuple[int, str, str]:
        return cloud.send("POST", "trainingPipelines", pipeline | changes).error

    model = {"displayName": "m"}
    unknown = refusal(trainingTaskInputs=task | {"workers": 1})
    assert unknown[:2] == (400, "INVALID_ARGUMENT")
    assert "Unknown name \"workers\" at 'training_pipeline.training_task_inputs'" in unknown[2]
    assert refusal(inputDataConfig={"datasetId": "1"})[:2] == (501, "UNIMPLEMENTED")
    assert "automl" in refusal(trainingTaskDefinition=definition.replace("custom_task", "automl_tabular"))[2]
    assert "baseOutputDirectory is required" in refusal(modelToUpload=model)[2]
    assert "modelToUpload is required" in refusal(modelId="m")[2]
    parent = f"{cloud.parent}/models/9"
    assert refusal(modelToUpload=model, parentModel=parent, trainingTaskInputs=task | {
        "baseOutputDirectory": {"outputUriPrefix": f"gs://{STAGE}/x"}})[:2] == (404, "NOT_FOUND")  # fmt: skip
    broken = {"workerPoolSpecs": [{"machineSpec": {"machineType": "n1"}, "containerSpec": {"imageUri": "x"}}]}
    assert "trainingTaskInputs.workerPoolSpecs[0]" in refusal(trainingTaskInputs=broken)[2]
    assert LOCATION in cloud.parent


def test_serving_is_not_here_yet():
    model: Any = aiplatform.Model.upload(display_name="alone", artifact_uri=f"gs://{STAGE}/container/model",
                                    serving_container_image_uri=SERVING)  # fmt: skip
    with pytest.raises(NotFound, match="models are not served yet"):
        model.deploy(machine_type="n1-standard-4")


def test_every_argument_is_acted_on_or_kept(cloud: Cloud):
    """docs/vertex-fields.md says which; the arguments for managed datasets are refused."""
    subnet = f"projects/{PROJECT}/regions/{LOCATION}/networkAttachments/a"
    job = container(
        "all arguments",
        WRITE_MODEL,
        model_serving_container_image_uri=SERVING,
        model_serving_container_predict_route="/predict",
        model_serving_container_health_route="/health",
        model_serving_container_command=["serve"],
        model_serving_container_args=["--fast"],
        model_serving_container_environment_variables={"A": "b"},
        model_serving_container_ports=[8080],
        model_description="about it",
        model_instance_schema_uri=f"gs://{STAGE}/instance.yaml",
        model_parameters_schema_uri=f"gs://{STAGE}/parameters.yaml",
        model_prediction_schema_uri=f"gs://{STAGE}/prediction.yaml",
        labels={"team": "vision"},
    )
    model = job.run(
        model_display_name="of all arguments",
        model_labels={"kind": "all"},
        model_version_aliases=["best"],
        model_version_description="the first",
        base_output_dir=f"gs://{STAGE}/all",
        service_account="me@p1.iam.gserviceaccount.com",
        args=["--epochs", "3"],
        environment_variables={"LEVEL": "7"},
        machine_type="n1-standard-8",
        accelerator_type="NVIDIA_TESLA_T4",
        accelerator_count=1,
        boot_disk_type="pd-standard",
        boot_disk_size_gb=200,
        timeout=600,
        enable_web_access=True,
        enable_dashboard_access=True,
        tensorboard=f"{cloud.parent}/tensorboards/1",
        create_request_timeout=30,
        scheduling_strategy=Scheduling.Strategy.FLEX_START,
        max_wait_duration=60,
        reservation_affinity_type="SPECIFIC_RESERVATION",
        reservation_affinity_key="compute.googleapis.com/reservation-name",
        reservation_affinity_values=["r"],
        psc_interface_config={"network_attachment": subnet},
    )
    assert model is not None
    pipeline = cloud.get(job.resource_name)
    inputs = cloud.get(pipeline["trainingTaskMetadata"]["backingCustomJob"])["jobSpec"]
    (pool,) = inputs["workerPoolSpecs"]
    assert pool["machineSpec"] == {
        "machineType": "n1-standard-8",
        "acceleratorType": "NVIDIA_TESLA_T4",
        "acceleratorCount": 1,
        "reservationAffinity": {
            "reservationAffinityType": "SPECIFIC_RESERVATION",
            "key": "compute.googleapis.com/reservation-name",
            "values": ["r"],
        },
    }
    assert pool["diskSpec"] == {"bootDiskType": "pd-standard", "bootDiskSizeGb": 200}
    assert pool["containerSpec"]["args"] == ["--epochs", "3"]
    assert inputs["enableWebAccess"] is inputs["enableDashboardAccess"] is True
    assert (inputs["tensorboard"], inputs["serviceAccount"]) == (
        f"{cloud.parent}/tensorboards/1",
        "me@p1.iam.gserviceaccount.com",
    )
    assert inputs["scheduling"] == {"timeout": "600s", "strategy": "FLEX_START", "maxWaitDuration": "60s"}
    assert inputs["pscInterfaceConfig"] == {"networkAttachment": subnet}
    served = model.container_spec
    assert (served.predict_route, served.health_route, list(served.command), list(served.args)) == (
        "/predict", "/health", ["serve"], ["--fast"]
    )  # fmt: skip
    assert (model.description, model.labels, model.version_aliases) == (
        "about it",
        {"kind": "all"},
        ["best", "default"],
    )
    assert model.predict_schemata.instance_schema_uri == f"gs://{STAGE}/instance.yaml"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"network": "mine"}, "network"),
        ({"tensorboard": "mine"}, "tensorboard"),
        ({"service_account": "me"}, "service_account"),
        ({"persistent_resource_id": "none"}, "none"),
        ({"machine_type": "ct5lp-hightpu-1t", "tpu_topology": "1x1"}, "TPU"),
        ({"accelerator_type": "NVIDIA_TESLA_T4", "accelerator_count": 4}, "accelerator"),
    ],
)
def test_arguments_that_cannot_be_acted_on_are_refused(fields: dict[str, Any], message: str):
    with pytest.raises(GoogleAPICallError, match=rf"(?i){message}"):
        container("refused", "true").submit(base_output_dir=f"gs://{STAGE}/refused", **fields)


def test_managed_datasets_are_refused_with_what_to_do_instead(cloud: Cloud):
    with pytest.raises(NotFound, match="there are no managed datasets: let the program read the files"):
        aiplatform.TabularDataset.create(display_name="d", gcs_source=f"gs://{STAGE}/d.csv")
    refused = cloud.send("POST", "datasets", {"displayName": "d"}).error
    assert refused[:2] == (404, "NOT_FOUND")
