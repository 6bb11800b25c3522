"""Connections that break, requests that lie, and what is left of them: nothing."""

import http.client
import socket
import time
from collections.abc import Callable, Iterator

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from tests.gateways.s3.conftest import ROOT, Gateway, open_gateway
from turnout.gateways.s3 import call


def signed(
    gateway: Gateway, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
) -> dict[str, str]:
    request = AWSRequest(method, gateway.url + path, headers or {}, data=body)
    S3SigV4Auth(Credentials(ROOT.id, ROOT.secret), "s3", "us-east-1").add_auth(request)
    return dict(request.headers.items())


def ask(
    gateway: Gateway, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=30)
    try:
        connection.request(
            method, path, body, headers if headers is not None else signed(gateway, method, path, body)
        )
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.fixture(scope="module")
def unlocked() -> Iterator[Gateway]:
    """Takes unsigned requests: what no client would sign gets past the signature."""
    with open_gateway(no_auth=True) as one:
        one.client().put_object(Bucket="b", Key="a", Body=b"x")
        yield one


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("path", ["/cut/whole", "/cut/part?partNumber=1&uploadId="])
def test_a_put_that_is_cut_off_leaves_nothing(gateway: Gateway, path: str):
    upload = ""
    if path.endswith("="):
        upload = gateway.client().create_multipart_upload(Bucket="cut", Key="part")["UploadId"]
    before = set(gateway.leftovers())
    body = b"x" * 5_000_000
    headers = signed(gateway, "PUT", path + upload, body)
    with socket.create_connection(("127.0.0.1", gateway.port)) as connection:
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        request = f"PUT {path}{upload} HTTP/1.1\r\nHost: 127.0.0.1:{gateway.port}\r\n{head}"
        connection.sendall(f"{request}Content-Length: {len(body)}\r\n\r\n".encode() + body[:4_000_000])
        if not upload:
            eventually(lambda: set(gateway.leftovers()) != before)
    eventually(lambda: set(gateway.leftovers()) == before)
    assert not (gateway.buckets / "cut/whole").exists()
    if upload:
        parts = gateway.buckets / ".uploads" / f"s3-{upload}"
        eventually(lambda: [path.name for path in parts.iterdir()] == ["about"])


def test_a_get_that_is_broken_off_hurts_nobody(gateway: Gateway):
    gateway.client().put_object(Bucket="b", Key="big", Body=b"x" * 30_000_000)
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", gateway.port)) as connection:
            head = "".join(f"{name}: {value}\r\n" for name, value in signed(gateway, "GET", "/b/big").items())
            connection.sendall(
                f"GET /b/big HTTP/1.1\r\nHost: 127.0.0.1:{gateway.port}\r\n{head}\r\n".encode()
            )
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")
    assert ask(gateway, "GET", "/b/big")[0] == 200


def test_a_body_that_is_not_the_one_that_was_signed(gateway: Gateway):
    headers = signed(gateway, "PUT", "/b/other", b"one thing")
    status, text = ask(gateway, "PUT", "/b/other", b"the other", headers)
    assert status == 400
    assert b"XAmzContentSHA256Mismatch" in text
    assert not (gateway.buckets / "b/other").exists()


def test_headers_that_were_not_signed(gateway: Gateway):
    headers = signed(gateway, "PUT", "/b/a", b"x") | {"x-amz-meta-more": "smuggled"}
    status, text = ask(gateway, "PUT", "/b/a", b"x", headers)
    assert status == 403
    assert b"x-amz-meta-more" in text


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/b/%2e%2e/%2e%2e/etc/passwd", b"InvalidArgument"),
        ("/b/..%2f..%2fetc", b"InvalidArgument"),
        ("/.uploads/x", b"InvalidBucketName"),
        ("/../x", b"InvalidBucketName"),
        ("/b/%ff%fe", b"InvalidArgument"),
        ("/b/a%00b", b"InvalidArgument"),
        ("/b/a%0d%0aX:y", b"InvalidArgument"),
        ("/b/k?uploadId=..%2f..", b"NoSuchUpload"),
        ("/b?list-type=2&continuation-token=%21", b"InvalidArgument"),
        ("/b?max-keys=-1", b"InvalidArgument"),
        ("/B_ad/", b"InvalidBucketName"),
    ],
)
def test_paths_that_lead_elsewhere(unlocked: Gateway, path: str, code: bytes):
    status, text = ask(unlocked, "GET", path, headers={})
    assert code in text
    assert 400 <= status < 500


