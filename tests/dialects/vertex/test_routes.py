"""Custom jobs over HTTP, request by request."""

import http.client
import re
from typing import Any
from urllib.parse import quote

import pytest

from tests.dialects.vertex import jobs
from tests.dialects.vertex.driving import LOCATION, PROJECT, Cloud
from tests.running import Service
from turnout.dialects.vertex.address import owns
from turnout.dialects.vertex.resource_names import project_number


def test_a_life(cloud: Cloud):
    made = cloud.shell("echo hello", displayName="a life", labels={"team": "vision"})
    assert re.fullmatch(rf"projects/{PROJECT}/locations/{LOCATION}/customJobs/[0-9]{{19}}", made["name"])
    assert made["state"] in ("JOB_STATE_QUEUED", "JOB_STATE_PENDING")
    assert made["jobSpec"]["workerPoolSpecs"][0]["machineSpec"] == {"machineType": "n1-standard-4"}
    ended = cloud.wait(made["name"])
    assert ended["state"] == "JOB_STATE_SUCCEEDED"
    assert "error" not in ended
    assert ended["createTime"] == made["createTime"]
    assert ended["createTime"] < ended["startTime"] < ended["endTime"] <= ended["updateTime"]
    assert ended["updateTime"] > made["updateTime"]
    assert ended["labels"] == {"team": "vision"}
    assert cloud.send("POST", f"/v1/{made['name']}:cancel", {}) == (200, {})
    operation = cloud.send("DELETE", f"/v1/{made['name']}").body
    assert operation["done"]
    assert cloud.send("GET", f"/v1/{made['name']}").error == (
        404, "NOT_FOUND", f"The CustomJob {made['name']} does not exist.",
    )  # fmt: skip


def test_a_failure_tells_the_end_of_the_log(cloud: Cloud):
    made = cloud.shell("echo loading; echo there is no data >&2; exit 3")
    failed = cloud.wait(made["name"])
    assert failed["error"] == {
        "code": 3,
        "message": "The replica workerpool0-0 exited with a non-zero status of 3. Termination reason: Error.\n"
        "loading\nthere is no data",
    }
    listed = cloud.send("GET", f"customJobs?filter=create_time%3D%22{made['createTime']}%22").body
    assert listed == {"customJobs": [failed]}


def test_cancel_and_delete(cloud: Cloud):
    made = cloud.shell("sleep 1000")
    status, code, message = cloud.send("DELETE", f"/v1/{made['name']}").error
    assert (status, code) == (400, "FAILED_PRECONDITION")
    assert "cannot be deleted before it has ended" in message
    # Without a body, and as some libraries encode it.
    assert cloud.send("POST", f"/v1/{made['name']}%3Acancel", b"") == (200, {})
    cancelled = cloud.wait(made["name"])
    assert cancelled["state"] == "JOB_STATE_CANCELLED"
    assert cancelled["error"]["code"] == 1
    assert cancelled["error"]["message"].startswith("CANCELED")


@pytest.fixture(scope="module")
def operation(cloud: Cloud) -> Any:
    made = cloud.shell("true")
    cloud.wait(made["name"])
    return cloud.send("DELETE", f"/v1/{made['name']}").body


class TestOperations:
    @pytest.mark.parametrize("version", ["v1", "v1beta1", "ui"])
    def test_can_be_asked_for_again(self, cloud: Cloud, operation: Any, version: str):
        name = operation["name"]
        assert re.fullmatch(rf"{cloud.parent}/operations/[0-9]{{19}}", name)
        assert cloud.send("GET", f"/{version}/{name}") == (200, operation)
        assert cloud.send("POST", f"/{version}/{name}:wait", {}) == (200, operation)
        assert cloud.send("POST", f"/{version}/{name}:cancel", {}) == (200, {})
        assert cloud.send("DELETE", f"/{version}/{name}") == (200, {})
        nested = name.replace("/operations", "/customJobs/123/operations")
        assert cloud.send("GET", f"/{version}/{nested}") == (200, operation)
        assert cloud.send("GET", f"/{version}/{name.rpartition('/')[0]}") == (200, {})

    def test_cannot_be_made_up_or_taken_elsewhere(self, cloud: Cloud, operation: Any):
        number = int(operation["name"].rpartition("/")[2])
        for other in (str(number + 2), "0", "x", str(10**19), "1" * 30):
            assert cloud.send("GET", f"operations/{other}").error[:2] == (404, "NOT_FOUND")
        elsewhere = operation["name"].replace(LOCATION, "europe-west4")
        assert cloud.send("GET", f"/v1/{elsewhere}").status == 404

    def test_speak_the_version_of_the_delete(self, cloud: Cloud):
        made = cloud.shell("true")
        cloud.wait(made["name"])
        operation = cloud.send("DELETE", f"/v1beta1/{made['name']}").body
        assert ".v1beta1.DeleteOperationMetadata" in operation["metadata"]["@type"]
        assert cloud.send("GET", f"/ui/{operation['name']}").body == operation


