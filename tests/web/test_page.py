"""The page over HTTP: what a browser gets at which address, sign-in, its session, and what the session may do."""

import asyncio
import gzip
import http.client
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from http.cookies import SimpleCookie
from typing import Any, NamedTuple

import httpx
import pytest
from starlette.applications import Starlette

from tests.running import KEY, Service
from turnout.access import Key, Keys, PageSessions
from turnout.access.page_sessions import COOKIE, SESSION_SECONDS
from turnout.errors import TurnoutError, Unauthenticated
from turnout.web.page.sign_in import SignIn, _Failures

HTML = {"Accept": "text/html,application/xhtml+xml"}
SESSION = "/turnout/page/session"


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def call(service: Service, method: str, path: str, body: Any = None, **headers: str) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, None if body is None else json.dumps(body), named)
    answer = connection.getresponse()
    found = Answer(answer.status, dict(answer.getheaders()), answer.read())
    connection.close()
    return found


class Visitor(NamedTuple):
    service: Service
    cookie: str
    token: str

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        return call(self.service, method, path, body, Cookie=self.cookie, Turnout_Page=self.token, **headers)


def sign_in(service: Service, key: Key = KEY) -> Visitor:
    answer = call(service, "POST", SESSION, {"key": key.id, "secret": key.secret})
    assert answer.status == 200, answer.body
    morsel = SimpleCookie(answer.headers["set-cookie"])[COOKIE]
    assert (morsel["httponly"], morsel["samesite"], morsel["path"]) == (True, "strict", "/")
    return Visitor(service, f"{COOKIE}={morsel.value}", answer.json["token"])


@pytest.fixture
def other_key(service: Service) -> Iterator[Key]:
    root = sign_in(service)
    made = root.call("POST", "/turnout/v1/keys", {"project": "other"}).json
    yield Key(made["id"], made["secret"], "other")
    root.call("DELETE", f"/turnout/v1/keys/{made['id']}")


def test_browsers_get_the_page_and_others_what_they_had(service: Service) -> None:
    for path in ("/", "/jobs", "/jobs/1/logs", "/storage/bucket/a%20b"):
        answer = call(service, "GET", path, **HTML)
        assert answer.status == 200
        assert b'<div id="app">' in answer.body
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
    assert call(service, "GET", "/").body.startswith(b"Turnout ")
    assert call(service, "GET", "/jobs").status == 404
    nonsense = call(service, "GET", "/nonsense", **HTML)
    assert (nonsense.status, b'<div id="app">' in nonsense.body) == (404, True)
    assert call(service, "GET", "/nonsense").body == b"Not Found"
    assert call(service, "POST", "/nonsense", {}, **HTML).body == b"Not Found"
    assert (
        call(service, "GET", "/storage/v1/b?project=default", **HTML)
        .headers["content-type"]
        .startswith("application/json")
    )


def test_files_are_compressed_and_kept_for_ever(service: Service) -> None:
    index = call(service, "GET", "/", **HTML).body.decode()
    sources = re.findall(r'(?:src|href)="(/turnout/page/[^"]+)"', index)
    assert len(sources) > 10
    for path in sources:
        answer = call(service, "GET", path, Accept_Encoding="gzip, br")
        assert answer.status == 200, path
        assert "immutable" in answer.headers["cache-control"]
        assert gzip.decompress(answer.body) == call(service, "GET", path).body
    assert call(service, "GET", re.sub("page/[0-9a-f]+", "page/0123456789abcdef", sources[0])).status == 404
    assert call(service, "GET", "/turnout/page/../../etc/passwd").status == 404


def test_a_session_reads_and_changes_only_with_the_token_of_its_page(service: Service) -> None:
    visitor = sign_in(service)
    assert visitor.call("GET", SESSION).json["root"] is True
    assert visitor.call("GET", "/turnout/v1/jobs").status == 200
    other_end = "1" if visitor.token.endswith("0") else "0"
    for token in ("", "wrong", visitor.token[:-1] + other_end):
        stolen = visitor._replace(token=token)
        assert stolen.call("GET", "/turnout/v1/jobs").status == 401
        assert stolen.call("POST", "/turnout/v1/sweep", {}).status == 401
    assert visitor._replace(cookie="").call("GET", "/turnout/v1/jobs").status == 401


