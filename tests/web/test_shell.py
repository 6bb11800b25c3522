"""Shells in a browser: access, input and output, and how they end."""

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from tencentcloud.common.exception.tencent_cloud_sdk_exception import TencentCloudSDKException

from tests.running import KEY, Service, running
from tests.web.visitor import open_page, status_of
from turnout.access import Key, make_token


@pytest.fixture
def job(service: Service) -> Iterator[str]:
    """A running job with shells."""
    name = f"job-{time.time_ns()}"
    service.create(name, "sh", "-c", "echo up; exec sleep 1000", Debug=True)
    service.wait(name, "started")
    yield name
    with suppress(TencentCloudSDKException):
        service.delete(name)


def links(service: Service, job: str) -> dict[str, str]:
    return service.native(f"/jobs/{job}/shells")["uris"]


def test_a_link_opens_a_shell_in_the_replica(service: Service, job: str) -> None:
    found = links(service, job)
    assert list(found) == ["master-0"]
    with open_page(found["master-0"]).socket() as socket:
        socket.type("echo I am $TURNOUT_REPLICA; stty size\n")
        identity = service.native(f"/jobs/{job}")["id"]
        assert f"I am {identity}.1/master-0\r\n20 90\r\n" in socket.until("20 90\r\n")
        socket.connection.send(json.dumps({"columns": 70, "rows": 10}))
        socket.type("stty size\n")
        socket.until("10 70\r\n")
        socket.type("exit 3\n")
        assert socket.rest() == {"exit": 3}


def test_a_shell_ends_with_the_job(service: Service, job: str) -> None:
    uri = links(service, job)["master-0"]
    page = open_page(uri)
    with page.socket() as socket:
        socket.until("$ ")
        service.delete(job)
        assert socket.rest() == {"exit": 137, "reason": "the job ended"}
        assert socket.connection.close_code == 1000
    with page.socket() as socket:
        assert "no job" in socket.rest()["error"]


def test_a_shell_that_is_killed_alone_tells_its_code(service: Service, job: str) -> None:
    with open_page(links(service, job)["master-0"]).socket() as socket:
        socket.until("$ ")
        socket.type("kill -9 $$\n")
        assert socket.rest() == {"exit": 137}


def test_a_program_that_ends_by_itself_ends_the_shell(service: Service) -> None:
    service.create("short", "sh", "-c", "while [ ! -e /tmp/go ]; do sleep 0.05; done", Debug=True)
    service.wait("short", "started")
    with open_page(links(service, "short")["master-0"]).socket() as socket:
        socket.until("$ ")
        socket.type("touch /tmp/go\n")
        assert socket.rest() == {"exit": 137, "reason": "the job ended"}


def test_a_link_works_once(service: Service, job: str) -> None:
    first = links(service, job)["master-0"]
    assert links(service, job)["master-0"] == first, "nobody has used it"
    open_page(first)
    status, text = status_of(first)
    assert status == 403
    assert "ask for a new one" in text
    assert links(service, job)["master-0"] != first


def test_the_page_has_strict_headers(service: Service, job: str) -> None:
    with urllib.request.urlopen(links(service, job)["master-0"]) as answer:
        headers, text = answer.headers, answer.read().decode()
    cookie = headers["Set-Cookie"]
    assert all(part in cookie for part in ("HttpOnly", "SameSite=strict", "Path=/turnout/shells/default/"))
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert "script-src 'self'" in headers["Content-Security-Policy"]
    assert headers["Cache-Control"] == "no-store"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert cookie.partition("=")[2].partition(";")[0] not in text


def test_only_the_page_can_use_the_socket(service: Service, job: str) -> None:
    page = open_page(links(service, job)["master-0"])
    assert page.knock(origin="http://evil.example") == 403
    assert page.knock(origin="") == 403
    assert page.knock(cookie="turnout-shell=x") == 403
    assert page.knock(cookie="") == 403
    assert page._replace(address=page.address.replace("master-0", "master-1")).knock() == 403
    assert page.knock() == 101
    with page.socket(page_token="guessed") as socket:
        assert "ask for a new link" in socket.rest()["error"]
    with page.socket() as socket:
        socket.until("$ ")


def test_other_sockets_are_refused(service: Service, job: str) -> None:
    page = open_page(links(service, job)["master-0"])
    for path in ("", "/v1/x", "/v2/x", "/nothing"):
        assert page._replace(address=service.endpoint + path).knock() == 403


def test_only_jobs_that_ask_for_shells_have_them(service: Service) -> None:
    service.create("closed", "sleep", "1000")
    service.wait("closed", "started")
    assert links(service, "closed") == {}
    service.delete("closed")


def test_other_projects_get_nothing(service: Service, job: str) -> None:
    made = call(service, "POST", "/keys", KEY, {"project": "other"})
    stranger = Key(made["id"], made["secret"], "other")
    with pytest.raises(urllib.error.HTTPError) as refused:
        call(service, "GET", f"/jobs/{service.native(f'/jobs/{job}')['id']}/shells", stranger)
    with refused.value as answer:
        assert answer.code == 404
    uri = links(service, job)["master-0"]
    assert status_of(uri.replace("/default/", "/other/"))[0] == 403


