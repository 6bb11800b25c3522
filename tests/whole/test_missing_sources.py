"""What a job reads must exist: in embedded buckets and in a remote store, at the create and again at the start.

Only a write makes a bucket, and an event says so.
"""

import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from tencentcloud.common import credential
from tencentcloud.common.exception.tencent_cloud_sdk_exception import TencentCloudSDKException
from tencentcloud.common.profile.client_profile import ClientProfile
from tencentcloud.common.profile.http_profile import HttpProfile
from tencentcloud.tia.v20180226 import models, tia_client

from tests.dialects.modelarts import driving as modelarts
from tests.dialects.vertex import driving as vertex
from tests.dialects.vertex import jobs
from tests.running import KEY, Service, running
from tests.stores import BUCKET, S3, faulty_proxy, s3
from turnout.access import Key, make_token
from turnout.storage.remote.settings import RemoteSettings
from turnout.storage.remote.store import open_store

__all__ = ["s3"]

COS = "cos://{}-1250000000.cos.ap-beijing.myqcloud.com/{}:/data/{}"
ON_GPU: dict[str, dict[str, Any]] = {
    "tia": {"ScaleTier": "CUSTOM", "MasterType": "1U1G1P"},
    "modelarts": {"resource": {"flavor_id": "modelarts.vm.gpu.t4u8", "node_count": 1}},
    "vertex": {
        "machineSpec": {
            "machineType": "n1-standard-4",
            "acceleratorType": "NVIDIA_TESLA_T4",
            "acceleratorCount": 1,
        }
    },
}
GPU = "[engines.local]\ngpus = 1\n"
PYTORCH = {"engine_id": "pytorch_2.5.1-cuda_12.4-py_3.11-ubuntu_22.04-x86_64"}
SEARCH: dict[str, Any] = {
    "parameters": [{"name": "lr", "value": "0.1"}],
    "policies": {
        "auto_search": {
            "reward_attrs": [{"name": "loss", "mode": "min", "regex": "loss=(.*)"}],
            "search_params": [
                {"name": "lr", "param_type": "continuous", "lower_bound": "0", "upper_bound": "1"}
            ],
            "algo_configs": [{"name": "anneal_search", "params": [{"key": "num_samples", "value": "1"}]}],
        }
    },
}


@pytest.fixture(scope="module", autouse=True)
def no_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("NO_PROXY", "127.0.0.1")
        yield


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    datasets = '[datasets.lost]\nurl = "obs://typo/dataset"\nversions = { v1 = "obs://typo/v1" }\n'
    with running(GPU + datasets) as one:
        yield one.start()


@pytest.fixture(scope="module", params=["embedded", "remote"])
def kinds(service: Service, s3: S3, request: pytest.FixtureRequest) -> Iterator[Service]:
    """A service whose buckets are embedded, and one that has them in a real store."""
    if request.param == "embedded":
        yield service
        return
    with running(GPU + in_store(s3)) as one:
        yield one.start()


def in_store(s3: S3, port: int = 0) -> str:
    """Every bucket is in the store."""
    backing = s3.backing(BUCKET, port)
    tables = {f"buckets.{BUCKET}": backing}
    tables |= {f"schemes.{scheme}": backing | {"url": "s3://"} for scheme in ("cos", "obs", "gs")}
    return "\n".join(
        "\n".join([f"[storage.{table}]", *(f'{name} = "{value}"' for name, value in values.items())])
        for table, values in tables.items()
    )


def buckets(service: Service) -> set[str]:
    """What there is on disk, and whom it belongs to."""
    found = service.data / "buckets"
    return {path.name for top in (found, found / ".owners") if top.exists() for path in top.iterdir()} - {
        ".owners",
        ".uploads",
        ".sealed",
    }


def events(service: Service, job: str) -> str:
    return "\n".join(event["message"] for event in service.explain(job)["events"])


def remove(service: Service, url: str) -> None:
    headers = {"Authorization": f"Bearer {make_token(KEY, time.time())}"}
    path = f"{service.endpoint}/turnout/v1/object?url={url}"
    urllib.request.urlopen(urllib.request.Request(path, headers=headers, method="DELETE")).close()


def algorithm(**parts: Any) -> dict[str, Any]:
    return {"algorithm": {"engine": {"image_url": "tests/anything:1"}, "command": "true"} | parts}