@pytest.fixture(scope="module")
def many(service: Service) -> Cloud:
    cloud = Cloud(service, "lists")
    for number in range(7):
        cloud.create(displayName=f"job {number}", labels={"odd": "yes"} if number % 2 else {})
    return cloud


class TestLists:
    def names(self, cloud: Cloud, query: str = "") -> list[str]:
        listed = cloud.send("GET", f"customJobs?{query}")
        assert listed.status == 200, listed.body
        return [job["displayName"] for job in listed.body.get("customJobs", [])]

    def test_have_the_newest_first(self, many: Cloud):
        assert self.names(many) == [f"job {number}" for number in range(6, -1, -1)]
        assert many.send("GET", "/v1/projects/lists/locations/europe-west4/customJobs") == (200, {})

    def test_come_in_pages_that_new_jobs_do_not_shift(self, many: Cloud):
        seen, token = list[str](), ""
        while True:
            page = many.send("GET", f"customJobs?pageSize=3&pageToken={token}&filter=labels.odd%3Ayes").body
            seen += [job["displayName"] for job in page["customJobs"]]
            many.create(displayName="late", labels={"odd": "yes"})
            token = page.get("nextPageToken")
            if not token:
                break
        assert seen == ["job 5", "job 3", "job 1"]

    def test_take_a_page_token_as_it_was_given_only(self, many: Cloud):
        token = many.send("GET", "customJobs?pageSize=1").body["nextPageToken"]
        assert many.send("GET", f"customJobs?pageSize=1&pageToken={token}").status == 200
        for wrong in (token + ".x", token + "%3D", token + "%0A", "x" + token, token[:-1], "%C3%A9"):
            status, code, told = many.send("GET", f"customJobs?pageSize=1&pageToken={wrong}").error
            assert (status, code) == (400, "INVALID_ARGUMENT")
            assert "pageToken must be exactly" in told

    def test_are_filtered(self, many: Cloud):
        assert self.names(many, "filter=labels.odd%3Dyes+AND+displayName:%22job*%22") == [
            "job 5", "job 3", "job 1",
        ]  # fmt: skip
        assert self.names(many, "filter=NOT+labels.odd:*+AND+-display_name%3D%22job+0%22") == [
            "job 6", "job 4", "job 2",
        ]  # fmt: skip

    def test_show_what_the_mask_says(self, many: Cloud):
        page = many.send("GET", "customJobs?pageSize=1&readMask=displayName,jobSpec.workerPoolSpecs").body
        (shown,) = page["customJobs"]
        assert list(shown) == ["displayName", "jobSpec"]
        assert many.send("GET", "customJobs?read_mask=name&page_size=1").body["customJobs"][0].keys() == {
            "name"
        }

    @pytest.mark.parametrize(
        ("query", "message"),
        [
            ("filter=state%3D", "filter, at character 7: expected a value."),
            ("pageSize=-1", "pageSize: '-1' must be a whole number of at least 0."),
            ("pageToken=abc", "pageToken must be exactly the nextPageToken of the previous response"),
            ("readMask=nonsense", "readMask: 'nonsense' is not a field"),
            ("orderBy=x", 'Unknown name "orderBy": Cannot bind query parameter.'),
            ("alt=media", "alt: 'media' is not supported; use json."),
        ],
    )
    def test_are_refused(self, cloud: Cloud, query: str, message: str):
        status, code, told = cloud.send("GET", f"customJobs?{query}").error
        assert (status, code) == (400, "INVALID_ARGUMENT")
        assert message in told


def test_enums_come_as_numbers_if_they_are_wanted(cloud: Cloud):
    document = jobs.job(
        jobs.pool(machineSpec={"machineType": "n1-standard-4", "acceleratorType": 1, "acceleratorCount": 1}),
        spec={"scheduling": {"strategy": "SPOT"}},
    )
    path = "customJobs?%24alt=json%3Benum-encoding%3Dint&prettyPrint=true&key=x&quotaUser=me&%24.xgafv=2"
    made = cloud.send("POST", path, document).body
    assert made["state"] in (1, 2)
    assert made["jobSpec"]["workerPoolSpecs"][0]["machineSpec"]["acceleratorType"] == 1
    assert made["jobSpec"]["scheduling"]["strategy"] == 4
    shown = cloud.send("GET", f"/v1/{made['name']}?$alt=json").body
    assert shown["jobSpec"]["workerPoolSpecs"][0]["machineSpec"]["acceleratorType"] == "NVIDIA_TESLA_K80"
    listed = cloud.send("GET", "customJobs?$alt=json;enum-encoding=int&pageSize=1").body
    assert listed["customJobs"][0]["state"] in range(1, 8)


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_both_versions_know_all_jobs(cloud: Cloud, version: str):
    made = cloud.send("POST", f"/{version}/{cloud.parent}/customJobs", jobs.job()).body
    for other in ("v1", "v1beta1"):
        assert cloud.send("GET", f"/{other}/{made['name']}").status == 200


