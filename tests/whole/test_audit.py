"""The audit trail of a real service: one line for each change, whichever API made it."""

import getpass
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tencentcloud.common.exception.tencent_cloud_sdk_exception import TencentCloudSDKException

from tests.dialects.modelarts import driving as modelarts
from tests.dialects.native.driving import Client, create_vertex
from tests.running import KEY, Service, running
from turnout.access import make_token


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with running('[server]\ntrusted_proxies = ["127.0.0.0/8"]\n[projects.small]\nwaiting = 0\n') as one:
        yield one.start()


@pytest.fixture(scope="module")
def client(service: Service) -> Client:
    return Client(service)


def lines(client: Client, **query: str) -> list[Any]:
    """The oldest first."""
    return client.get("/audit", **query)["lines"][::-1]


def test_each_change_of_a_job_is_a_line(service: Service, client: Client) -> None:
    service.create("one", "sleep", "600")
    job = service.native("/jobs/one")
    client.post("/jobs/one/priority", {"priority": 3})
    client.post("/jobs/one/stop")
    service.wait("one")
    service.delete("one")
    found = lines(client, job=job["id"])
    assert [(line["api"], line["call"]) for line in found] == [
        ("tia", "CreateJob"),
        ("native", "POST /turnout/v1/jobs/one/priority"),
        ("native", "POST /turnout/v1/jobs/one/stop"),
        ("tia", "DeleteJob"),
    ]
    assert {(line["who"], line["peer"], line["project"], line["subject"]) for line in found} == {
        ("root", "127.0.0.1", "default", "one")
    }
    assert {(line["status"], line["code"]) for line in found} == {(200, "")}
    assert job["owner"] == "root"
    assert [line["call"] for line in job["audit"]] == ["CreateJob"]


def test_of_the_other_clouds_too(service: Service, client: Client) -> None:
    vertex = create_vertex(client, "of-vertex")
    cloud = modelarts.Cloud(service)
    cloud.create("of-modelarts")
    made = {line["subject"]: line for line in lines(client, since="1h") if line["status"] == 200}
    assert made["of-vertex"]["job"] == vertex
    assert made["of-vertex"]["api"] == "vertex"
    assert made["of-vertex"]["call"].startswith("POST /v1/projects/default/locations/")
    assert made["of-modelarts"]["api"] == "modelarts"


