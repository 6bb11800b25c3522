"""Errors inside the service, and clients that disconnect."""

import asyncio
import json
import logging
import time
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from turnout.access import Key, Keys
from turnout.bodies import Bodies
from turnout.config import Settings
from turnout.dialects import Context
from turnout.dialects.tia import Tia, actions
from turnout.service import Jobs, Logs
from turnout.service.images import ImageRules

KEYS = Keys(Key("AKIDX", "a-secret-of-mine", "default", root=True))
HEADERS = [(b"host", b"x"), (b"x-tc-action", b"ListJobs"), (b"x-tc-version", b"2018-02-26")]


class BrokenJobs(Jobs):
    """A store behind it that fails, or never answers."""

    def __init__(self, answers: bool) -> None:
        self._clusters = {"ap-beijing": "local"}
        self._answers = answers

    async def find(self, *_: Any) -> Any:
        if self._answers:
            raise RuntimeError("internal secrets")
        await asyncio.Event().wait()


async def no_page(_: Request) -> Response:
    raise AssertionError("there is no browser")


async def call(jobs: Jobs, *messages: dict[str, Any]) -> list[Any]:
    unused: Any = None
    context = Context(
        jobs=jobs,
        logs=Logs(jobs),
        searches=unused,
        assets=unused,
        objects=unused,
        sweeper=unused,
        sources=unused,
        clusters=unused,
        images=ImageRules(),
        runtimes=unused,
        image_cache=unused,
        audit=unused,
        webhooks=unused,
        keys=KEYS,
        page_sessions=unused,
        settings=Settings(no_auth=True),
        bodies=Bodies(),
        web_access=unused,
        home_page=no_page,
        submit={},
        conversions={},
        clock=time.time_ns,
    )
    dialect = Tia(context)
    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": HEADERS}
    coming = iter(messages)
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return next(coming)

    async def send(message: Any) -> None:
        sent.append(message)

    await dialect(scope, receive, send)
    return sent


REQUEST = {"type": "http.request", "body": b'{"Cluster": "ap-beijing"}', "more_body": False}


async def test_an_accident_is_an_internal_error_and_its_traceback_is_in_the_log(
    caplog: pytest.LogCaptureFixture,
):
    with caplog.at_level(logging.ERROR):
        start, body = await call(BrokenJobs(answers=True), REQUEST)
    answer = json.loads(body["body"])["Response"]
    assert start["status"] == 200
    assert answer["Error"]["Code"] == "InternalError"
    assert "secrets" not in body["body"].decode()
    assert answer["RequestId"] in caplog.text
    assert "internal secrets" in caplog.text


async def test_no_answer_in_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(actions, "READ_SECONDS", 0.01)
    _, body = await call(BrokenJobs(answers=False), REQUEST)
    assert json.loads(body["body"])["Response"]["Error"]["Code"] == "FailedOperation.TimeOut"


async def test_a_client_that_goes_away_gets_nothing():
    part = {"type": "http.request", "body": b'{"Clus', "more_body": True}
    gone = {"type": "http.disconnect"}
    assert await call(BrokenJobs(answers=True), part, gone) == []
    assert await call(BrokenJobs(answers=True), gone) == []
