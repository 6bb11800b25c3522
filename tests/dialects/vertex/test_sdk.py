"""google-cloud-aiplatform over REST, both faces of it, and Google's own ways to use it."""

import time
from typing import Any

import pytest
from google.api_core import exceptions
from google.api_core.exceptions import BadRequest, Forbidden, NotFound, TooManyRequests
from google.auth.credentials import AnonymousCredentials
from google.cloud import aiplatform, aiplatform_v1, aiplatform_v1beta1, storage
from google.oauth2.credentials import Credentials

from tests.dialects.vertex.driving import LOCATION, PROJECT, Cloud
from tests.running import KEY, Service
from turnout.access import make_token

STAGE = "stage-of-sdk"


def pools(*command: str, **fields: Any) -> list[dict[str, Any]]:
    container = {"image_uri": "python:3.11", "command": list(command)}
    return [
        {
            "machine_spec": {"machine_type": "n1-standard-4"},
            "replica_count": 1,
            "container_spec": container | fields,
        }
    ]


def initialise(service: Service, bucket: str) -> Credentials:
    credentials = Credentials(token=make_token(KEY, time.time()))
    aiplatform.init(
        api_endpoint=service.endpoint,
        api_transport="rest",
        project=PROJECT,
        location=LOCATION,
        staging_bucket=f"gs://{bucket}",
        credentials=credentials,
    )
    return credentials