def input_of(url: str, **remote: Any) -> list[dict[str, Any]]:
    return [{"name": "data", "remote": remote or {"obs": {"obs_url": url}}}]


# At the create.


def test_tia_refuses_a_package_that_does_not_exist(kinds: Service):
    before = buckets(kinds)
    for bucket in (BUCKET, "typo"):
        with pytest.raises(TencentCloudSDKException) as caught:
            kinds.create("no-package", "python", "train.py", PackageDir=[COS.format(bucket, "mnits", "code")])
        assert caught.value.code == "InvalidParameter"
        message = caught.value.message or ""
        assert message.startswith("PackageDir: ")
        assert f"'cos://{bucket}-1250000000/mnits'" in message
    assert buckets(kinds) == before


@pytest.mark.parametrize(
    ("parts", "code", "url"),
    [
        ({"inputs": input_of("obs://typo/data/")}, "ModelArts.2791", "obs://typo/data"),
        ({"inputs": input_of(f"obs://{BUCKET}/typo/")}, "ModelArts.2791", f"obs://{BUCKET}/typo"),
        ({"code_dir": f"/{BUCKET}/typo/"}, "ModelArts.2757", f"/{BUCKET}/typo/"),
        ({"code_dir": "/typo/code/"}, "ModelArts.2757", "/typo/code/"),
    ],
)
def test_modelarts_refuses_an_input_that_does_not_exist(
    kinds: Service, parts: dict[str, Any], code: str, url: str
):
    cloud = modelarts.Cloud(kinds)
    before = buckets(kinds)
    with modelarts.refused(code, match=url):
        cloud.create("no-input", **algorithm(**parts))
    assert buckets(kinds) == before


def test_modelarts_names_the_field_of_the_input(service: Service):
    cloud = modelarts.Cloud(service)
    with modelarts.refused("ModelArts.2791", match="algorithm.inputs[0].remote.obs.obs_url: "):
        cloud.create("no-input", **algorithm(inputs=input_of("obs://typo/data/")))


@pytest.mark.parametrize(("version", "url"), [("v1", "obs://typo/v1"), ("", "obs://typo/dataset")])
def test_modelarts_refuses_a_dataset_without_data(service: Service, version: str, url: str):
    dataset = {"id": "lost", "version_id": version or None, "service_type": "" if version else "V3"}
    inputs = input_of("", dataset={key: value for key, value in dataset.items() if value})
    with modelarts.refused("ModelArts.2783", match=url):
        modelarts.Cloud(service).create("no-data", **algorithm(inputs=inputs))


def test_modelarts_refuses_a_boot_file_that_does_not_exist(service: Service):
    service.put("obs://boots/code/train.py", "")
    parts = {"command": "", "engine": PYTORCH, "code_dir": "/boots/code/", "boot_file": "/boots/code/typo.py"}
    with modelarts.refused("ModelArts.2758", match="/boots/code/typo.py"):
        modelarts.Cloud(service).create("no-boot", **algorithm(**parts))


def test_modelarts_refuses_a_search_without_its_input(service: Service):
    with modelarts.refused(
        "ModelArts.2791", match="algorithm.inputs[0].remote.obs.obs_url: 'obs://typo/data'"
    ):
        modelarts.Cloud(service).create(
            "no-input", **algorithm(inputs=input_of("obs://typo/data/"), **SEARCH)
        )


def test_modelarts_names_the_task_whose_input_does_not_exist(service: Service):
    service.put("obs://tasks/in/x")
    resource = {"flavor_id": "modelarts.vm.cpu.2u", "node_count": 1}
    tasks = [
        {"role": role, "task_resource": resource, **algorithm(inputs=input_of(f"obs://tasks/{where}/"))}
        for role, where in (("a", "in"), ("b", "typo"))
    ]
    body = {"kind": "hetero_job", "metadata": {"name": "tasks"}, "tasks": tasks, "spec": {"resource": {}}}
    with modelarts.refused("ModelArts.2791", match="tasks[1].algorithm.inputs[0].remote.obs.obs_url: "):
        modelarts.Cloud(service)("create_training_job", body=body)


