"""Webhooks of a real service, with a receiver that checks signatures as https://www.standardwebhooks.com says."""

import base64
import hashlib
import hmac
import json
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import pytest

from tests.dialects.modelarts import driving as modelarts
from tests.dialects.native.driving import Client, create_vertex
from tests.running import free_port, running

SECRET = "whsec_" + base64.b64encode(b"a secret of the receiver").decode()


class Message(NamedTuple):
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)

    @property
    def event(self) -> tuple[str, str]:
        return self.document["data"]["name"], self.document["type"]

    def is_signed(self) -> bool:
        head = self.headers
        text = f"{head['webhook-id']}.{head['webhook-timestamp']}.".encode() + self.body
        key = base64.b64decode(SECRET.removeprefix("whsec_"))
        right = base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()
        fresh = abs(time.time() - int(head["webhook-timestamp"])) < 300
        return fresh and head["webhook-signature"] == f"v1,{right}"


class Receiver:
    def __init__(self, port: int) -> None:
        self.received: queue.Queue[Message] = queue.Queue()
        self.statuses: list[int] = []
        """The next answers; then 204."""
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                message = Message({name.lower(): value for name, value in self.headers.items()}, body)
                status = receiver.statuses.pop(0) if receiver.statuses else 204
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()
                if status == 204:
                    receiver.received.put(message)

            def do_GET(self) -> None:
                raise AssertionError("redirects must not be followed")

            def log_message(self, format: str, *args: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def next(self) -> Message:
        return self.received.get(timeout=30)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@contextmanager
def receiving(port: int) -> Iterator[Receiver]:
    receiver = Receiver(port)
    try:
        yield receiver
    finally:
        receiver.close()


def settings(port: int, more: str = "") -> str:
    return f'[webhooks.team]\nurl = "http://127.0.0.1:{port}/hook/path"\nsecret = "{SECRET}"\n{more}'


def test_each_change_is_told_signed_and_once() -> None:
    port = free_port()
    slack = f'[webhooks.chat]\nurl = "http://127.0.0.1:{port}/slack"\nformat = "slack"\nevents = ["failed"]\n'
    smn = f'[webhooks.smn]\nurl = "http://127.0.0.1:{port}/smn"\nsecret = "{SECRET}"\nonly_named = true\n'
    with receiving(port) as receiver, running(settings(port, slack + smn)) as service:
        service.start()
        service.create("fails", "false")
        service.wait("fails")
        messages = [receiver.next() for _ in range(5)]
        (text,) = (one.document["text"] for one in messages if "text" in one.document)
        assert text.startswith(":x: *fails* (default) failed: ")
        told = [one for one in messages if "data" in one.document]
        assert [one.event for one in told] == [
            ("fails", f"job.{state}") for state in ("queued", "preparing", "running", "failed")
        ]
        assert all(one.is_signed() for one in told)
        assert len({one.headers["webhook-id"] for one in messages}) == 5
        assert told[-1].document["data"]["owner"] == "root"
        status = service.native("/webhooks")["webhooks"]
        assert [(one["name"], one["trouble"]) for one in status] == [("team", ""), ("chat", ""), ("smn", "")]
        assert status[0]["address"] == f"http://127.0.0.1:{port}"
        named = {"topic_urn": "urn:smn:cn-north-4:p:smn", "events": ["JobCompleted"]}
        modelarts.Cloud(service).create("named", spec={"notification": named})
        heard = [receiver.next().event for _ in range(5)]
        assert sorted(heard) == sorted(
            [("named", f"job.{state}") for state in ("queued", "preparing", "running")]
            + [("named", "job.succeeded")] * 2
        )
        assert Client(service).other("vision").send("GET", "/webhooks").status == 403


@pytest.mark.slow
def test_what_is_refused_comes_again_and_redirects_are_not_followed() -> None:
    port = free_port()
    with receiving(port) as receiver, running(settings(port, 'events = ["succeeded"]\n')) as service:
        receiver.statuses = [302]
        service.start()
        create_vertex(Client(service), "again")
        service.wait("again")
        message = receiver.next()
        assert message.event == ("again", "job.succeeded")


@pytest.mark.slow
def test_messages_survive_a_kill_while_the_receiver_is_away() -> None:
    port = free_port()
    with running(settings(port, 'events = ["succeeded"]\n')) as service:
        service.start()
        for number in range(3):
            service.create(f"job-{number}", "true")
            service.wait(f"job-{number}")
        deadline = time.monotonic() + 20
        while not (status := service.native("/webhooks")["webhooks"][0])["trouble"]:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert status["waiting"] == 3
        assert "cannot be reached" in status["failures"][0]["error"]
        service.kill()
        with receiving(port) as receiver:
            service.start()
            assert sorted(receiver.next().event[0] for _ in range(3)) == ["job-0", "job-1", "job-2"]