def test_wrong_secrets_are_refused_and_counted(service: Service) -> None:
    for key, secret in ((KEY.id, "wrong"), ("nobody", KEY.secret), (KEY.id, ""), ("", "")):
        answer = call(service, "POST", SESSION, {"key": key, "secret": secret})
        assert answer.status == 401
        assert "set-cookie" not in answer.headers
    right = {"key": KEY.id, "secret": KEY.secret}
    assert call(service, "POST", SESSION, right, Origin="http://evil.example").status == 403
    assert call(service, "POST", SESSION, "text").status == 400


def test_failures_from_one_address_are_limited() -> None:
    failures = _Failures()
    for second in range(10):
        assert failures.wait("a", second) == 0
        failures.add("a", second)
    assert failures.wait("a", 10) == 50
    assert failures.wait("b", 10) == 0
    assert failures.wait("a", 61) == 0


async def test_attempts_side_by_side_are_limited_too() -> None:
    keys = Keys(KEY)
    app = Starlette(routes=SignIn(keys, PageSessions(keys), False).routes())
    begun = asyncio.Barrier(15)

    async def body() -> AsyncIterator[bytes]:
        yield b'{"key": "nobody", '
        await begun.wait()
        yield b'"secret": "wrong"}'

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        answers = await asyncio.gather(*(client.post(SESSION, content=body()) for _ in range(15)))
    assert sorted(one.status_code for one in answers) == [401] * 10 + [429] * 5


def test_a_session_ends_with_sign_out_and_with_its_key(service: Service, other_key: Key) -> None:
    visitor = sign_in(service, other_key)
    assert visitor.call("GET", "/turnout/v1/whoami").json["project"] == "other"
    assert visitor.call("GET", "/turnout/v1/jobs?project=default").status == 403
    assert visitor.call("DELETE", SESSION).status == 200
    assert visitor.call("GET", "/turnout/v1/jobs").status == 401
    again = sign_in(service, other_key)
    sign_in(service).call("DELETE", f"/turnout/v1/keys/{other_key.id}")
    assert again.call("GET", "/turnout/v1/jobs").status == 401


def test_a_download_needs_a_ticket_which_works_once(service: Service) -> None:
    visitor = sign_in(service)
    service.create("printed", "echo", "hello")
    service.wait("printed", "ended")
    path = "/turnout/v1/jobs/printed/logs/download?replica=master-0"
    url = visitor.call("POST", "/turnout/page/tickets", {"url": path}).json["url"]
    assert call(service, "GET", url.replace("printed", "other")).status == 401
    url = visitor.call("POST", "/turnout/page/tickets", {"url": path}).json["url"]
    assert call(service, "GET", url).body == b"hello\n"
    assert call(service, "GET", url).status == 401
    assert visitor.call("POST", "/turnout/page/tickets", {"url": "//evil.example/turnout/v1/"}).status == 400


def test_sessions_expire_and_survive_a_restart() -> None:
    keys = Keys(KEY)
    _, session = PageSessions(keys).start(KEY.id, KEY.secret, now=1000)
    sessions = PageSessions(keys)
    assert sessions.check(session.cookie, session.token, now=1000 + SESSION_SECONDS) == KEY
    with pytest.raises(TurnoutError):
        sessions.check(session.cookie, session.token, now=1001 + SESSION_SECONDS)
    with pytest.raises(Unauthenticated):
        PageSessions(Keys(KEY._replace(secret="new"))).check(session.cookie, session.token, now=1000)
    for cookie in ("", "a.b", "tp1....", session.cookie[:-1], "é" + session.cookie):
        with pytest.raises(Unauthenticated):
            sessions.check(cookie, session.token, now=1000)
