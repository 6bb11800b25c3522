"""Signatures, tokens, and a service that is unreachable or breaks the connection."""

import contextlib
import json
import socket
import ssl
import threading

import pytest

from tests.certificates import make_certificate
from turnout.cli import client
from turnout.cli.client import Client, Credentials, EndpointUnreachable, Rejected, sign, token
from turnout.errors import Invalid, Misconfigured

KEY = Credentials("AKIDEXAMPLE0000", "SECRETKEYEXAMPLE")


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
def test_a_key_is_an_id_and_a_secret(text):
    with pytest.raises(Misconfigured, match="TURNOUT_KEY must be <id>:<secret>"):
        Credentials.parse(text, "TURNOUT_KEY")


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


def test_no_service_at_the_endpoint():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with pytest.raises(
        EndpointUnreachable, match=r"connection refused.*start the service with `turnout serve`"
    ):
        Client(f"http://127.0.0.1:{port}", KEY).call("ListJobs", {})


def test_https_to_a_service_without_tls(recorder):
    endpoint = recorder.endpoint.replace("http", "https")
    with pytest.raises(
        EndpointUnreachable, match=f"{endpoint} speaks plain http: use {recorder.endpoint} with"
    ):
        Client(endpoint, KEY).call("ListJobs", {})


def test_a_certificate_that_nobody_here_knows(tmp_path):
    certificate = make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.cert, certificate.key)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def greet() -> None:
            connection, _ = listening.accept()
            with connection, contextlib.suppress(OSError):
                context.wrap_socket(connection, server_side=True).close()

        serving = threading.Thread(target=greet)
        serving.start()
        endpoint = f"https://127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(
            EndpointUnreachable, match=rf"the certificate of {endpoint} cannot be trusted \("
        ) as raised:
            Client(endpoint, KEY).call("ListJobs", {})
        serving.join()
    assert "SSL_CERT_FILE=<file.pem>" in raised.value.message
    assert "turnout serve" not in raised.value.message


def test_another_program_at_the_endpoint(recorder):
    recorder.answers["whoami"] = b"<html>"
    with pytest.raises(Rejected, match="is not a Turnout service"):
        Client(recorder.endpoint, KEY).get("whoami")


def test_an_error_of_the_native_api(recorder):
    recorder.answers["jobs/nothing"] = {"error": {"code": "NotFound", "message": "there is no job nothing"}}
    with pytest.raises(Rejected, match=r"there is no job nothing$"):
        Client(recorder.endpoint, KEY).get("jobs", "nothing")


def test_an_error_about_a_wrong_key_says_how_to_give_a_key(recorder):
    error = {"Code": "AuthFailure.SecretIdNotFound", "Message": "no such key"}
    recorder.answers["ListJobs"] = {"Error": error, "RequestId": "x"}
    with pytest.raises(
        Rejected, match=r"no such key, or a wrong secret \(.*\); give a key with `tictl login --si"
    ):
        Client(recorder.endpoint, KEY).call("ListJobs", {})
    with pytest.raises(Rejected, match=r"the service needs a key, and none was given .*tictl login --si"):
        Client(recorder.endpoint, client.ANONYMOUS).call("ListJobs", {})


def test_a_followed_log_resumes_after_a_broken_connection(monkeypatch):
    """The first connection breaks in the middle of an event, the second before any; the third sends the rest."""
    monkeypatch.setattr(client.time, "sleep", lambda _: None)
    first = [event("a", ["one", "two"]), event("b", ["three"])[:-9]]
    server = Script([first, [], [event("b", ["three"]), b"event: end\ndata: {}\n\n"]])
    lines = [line["text"] for batch in Client(server.endpoint, KEY).follow("7") for line in batch]
    assert lines == ["one", "two", "three"]
    asked = "/turnout/v1/jobs/7/logs?follow=true"
    assert server.close() == [asked, f"{asked}&from=a", f"{asked}&from=a"]


def test_an_absence_of_the_service_is_reported_once(monkeypatch):
    monkeypatch.setattr(client.time, "sleep", lambda _: None)
    monkeypatch.setattr(client, "RESTART_SECONDS", 0)
    server = Script([[], [], [event("a", ["one"]), b"event: end\ndata: {}\n\n"]])
    one = Client(server.endpoint, KEY)
    told = []
    one.notify = told.append
    assert len(list(one.follow("7"))) == 1
    server.close()
    assert told == ["the service does not answer; waiting up to 60 s for it"]


def test_a_service_that_stays_away_is_an_error(monkeypatch):
    monkeypatch.setattr(client.time, "sleep", lambda _: None)
    monkeypatch.setattr(client, "RETRY_SECONDS", 0)
    server = Script([[event("a", ["one"])]])
    batches = Client(server.endpoint, KEY).follow("7")
    assert next(batches)
    server.close()
    with pytest.raises(EndpointUnreachable):
        next(batches)


def event(cursor, texts):
    lines = [{"at": 1, "replica": "master-0", "stream": "stdout", "text": text} for text in texts]
    return f"id: {cursor}\ndata: {json.dumps(lines)}\n\n".encode()


class Script:
    """Sends one list of chunks on each connection, then closes it."""

    def __init__(self, connections):
        self._server = socket.create_server(("127.0.0.1", 0))
        self._asked = []
        self._player = threading.Thread(target=self._play, args=(connections,))
        self._player.start()
        self.endpoint = f"http://127.0.0.1:{self._server.getsockname()[1]}"

    def close(self):
        """Returns the request."""
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