def test_modelarts_refuses_an_algorithm_whose_code_is_gone(service: Service):
    service.put("obs://algorithms/code/train.py")
    cloud = modelarts.Cloud(service)
    config = {"code_dir": "/algorithms/code/", "boot_file": "/algorithms/code/train.py", "engine": PYTORCH}
    made = cloud("create_algorithm", body={"metadata": {"name": "gone"}, "job_config": config})
    remove(service, "obs://algorithms/code/train.py")
    body = modelarts.job("by-id") | {"algorithm": {"id": made.metadata.id}}
    with modelarts.refused("ModelArts.2757", match="there is nothing at '/algorithms/code/'"):
        cloud("create_training_job", body=body)
    with modelarts.refused("ModelArts.2757", match="there is nothing at '/algorithms/code/'"):
        cloud("create_algorithm", body={"metadata": {"name": "again"}, "job_config": config})


@pytest.mark.parametrize("name", ["stage/none.whl", "stage-of-nobody/trainer.whl"])
def test_vertex_refuses_a_package_that_does_not_exist(kinds: Service, name: str):
    before = buckets(kinds)
    cloud = vertex.Cloud(kinds)
    document = jobs.job(jobs.pool(), jobs.package(packageUris=[f"gs://{name}"]))
    code, status, message = cloud.send("POST", "customJobs", document).error
    assert (code, status) == (400, "INVALID_ARGUMENT")
    assert message.startswith("jobSpec.workerPoolSpecs[1].pythonPackageSpec.packageUris[0]: ")
    assert f"'gs://{name}'" in message
    assert buckets(kinds) == before


def test_vertex_refuses_a_search_without_its_package(service: Service):
    document = {
        "displayName": "search",
        "maxTrialCount": 1,
        "parallelTrialCount": 1,
        "studySpec": {
            "metrics": [{"metricId": "m", "goal": "MAXIMIZE"}],
            "parameters": [{"parameterId": "x", "doubleValueSpec": {"minValue": 0, "maxValue": 1}}],
        },
        "trialJobSpec": {"workerPoolSpecs": [jobs.package(packageUris=["gs://typo/x.whl"])]},
    }
    answer = vertex.Cloud(service).send("POST", "hyperparameterTuningJobs", document)
    assert answer.error[:2] == (400, "INVALID_ARGUMENT")
    assert "trialJobSpec.workerPoolSpecs[0].pythonPackageSpec.packageUris[0]: " in answer.error[2]


def test_an_empty_directory_is_no_input(service: Service):
    (service.data / "buckets" / "hollow" / "a" / "b").mkdir(parents=True)
    with modelarts.refused("ModelArts.2791", match="there is nothing at 'obs://hollow/a'"):
        modelarts.Cloud(service).create("hollow", **algorithm(inputs=input_of("obs://hollow/a/")))
    service.put("obs://hollow/a/b/c/x")
    modelarts.Cloud(service).create("hollow", **algorithm(inputs=input_of("obs://hollow/a/")))


def test_an_input_may_be_one_object(kinds: Service):
    kinds.put(f"obs://{BUCKET}/one/x.csv")
    read = algorithm(inputs=input_of(f"obs://{BUCKET}/one/x.csv"), command="cat $data/x.csv")
    made = modelarts.Cloud(kinds).create("one", **read).metadata.id
    assert kinds.wait(made)["state"] == "succeeded"


def test_another_projects_bucket(service: Service):
    service.put("cos://private/x", key=key_for(service, "owner"))
    stranger = key_for(service, "stranger")
    request = models.CreateJobRequest()
    request.Name, request.Cluster, request.RuntimeVersion = "steals", "ap-beijing", "tia-1.7.0"
    request.Command, request.PackageDir = ["ls"], [COS.format("private", "", "theirs")]
    http = HttpProfile(protocol="http", endpoint=f"127.0.0.1:{service.port}")
    client = tia_client.TiaClient(
        credential.Credential(stranger.id, stranger.secret), "ap-beijing", ClientProfile(httpProfile=http)
    )
    with pytest.raises(TencentCloudSDKException, match="belongs to another project") as caught:
        client.CreateJob(request)
    assert caught.value.code == "UnauthorizedOperation"
    request.PackageDir = [f"file://{service.data}:/x", COS.format("private", "out", "theirs")]
    with pytest.raises(TencentCloudSDKException) as caught:
        client.CreateJob(request)
    assert caught.value.code in ("UnauthorizedOperation", "InvalidParameter")
    with modelarts.refused("ModelArts.2771", match="private"):
        modelarts.Cloud(service, stranger, "stranger").create(
            "steals", **algorithm(inputs=input_of("obs://private/x"))
        )