def test_a_project_has_a_number_too(cloud: Cloud):
    number = project_number(PROJECT)
    made = cloud.create()
    path = f"/v1/{made['name'].replace(PROJECT, number)}"
    assert cloud.send("GET", path).body["name"] == made["name"]
    assert cloud.send("GET", f"/v1/projects/{number}/locations/{LOCATION}/customJobs?pageSize=1").body[
        "customJobs"
    ]


def test_encoded_addresses_are_the_same(cloud: Cloud):
    made = cloud.create()
    assert cloud.send("GET", "/v1/" + made["name"].replace("customJobs", "custom%4Aobs")).status == 200
    assert cloud.send("GET", f"/v1/projects%2F{PROJECT}/locations/{LOCATION}/customJobs").status == 404


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1"),
        ("GET", "/v1/projects"),
        ("GET", "/v1/projects/p1/locations/us-central1/nonsense"),
        ("PATCH", "/v1/projects/p1/locations/us-central1/customJobs/1"),
        ("PUT", "/v1/projects/p1/locations/us-central1/customJobs"),
        ("POST", "/v1/projects/p1/locations/us-central1/customJobs/1:nonsense"),
        ("POST", "/v1/projects/p1/locations/us-central1/customJobs/1"),
        ("GET", "/v1/projects/p1/locations/us-central1/customJobs/1:cancel"),
        ("GET", "/ui/projects/p1/locations/us-central1/customJobs"),
        ("GET", "/v1beta1/x"),
        ("GET", "/v2/entries:list"),
        ("GET", "/v1/projects/p1/locations/us-central1/customJobs/1/2/3"),
    ],
)
def test_nothing_is_there(cloud: Cloud, method: str, path: str):
    status, code, message = cloud.send(method, path).error
    assert (status, code) == (404, "NOT_FOUND")
    assert f"{method} {path} is not supported" in message


@pytest.mark.parametrize(
    "job_id", ["0", "1", "x", "-1", "%F0%9F%92%A9", "9223372036854775808", "1" * 40, "١"]
)
def test_no_such_job(cloud: Cloud, job_id: str):
    assert cloud.send("GET", f"customJobs/{quote(job_id, safe='%')}").error[:2] == (404, "NOT_FOUND")


def test_jobs_are_of_one_location_and_of_this_api(cloud: Cloud, service: Service):
    made = cloud.create()
    assert cloud.send("GET", f"/v1/{made['name'].replace(LOCATION, 'europe-west4')}").status == 404
    service.create("of-tia", "true")
    default = Cloud(service, "default")
    job_id = service.native("/jobs/of-tia")["id"]
    assert default.send("GET", f"customJobs/{job_id}").status == 404


def test_bad_bodies(cloud: Cloud):
    for body, message in (
        (b"{", "Invalid JSON payload received. It is not JSON"),
        (b"[]", "Invalid value at 'custom_job'"),
        (b'{"displayName": "\xff"}', "It is not JSON"),
        (b"", "displayName is required."),
    ):
        status, code, told = cloud.send("POST", "customJobs", body).error
        assert (status, code) == (400, "INVALID_ARGUMENT")
        assert message in told
    assert cloud.send("GET", "/v1/projects/p1/locations/US!/customJobs").error[1] == "INVALID_ARGUMENT"


def test_a_body_that_is_too_large_is_not_waited_for(cloud: Cloud):
    connection = http.client.HTTPConnection("127.0.0.1", cloud.service.port, timeout=10)
    connection.putrequest("POST", f"/v1/{cloud.parent}/customJobs")
    connection.putheader("Authorization", f"Bearer {cloud.token()}")
    connection.putheader("Content-Length", str(11 << 20))
    connection.endheaders()
    answer = connection.getresponse()
    assert answer.status == 400
    assert b"Request payload size exceeds the limit" in answer.read()
    connection.close()


def test_too_many_accelerators(cloud: Cloud):
    machine = {"machineType": "n1-standard-4", "acceleratorType": "NVIDIA_TESLA_T4", "acceleratorCount": 2}
    answer = cloud.send("POST", "customJobs", jobs.job(jobs.pool(machineSpec=machine)))
    assert answer.error[:2] == (429, "RESOURCE_EXHAUSTED")


def test_locations(cloud: Cloud):
    listed = cloud.send("GET", f"/v1/projects/{PROJECT}/locations").body["locations"]
    assert {"us-central1", "europe-west4"} <= {one["locationId"] for one in listed}
    assert cloud.send("GET", f"/ui/{cloud.parent}").body["name"] == cloud.parent


@pytest.mark.parametrize(
    ("path", "ours"),
    [
        ("/v1/projects/p/locations/l/customJobs", True),
        ("/v1/projects/workspaces/locations/l/customJobs", True),
        ("/v1/projects/workspaces", False),
        ("/v1/abc/workspaces/1", False),
        ("/v2/entries:list", True),
        ("/v2/p/training-jobs", False),
        ("/ui/x", True),
        ("/storage/v1/b", False),
        ("/turnout/v1/jobs", False),
        ("/token", True),
    ],
)
def test_which_addresses_are_googles(path: str, ours: bool):
    assert owns(path) is ours