def test_a_revoked_key_opens_nothing(service: Service) -> None:
    made = call(service, "POST", "/keys", KEY, {"project": "default"})
    mine = Key(made["id"], made["secret"], "default")
    service.create("revoked", "sleep", "1000", Debug=True)
    service.wait("revoked", "started")
    first = call(service, "GET", "/jobs/revoked/shells", mine)["uris"]["master-0"]
    page = open_page(first)
    second = call(service, "GET", "/jobs/revoked/shells", mine)["uris"]["master-0"]
    call(service, "DELETE", f"/keys/{mine.id}", KEY)
    assert status_of(second)[0] == 403
    assert page.knock() == 403
    service.delete("revoked")


def test_open_shells_end_when_the_key_is_revoked(service: Service) -> None:
    made = call(service, "POST", "/keys", KEY, {"project": "default"})
    mine = Key(made["id"], made["secret"], "default")
    service.create("open", "sh", "-c", "echo up; exec sleep 1000", Debug=True)
    service.wait("open", "started")
    page = open_page(call(service, "GET", "/jobs/open/shells", mine)["uris"]["master-0"])
    headers = {"Authorization": f"Bearer {make_token(mine, time.time())}"}
    logs = urllib.request.Request(
        service.endpoint + "/turnout/v1/jobs/open/logs?follow=true", headers=headers
    )
    with page.socket() as socket, urllib.request.urlopen(logs, timeout=30) as followed:
        socket.until("$ ")
        assert b"up" in followed.readline() + followed.readline()
        call(service, "DELETE", f"/keys/{mine.id}", KEY)
        assert "revoked" in socket.rest()["error"]
        assert b"event: end" not in followed.read(), "it ends, although the job runs on"
    assert service.describe("open").State == "Running"
    service.delete("open")


def test_a_wait_ends_when_the_key_is_revoked(service: Service) -> None:
    made = call(service, "POST", "/keys", KEY, {"project": "default"})
    mine = Key(made["id"], made["secret"], "default")
    service.create("awaited", "sleep", "1000")
    service.wait("awaited", "started")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(call, service, "GET", "/jobs/awaited/wait?timeout=25", mine)
        with pytest.raises(TimeoutError):
            waiting.result(timeout=0.5)
        call(service, "DELETE", f"/keys/{mine.id}", KEY)
        with pytest.raises(urllib.error.HTTPError) as refused:
            waiting.result(timeout=20)
    with refused.value as answer:
        assert (answer.code, "revoked" in answer.read().decode()) == (401, True)
    service.delete("awaited")


def test_much_output_waits_for_a_slow_page(service: Service, job: str) -> None:
    with open_page(links(service, job)["master-0"]).socket() as socket:
        socket.until("$ ")
        socket.type("head -c 8000000 /dev/zero | tr '\\0' x; echo; echo en''d\n")
        seen = 0
        while not socket.seen.endswith("end\r\n") and "end\r\n" not in socket.seen[-200:]:
            assert socket.take()
            seen += len(socket.seen)
            socket.seen = socket.seen[-200:]
            socket.connection.send(json.dumps({"seen": seen}))
    assert seen > 8_000_000


def test_without_acknowledgement_the_service_stops_sending(service: Service, job: str) -> None:
    with open_page(links(service, job)["master-0"]).socket() as socket:
        socket.until("$ ")
        socket.type("yes\n")
        seen = 0
        with suppress(TimeoutError):
            while seen < 2 << 20:
                seen += len(socket.connection.recv(2))
        assert 1 << 17 < seen < 1 << 20


def test_without_auth_foreign_pages_are_refused() -> None:
    with running() as service:
        service.start("--no-auth")
        service.create("job", "sleep", "1000", Debug=True)
        service.wait("job", "started")
        page = open_page(links(service, "job")["master-0"])
        assert page.knock(origin="http://evil.example") == 403
        with page.socket() as socket:
            socket.until("$ ")


def test_the_service_stops_at_once_even_with_an_open_shell() -> None:
    with running() as service:
        service.start()
        service.create("job", "sleep", "1000", Debug=True)
        service.wait("job", "started")
        with open_page(links(service, "job")["master-0"]).socket() as socket:
            socket.until("$ ")
            program = f"sleep {os.getpid()}.76543"
            socket.type(f"{program}\n")
            began = time.monotonic()
            assert service.terminate() == 0
            assert time.monotonic() - began < 15
            socket.rest()
        service.start()
        assert service.native("/jobs/job")["state"] == "running"
        while subprocess.run(["pgrep", "-f", program], capture_output=True).stdout:
            time.sleep(0.05)


def call(service: Service, method: str, path: str, key: Key, body: Any = None) -> Any:
    headers = {"Authorization": f"Bearer {make_token(key, time.time())}"}
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(f"{service.endpoint}/turnout/v1{path}", data, headers, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read() or b"{}")
