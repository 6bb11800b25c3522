"""Routes: authentication, addresses, and the errors for unknown ones."""

import asyncio
import json
import time

import httpx
import pytest

from tests.dialects.modelarts.driving import Cloud, job, refused, send
from tests.running import KEY, Service, running
from turnout.access import Key, make_token

NOBODY = "5c8d2c9e-0000-8000-8000-000000000000"


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v2/default/no-such-thing", 404, "ModelArts.2836"),
        ("GET", "/v2/default", 404, "ModelArts.2836"),
        ("GET", "/v2", 404, "ModelArts.2836"),
        ("GET", "/v1/default/workspaces/0/nothing", 404, "ModelArts.2836"),
        ("PATCH", "/v2/default/training-jobs", 405, "ModelArts.2803"),
        ("GET", "/v2/default/training-jobs", 405, "ModelArts.2803"),
        ("DELETE", "/v1/default/workspaces", 405, "ModelArts.2803"),
        ("GET", f"/v2/default/training-jobs/{NOBODY}", 400, "ModelArts.2775"),
        ("GET", "/v2/default/training-jobs/a%20b%2Fc", 400, "ModelArts.2775"),
        ("GET", "/v2/default/training-jobs/%00", 400, "ModelArts.2788"),
        ("GET", "/v2/default/training-jobs/%7Btraining_job_id%7D", 400, "ModelArts.2788"),
        ("GET", "/v2/%7Bproject_id%7D/training-job-engines", 400, "ModelArts.2788"),
        ("POST", "/v2/default/training-jobs", 400, "ModelArts.2787"),
    ],
)
def test_what_leads_nowhere(service: Service, method: str, path: str, status: int, code: str):
    answer = send(service, method, path)
    assert (answer.status_code, answer.json()["error_code"]) == (status, code)
    assert set(answer.json()) == {"error_code", "error_msg", "error_solution"}
    assert answer.headers["x-request-id"]
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    "body", ["", "nonsense", "[]", '"x"', "1", "null", "{", '{"kind": 1}', "\x00", "[" * 3000]
)
def test_bodies_that_are_no_document(service: Service, body: str):
    answer = send(service, "POST", "/v2/default/training-jobs", body)
    assert answer.status_code == 400
    assert answer.json()["error_code"] in ("ModelArts.2787", "ModelArts.2788")


def test_doubled_slashes_are_one_and_signed_as_they_are(service: Service):
    assert send(service, "GET", "//v2/default//training-job-engines").status_code == 200


def test_an_answer_has_its_request_id(service: Service):
    first, second = (send(service, "GET", "/v2/default/training-job-engines") for _ in range(2))
    assert len(first.headers["x-request-id"]) == 32
    assert first.headers["x-request-id"] != second.headers["x-request-id"]


def test_a_body_that_was_changed_on_the_way(service: Service):
    answer = send(
        service, "POST", "/v2/default/training-jobs", json.dumps(job("a")), sent=json.dumps(job("b"))
    )
    assert (answer.status_code, answer.json()["error_code"]) == (401, "APIGW.0301")


def test_a_clock_that_is_off(service: Service):
    answer = send(service, "GET", "/v2/default/training-job-engines", date="20200101T000000Z")
    assert (answer.status_code, answer.json()["error_code"]) == (401, "APIGW.0303")


def test_a_body_that_is_too_large(service: Service):
    answer = send(service, "POST", "/v2/default/training-jobs", "x" * (13 << 20))
    assert (answer.status_code, answer.json()["error_code"]) == (413, "APIGW.0201")


def test_a_wrong_secret(service: Service):
    stranger = Cloud(service, Key(KEY.id, "another-secret", "default"))
    with refused("APIGW.0301", 401, "signature does not match"):
        stranger("show_training_job_engines")


def test_a_key_that_is_not_known(service: Service):
    with refused("APIGW.0301", 401, "no access key"):
        Cloud(service, Key("AKnobody", "secret", "default"))("show_training_job_engines")


def test_no_signature_at_all(service: Service):
    answer = httpx.get(f"{service.endpoint}/v2/default/training-job-engines", trust_env=False)
    assert (answer.status_code, answer.json()["error_code"]) == (401, "APIGW.0301")


def test_projects_do_not_see_each_other(service: Service, cloud: Cloud):
    made = cloud.create("mine")
    other = Cloud(service, project="elsewhere")
    with refused("ModelArts.2775"):
        other.details(made.metadata.id)
    again = other.create("mine")
    assert again.metadata.name == "mine"


def test_a_key_is_for_its_project_only(service: Service):
    body = json.dumps({"project": "their-own"}).encode()
    headers = {"Authorization": f"Bearer {make_token(KEY, time.time())}"}
    url = f"{service.endpoint}/turnout/v1/keys"
    made = httpx.post(url, content=body, headers=headers, trust_env=False).json()
    theirs = Key(made["id"], made["secret"], "their-own")
    assert Cloud(service, theirs, "their-own").create("allowed").metadata.user_name == theirs.id
    with refused("ModelArts.0210", 403, "their-own"):
        Cloud(service, theirs, "default")("show_training_job_engines")


def test_without_auth_everybody_is_root():
    with running() as service:
        service.start("--no-auth")
        for project in ("default", "other"):
            assert Cloud(service, Key("any", "thing", "x"), project).create("hello").metadata.id
        with refused("ModelArts.0210", 403):
            Cloud(service, project="-x")("show_training_job_engines")
        with refused("ModelArts.2788", match="project_id"):
            Cloud(service, project="{project_id}")("show_training_job_engines")


def test_many_at_once(service: Service):
    async def ask() -> list[int]:
        async with httpx.AsyncClient(trust_env=False) as client:
            url = f"{service.endpoint}/v2/default/training-jobs"
            return [one.status_code for one in await asyncio.gather(*(client.get(url) for _ in range(50)))]

    assert set(asyncio.run(ask())) == {401}