class TestHighLevel:
    @pytest.fixture(autouse=True)
    def init(self, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
        # It asks every five seconds otherwise.
        monkeypatch.setattr("google.cloud.aiplatform.jobs._JOB_WAIT_TIME", 0.05)
        monkeypatch.setattr("google.cloud.aiplatform.jobs._LOG_WAIT_TIME", 0.05)
        initialise(service, STAGE)

    def test_run_waits_for_the_end(self):
        job = aiplatform.CustomJob("runs", pools("/bin/sh", "-c", "sleep 0.1"), labels={"sdk": "high"})
        job.run()
        assert job.state.name == "JOB_STATE_SUCCEEDED"
        assert job.done()
        assert str(job.error) == ""
        assert str(job.start_time) <= str(job.end_time)
        again = aiplatform.CustomJob.get(job.resource_name)
        assert again.display_name == "runs"
        assert again.labels == {"sdk": "high"}
        job.delete()
        with pytest.raises(NotFound):
            aiplatform.CustomJob.get(job.resource_name)

    def test_run_raises_what_went_wrong(self):
        job = aiplatform.CustomJob("fails", pools("/bin/sh", "-c", "echo the data is bad; exit 9"))
        with pytest.raises(RuntimeError, match=r"(?s)non-zero status of 9\..*the data is bad"):
            job.run()
        assert "code: 3" in str(job.error)

    def test_submit_cancel_list(self):
        job = aiplatform.CustomJob("goes on and on", pools("sleep", "1000"), labels={"kind": "endless"})
        job.submit()
        job.cancel()
        with pytest.raises(RuntimeError, match="CANCELED"):
            job.wait_for_completion()
        assert job.state.name == "JOB_STATE_CANCELLED"
        found = aiplatform.CustomJob.list(
            filter='labels.kind="endless" AND state="JOB_STATE_CANCELLED" AND display_name:"goes on*"',
            order_by="create_time desc",
        )
        assert [one.name for one in found] == [job.name]
        assert (
            aiplatform.CustomJob.list(filter='labels.kind="endless" AND NOT state="JOB_STATE_CANCELLED"')
            == []
        )

    def test_submit_takes_every_option(self):
        job = aiplatform.CustomJob("options", pools("true"), base_output_dir="gs://out-of-sdk/run")
        job.submit(
            timeout=3600,
            restart_job_on_worker_restart=True,
            enable_web_access=True,
            tensorboard=None,
            disable_retries=True,
            max_wait_duration=60,
            scheduling_strategy=aiplatform_v1.Scheduling.Strategy.SPOT,
        )
        job.wait_for_completion()
        spec = job.job_spec
        assert spec.scheduling.timeout.seconds == 3600
        assert spec.scheduling.disable_retries
        assert spec.scheduling.strategy == 4
        assert spec.base_output_directory.output_uri_prefix == "gs://out-of-sdk/run"


class TestLowLevel:
    @pytest.mark.parametrize("version", [aiplatform_v1, aiplatform_v1beta1])
    def test_every_method(self, service: Service, version: Any):
        parent = f"projects/low-level/locations/{LOCATION}"
        client = version.JobServiceClient(
            transport="rest",
            credentials=Credentials(token=make_token(KEY, time.time())),
            client_options={"api_endpoint": service.endpoint},
        )
        job = version.CustomJob(
            display_name="low",
            job_spec={
                "worker_pool_specs": pools("/bin/sh", "-c", "sleep 1000", env=[{"name": "A", "value": "b"}]),
                "scheduling": {"timeout": "7200.5s"},
            },
        )
        made = client.create_custom_job(parent=parent, custom_job=job)
        assert made.job_spec.scheduling.timeout.total_seconds() == 7200.5
        assert made.job_spec.worker_pool_specs[0].container_spec.env[0].value == "b"
        assert client.get_custom_job(name=made.name).display_name == "low"
        second = client.create_custom_job(parent=parent, custom_job=job)
        request = version.ListCustomJobsRequest(parent=parent, page_size=1, read_mask="name,state")
        pager = client.list_custom_jobs(request)
        listed = [one for one in pager if one.name in (made.name, second.name)]
        assert [one.name for one in listed] == [second.name, made.name]
        assert all(one.state and not one.display_name for one in listed)
        for name in (made.name, second.name):
            client.cancel_custom_job(name=name)
        done = version.JobState.JOB_STATE_CANCELLED
        while any(client.get_custom_job(name=name).state != done for name in (made.name, second.name)):
            pass
        client.cancel_custom_job(name=made.name)
        operation = client.delete_custom_job(name=made.name)
        assert operation.done()
        operation.result()
        assert client.get_operation({"name": operation.operation.name}).done
        client.wait_operation({"name": operation.operation.name})
        client.cancel_operation({"name": operation.operation.name})
        client.delete_operation({"name": operation.operation.name})
        assert not client.list_operations({"name": parent}).operations
        assert client.get_location({"name": parent}).location_id == LOCATION
        assert client.list_locations({"name": "projects/low-level"}).locations


EVERYTHING = {
    "display_name": "everything",
    "labels": {"team": "vision"},
    "job_spec": {
        "worker_pool_specs": [
            {
                "machine_spec": {
                    "machine_type": "a2-highgpu-1g",
                    "accelerator_type": "NVIDIA_TESLA_A100",
                    "accelerator_count": 1,
                    "reservation_affinity": {
                        "reservation_affinity_type": "SPECIFIC_RESERVATION",
                        "key": "compute.googleapis.com/reservation-name",
                        "values": ["projects/p/zones/z/reservations/r"],
                    },
                },
                "replica_count": 1,
                "disk_spec": {"boot_disk_type": "pd-standard", "boot_disk_size_gb": 200},
                "container_spec": {
                    "image_uri": "python:3.11",
                    "command": ["sh", "-c"],
                    "args": ["echo $AIP_MODEL_DIR $AIP_CHECKPOINT_DIR $AIP_TENSORBOARD_LOG_DIR $OUT"],
                    "env": [{"name": "OUT", "value": "$(AIP_MODEL_DIR)x $$(OUT) $(NOTHING)"}],
                },
            },
            {},
        ],
        "persistent_resource_id": "ap-beijing",
        "scheduling": {
            "timeout": "3600.5s",
            "restart_job_on_worker_restart": True,
            "strategy": "FLEX_START",
            "disable_retries": True,
            "max_wait_duration": "60s",
        },
        "service_account": "me@p1.iam.gserviceaccount.com",
        "network": "projects/1/global/networks/n",
        "reserved_ip_ranges": ["r"],
        "psc_interface_config": {
            "network_attachment": "projects/p/regions/r/networkAttachments/a",
            "dns_peering_configs": [{"domain": "x.com.", "target_project": "p", "target_network": "n"}],
        },
        "base_output_directory": {"output_uri_prefix": "gs://every-field/run"},
        "protected_artifact_location_id": "eu",
        "tensorboard": "projects/p/locations/l/tensorboards/t",
        "enable_web_access": True,
        "enable_dashboard_access": True,
        "experiment": "projects/p/locations/l/metadataStores/s/contexts/e",
        "experiment_run": "projects/p/locations/l/metadataStores/s/contexts/e-r",
        "models": ["projects/p/locations/l/models/m@1"],
    },
}


def test_every_field_of_a_job_comes_back_and_the_job_runs(cloud: Cloud):
    sent: Any = aiplatform_v1.CustomJob(EVERYTHING)
    client: Any = cloud.client()
    made = client.create_custom_job(parent=cloud.parent, custom_job=sent)
    ended = cloud.wait(made.name)
    assert ended["state"] == "JOB_STATE_SUCCEEDED", ended
    got = client.get_custom_job(name=made.name)
    assert (got.job_spec, got.labels) == (sent.job_spec, sent.labels)
    (said,) = [
        one["textPayload"] for one in cloud.entries(ended, ' textPayload:"gs://every-field/run"')["entries"]
    ]
    model, checkpoints, logs = (f"gs://every-field/run/{name}/" for name in ("model", "checkpoints", "logs"))
    assert said == f"{model} {checkpoints} {logs} {model}x $(OUT) $(NOTHING)"


class TestErrors:
    """As Google's client raises them."""

    @pytest.fixture(scope="class")
    @classmethod
    def client(cls, cloud: Cloud) -> aiplatform_v1.JobServiceClient:
        return cloud.client()

    def create(self, client: aiplatform_v1.JobServiceClient, pool: dict[str, Any], **fields: Any) -> Any:
        job = {"display_name": "errors", "job_spec": {"worker_pool_specs": [pool]}} | fields
        parent = f"projects/{PROJECT}/locations/{LOCATION}"
        return client.create_custom_job(parent=parent, custom_job=aiplatform_v1.CustomJob(job))

    def test_bad_request(self, client: aiplatform_v1.JobServiceClient):
        pool = pools("true")[0]
        with pytest.raises(BadRequest, match="displayName is required") as raised:
            self.create(client, pool, display_name="")
        assert raised.value.reason == "INVALID_ARGUMENT"
        assert raised.value.domain == "aiplatform.googleapis.com"
        with pytest.raises(BadRequest, match="labels: the key 'Team' must be lower-case"):
            self.create(client, pool, labels={"Team": "x"})

    def test_failed_precondition(self, client: aiplatform_v1.JobServiceClient):
        with pytest.raises(BadRequest, match=r"the entry point of 'nobody/knows:1' is not known") as raised:
            self.create(client, pools(image_uri="nobody/knows:1")[0])
        assert raised.value.reason == "FAILED_PRECONDITION"

    def test_too_many_requests(self, client: aiplatform_v1.JobServiceClient):
        machine = {
            "machine_type": "a2-highgpu-2g",
            "accelerator_type": "NVIDIA_TESLA_A100",
            "accelerator_count": 2,
        }
        with pytest.raises(TooManyRequests):
            self.create(client, pools("true")[0] | {"machine_spec": machine})

    def test_others(self, client: aiplatform_v1.JobServiceClient, cloud: Cloud):
        with pytest.raises(NotFound, match="does not exist"):
            client.get_custom_job(name=f"{cloud.parent}/customJobs/1")
        with pytest.raises(Forbidden):
            cloud.client(AnonymousCredentials()).get_custom_job(name=f"{cloud.parent}/customJobs/1")
        with pytest.raises(NotFound, match="does not exist"):
            client.get_hyperparameter_tuning_job(name=f"{cloud.parent}/hyperparameterTuningJobs/1")
        with pytest.raises(exceptions.BadRequest, match="filter, at character 1"):
            client.list_custom_jobs({"parent": cloud.parent, "filter": "="})


class TestGooglesSamples:
    """The sequences of its CustomJob samples: a K80, and an image that knows by itself what to run."""

    def test_create_get_list_cancel_delete(self, cloud: Cloud):
        client = cloud.client()
        made = client.create_custom_job(
            parent=cloud.parent,
            custom_job=aiplatform_v1.CustomJob(
                {
                    "display_name": "sample",
                    "job_spec": {
                        "worker_pool_specs": [
                            {
                                "machine_spec": {
                                    "machine_type": "n1-standard-4",
                                    "accelerator_type": aiplatform_v1.AcceleratorType.NVIDIA_TESLA_K80,
                                    "accelerator_count": 1,
                                },
                                "replica_count": 1,
                                "python_package_spec": None,
                                "container_spec": {
                                    "image_uri": "gcr.io/tests/own-entry-point:latest",
                                    "command": [],
                                    "args": [],
                                },
                            }
                        ]
                    },
                }
            ),
        )
        shown = client.get_custom_job(name=made.name)
        assert shown.job_spec.worker_pool_specs[0].machine_spec.accelerator_type == 1
        assert made.name in [job.name for job in client.list_custom_jobs(parent=cloud.parent)]
        ended = cloud.wait(made.name)
        assert ended["state"] == "JOB_STATE_SUCCEEDED"
        client.cancel_custom_job(name=made.name)
        client.delete_custom_job(name=made.name).result(timeout=10)
        with pytest.raises(NotFound):
            client.get_custom_job(name=made.name)

    def test_the_entry_point_and_arguments_of_an_image(self, cloud: Cloud):
        for spec, printed in (
            ({}, "entry point: default"),
            ({"args": ["a", "b"]}, "entry point: a b"),
            ({"command": ["echo", "x"]}, "x"),
        ):
            container = {"imageUri": "gcr.io/tests/own-entry-point:1.0"} | spec
            made = cloud.create({"machineSpec": {"machineType": "n1-standard-4"}, "containerSpec": container})
            cloud.wait(made["name"])
            (first, _) = cloud.entries(made, ' resource.labels.task_name="workerpool0-0"')["entries"]
            assert first["textPayload"] == printed


def test_a_script_is_staged_in_a_bucket(
    service: Service, cloud: Cloud, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
):
    """from_local_script makes a package, puts it into a bucket of ours, and the job installs and runs it."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", service.endpoint)
    credentials = initialise(service, "stage-of-script")
    bucket = storage.Client(project=PROJECT, credentials=credentials).create_bucket("stage-of-script")
    script = tmp_path / "task.py"
    script.write_text(
        "import os, sys\nopen('/gcs/stage-of-script/out.txt', 'w').write(' '.join(sys.argv[1:]))\n"
    )
    job = aiplatform.CustomJob.from_local_script(
        display_name="a script",
        script_path=str(script),
        container_uri="us-docker.pkg.dev/vertex-ai/training/sklearn-cpu.1-6:latest",
        args=["--epochs", "3"],
        replica_count=1,
    )
    job.submit()
    ended = cloud.wait(job.resource_name)
    assert ended["state"] == "JOB_STATE_SUCCEEDED", ended.get("error")
    assert bucket.blob("out.txt").download_as_text() == "--epochs 3"