def test_calls_with_a_verb_too(service: Service, client: Client) -> None:
    address = "/v1/projects/default/locations/us-central1/models"

    def send(method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            f"{service.endpoint}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Bearer {make_token(client.key, time.time())}"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    first, second = {"modelId": "kept"}, {"parentModel": f"{address.removeprefix('/v1/')}/kept"}
    for one in (first, second):
        made = send("POST", f"{address}:upload", one | {"model": {"displayName": "kept"}})
    send("POST", f"/v1/{made['name']}:wait", {})
    send("DELETE", f"{address}/kept@2:deleteVersion")
    assert [line["call"] for line in lines(client, since="1h") if address in line["call"]] == [
        f"POST {address}:upload",
        f"POST {address}:upload",
        f"DELETE {address}/kept@2:deleteVersion",
    ]


def test_a_refused_change_has_the_code_of_its_api(service: Service, client: Client) -> None:
    small = client.other("small")
    with pytest.raises(urllib.error.HTTPError):
        create_vertex(small, "too-many", project="small")
    last = lines(client, key=small.key.id)[-1]
    assert (last["status"], last["code"], last["job"]) == (429, "RESOURCE_EXHAUSTED", None)
    with pytest.raises(TencentCloudSDKException) as caught:
        service.create("Not A Name", "true")
    assert lines(client)[-1]["code"] == caught.value.code


def test_strangers_and_readers_leave_no_line(service: Service, client: Client) -> None:
    before = lines(client)
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(f"{service.endpoint}/turnout/v1/jobs/one", timeout=10)
    request = urllib.request.Request(f"{service.endpoint}/turnout/v1/jobs/one", method="DELETE")
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(request, timeout=10)
    client.names()
    assert lines(client) == before


def test_keys_and_who_sees_what(service: Service, client: Client) -> None:
    ann = client.other("vision")
    create_vertex(ann, "anns", project="vision")
    other = client.other("speech")
    client.send("DELETE", f"/keys/{other.key.id}")
    assert ann.send("DELETE", f"/keys/{other.key.id}").status == 403
    shown = [(line["call"].partition(" ")[0], line["who"], line["subject"]) for line in lines(ann)]
    assert shown == [("POST", ann.key.id, "anns"), ("DELETE", ann.key.id, "")]
    of_keys = [line for line in lines(client) if line["subject"] == other.key.id]
    assert [(line["who"], line["call"]) for line in of_keys] == [
        ("root", "POST /turnout/v1/keys"),
        ("root", f"DELETE /turnout/v1/keys/{other.key.id}"),
    ]
    text = json.dumps(lines(client))
    assert not any(secret in text for secret in (KEY.secret, ann.key.secret, other.key.secret))
    assert ann.names(owner="me") == ["anns"]
    assert client.names(owner="root", project="vision") == []


def test_what_is_gone_from_a_bucket(service: Service, client: Client) -> None:
    service.put("gs://audited/a.txt")
    before = len(lines(client))
    client.send("DELETE", "/object", url="gs://audited/a.txt")
    request = urllib.request.Request(
        f"{service.endpoint}/storage/v1/b/audited",
        headers={"Authorization": f"Bearer {make_token(KEY, time.time())}"},
        method="DELETE",
    )
    urllib.request.urlopen(request, timeout=10).close()
    found = lines(client)[before:]
    assert [(line["api"], line["call"]) for line in found] == [
        ("native", "DELETE /turnout/v1/object"),
        ("gcs", "DELETE /storage/v1/b/audited"),
    ]


@pytest.mark.parametrize(
    ("forwarded", "peer"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("203.0.113.9, 192.0.2.7", "192.0.2.7"),
        ("192.0.2.7, 127.0.0.3", "192.0.2.7"),
        ("nonsense", "127.0.0.1"),
        ("", "127.0.0.1"),
    ],
)
def test_behind_a_proxy(service: Service, client: Client, forwarded: str, peer: str) -> None:
    headers = {"Authorization": f"Bearer {make_token(KEY, time.time())}", "X-Forwarded-For": forwarded}
    request = urllib.request.Request(
        f"{service.endpoint}/turnout/v1/jobs/nobody/stop", b"", headers, method="POST"
    )
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(request, timeout=10)
    last = lines(client)[-1]
    assert (last["peer"], last["status"], last["code"]) == (peer, 404, "NotFound")


def test_pages_and_the_command_line(service: Service, client: Client) -> None:
    for name in ("shown", "removed"):
        service.create(name, "true")
        service.delete(name)
    everything = client.get("/audit")["lines"]
    first = client.get("/audit", limit="2")
    second = client.get("/audit", limit="2", cursor=first["next"])
    assert first["lines"] + second["lines"] == everything[:4]
    shown = subprocess.run(
        [sys.executable, "-m", "turnout.cli.main", "audit", "--key", "root", "--endpoint", service.endpoint],
        env={"TURNOUT_KEY": f"{KEY.id}:{KEY.secret}", "PATH": "/usr/bin:/bin", "COLUMNS": "300"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    assert "DeleteJob" in shown
    assert "127.0.0.1" in shown


def test_without_authentication_the_user_is_named() -> None:
    with running() as one:
        one.start("--no-auth")
        one.create("mine", "true")
        assert lines(Client(one))[0]["who"] == getpass.getuser()
        assert Client(one).names(owner="me") == ["mine"]


def test_each_create_that_was_answered_has_one_line_after_a_kill() -> None:
    """Through each API, while many requests share each commit."""
    with running() as one:
        client = Client(one.start())
        cloud = modelarts.Cloud(one)
        answered: list[tuple[str, str]] = []

        def create(api: str, number: int) -> None:
            name = f"{api}-{number}"
            match api:
                case "tia":
                    one.create(name, "true")
                case "vertex":
                    create_vertex(client, name)
                case _:
                    cloud.create(name)
            answered.append((api, name))

        with ThreadPoolExecutor(9) as pool:
            for number in range(50):
                for api in ("tia", "vertex", "modelarts"):
                    pool.submit(create, api, number)
            while len(answered) < 30:
                time.sleep(0.001)
            one.kill()
            pool.shutdown(wait=False, cancel_futures=True)
            one.start()
        assert not client.get("/audit", limit="500")["next"]
        found = [line for line in lines(client, limit="500") if line["status"] == 200 and not line["code"]]
        written = [(line["api"], line["subject"]) for line in found]
        assert set(answered) <= set(written)
        assert len(set(written)) == len(written), "no line is there twice"
        jobs = {name: one.native(f"/jobs/{name}")["id"] for _, name in written}
        assert [line["job"] for line in found] == [jobs[line["subject"]] for line in found]
        assert {(line["who"], line["peer"], line["project"]) for line in found} == {
            ("root", "127.0.0.1", "default")
        }


def test_a_line_is_in_the_commit_of_its_change() -> None:
    with running() as one:
        one.start(TURNOUT_KILL_AT="control.committed")
        with pytest.raises(TencentCloudSDKException):
            one.create("cut-off", "true")
        one.wait_for_death()
        one.start()
        assert [line["subject"] for line in lines(Client(one))] == ["cut-off"]
