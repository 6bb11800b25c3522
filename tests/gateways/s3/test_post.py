"""Uploads by a form, as `generate_presigned_post` makes it."""

import base64
import json
import os
import time
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from tests.gateways.s3.conftest import OTHER, ROOT, Gateway, open_gateway
from turnout.access.sigv2 import sign

Form = dict[str, Any]


@pytest.fixture(params=["s3", "s3v4"])
def version(request: pytest.FixtureRequest) -> str:
    return request.param


def form(
    gateway: Gateway, version: str, key: str, *conditions: Any, seconds: int = 60, **fields: str
) -> Form:
    client = gateway.client(signature_version=version)
    given = {
        name.replace("_", "-") if name.startswith(("x_", "Content")) else name: v
        for name, v in fields.items()
    }
    rules = [{name: value} for name, value in given.items()] + list(conditions)
    return client.generate_presigned_post("forms", key, Fields=given, Conditions=rules, ExpiresIn=seconds)


def send(made: Form, data: Any = b"hello", name: str = "f.txt", **changes: Any) -> httpx.Response:
    fields = made["fields"] | changes
    return httpx.post(made["url"], data=fields, files={"file": (name, data)}, follow_redirects=False)


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.text.partition("<Code>")[2].partition("</Code>")[0]


def stored(gateway: Gateway, key: str) -> bytes:
    return (gateway.buckets / "forms" / key).read_bytes()


def test_a_file(gateway: Gateway, version: str):
    made = form(gateway, version, f"{version}/a", Content_Type="text/csv", x_amz_meta_owner="me")
    answer = send(made, b"hello")
    assert (answer.status_code, answer.text) == (204, "")
    found = gateway.client().get_object(Bucket="forms", Key=f"{version}/a")
    assert found["Body"].read() == b"hello"
    assert (found["ContentType"], found["Metadata"]) == ("text/csv", {"owner": "me"})
    assert answer.headers["etag"] == found["ETag"]


@pytest.mark.parametrize("data", [b"", b"\r\n", b"\r\n--", b"x" * 3_000_001, b"\r\n--" * 100_000])
def test_every_byte_of_it(gateway: Gateway, version: str, data: bytes):
    assert send(form(gateway, version, "bytes"), data).status_code == 204
    assert stored(gateway, "bytes") == data


def test_the_name_of_the_file(gateway: Gateway, version: str):
    made = form(gateway, version, "named/${filename}")
    for name in ("n.txt", "dir/n.txt", "C:\\dir\\n.txt"):
        assert send(made, name.encode(), name).status_code == 204
        assert stored(gateway, "named/n.txt") == name.encode()
    assert code(send(made, b"x", "..")) == (400, "InvalidArgument")


def test_the_answer_that_the_form_asks_for(gateway: Gateway, version: str):
    answer = send(form(gateway, version, "201", success_action_status="201"))
    assert (answer.status_code, "<Key>201</Key>" in answer.text) == (201, True)
    assert send(form(gateway, version, "200", success_action_status="200")).status_code == 200
    redirect = "https://page.example/done?a=1"
    answer = send(form(gateway, version, "303", success_action_redirect=redirect))
    assert answer.status_code == 303
    assert answer.headers["location"].startswith(f"{redirect}&bucket=forms&key=303&etag=")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"key": "elsewhere"}, "AccessDenied"),
        ({"acl": "public-read"}, "AccessDenied"),
        ({"x-amz-meta-more": "x"}, "AccessDenied"),
        ({"Content-Type": "text/html"}, "AccessDenied"),
        ({"bucket": "other"}, "AccessDenied"),
        ({"key": ""}, "UserKeyMustBeSpecified"),
        ({"policy": ""}, "AccessDenied"),
        ({"policy": "e30="}, "SignatureDoesNotMatch"),
        ({"x-ignore-this": "x"}, ""),
    ],
)
def test_nothing_else_than_the_policy_says(gateway: Gateway, version: str, changes: Any, expected: str):
    made = form(gateway, version, "user/a", {"Content-Type": "text/plain"})
    made["fields"]["Content-Type"] = "text/plain"
    answer = send(made, **changes)
    assert code(answer)[1] == expected, answer.text
    assert not (gateway.buckets / "other").exists()


