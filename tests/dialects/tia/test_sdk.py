"""Tencent's own Python SDK, in every way that it can sign and send."""

import json
import re
from typing import Any

import pytest
from tencentcloud.common import credential
from tencentcloud.common.exception import TencentCloudSDKException
from tencentcloud.common.profile.client_profile import ClientProfile
from tencentcloud.common.profile.http_profile import HttpProfile
from tencentcloud.tia.v20180226 import models, tia_client

from tests.running import KEY, Service

TC3 = "TC3-HMAC-SHA256"
VARIANTS = [
    pytest.param(sign, method, unsigned, id=f"{sign}-{method}{'-unsigned' if unsigned else ''}")
    for sign in (TC3, "HmacSHA1", "HmacSHA256")
    for method in ("POST", "GET")
    for unsigned in (False, True)
    if sign == TC3 or not unsigned
]
SEED: dict[str, Any] = {
    "Cluster": "ap-beijing",
    "RuntimeVersion": "tia-1.7.0",
    "ScaleTier": "Custom",
    "MasterType": "1U1G0P",
    "WorkerType": "1U1G0P",
    "ParameterServerType": "1U1G0P",
    "WorkerCount": 2,
    "ParameterServerCount": 1,
    "PackageDir": ["cos://mybucket-1256385809.cos.ap-beijing.myqcloud.com/mnist:/data/mnist"],
    "Command": ["sh"],
    "Args": ["-c", 'sleep 60; echo "$@"', *(f"ü {number} &=" for number in range(12)), ""],
    "Debug": True,
    "RuntimeConf": ["a=b"],
}


def profile(service: Service, sign: str = TC3, method: str = "POST", unsigned: bool = False) -> ClientProfile:
    http = HttpProfile(protocol="http", endpoint=f"127.0.0.1:{service.port}", reqMethod=method, reqTimeout=30)
    made = ClientProfile(signMethod=sign, httpProfile=http, language="en-US")
    made.unsignedPayload = unsigned
    return made


def client(service: Service, *variant: Any, secret: str = KEY.secret) -> tia_client.TiaClient:
    return tia_client.TiaClient(
        credential.Credential(KEY.id, secret), "ap-guangzhou", profile(service, *variant)
    )


def request(kind: type, **fields: Any) -> Any:
    made = kind()
    made.from_json_string(json.dumps(fields))
    return made


def job_name(prefix: str, sign: str, method: str, unsigned: bool) -> str:
    return f"{prefix}-{sign.lower()}-{method.lower()}" + ("-unsigned" if unsigned else "")


@pytest.mark.parametrize(("sign", "method", "unsigned"), VARIANTS)
def test_every_way_to_sign_and_send(service: Service, sign: str, method: str, unsigned: bool):
    one = client(service, sign, method, unsigned)
    name = job_name("sync", sign, method, unsigned)
    where = {"Name": name, "Cluster": "ap-beijing"}
    reply = one.CreateJob(request(models.CreateJobRequest, Name=name, **SEED)).Job
    assert {field: getattr(reply, field) for field in SEED} == SEED
    described = one.DescribeJob(request(models.DescribeJobRequest, **where)).Job
    assert {field: getattr(described, field) for field in SEED} == SEED
    listed = one.ListJobs(request(models.ListJobsRequest, Cluster="ap-beijing", Limit=100)).Jobs
    assert name in [job.Name for job in listed or []]
    logs = request(
        models.QueryLogsRequest,
        JobName=name,
        Cluster="ap-beijing",
        StartTime="2018-01-01 00:00:00",
        EndTime="2099-01-01 00:00:00",
        Limit=10,
    )
    assert one.QueryLogs(logs).Listover
    one.DeleteJob(request(models.DeleteJobRequest, **where))
    with pytest.raises(TencentCloudSDKException) as raised:
        one.DescribeJob(request(models.DescribeJobRequest, **where))
    assert raised.value.get_code() == "ResourceNotFound"


@pytest.mark.parametrize(("sign", "method", "unsigned"), VARIANTS)
def test_a_wrong_secret(service: Service, sign: str, method: str, unsigned: bool):
    one = client(service, sign, method, unsigned, secret="not-the-secret")
    with pytest.raises(TencentCloudSDKException) as raised:
        one.ListJobs(request(models.ListJobsRequest, Cluster="ap-beijing"))
    assert raised.value.get_code() == "AuthFailure.SignatureFailure"
    assert raised.value.get_request_id()


def test_the_reply_to_create_job_is_the_documented_one(service: Service):
    reply = service.create("documented", "true", ScaleTier="Custom", MasterType="1U1G0P")
    assert reply.Message == "creating"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{9} \+0800 CST m=\+\d+\.\d{9}", reply.CreateTime)
    silent = ("State", "StartTime", "EndTime", "DelTime", "AppId", "Uin", "Id", "WorkerType", "WorkerCount")
    assert [getattr(reply, field) for field in silent] == [None] * len(silent)


def test_a_job_from_beginning_to_end(service: Service):
    service.create("whole", "sh", Args=["-c", "echo one; echo two >&2; exit 3"])
    service.wait("whole")
    job = service.describe("whole")
    assert (job.State, job.Message) == ("Failed", "[MASTER/Failed : Failed/1]")
    assert job.CreateTime <= job.StartTime <= job.EndTime
    assert job.EndTime.endswith(" +0800 CST")
    assert (job.AppId, job.Uin[:3], len(job.Id)) == (1264588639, "100", 36)
    lines = service.logs("whole")
    assert sorted(line.Log for line in lines) == ["one", "two"]
    assert {line.PodName[:13] for line in lines} == {"whole-master-"}
    assert {line.ContainerName for line in lines} == {"tensorflow"}
    assert {line.Namespace for line in lines} == {str(job.AppId)}


