"""The page of a job's program, on a port of its own."""

import http.client
import socket
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.running import KEY, Service
from tests.web.custom_jobs import create, vertex
from tests.web.test_shell import call
from turnout.access import Key

PROGRAM = """
import http.server, os, socketserver
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.headers.get("Upgrade") == "echo":
            self.wfile.write(b"HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: echo\\r\\n\\r\\n")
            self.connection.sendall(b"got " + self.connection.recv(100))
            return
        self.answer(f"{self.path} {self.headers.get('Cookie')} {self.headers['Host']}")
    def do_POST(self):
        self.answer(str(len(self.rfile.read(int(self.headers["Content-Length"])))))
    def answer(self, text):
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())
address = ("%s", int(%s))
http.server.ThreadingHTTPServer(address, Page).serve_forever()
"""
AS_TOLD = PROGRAM % ("0.0.0.0", 'os.environ["AIP_DASHBOARD_PORT"]')
ELSEWHERE = PROGRAM % ("127.0.0.1", "0")


@pytest.fixture(params=[AS_TOLD, ELSEWHERE], ids=["the port it was given", "a port it chose"])
def page(service: Service, request: pytest.FixtureRequest) -> Iterator[str]:
    job = create(service, request.param, enableDashboardAccess=True)
    links = vertex(service, "GET", job["name"])["webAccessUris"]
    assert list(links) == ["workerpool0-0:dashboard"]
    yield links["workerpool0-0:dashboard"]
    vertex(service, "POST", job["name"] + ":cancel", {})


def ask(address: str, path: str = "/", body: bytes | None = None, **headers: str) -> tuple[int, str, Any]:
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.netloc, timeout=30)
    spelt = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("POST" if body else "GET", path, body, spelt)
    with connection.getresponse() as answer:
        return answer.status, answer.read().decode(), answer.headers


def enter(link: str) -> str:
    """The cookie that the link is exchanged for."""
    parts = urlsplit(link)
    status, _, headers = ask(link, f"/?{parts.query}")
    assert (status, headers["Location"]) == (303, "/")
    assert all(part in headers["Set-Cookie"] for part in ("HttpOnly", "SameSite=Lax"))
    cookie = headers["Set-Cookie"].partition(";")[0]
    deadline = time.monotonic() + 30
    while ask(link, Cookie=cookie)[0] == 503 and time.monotonic() < deadline:
        time.sleep(0.05)
    return cookie


def test_a_page_of_the_program_is_shown(page: str) -> None:
    cookie = enter(page)
    status, text, _ = ask(page, "/any/path?x=1", Cookie=f"theirs=1; {cookie}")
    host = urlsplit(page).netloc
    assert (status, text) == (200, f"/any/path?x=1 theirs=1 {host}")
    assert ask(page, Cookie=cookie)[1] == f"/ None {host}", "our cookie is not the program's business"
    big = b"x" * 3_000_000
    assert ask(page, "/", big, Cookie=cookie)[:2] == (200, str(len(big)))


def test_upgraded_connections_are_forwarded(page: str) -> None:
    cookie = enter(page)
    parts = urlsplit(page)
    with socket.create_connection((parts.hostname, parts.port), 30) as connection:
        headers = (f"Host: {parts.netloc}", f"Cookie: {cookie}", "Connection: Upgrade", "Upgrade: echo")
        connection.sendall("\r\n".join(("GET / HTTP/1.1", *headers, "", "")).encode())
        assert b"101" in connection.recv(1000)
        connection.sendall(b"hello")
        assert connection.recv(1000) == b"got hello"


def test_only_the_browser_with_the_link_gets_access(page: str) -> None:
    assert ask(page)[0] == 403
    assert ask(page, Cookie="turnout-1=x")[0] == 403
    cookie = enter(page)
    assert ask(page, f"/?{urlsplit(page).query}")[0] == 403, "a link works once"
    assert ask(page, Cookie=cookie)[0] == 200
    for wrong in (
        {"Origin": "http://evil.example"},
        {"Sec_Fetch_Site": "same-site"},
        {"Sec_Fetch_Site": "cross-site"},
    ):
        assert ask(page, "/", None, Cookie=cookie, **wrong)[0] == 403, wrong
    assert ask(page, Cookie=cookie, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")[0] == 200
    assert ask(page, Cookie=cookie, Origin=f"http://{urlsplit(page).netloc}")[0] == 200


def test_before_the_program_listens_the_page_says_so(service: Service) -> None:
    job = create(service, "import time; time.sleep(1000)", enableDashboardAccess=True)
    link = vertex(service, "GET", job["name"])["webAccessUris"]["workerpool0-0:dashboard"]
    _, _, headers = ask(link, f"/?{urlsplit(link).query}")
    status, text, _ = ask(link, Cookie=headers["Set-Cookie"].partition(";")[0])
    assert status == 503
    assert "has not opened a port yet" in text
    vertex(service, "POST", job["name"] + ":cancel", {})


def test_the_port_closes_with_the_job(service: Service) -> None:
    job = create(service, AS_TOLD, enableDashboardAccess=True, enableWebAccess=True)
    links = vertex(service, "GET", job["name"])["webAccessUris"]
    assert sorted(links) == ["workerpool0-0", "workerpool0-0:dashboard"]
    link = links["workerpool0-0:dashboard"]
    enter(link)
    vertex(service, "POST", job["name"] + ":cancel", {})
    service.native(f"/jobs/{job['name'].rpartition('/')[2]}/wait?for=ended&timeout=30")
    assert "webAccessUris" not in vertex(service, "GET", job["name"])
    with pytest.raises(ConnectionRefusedError):
        ask(link)


def test_open_connections_end_when_the_key_is_revoked(service: Service) -> None:
    made = call(service, "POST", "/keys", KEY, {"project": "default"})
    mine = Key(made["id"], made["secret"], "default")
    job = create(service, AS_TOLD, enableDashboardAccess=True)
    link = vertex(service, "GET", job["name"], key=mine)["webAccessUris"]["workerpool0-0:dashboard"]
    cookie, parts = enter(link), urlsplit(link)
    with socket.create_connection((parts.hostname, parts.port), 30) as connection:
        headers = (f"Host: {parts.netloc}", f"Cookie: {cookie}", "Connection: Upgrade", "Upgrade: echo")
        connection.sendall("\r\n".join(("GET / HTTP/1.1", *headers, "", "")).encode())
        assert b"101" in connection.recv(1000)
        call(service, "DELETE", f"/keys/{mine.id}", KEY)
        assert connection.recv(1000) == b""
    assert ask(link, Cookie=cookie)[0] == 403
    vertex(service, "POST", job["name"] + ":cancel", {})


def test_a_job_without_pages_has_no_links(service: Service) -> None:
    job = create(service, AS_TOLD)
    assert "webAccessUris" not in vertex(service, "GET", job["name"])
    vertex(service, "POST", job["name"] + ":cancel", {})