@pytest.mark.parametrize("value", ["a\r\nb: c", "ü", "🙂", "\x00", "x" * 5000, "</Key>"])
@pytest.mark.parametrize(
    "name", ["Content-Type", "x-amz-meta-a", "key", "success_action_redirect", "success_action_status"]
)
def test_no_value_gets_out_of_its_place(gateway: Gateway, name: str, value: str):
    fields = {"key": "odd"} | {name: value}
    conditions = [["starts-with", f"${one}", ""] for one in fields]
    made = {
        "url": f"{gateway.url}/forms",
        "fields": signed({"expiration": SOON, "conditions": conditions}) | fields,
    }
    answer = send(made)
    assert answer.status_code in (204, 400, 403), answer.text
    if answer.status_code == 204 and name != "key":
        found = gateway.client().head_object(Bucket="forms", Key="odd")
        assert "b" not in found["ResponseMetadata"]["HTTPHeaders"]


def test_a_prefix(gateway: Gateway, version: str):
    made = form(gateway, version, "user/${filename}", ["starts-with", "$Content-Type", "image/"])
    assert send(made, **{"Content-Type": "image/png"}).status_code == 204
    assert code(send(made, **{"Content-Type": "text/html"})) == (403, "AccessDenied")
    assert code(send(made, key="other/a", **{"Content-Type": "image/png"})) == (403, "AccessDenied")


def test_the_size(gateway: Gateway, version: str):
    made = form(gateway, version, f"sized-{version}", ["content-length-range", 2, 1000])
    assert code(send(made, b"x")) == (400, "EntityTooSmall")
    assert code(send(made, os.urandom(1001))) == (400, "EntityTooLarge")
    assert not (gateway.buckets / "forms" / f"sized-{version}").exists()
    assert send(made, os.urandom(1000)).status_code == 204
    assert gateway.leftovers() == []


def test_it_ends(gateway: Gateway, version: str, monkeypatch: pytest.MonkeyPatch):
    made = form(gateway, version, "late", seconds=60)
    monkeypatch.setattr(gateway, "clock", lambda: time.time() + 62)
    assert code(send(made)) == (403, "AccessDenied")
    assert "Policy expired" in send(made).text


def test_it_lasts_a_week_at_most(gateway: Gateway, version: str, monkeypatch: pytest.MonkeyPatch):
    assert send(form(gateway, version, "week", seconds=7 * 86400)).status_code == 204
    made = form(gateway, version, "week", seconds=8 * 86400)
    assert code(send(made)) == (400, "InvalidPolicyDocument")
    monkeypatch.setattr(gateway, "clock", lambda: time.time() + 7.5 * 86400)
    assert send(made).status_code == (204 if version == "s3" else 403)  # version 2 has no beginning


def test_who_may_not(gateway: Gateway, version: str):
    made = form(gateway, version, "mine")
    names = ("AWSAccessKeyId",) if version == "s3" else ("x-amz-credential",)
    for name in names:
        stranger = made["fields"][name].replace(ROOT.id, "nobody")
        assert code(send(made, **{name: stranger})) == (403, "InvalidAccessKeyId")
        other = made["fields"][name].replace(ROOT.id, OTHER.id)
        assert code(send(made, **{name: other})) == (403, "SignatureDoesNotMatch")
    gateway.client(OTHER).put_object(Bucket="of-other", Key="a", Body=b"x")
    client = gateway.client(signature_version=version)
    assert code(send(client.generate_presigned_post("of-other", "a"))) == (403, "AccessDenied")
    bare = {"url": made["url"], "fields": {"key": "mine"}}
    assert code(send(bare)) == (403, "AccessDenied")


def signed(policy: object, **fields: str) -> dict[str, str]:
    text = policy if isinstance(policy, str) else base64.b64encode(json.dumps(policy).encode()).decode()
    return {"key": "a", "AWSAccessKeyId": ROOT.id, "policy": text, "signature": sign(ROOT, text)} | fields


