"""Signatures, tokens, and what happens when the service is not there or breaks off."""

import json
import socket
import threading

import pytest

from turnout.cli import client
from turnout.cli.client import Client, Key, Rejected, Unreachable, sign, token
from turnout.errors import Invalid, Misconfigured

KEY = Key("AKIDEXAMPLE0000", "SECRETKEYEXAMPLE")


def test_the_signature_is_the_one_that_tencents_sdk_makes():
    body = (
        b'{"Name": "test-job", "Cluster": "ap-beijing", "RuntimeVersion": "tia-1.7.0", '
        b'"Command": ["python"], "Args": ["mnist_saved_model.py", "cpu_model"]}'
    )
    headers = sign(KEY, "tia.tencentcloudapi.com", "CreateJob", body, 1527040800)
    assert headers["Authorization"] == (
        "TC3-HMAC-SHA256 Credential=AKIDEXAMPLE0000/2018-05-23/tia/tc3_request, SignedHeaders=content-type;host, "
        "Signature=bb13e3250dfabb66cef0c966dfa67361b16062b8929d460a40544c67b27033f0"
    )


def test_a_token_names_the_key_but_does_not_hold_the_secret():
    text = token(KEY, 1527040800)
    kind, id, expiry, proof = text.split(".")
    assert (kind, id, expiry, len(proof)) == ("tk1", "QUtJREVYQU1QTEUwMDAw", "1527040800", 64)
    assert KEY.secret not in text


@pytest.mark.parametrize("text", ["", "no-colon", ":secret", "id:"])
def test_a_key_has_two_halves(text):
    with pytest.raises(Misconfigured, match="TURNOUT_KEY must be <id>:<secret>"):
        Key.parse(text, "TURNOUT_KEY")


@pytest.mark.parametrize(
    "text",
    [
        "ftp://host",
        "http://",
        "",
        "http://host:8470/api",
        "http://host?x=1",
        "http://host:eighty",
        "host:99999",
    ],
)
def test_an_endpoint_is_scheme_host_and_port(text):
    with pytest.raises(Invalid, match="is not an endpoint"):
        Client(text, KEY)


def test_the_scheme_may_be_left_out():
    assert Client("gpu-box:8470", KEY).endpoint == "http://gpu-box:8470"


def test_no_service_there():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with pytest.raises(Unreachable, match=r"connection refused.*start the service with `turnout serve`"):
        Client(f"http://127.0.0.1:{port}", KEY).call("ListJobs", {})


def test_https_where_plain_http_is_spoken(recorder):
    endpoint = recorder.endpoint.replace("http", "https")
    with pytest.raises(Unreachable, match=f"{endpoint} speaks plain http: use {recorder.endpoint} with"):
        Client(endpoint, KEY).call("ListJobs", {})


def test_something_else_is_there(recorder):
    recorder.answers["whoami"] = b"<html>"
    with pytest.raises(Rejected, match="not as a Turnout service does"):
        Client(recorder.endpoint, KEY).get("whoami")


def test_an_error_of_the_native_api(recorder):
    recorder.answers["jobs/nothing"] = {"error": {"code": "NotFound", "message": "there is no job nothing"}}
    with pytest.raises(Rejected, match=r"there is no job nothing$"):
        Client(recorder.endpoint, KEY).get("jobs", "nothing")


def test_a_wrong_key_is_told_how_to_give_the_right_one(recorder):
    error = {"Code": "AuthFailure.SecretIdNotFound", "Message": "no such key"}
    recorder.answers["ListJobs"] = {"Error": error, "RequestId": "x"}
    with pytest.raises(Rejected, match=r"no such key, or a wrong secret \(.*\); give .* `tictl login --si"):
        Client(recorder.endpoint, KEY).call("ListJobs", {})
    with pytest.raises(Rejected, match=r"the service wants a key, and none is given .*tictl login --si"):
        Client(recorder.endpoint, client.NOBODY).call("ListJobs", {})


def test_a_log_that_breaks_off_goes_on_where_it_was(monkeypatch):
    """The first connection breaks in the middle of an event, the second before any, the third tells the rest."""
    monkeypatch.setattr(client.time, "sleep", lambda _: None)
    first = [event("a", ["one", "two"]), event("b", ["three"])[:-9]]
    server = Script([first, [], [event("b", ["three"]), b"event: end\ndata: {}\n\n"]])
    lines = [line["text"] for batch in Client(server.endpoint, KEY).follow("7") for line in batch]
    assert lines == ["one", "two", "three"]
    asked = "/turnout/v1/jobs/7/logs?follow=true"
    assert server.close() == [asked, f"{asked}&from=a", f"{asked}&from=a"]


def test_a_service_that_is_away_for_more_than_a_moment_is_told_of_once(monkeypatch):
    monkeypatch.setattr(client.time, "sleep", lambda _: None)
    monkeypatch.setattr(client, "RESTART_SECONDS", 0)
    server = Script([[], [], [event("a", ["one"]), b"event: end\ndata: {}\n\n"]])
    one = Client(server.endpoint, KEY)
    told = []
    one.tell = told.append
    assert len(list(one.follow("7"))) == 1
    server.close()
    assert told == ["the service does not answer, waiting for it (60 s)"]


def test_a_service_that_stays_away_is_given_up(monkeypatch):
    monkeypatch.setattr(client.time, "sleep", lambda _: None)
    monkeypatch.setattr(client, "PATIENCE_SECONDS", 0)
    server = Script([[event("a", ["one"])]])
    batches = Client(server.endpoint, KEY).follow("7")
    assert next(batches)
    server.close()
    with pytest.raises(Unreachable):
        next(batches)


def event(cursor, texts):
    lines = [{"at": 1, "replica": "master-0", "stream": "stdout", "text": text} for text in texts]
    return f"id: {cursor}\ndata: {json.dumps(lines)}\n\n".encode()


class Script:
    """Plays one list of chunks on each connection, then breaks it off."""

    def __init__(self, connections):
        self._server = socket.create_server(("127.0.0.1", 0))
        self._asked = []
        self._player = threading.Thread(target=self._play, args=(connections,))
        self._player.start()
        self.endpoint = f"http://127.0.0.1:{self._server.getsockname()[1]}"

    def close(self):
        """Returns what was asked."""
        self._player.join()
        return self._asked

    def _play(self, connections):
        with self._server:
            for chunks in connections:
                peer, _ = self._server.accept()
                with peer:
                    request = b""
                    while b"\r\n\r\n" not in request:
                        request += peer.recv(4096)
                    self._asked.append(request.split()[1].decode())
                    peer.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                    for chunk in chunks:
                        peer.sendall(b"%x\r\n%s\r\n" % (len(chunk), chunk))
