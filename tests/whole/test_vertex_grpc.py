"""Vertex over gRPC with TLS, with google-cloud-aiplatform, of which only the endpoint is set."""

import contextlib
import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.api_core import exceptions
from google.api_core.retry import Retry
from google.cloud import aiplatform
from google.cloud.aiplatform_v1 import JobServiceClient, JobState, MachineSpec
from google.cloud.aiplatform_v1.services.job_service.transports import JobServiceGrpcTransport
from google.oauth2.credentials import Credentials

from tests.certificates import Certificate, make_certificate
from tests.running import (
    KEY,
    Service,
    children,
    children_with,
    free_port,
    python_for,
    python_path,
    reachable_directory,
    running,
)
from turnout.access import make_token

ONLY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
PLACE = "projects/default/locations/us-central1"
IMAGE = "gcr.io/my-project/trainer:1"
CONFIG = f"""
[engines.local]
gpus = 1
[images]
"{IMAGE}" = "trainer"
[runtimes.trainer]
entrypoint = ["sh", "-c", 'echo "trained on $CLOUD_ML_JOB_ID"']
"""


class SecureService(Service):
    @property
    def endpoint(self) -> str:
        return f"https://127.0.0.1:{self.port}"


@pytest.fixture(scope="module")
def certificate() -> Iterator[Certificate]:
    """The certificate that clients in this process trust. gRPC reads it only once."""
    with reachable_directory() as directory, pytest.MonkeyPatch.context() as patch:
        made = make_certificate(directory)
        patch.setenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", str(made.authority))
        patch.setenv("REQUESTS_CA_BUNDLE", str(made.authority))
        patch.setenv("SSL_CERT_FILE", str(made.authority))
        yield made


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def service(certificate: Certificate, port: int) -> Iterator[Service]:
    with reachable_directory() as directory:
        config = f"{certificate.settings}\n[grpc]\nport = {port}\n{CONFIG}"
        one = SecureService(directory / "data", config)
        try:
            yield one.start()
        finally:
            one.clean()


@pytest.fixture(scope="module")
def token() -> Credentials:
    return Credentials(token=make_token(KEY, time.time()))


@pytest.fixture(scope="module")
def client(service: Service, port: int, token: Credentials) -> Any:
    """As in Google's samples, which set only the endpoint."""
    one: Any = JobServiceClient(credentials=token, client_options={"api_endpoint": f"localhost:{port}"})
    grpc.channel_ready_future(one.transport.grpc_channel).result(30)
    return one


@pytest.fixture
def sdk(client: Any, port: int, token: Credentials) -> None:
    aiplatform.init(
        project="vision",
        location="us-central1",
        staging_bucket="gs://stage",
        credentials=token,
        api_endpoint=f"localhost:{port}",
        api_transport="grpc",
    )


def document(*command: str, **pool: Any) -> dict[str, Any]:
    container = {"image_uri": IMAGE, "command": list(command)}
    one = {"machine_spec": {"machine_type": "n1-standard-4"}, "replica_count": 1, "container_spec": container}
    return {"display_name": "sample", "job_spec": {"worker_pool_specs": [one | pool]}}


def wait(client: Any, name: str, state: JobState) -> Any:
    deadline = time.monotonic() + 60
    while (job := client.get_custom_job(name=name)).state != state:
        assert time.monotonic() < deadline, job
        time.sleep(0.05)
    return job


def test_the_sequence_of_googles_samples(client: Any):
    """Create with a K80 and the image's own entry point, get, list, cancel, delete."""
    machine = {
        "machine_type": "n1-standard-4",
        "accelerator_type": "NVIDIA_TESLA_K80",
        "accelerator_count": 1,
    }
    made = client.create_custom_job(parent=PLACE, custom_job=document(machine_spec=machine))
    assert made.name.startswith(f"{PLACE}/customJobs/")
    assert made.job_spec.worker_pool_specs[0].machine_spec == MachineSpec(machine)
    done = wait(client, made.name, JobState.JOB_STATE_SUCCEEDED)
    assert done.create_time <= done.start_time <= done.end_time

    running = client.create_custom_job(parent=PLACE, custom_job=document("sleep", "600"))
    wait(client, running.name, JobState.JOB_STATE_RUNNING)
    listed = client.list_custom_jobs(request={"parent": PLACE, "filter": 'state="JOB_STATE_RUNNING"'})
    assert [job.name for job in listed] == [running.name]
    with pytest.raises(exceptions.FailedPrecondition):
        client.delete_custom_job(name=running.name)
    client.cancel_custom_job(name=running.name)
    assert wait(client, running.name, JobState.JOB_STATE_CANCELLED).error.code == 1

    for name in (made.name, running.name):
        client.delete_custom_job(name=name).result(30)
        with pytest.raises(exceptions.NotFound):
            client.get_custom_job(name=name)