# Between the create and the start.


def test_what_goes_missing_before_the_start_fails_the_job_by_its_name(kinds: Service):
    for key in ("gone/tia/train.py", "gone/ma/x", "gone/code/train.py", "gone/code/other.py", "gone/t.whl"):
        kinds.put(f"obs://{BUCKET}/{key}")
    kinds.create("blocks", "sleep", "1000", **ON_GPU["tia"])
    kinds.wait("blocks", "started")
    cloud, spec = modelarts.Cloud(kinds), ON_GPU["modelarts"]
    boot = {"code_dir": f"/{BUCKET}/gone/code/", "boot_file": f"/{BUCKET}/gone/code/train.py"}
    package = jobs.package(packageUris=[f"gs://{BUCKET}/gone/t.whl"]) | ON_GPU["vertex"]
    kinds.create(
        "tia", "python", "train.py", PackageDir=[COS.format(BUCKET, "gone/tia", "c")], **ON_GPU["tia"]
    )
    waiting = {
        "tia": f"cos://{BUCKET}-1250000000/gone/tia",
        cloud.create("ma", **algorithm(inputs=input_of(f"obs://{BUCKET}/gone/ma/")), spec=spec).metadata.id: (
            f"obs://{BUCKET}/gone/ma"
        ),
        cloud.create(
            "boot", **algorithm(command="", engine=PYTORCH, **boot), spec=spec
        ).metadata.id: f"obs://{BUCKET}/gone/code/train.py",
        vertex.Cloud(kinds)
        .create(package, displayName="vertex")["name"]
        .rpartition("/")[2]: f"gs://{BUCKET}/gone/t.whl",
    }
    for key in ("gone/tia/train.py", "gone/ma/x", "gone/code/train.py", "gone/t.whl"):
        remove(kinds, f"obs://{BUCKET}/{key}")
    kinds.delete("blocks")
    for job, url in waiting.items():
        ended = kinds.wait(job, timeout=90)
        assert (ended["state"], ended["reason"]) == ("failed", "staging failed"), ended
        assert url in ended["message"]


def test_a_trial_whose_input_is_gone_fails_by_its_name(service: Service):
    service.put("obs://trials/in/x")
    service.create("blocks", "sleep", "1000", **ON_GPU["tia"])
    service.wait("blocks", "started")
    inputs = input_of("obs://trials/in/")
    search = (
        modelarts.Cloud(service)
        .create("searches", **algorithm(inputs=inputs, **SEARCH), spec=ON_GPU["modelarts"])
        .metadata.id
    )
    remove(service, "obs://trials/in/x")
    service.delete("blocks")
    assert service.wait(search)["state"] == "failed"
    [trial] = service.explain(search)["trials"]
    assert "there is nothing at 'obs://trials/in'" in trial["message"]


# Only a write makes a bucket.


def test_an_output_makes_its_bucket_and_an_event_says_so(service: Service):
    outputs = [{"name": "out", "remote": {"obs": {"obs_url": "obs://fresh/out/"}}}]
    made = modelarts.Cloud(service).create("makes", **algorithm(outputs=outputs, command="echo 1 > $out/x"))
    assert service.wait(made.metadata.id)["state"] == "succeeded"
    assert (service.data / "buckets" / "fresh" / "out" / "x").read_text() == "1\n"
    assert "'obs://fresh/out': there is no such bucket; it is made when the job starts" in events(
        service, made.metadata.id
    )


def test_a_missing_bucket_below_gcs_is_empty_and_is_not_made_by_reading(service: Service):
    before = buckets(service)
    job = vertex.Cloud(service).shell('test -d /gcs/somebody-elses && test -z "$(ls -A /gcs/somebody-elses)"')
    reads = job["name"].rpartition("/")[2]
    assert service.wait(reads)["state"] == "succeeded"
    assert buckets(service) == before
    assert "'gs://somebody-elses': there is no such bucket" in events(service, reads)
    assert "the first file that it writes there makes the bucket" in events(service, reads)


def test_the_first_write_below_gcs_makes_the_bucket(service: Service):
    script = "cd /gcs/first-write; mkdir a; echo 1 > a/x; ln -s a/x link"
    job = vertex.Cloud(service).shell(script)
    writes = job["name"].rpartition("/")[2]
    assert service.wait(writes)["state"] == "succeeded"
    assert (service.data / "buckets" / "first-write" / "a" / "x").read_text() == "1\n"
    saved = "1 file (2 bytes) went to gs://first-write; link is skipped: it is a symbolic link"
    assert saved in events(service, writes)


