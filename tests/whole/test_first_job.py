"""A signed CreateJob of Tencent's SDK starts a gang of real processes, and returns their logs."""

import json
import re
from pathlib import Path

import pytest
from tencentcloud.common.exception.tencent_cloud_sdk_exception import TencentCloudSDKException

from tests.running import KEY, Service, reachable_directory, running

HERE = Path(__file__).parent
EXAMPLE = {
    "RuntimeVersion": "tia-1.7.0",
    "ScaleTier": "Custom",
    "MasterType": "1U1G0P",
    "WorkerType": "1U1G0P",
    "ParameterServerType": "1U1G0P",
    "WorkerCount": 2,
    "ParameterServerCount": 1,
    "Args": ["mnist_saved_model.py"],
}


@pytest.fixture(params=["bubblewrap", "none"], scope="module")
def sandboxed(request: pytest.FixtureRequest):
    with running(f'[engines.local]\nsandbox = "{request.param}"\n') as service:
        yield service.start()


def test_the_documented_example(sandboxed: Service) -> None:
    """One master, one parameter server, two workers: each has a correct TF_CONFIG, and they all connect."""
    with reachable_directory() as code:
        (code / "mnist_saved_model.py").write_text((HERE / "meeting.py").read_text())
        source = f"file://{code}:/data/mnist"
        created = sandboxed.create("test-job", "python", **EXAMPLE, PackageDir=[source])
        shown = json.loads(created.to_json_string())
        time = shown.pop("CreateTime")
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{9} \+0800 CST m=\+\d+\.\d{9}", time)
        assert {key: value for key, value in shown.items() if value is not None} == {
            **EXAMPLE,
            "Name": "test-job",
            "Cluster": "ap-beijing",
            "Command": ["python"],
            "PackageDir": [source],
            "Message": "creating",
        }
        job = sandboxed.wait("test-job")
        lines = [log.Log for log in sandboxed.logs("test-job")]
        assert job["state"] == "succeeded", lines
        assert "met ps:0 worker:0 worker:1" in lines
        assert sorted(line for line in lines if "was called" in line) == [
            "ps:0 was called by chief:0",
            "worker:0 was called by chief:0",
            "worker:1 was called by chief:0",
        ]
        assert {replica["name"] for replica in job["replicas"]} == {
            "master-0",
            "ps-0",
            "worker-0",
            "worker-1",
        }
        described = sandboxed.describe("test-job")
        assert (described.State, described.Message) == ("Succeeded", "")
        assert described.StartTime
        assert described.EndTime


def test_the_environment_of_a_replica(sandboxed: Service) -> None:
    program = "import json, os; print(json.dumps(dict(os.environ)))"
    sandboxed.create("env", "/usr/bin/python3", "-c", program, ScaleTier="CUSTOM", WorkerCount=1)
    sandboxed.wait("env")
    told = {log.PodName.split("-")[1]: json.loads(log.Log) for log in sandboxed.logs("env")}
    assert set(told) == {"master", "worker"}
    assert told["master"]["RANK"] == "0"
    assert told["worker"]["RANK"] == "1"
    for env in told.values():
        assert env["WORLD_SIZE"] == "2"
        assert env["MASTER_ADDR"] == told["master"]["MASTER_ADDR"]
        assert int(env["MASTER_PORT"]) > 1024
        assert set(json.loads(env["TF_CONFIG"])["cluster"]) == {"chief", "worker"}
        assert "cluster" in json.loads(env["CLUSTER_SPEC"])
        # The keys are those of the job, for its buckets, and not the service's.
        assert not [name for name, value in env.items() if KEY.id in value or KEY.secret in value]


def test_results_land_in_the_bucket(sandboxed: Service) -> None:
    where = "cos://mine-1250000000.cos.ap-beijing.myqcloud.com/run:/data/run"
    sandboxed.put("cos://mine/run/train.py")
    sandboxed.create("writer", "sh", "-c", "echo 42 > answer", PackageDir=[where])
    assert sandboxed.wait("writer")["state"] == "succeeded"
    assert (sandboxed.data / "buckets/mine/run/answer").read_text() == "42\n"
    sandboxed.create("reader", "cat", "answer", PackageDir=[where])
    sandboxed.wait("reader")
    assert [log.Log for log in sandboxed.logs("reader")] == ["42"]


def test_the_exit_code_and_both_streams_are_kept(sandboxed: Service) -> None:
    sandboxed.create("fails", "sh", "-c", "echo out; echo err > /dev/stderr; exit 3")
    job = sandboxed.wait("fails")
    assert (job["state"], job["reason"], job["replicas"][0]["exit_code"]) == ("failed", "program failed", 3)
    assert sorted(log.Log for log in sandboxed.logs("fails")) == ["err", "out"]
    assert sandboxed.describe("fails").Message == "[MASTER/Failed : Failed/1]"
    assert "master-0 exited with code 3" in " ".join(sandboxed.explain("fails")["why"])


def test_a_running_job_that_is_deleted_is_gone_and_its_name_is_free(sandboxed: Service) -> None:
    sandboxed.create("twice", "sleep", "1000")
    sandboxed.wait("twice", "started")
    sandboxed.delete("twice")
    with pytest.raises(TencentCloudSDKException, match="ResourceNotFound"):
        sandboxed.describe("twice")
    sandboxed.create("twice", "true")
    assert sandboxed.wait("twice")["state"] == "succeeded"


def test_a_name_that_is_taken(sandboxed: Service) -> None:
    sandboxed.create("taken", "true")
    with pytest.raises(TencentCloudSDKException, match=r"FailedOperation\.AlreadyExists"):
        sandboxed.create("taken", "true")


def test_gpus_are_refused_where_there_are_none(sandboxed: Service) -> None:
    with pytest.raises(TencentCloudSDKException, match=r"ResourceUnavailable.*GPU"):
        sandboxed.create("gpu", "true", MasterType="1U1G1P")


def test_deleting_running_jobs_does_not_affect_later_ones(sandboxed: Service) -> None:
    for n in range(12):
        sandboxed.create(f"deleted-{n}", "sleep", "1000")
    for n in range(12):
        sandboxed.delete(f"deleted-{n}")
    for n in range(30):
        sandboxed.create(f"after-{n}", "echo", str(n))
    for n in range(30):
        job = sandboxed.wait(f"after-{n}")
        assert job["state"] == "succeeded", job
        assert [log.Log for log in sandboxed.logs(f"after-{n}")] == [str(n)]