SOON = datetime.fromtimestamp(time.time() + 3600, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.mark.parametrize(
    "policy",
    [
        "", "!", "bm90IGpzb24=", [], {}, {"expiration": SOON}, {"expiration": 5, "conditions": []},
        {"expiration": "soon", "conditions": []}, {"expiration": "0001-01-01T00:00:00+23:59", "conditions": []},
        {"expiration": SOON, "conditions": {}}, {"expiration": SOON, "conditions": ["x"]},
        {"expiration": SOON, "conditions": [["ends-with", "$key", "a"]]},
        {"expiration": SOON, "conditions": [["eq", "key", "a"]]}, {"expiration": SOON, "conditions": [{"key": 1}]},
        {"expiration": SOON, "conditions": [{"key": "a", "b": "c"}]}, {"expiration": SOON, "conditions": [{}]},
        {"expiration": SOON, "conditions": [["content-length-range", 1]]},
        {"expiration": SOON, "conditions": [["content-length-range", [], {}]]}, "W1" * 20_000,
        base64.b64encode(b"[" * 20_000).decode(),
    ],
)  # fmt: skip
def test_what_is_no_policy(gateway: Gateway, policy: object):
    answer = send({"url": f"{gateway.url}/forms", "fields": signed(policy)})
    assert code(answer) in ((400, "InvalidPolicyDocument"), (403, "AccessDenied")), answer.text


HEAD = 'Content-Disposition: form-data; name="{}"\r\n\r\n'


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("", "MalformedPOSTRequest"),
        ("x", "MalformedPOSTRequest"),
        ("--b--\r\n", "IncorrectNumberOfFilesInPostRequest"),
        ("--b\r\n" + HEAD.format("key") + "a\r\n--b--\r\n", "IncorrectNumberOfFilesInPostRequest"),
        ("--b\r\nX: y\r\n\r\n", "MalformedPOSTRequest"),
        ("--other\r\n" + HEAD.format("key") + "a\r\n--b--\r\n\r\n\r\n", "MalformedPOSTRequest"),
        (2 * ("--b\r\n" + HEAD.format("key") + "a\r\n"), "MalformedPOSTRequest"),
        ("--b\r\n" + HEAD.format("key") + "a" * 100_000, "MaxPostPreDataLengthExceededError"),
        (
            "".join(f"--b\r\n{HEAD.format(n)}{'a' * 500}\r\n" for n in range(500)),
            "MaxPostPreDataLengthExceededError",
        ),
        ("--b\r\n" + HEAD.format("file") + "a\r\n--b--", "UserKeyMustBeSpecified"),
    ],
)
def test_what_is_no_form(gateway: Gateway, body: str, expected: str):
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    answer = httpx.post(f"{gateway.url}/forms", content=body, headers=headers)
    assert code(answer) == (400, expected), answer.text


def test_a_form_that_breaks_off_leaves_nothing(gateway: Gateway):
    fields = "".join(
        f"--b\r\n{HEAD.format(name)}{value}\r\n"
        for name, value in signed({"expiration": SOON, "conditions": [{"key": "a"}]}).items()
    )
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    body = fields + "--b\r\n" + HEAD.format("file") + "half"
    assert code(httpx.post(f"{gateway.url}/forms", content=body, headers=headers)) == (400, "IncompleteBody")
    assert not (gateway.buckets / "forms" / "a").exists()
    for place in ("/", "/forms/key"):
        answer = httpx.post(gateway.url + place, content=body, headers=headers)
        assert code(answer) == (405, "MethodNotAllowed")
    answer = httpx.post(f"{gateway.url}/forms", content=body, headers={"Content-Type": "multipart/form-data"})
    assert code(answer) == (400, "MalformedPOSTRequest")


def test_without_authentication():
    with open_gateway(no_auth=True) as gateway:
        assert send({"url": f"{gateway.url}/forms", "fields": {"key": "a"}}).status_code == 204
        assert stored(gateway, "a") == b"hello"