def test_a_job_that_succeeds_has_nothing_to_say(service: Service):
    service.create("fine", "true")
    service.wait("fine")
    job = service.describe("fine")
    assert (job.State, job.Message) == ("Succeeded", "")


def test_a_name_is_taken_until_its_job_is_deleted(service: Service):
    service.create("again", "true")
    with pytest.raises(TencentCloudSDKException) as raised:
        service.create("again", "true")
    assert raised.value.get_code() == "FailedOperation.AlreadyExists"
    service.create("again", "true", Cluster="ap-shanghai")
    service.delete("again")
    service.create("again", "true")


def test_logs_page_by_page(service: Service):
    service.create("pages", "seq", Args=["1", "2500"])
    service.wait("pages")
    lines = [line.Log for line in service.logs("pages", limit=1000)]
    assert lines == [str(number) for number in range(1, 2501)]


def test_logs_go_as_far_as_ten_thousand_lines(service: Service):
    service.create("many", "seq", Args=["1", "10500"])
    service.wait("many")
    with pytest.raises(TencentCloudSDKException) as raised:
        service.logs("many")
    assert raised.value.get_code() == "InvalidParameter"
    assert "10000" in str(raised.value)


def test_logs_of_a_time(service: Service):
    service.create("timed", "echo", "now")
    service.wait("timed")
    fields = {"JobName": "timed", "Cluster": "ap-beijing", "Limit": 10}
    before = {"StartTime": "2018-01-01 00:00:00", "EndTime": "2018-01-02 00:00:00"}
    assert service.sdk().QueryLogs(request(models.QueryLogsRequest, **fields, **before)).Logs == []
    (line,) = service.logs("timed")
    second = line.Time[:19] + "Z"
    same = {"StartTime": second, "EndTime": second}
    (again,) = service.sdk().QueryLogs(request(models.QueryLogsRequest, **fields, **same)).Logs or []
    assert (again.Log, again.Time) == ("now", line.Time)


def test_a_context_of_another_job(service: Service):
    service.create("context-a", "echo", "a")
    service.create("context-b", "echo", "b")
    service.wait("context-a")
    fields = {
        "Cluster": "ap-beijing",
        "StartTime": "2018-01-01 00:00:00",
        "EndTime": "2099-01-01 00:00:00",
        "Limit": 1,
    }
    first = service.sdk().QueryLogs(request(models.QueryLogsRequest, JobName="context-a", **fields))
    other = request(models.QueryLogsRequest, JobName="context-b", Context=first.Context, **fields)
    with pytest.raises(TencentCloudSDKException) as raised:
        service.sdk().QueryLogs(other)
    assert raised.value.get_code() == "InvalidParameter"


def test_lists_are_newest_first(service: Service):
    for number in range(5):
        service.create(f"listed-{number}", "true", Cluster="ap-chengdu")
    one = service.sdk()

    def names(**fields: int) -> list[str]:
        page = one.ListJobs(request(models.ListJobsRequest, Cluster="ap-chengdu", **fields))
        return [job.Name for job in page.Jobs or []]

    newest_first = [f"listed-{number}" for number in (4, 3, 2, 1, 0)]
    assert names() == newest_first
    assert names(Limit=2) == newest_first[:2]
    assert names(Limit=2, Offset=2) == newest_first[2:4]
    assert names(Offset=5) == []


def test_as_many_arguments_as_are_accepted_also_run(service: Service):
    service.create("words", "sh", "-c", "echo $#", "sh", Args=[str(number) for number in range(7_996)])
    service.wait("words")
    assert [line.Log for line in service.logs("words")] == ["7996"]


def test_more_gpus_than_there_are(service: Service):
    with pytest.raises(TencentCloudSDKException) as raised:
        service.create("greedy", "true", MasterType="0U0G8P")
    assert raised.value.get_code() == "ResourceUnavailable"


def test_the_example_of_tfplus(service: Service):
    fields = {
        "Cluster": "cls-rgaisoe4",
        "RuntimeVersion": "tfplus-1.6.0-gpu",
        "WorkerCount": 3,
        "WorkerType": "0U0G2P",
    }
    service.create("test73", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES", **fields)
    service.wait("test73", cluster="cls-rgaisoe4")
    devices = [line.Log.split(",") for line in service.logs("test73", "cls-rgaisoe4")]
    assert sorted(map(len, devices)) == [2, 2, 2]
    assert len({number for some in devices for number in some}) == 6


def test_the_first_mount_is_the_working_directory_and_what_is_written_there_stays(service: Service):
    where = "cos://mybucket-1256385809.cos.ap-beijing.myqcloud.com/out/:/data/out"
    other = "cos://other-1.cos.ap-beijing.myqcloud.com/:/data/other"
    service.put("cos://mybucket-1256385809/out/train.py")
    service.create("writes", "sh", "-c", "echo done > result", PackageDir=[where, other])
    service.wait("writes")
    service.create("reads", "cat", "result", PackageDir=[where.replace("/data/out", "/in")])
    service.wait("reads")
    assert [line.Log for line in service.logs("reads")] == ["done"]
