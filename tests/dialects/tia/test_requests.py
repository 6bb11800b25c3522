"""Requests that no SDK would send, to the running service: each gets its documented error and changes nothing."""

import http.client
import json
from typing import Any

import pytest

from tests.dialects.tia.raw import FORM, call, send, signed
from tests.running import Service

JOB: dict[str, Any] = {
    "Name": "never",
    "Cluster": "ap-beijing",
    "RuntimeVersion": "tia-1.7.0",
    "Command": ["true"],
}


@pytest.fixture(autouse=True)
def nothing_changes(service: Service):
    yield
    assert call(service, "DescribeJob", {"Name": "never", "Cluster": "ap-beijing"}).code == "ResourceNotFound"


def create(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in (JOB | fields).items() if value is not ...}


@pytest.mark.parametrize(
    ("body", "code", "word"),
    [
        (create(Name=...), "MissingParameter", "Name"),
        (create(Cluster=...), "MissingParameter", "Cluster"),
        (create(RuntimeVersion=...), "MissingParameter", "RuntimeVersion"),
        (create(Colour="red"), "UnknownParameter", "Colour"),
        (create(workerCount=1), "UnknownParameter", "WorkerCount"),
        (create(Name=7), "InvalidParameter", "Name"),
        (create(Name="a\nb"), "InvalidParameter", "Name"),
        (create(Name="a" * 129), "InvalidParameter", "Name"),
        (create(WorkerCount="2"), "InvalidParameter", "WorkerCount"),
        (create(WorkerCount=-1), "InvalidParameter", "WorkerCount"),
        (create(WorkerCount=2**64), "InvalidParameter", "WorkerCount"),
        (create(WorkerCount=10**6), "InvalidParameter", "WorkerCount"),
        (create(Args="a"), "InvalidParameter", "Args"),
        (create(Args=["a", 1]), "InvalidParameter", "Args"),
        (create(Args=["\0"]), "InvalidParameter", "Args.0"),
        (create(Args=["x" * 131072]), "InvalidParameter", "Args.0"),
        (create(Args=["a"] * 10_000), "InvalidParameter", "Args"),
        (create(PackageDir=["file:///tmp:/data"] * 65), "InvalidParameter", "PackageDir"),
        (create(Command=[]), "InvalidParameter", "Command"),
        (create(Debug="yes"), "InvalidParameter", "Debug"),
        (create(RuntimeVersion="tf-9"), "InvalidParameter", "RuntimeVersion"),
        (create(RuntimeVersion="tiaserv-1.6.0-cpu"), "InvalidParameter", "RuntimeVersion"),
        (create(ScaleTier="HUGE"), "InvalidParameter", "ScaleTier"),
        (create(ScaleTier="BASIC", WorkerCount=2), "InvalidParameter", "WorkerCount"),
        (create(MasterType="1U"), "InvalidParameter", "MasterType"),
        (create(PackageDir=["/data"]), "InvalidParameter", "PackageDir.0"),
        (create(PackageDir=["file:///etc:/data"]), "InvalidParameter", "PackageDir"),
        (create(PackageDir=["file:///tmp/../etc:/data"]), "InvalidParameter", "PackageDir"),
        (create(PackageDir=["cos://b-1.c.com/../../x:/data"]), "InvalidParameter", "PackageDir"),
        (create(PackageDir=["cos://b-1.c.com/x:/data/../etc"]), "InvalidParameter", "PackageDir"),
        (
            create(RuntimeVersion="tf-1.7.0", PackageDir=["cos://b-1.c.com/x:/data"]),
            "InvalidParameter",
            "PackageDir",
        ),
        (create(Cluster="mars"), "ResourceUnavailable", "ap-beijing"),
        (create(MasterType="0U0G8P"), "ResourceUnavailable", "GPU"),
        (b"{", "InvalidParameter", "JSON"),
        (b"[]", "InvalidParameter", "JSON"),
        (b'"text"', "InvalidParameter", "JSON"),
        (b'{"Name": "\xff\xfe"}', "InvalidParameter", "JSON"),
        (b"[" * 100_000, "InvalidParameter", "JSON"),
        (b"", "MissingParameter", "Name"),
    ],
)
def test_create_job_says_what_is_wrong(service: Service, body: object, code: str, word: str):
    reply = call(service, "CreateJob", body)
    assert reply.code == code
    assert word in reply.error["Message"]


@pytest.mark.parametrize(
    ("action", "body", "code"),
    [
        ("DescribeJob", {"Name": "never", "Cluster": "mars"}, "ResourceNotFound"),
        ("DescribeJob", {"Name": "no\nsuch", "Cluster": "ap-beijing"}, "ResourceNotFound"),
        ("DeleteJob", {"Name": "never", "Cluster": "ap-beijing"}, "ResourceNotFound"),
        ("DeleteJob", {"Name": "never", "Cluster": "mars"}, "ResourceNotFound"),
        ("DeleteJob", {"Name": "never"}, "MissingParameter"),
        ("ListJobs", {"Cluster": "mars"}, "ResourceNotFound"),
        ("ListJobs", {"Cluster": "ap-beijing", "Limit": 101}, "InvalidParameter"),
        ("ListJobs", {"Cluster": "ap-beijing", "Offset": -1}, "InvalidParameter"),
        ("ListJob", {"Cluster": "mars"}, "ResourceNotFound"),
        ("QueryLogs", {"JobName": "never", "Cluster": "ap-beijing"}, "MissingParameter"),
        ("ListJobz", {}, "InvalidAction"),
        ("", {}, "MissingParameter"),
        ("CreateModel", {"Name": "a", "Model": "b"}, "UnsupportedOperation"),
        ("DescribeModel", {}, "UnsupportedOperation"),
        ("ListModels", {}, "UnsupportedOperation"),
        ("ListModel", {}, "UnsupportedOperation"),
        ("DeleteModel", {}, "UnsupportedOperation"),
        ("InstallAgent", {}, "UnsupportedOperation"),
    ],
)
def test_the_other_actions_say_what_is_wrong(service: Service, action: str, body: object, code: str):
    assert call(service, action, body).code == code