def test_a_continuation_token_is_taken_as_it_was_given_only(gateway: Gateway):
    client = gateway.client()
    for key in ("pages/a", "pages/b"):
        client.put_object(Bucket="b", Key=key, Body=b"x")
    first = client.list_objects_v2(Bucket="b", Prefix="pages/", MaxKeys=1)
    token = first["NextContinuationToken"]
    second = client.list_objects_v2(Bucket="b", Prefix="pages/", MaxKeys=1, ContinuationToken=token)
    assert [one["Key"] for one in second["Contents"]] == ["pages/b"]
    for wrong in (token + ".x", token + "=", token + "\n", "x" + token, token[:-1], "é"):
        with pytest.raises(ClientError) as refused:
            client.list_objects_v2(Bucket="b", Prefix="pages/", ContinuationToken=wrong)
        assert refused.value.response["Error"]["Code"] == "InvalidArgument", wrong


def test_a_header_cannot_be_made_by_a_parameter(unlocked: Gateway):
    path = "/b/a?response-content-type=a%0d%0aEvil%3A%201"
    status, text = ask(unlocked, "GET", path, headers={})
    assert status == 400
    assert b"InvalidArgument" in text


BOMB = b"""<?xml version="1.0"?><!DOCTYPE d [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;"><!ENTITY f SYSTEM
"file:///etc/passwd">]><Delete><Object><Key>&b;&f;</Key></Object></Delete>"""


@pytest.mark.parametrize(
    "document",
    [
        BOMB,
        BOMB.decode().encode("utf-16"),
        b"",
        b"<Delete>",
        b"<Delete/>",
        b"\xff\xfe",
        b"<?xml version='1.0' encoding='x'?><a/>",
    ],
)
def test_documents_that_are_none(gateway: Gateway, document: bytes):
    status, text = ask(gateway, "POST", "/b?delete=", document)
    assert status == 400
    assert b"MalformedXML" in text


def test_a_document_without_end_is_not_kept(gateway: Gateway):
    status, text = ask(gateway, "POST", "/b?delete=", b"<Delete>" + b" " * 5_000_000)
    assert status == 400
    assert b"EntityTooLarge" in text


def test_more_than_one_put_may_have(unlocked: Gateway):
    connection = http.client.HTTPConnection("127.0.0.1", unlocked.port, timeout=30)
    connection.putrequest("PUT", "/b/huge")
    connection.putheader("Content-Length", str((5 << 30) + 1))
    connection.endheaders()
    assert b"EntityTooLarge" in connection.getresponse().read()
    connection.close()


def test_errors_are_documents_of_their_own(gateway: Gateway):
    _, text = ask(gateway, "GET", "/b/no%3C%26%3Esuch")
    assert text.startswith(b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>NoSuchKey</Code>')
    assert b"<Resource>/b/no&lt;&amp;&gt;such</Resource>" in text


def test_what_takes_long_is_kept_company_with_blanks(gateway: Gateway, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(call, "_KEEP_ALIVE", 0.0001)
    s3 = gateway.client()
    s3.put_object(Bucket="b", Key="slow", Body=b"x" * 20_000_000)
    _, text = ask(
        gateway,
        "PUT",
        "/b/copied",
        headers=signed(gateway, "PUT", "/b/copied", b"", {"x-amz-copy-source": "b/slow"}),
    )
    assert text.startswith(b'<?xml version="1.0" encoding="UTF-8"?>\n ')
    assert s3.head_object(Bucket="b", Key="copied")["ContentLength"] == 20_000_000


def test_what_fails_late_fails_all_the_same(gateway: Gateway, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(call, "_KEEP_ALIVE", 0.0001)
    s3 = gateway.client()
    s3.put_object(Bucket="b", Key="slow", Body=b"x" * 20_000_000)
    s3.put_object(Bucket="b", Key="way", Body=b"x")
    with pytest.raises(ClientError, match="InvalidArgument"):
        s3.copy_object(Bucket="b", Key="way/copied", CopySource="b/slow")