def test_pages(client: Any):
    place = "projects/pages/locations/us-central1"
    names = [client.create_custom_job(parent=place, custom_job=document("true")).name for _ in range(5)]
    request = {"parent": place, "page_size": 2, "read_mask": {"paths": ["name"]}}
    pages = list(client.list_custom_jobs(request=request).pages)
    assert [job.name for page in pages for job in page.custom_jobs] == names[::-1]
    assert [len(page.custom_jobs) for page in pages] == [2, 2, 1]
    assert not pages[0].custom_jobs[0].display_name


def test_links_lead_to_the_main_port(client: Any, service: Service):
    job = document("sleep", "600")
    job["job_spec"]["enable_web_access"] = True
    made = client.create_custom_job(parent=PLACE, custom_job=job)
    running = wait(client, made.name, JobState.JOB_STATE_RUNNING)
    assert running.web_access_uris["workerpool0-0"].startswith(service.endpoint + "/")
    client.cancel_custom_job(name=made.name)
    wait(client, made.name, JobState.JOB_STATE_CANCELLED)


def test_the_high_level_sdk(sdk: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("google.cloud.aiplatform.jobs._JOB_WAIT_TIME", 0.05)
    container = {"image_uri": IMAGE, "command": ["sh", "-c", "exit $CODE"]}
    pools = [
        {"machine_spec": {"machine_type": "n1-standard-4"}, "replica_count": 1, "container_spec": container}
    ]
    container["env"] = [{"name": "CODE", "value": "0"}]
    good = aiplatform.CustomJob("good", pools, labels={"team": "vision"})
    good.run(sync=True)
    assert good.state == JobState.JOB_STATE_SUCCEEDED

    container["env"] = [{"name": "CODE", "value": "3"}]
    bad = aiplatform.CustomJob("bad", pools)
    with pytest.raises(RuntimeError, match="workerpool0-0 exited with a non-zero status of 3"):
        bad.run(sync=True)

    [found] = aiplatform.CustomJob.list(filter='labels.team=vision AND display_name:"go*"')
    assert found.resource_name == good.resource_name
    assert aiplatform.CustomJob.get(bad.name).state == JobState.JOB_STATE_FAILED
    good.delete()
    bad.delete()
    assert aiplatform.CustomJob.list() == []


def test_errors_have_their_own_classes(client: Any, port: int):
    with pytest.raises(exceptions.InvalidArgument, match=r"display_?[nN]ame"):
        client.create_custom_job(parent=PLACE, custom_job=document("true") | {"display_name": ""})
    machine = {"machine_type": "n1-standard-4", "accelerator_type": "NVIDIA_TESLA_T4", "accelerator_count": 2}
    with pytest.raises(exceptions.ResourceExhausted):
        client.create_custom_job(parent=PLACE, custom_job=document(machine_spec=machine))
    with pytest.raises(exceptions.InvalidArgument):
        client.list_custom_jobs(request={"parent": PLACE, "filter": "no such grammar("})
    stranger = JobServiceClient(
        credentials=Credentials(token="made-up"), client_options={"api_endpoint": f"localhost:{port}"}
    )
    with pytest.raises(exceptions.PermissionDenied) as caught:
        stranger.list_custom_jobs(parent=PLACE)
    assert caught.value.reason == "ACCESS_TOKEN_INVALID"


def test_the_main_port_speaks_tls_too(service: Service, token: Credentials, certificate: Certificate):
    rest = JobServiceClient(
        transport="rest", credentials=token, client_options={"api_endpoint": f"localhost:{service.port}"}
    )
    assert list(rest.list_custom_jobs(parent="projects/empty/locations/us-central1")) == []
    login = {"TURNOUT_ENDPOINT": service.endpoint, "TURNOUT_KEY": f"{KEY.id}:{KEY.secret}"}
    command = [
        sys.executable,
        "-m",
        "turnout.cli.tictl",
        "job",
        "create",
        "hello",
        "--command",
        "echo hi",
        "--wait",
    ]
    ran = subprocess.run(command, env=os.environ | login, timeout=60, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert f"listens on {service.endpoint}" in service.log.read_text()


def test_a_pipeline_with_a_model_and_an_experiment(sdk: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("google.cloud.aiplatform.training_jobs._JOB_WAIT_TIME", 0.05)
    write = 'mkdir -p "/gcs/${AIP_MODEL_DIR#gs://}" && echo weights > "/gcs/${AIP_MODEL_DIR#gs://}model.bin"'
    job = aiplatform.CustomContainerTrainingJob(
        "pipeline",
        IMAGE,
        ["sh", "-c", write],
        model_serving_container_image_uri="gcr.io/my-project/serve:1",
    )
    model = job.run(base_output_dir="gs://stage/pipeline", model_labels={"a": "b"}, replica_count=1)
    assert model is not None
    model.update(description="changed", labels={"a": "c"})
    again = aiplatform.Model(model.resource_name)
    assert (again.description, again.labels) == ("changed", {"a": "c"})
    assert [one.name for one in aiplatform.Model.list(filter="labels.a=c")] == [model.name]
    board = aiplatform.Tensorboard.create(display_name="board")
    # Without a project, init would change to REST.
    aiplatform.init(project="vision", experiment="over-grpc", experiment_tensorboard=board)
    with aiplatform.start_run("one") as run:
        aiplatform.log_params({"layers": 3})
        aiplatform.log_metrics({"accuracy": 0.5})
        aiplatform.log_time_series_metrics({"loss": 0.25}, step=1)
        aiplatform.log_time_series_metrics({"loss": 0.125}, step=2)
    assert run.get_params() == {"layers": 3}
    frame = aiplatform.ExperimentRun("one", "over-grpc").get_time_series_data_frame()
    assert list(frame["loss"]) == [0.25, 0.125]


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["rest", "grpc"])
@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_every_resource_in_both_versions_on_both_transports(
    client: Any, service: Service, port: int, token: Credentials, version: str, transport: str
):
    """Each combination makes what all of them then find."""
    api = importlib.import_module(f"google.cloud.aiplatform_{version}")
    endpoint = service.endpoint if transport == "rest" else f"localhost:{port}"

    def connect(kind: str) -> Any:
        options = {"api_endpoint": endpoint}
        return getattr(api, kind)(transport=transport, credentials=token, client_options=options)

    mine = f"{version}-{transport}"
    pool = {"machine_spec": {"machine_type": "n1-standard-4"}, "replica_count": 1}
    pipelines = connect("PipelineServiceClient")
    task = {"workerPoolSpecs": [
        {"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": 1, "containerSpec": {"imageUri": IMAGE}}
    ]}  # fmt: skip
    definition = "gs://google-cloud-aiplatform/schema/trainingjob/definition/custom_task_1.0.0.yaml"
    pipeline = pipelines.create_training_pipeline(
        parent=PLACE,
        training_pipeline={
            "display_name": mine, "training_task_definition": definition, "training_task_inputs": task
        },
    )  # fmt: skip
    assert pipelines.get_training_pipeline(name=pipeline.name).display_name == mine
    assert pipeline.name in [one.name for one in pipelines.list_training_pipelines(parent=PLACE)]

    models = connect("ModelServiceClient")
    uploaded = models.upload_model(
        parent=PLACE, model={"display_name": mine, "artifact_uri": "gs://stage/none"}
    ).result()
    assert models.get_model(name=uploaded.model).display_name == mine
    assert uploaded.model in [one.name for one in models.list_models(parent=PLACE)]
    assert [one.version_id for one in models.list_model_versions(name=uploaded.model)] == ["1"]
    models.delete_model(name=uploaded.model).result()

    metadata = connect("MetadataServiceClient")
    store = f"{PLACE}/metadataStores/default"
    with contextlib.suppress(exceptions.AlreadyExists, exceptions.Conflict):
        metadata.create_metadata_store(parent=PLACE, metadata_store_id="default").result()
    assert metadata.get_metadata_store(name=store).name == store
    context = metadata.create_context(
        parent=store, context={"display_name": mine, "schema_title": "system.Experiment"}, context_id=mine
    )
    assert metadata.get_context(name=context.name).display_name == mine
    assert context.name in [one.name for one in metadata.list_contexts(parent=store)]

    boards = connect("TensorboardServiceClient")
    board = boards.create_tensorboard(parent=PLACE, tensorboard={"display_name": mine}).result()
    assert boards.get_tensorboard(name=board.name).display_name == mine
    assert board.name in [one.name for one in boards.list_tensorboards(parent=PLACE)]

    resources = connect("PersistentResourceServiceClient")
    made = resources.create_persistent_resource(
        parent=PLACE,
        persistent_resource={"display_name": mine, "resource_pools": [pool]},
        persistent_resource_id=mine,
    ).result()
    assert resources.get_persistent_resource(name=made.name).display_name == mine
    assert made.name in [one.name for one in resources.list_persistent_resources(parent=PLACE)]
    resources.delete_persistent_resource(name=made.name).result()


def test_the_grpc_process_restarts_after_a_kill(client: Any, service: Service):
    """Last in this file, because the channel has to reconnect."""
    assert service.process
    [door] = doors(service)
    os.kill(door, signal.SIGKILL)
    # What is under way at that moment is lost; a channel that was told so connects again by itself.
    assert (
        client.list_custom_jobs(parent=PLACE, retry=Retry(initial=0.1, maximum=1, timeout=60), timeout=60)
        is not None
    )
    [again] = doors(service)
    assert again != door
    assert service.terminate() == 0
    assert not Path(f"/proc/{again}").exists()


def test_low_level_without_tls_and_without_keys():
    port = free_port()
    with running(f"[grpc]\nport = {port}\n{CONFIG}") as service:
        service.start("--no-auth")
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            grpc.channel_ready_future(channel).result(30)
            client: Any = JobServiceClient(transport=JobServiceGrpcTransport(channel=channel))
            made = client.create_custom_job(parent=PLACE, custom_job=document())
            wait(client, made.name, JobState.JOB_STATE_SUCCEEDED)
            operation = client.delete_custom_job(name=made.name).operation
            assert operation.done
            assert client.get_operation({"name": operation.name}) == operation


def test_a_port_that_is_taken_is_reported_at_once():
    with running() as holder:
        holder.start()
        with running(f"[grpc]\nport = {holder.port}\n") as service:
            service.start(wait=False)
            assert service.process
            assert service.process.wait(30) != 0
            assert "give [grpc] port another number" in service.log.read_text()


def doors(service: Service) -> list[int]:
    assert service.process
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children(service.process.pid)}
    return [pid for pid, command in commands.items() if b"turnout.gateways.grpc" in command]


@pytest.mark.parametrize("user", [None, pytest.param(65534, marks=ONLY_ROOT)])
def test_without_auth_the_same_user_has_access_and_the_process_is_not_root(user: int | None):
    port = free_port()
    with running(f"[grpc]\nport = {port}\n", user=user) as service:
        service.start("--no-auth", wait=False)
        assert service.process
        deadline = time.monotonic() + 30
        while "listens on" not in service.log.read_text() and time.monotonic() < deadline:
            time.sleep(0.02)
        script = (
            "import grpc\n"
            "from google.cloud.location import locations_pb2\n"
            "request = locations_pb2.ListLocationsRequest(name='projects/default').SerializeToString()\n"
            f"with grpc.insecure_channel('127.0.0.1:{port}') as channel:\n"
            "    call = channel.unary_unary('/google.cloud.location.Locations/ListLocations')\n"
            "    try:\n"
            "        call(request, timeout=30, wait_for_ready=True)\n"
            "        print('OK')\n"
            "    except grpc.RpcError as error:\n"
            "        print(error.code().name, error.details())\n"
        )
        said = [
            subprocess.run(
                [python_for(uid or None), "-c", script],
                user=uid, group=uid, capture_output=True, text=True, cwd="/",
                env={"PYTHONPATH": python_path()},
            ).stdout
            for uid in {os.getuid(), user or os.getuid(), 65533 if os.geteuid() == 0 else os.getuid()}
        ]  # fmt: skip
        assert sum(one == "OK\n" for one in said) == 1
        assert all("only the user who runs the service" in one for one in said if one != "OK\n"), said
        [gateway] = children_with(service.process.pid, "turnout.gateways.grpc")
        assert gateway.uids().real != 0