def test_the_output_directory_of_a_vertex_job_is_there_from_the_start(service: Service):
    script = "echo 1 > /gcs/results/now; echo written; sleep 1000"
    spec = {"baseOutputDirectory": {"outputUriPrefix": "gs://results/run"}}
    command = {"imageUri": "python:3.11", "command": ["/bin/sh", "-c", script]}
    document = jobs.job(jobs.pool(containerSpec=command), spec=spec)
    cloud = vertex.Cloud(service)
    job = cloud.send("POST", "customJobs", document).body["name"]
    written = service.data / "buckets" / "results" / "now"
    deadline = time.monotonic() + 30
    while not (written.exists() and written.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    cloud.send("POST", f"/v1/{job}:cancel", {})
    assert "'gs://results': there is no such bucket; it is made when the job starts" in events(
        service, job.rpartition("/")[2]
    )


def test_a_volume_that_does_not_exist_is_empty_and_is_not_made_by_reading(service: Service):
    before = buckets(service)
    volume = {"obs": {"obs_path": "obs://nobodys/dir/", "local_path": "/mnt/v"}}
    spec = {"resource": {"flavor_id": "modelarts.vm.cpu.2u", "node_count": 1}, "volumes": [volume]}
    cloud = modelarts.Cloud(service)
    reads = cloud.create("reads", 'test -z "$(ls -A /mnt/v)"', spec=spec).metadata.id
    assert service.wait(reads)["state"] == "succeeded"
    assert any("'obs://nobodys/dir': there is no such bucket" in event for event in cloud.events(reads))
    assert buckets(service) == before


def test_a_second_mount_of_tia_may_be_an_output(kinds: Service):
    kinds.put(f"obs://{BUCKET}/code/train.sh", "echo 1 > /data/out/x")
    mounts = [COS.format(BUCKET, "code", "code"), COS.format(BUCKET, "results", "out")]
    kinds.create("trains", "sh", "train.sh", PackageDir=mounts)
    job = kinds.wait("trains")
    assert job["state"] == "succeeded", job
    assert f"there is nothing at 'cos://{BUCKET}-1250000000/results'" in events(kinds, "trains")
    mounts = [COS.format(BUCKET, "code", "code"), COS.format(BUCKET, "results", "in")]
    kinds.create("again", "cat", "/data/in/x", PackageDir=mounts)
    assert kinds.wait("again")["state"] == "succeeded"
    assert [line.Log for line in kinds.logs("again")] == ["1"]


# A real store that does not answer.


@pytest.mark.slow
def test_a_silent_store_is_noted_and_asked_again_before_the_start(s3: S3):
    store = open_store(msgspec.convert(s3.backing(BUCKET), RemoteSettings))
    store.put("slow/x", b"found\n")
    with faulty_proxy(s3.port) as proxy, running(GPU + in_store(s3, proxy.port)) as service:
        service.start()
        proxy.flowing.clear()
        cloud = modelarts.Cloud(service)
        inputs = [
            {"name": name, "remote": {"obs": {"obs_url": f"obs://{BUCKET}/{where}"}}}
            for name, where in (("a", "slow/"), ("b", "typo/"))
        ]
        good = cloud.create("good", **algorithm(inputs=inputs[:1], command="cat $a/x")).metadata.id
        bad = cloud.create("bad", **algorithm(inputs=inputs, code_dir=f"/{BUCKET}/slow/")).metadata.id
        proxy.flowing.set()
        assert service.wait(good)["state"] == "succeeded"
        noted = f"'obs://{BUCKET}/slow' could not be checked: the store did not answer within 2 s"
        assert noted in events(service, good)
        ended = service.wait(bad)
        assert (ended["state"], ended["reason"]) == ("failed", "staging failed")
        assert f"obs://{BUCKET}/typo" in ended["message"]


def key_for(service: Service, project: str) -> Key:
    headers = {"Authorization": f"Bearer {make_token(KEY, time.time())}"}
    url = f"{service.endpoint}/turnout/v1/keys"
    body = msgspec.json.encode({"project": project})
    with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as answer:
        made = msgspec.json.decode(answer.read())
    return Key(made["id"], made["secret"], project)