LOGS = {
    "JobName": "never",
    "Cluster": "ap-beijing",
    "StartTime": "2018-05-23 10:00:00",
    "EndTime": "2018-05-23 11:00:00",
    "Limit": 10,
}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, "ResourceNotFound"),
        ({"StartTime": "now"}, "InvalidParameter"),
        ({"EndTime": "2018-05-23 09:00:00"}, "InvalidParameter"),
        ({"Limit": 0}, "InvalidParameter"),
        ({"Limit": 1001}, "InvalidParameter"),
        ({"Context": "nonsense"}, "InvalidParameter"),
        ({"Cluster": "mars"}, "ResourceNotFound"),
    ],
)
@pytest.mark.parametrize("action", ["QueryLogs", "QueryLog"])
def test_query_logs_says_what_is_wrong(service: Service, action: str, fields: dict[str, Any], code: str):
    assert call(service, action, LOGS | fields).code == code


@pytest.mark.parametrize(
    ("headers", "code"),
    [({"X-TC-Version": "2017-03-12"}, "NoSuchVersion"), ({"X-TC-Version": ""}, "MissingParameter")],
)
def test_there_is_one_version(service: Service, headers: dict[str, str], code: str):
    assert call(service, "ListJobs", {"Cluster": "ap-beijing"}, headers=headers).code == code


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS"])
def test_there_are_two_methods(service: Service, method: str):
    assert send(service, method).code == "UnsupportedProtocol"


@pytest.mark.parametrize("content_type", ["multipart/form-data; boundary=x", "text/plain"])
def test_there_are_two_content_types(service: Service, content_type: str):
    assert call(service, "CreateJob", b"", content_type=content_type).code == "InvalidRequest"


# Who asks


@pytest.mark.parametrize(
    ("method", "target", "headers"),
    [
        ("GET", "/", {"X-TC-Action": "ListJobs"}),
        ("GET", "/?Cluster=ap-beijing", {}),
        ("GET", "/?Action=ListJobs&Version=2018-02-26&Cluster=ap-beijing", {"Accept": "text/html"}),
        ("POST", "/", {"X-TC-Action": "ListJobs"}),
        ("POST", "/", {"Authorization": "SKIP", "X-TC-Action": "ListJobs"}),
        ("POST", "/", {"Authorization": "Bearer tk1.x", "X-TC-Action": "ListJobs"}),
        ("POST", "/", {"Authorization": "TC3-HMAC-SHA256 nonsense", "X-TC-Action": "ListJobs"}),
        ("POST", "/", {"Content-Type": FORM}),
    ],
)
def test_nobody_known(service: Service, method: str, target: str, headers: dict[str, str]):
    assert send(service, method, target, headers).code == "AuthFailure.InvalidAuthorization"


def test_a_body_that_was_changed_on_its_way(service: Service):
    headers = signed(service, json.dumps(JOB).encode())
    changed = json.dumps(JOB | {"Command": ["false"]}).encode()
    reply = send(service, "POST", "/", headers | {"X-TC-Action": "CreateJob"}, changed)
    assert reply.code == "AuthFailure.SignatureFailure"


def test_post_reads_the_body_only(service: Service):
    """The query of a POST is not signed, so nothing may come from it."""
    headers = signed(service, b"{}") | {"X-TC-Action": "ListJobs", "X-TC-Version": "2018-02-26"}
    assert send(service, "POST", "/?Cluster=ap-beijing", headers, b"{}").code == "MissingParameter"


# Sizes


def test_a_query_that_is_too_long(service: Service):
    assert send(service, "GET", "/?Name=" + "x" * (32 << 10)).code == "RequestSizeLimitExceeded"


def test_a_form_that_is_too_large(service: Service):
    reply = send(service, "POST", "/", {"Content-Type": FORM}, b"Name=" + b"x" * (1 << 20))
    assert reply.code == "RequestSizeLimitExceeded"


def test_a_body_that_is_too_large(service: Service):
    assert call(service, "CreateJob", b" " * (10 << 20) + b"{}").code == "RequestSizeLimitExceeded"


def test_a_body_in_pieces_that_grows_too_large(service: Service):
    pieces = (b" " * (1 << 16) for _ in range(170))
    assert (
        send(service, "POST", "/", {"Content-Type": "application/json"}, pieces).code
        == "RequestSizeLimitExceeded"
    )


def test_a_body_that_says_it_is_too_large_is_not_waited_for(service: Service):
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
    connection.putrequest("POST", "/")
    connection.putheader("Content-Length", str(1 << 40))
    connection.endheaders()
    answer = json.loads(connection.getresponse().read())
    connection.close()
    assert answer["Response"]["Error"]["Code"] == "RequestSizeLimitExceeded"


def test_a_body_just_below_the_limit(service: Service):
    padded = json.dumps({"Cluster": "ap-beijing"}).encode().ljust(10 << 20)
    assert "Jobs" in call(service, "ListJobs", padded).body


# People


def test_a_browser_sees_a_page(service: Service):
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
    connection.request("GET", "/", headers={"Accept": "text/html,application/xhtml+xml"})
    answer = connection.getresponse()
    page = answer.read()
    connection.close()
    assert answer.status == 200
    assert answer.getheader("Content-Type", "").startswith("text/html")
    assert b"<html" in page
