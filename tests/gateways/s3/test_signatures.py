"""Signatures that other clients than today's boto3 make: version 2 in URLs, and Date in place of x-amz-date."""

import time
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import parse_qsl, quote, unquote_to_bytes, urlencode, urlsplit

import botocore.auth
import httpx
import pytest
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from tests.gateways.s3.conftest import OTHER, ROOT, Gateway
from turnout.access import sigv2


def send(url: str, method: str = "GET", body: Any = None, **headers: str) -> tuple[int, bytes]:
    request = urllib.request.Request(
        url, body, {k.replace("_", "-"): v for k, v in headers.items()}, method=method
    )
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def presigned(gateway: Gateway, operation: str, seconds: int = 60, **params: Any) -> str:
    client = gateway.client(signature_version="s3")
    url = client.generate_presigned_url(operation, Params={"Bucket": "v2", **params}, ExpiresIn=seconds)
    assert "AWSAccessKeyId=" in url
    return url


def changed(url: str, **values: str) -> str:
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query)) | values
    return parts._replace(query=urlencode(query, errors="surrogateescape")).geturl()


class TestVersion2:
    def test_put_get_and_delete(self, gateway: Gateway):
        place: Any = {"Key": "a/ü +&?%.txt"}
        assert send(presigned(gateway, "put_object", **place), "PUT", b"hello", Content_Type="")[0] == 200
        assert send(presigned(gateway, "get_object", **place)) == (200, b"hello")
        assert send(presigned(gateway, "head_object", **place), "HEAD") == (200, b"")
        assert send(presigned(gateway, "delete_object", **place), "DELETE")[0] == 204
        assert send(presigned(gateway, "get_object", **place))[0] == 404

    def test_what_the_signer_chose(self, gateway: Gateway):
        url = presigned(gateway, "put_object", Key="typed", ContentType="text/csv", Metadata={"owner": "me"})
        assert send(url, "PUT", b"x", Content_Type="text/csv")[0] == 200
        found = gateway.client().head_object(Bucket="v2", Key="typed")
        assert (found["ContentType"], found["Metadata"]) == ("text/csv", {"owner": "me"})
        assert send(url, "PUT", b"x", Content_Type="text/html")[0] == 403
        url = presigned(gateway, "get_object", Key="typed", ResponseContentType="a/b")
        with urllib.request.urlopen(url) as answer:
            assert answer.headers["content-type"] == "a/b"
        assert send(changed(url, **{"response-content-type": "text/html"}))[0] == 403

    def test_lists(self, gateway: Gateway):
        gateway.client().put_object(Bucket="v2", Key="listed")
        status, text = send(presigned(gateway, "list_objects_v2", Prefix="list"))
        assert (status, b"<Key>listed</Key>" in text) == (200, True)

    def test_nothing_else_than_what_was_signed(self, gateway: Gateway):
        gateway.client().put_object(Bucket="v2", Key="secret", Body=b"x")
        url = presigned(gateway, "get_object", Key="secret")
        for wrong in (
            url.replace("/secret", "/other"),
            changed(url, Expires=str(int(time.time()) + 600)),
            changed(url, Signature="AAAA"),
            changed(url, uploadId="x"),
            changed(url, AWSAccessKeyId=OTHER.id),
        ):
            status, text = send(wrong)
            assert (status, b"SignatureDoesNotMatch" in text) == (403, True), text
        assert send(url, "DELETE")[0] == send(url, "PUT", b"")[0] == 403
        assert send(url, x_amz_copy_source="/v2/other")[0] == 403
        assert b"InvalidAccessKeyId" in send(changed(url, AWSAccessKeyId="nobody"))[1]

    def test_projects_stay_apart(self, gateway: Gateway):
        gateway.client(OTHER).put_object(Bucket="of-other", Key="a", Body=b"x")
        client = gateway.client(ROOT, signature_version="s3")
        url = client.generate_presigned_url("get_object", Params={"Bucket": "of-other", "Key": "a"})
        assert send(url)[0] == 403

    def test_it_ends(self, gateway: Gateway, monkeypatch: pytest.MonkeyPatch):
        gateway.client().put_object(Bucket="v2", Key="ending", Body=b"x")
        url = presigned(gateway, "get_object", Key="ending", seconds=60)
        monkeypatch.setattr(gateway, "clock", lambda: time.time() + 61)
        status, text = send(url)
        assert (status, b"Request has expired" in text) == (403, True)

    def test_it_lasts_a_week_at_most(self, gateway: Gateway):
        gateway.client().put_object(Bucket="v2", Key="lasting", Body=b"x")
        assert send(presigned(gateway, "get_object", Key="lasting", seconds=7 * 86400))[0] == 200
        status, text = send(presigned(gateway, "get_object", Key="lasting", seconds=8 * 86400))
        assert (status, b"AuthorizationQueryParametersError" in text) == (400, True)

    @pytest.mark.parametrize(
        "wrong",
        [{"Expires": ""}, {"Expires": "1e9"}, {"Expires": "9" * 30}, {"Signature": ""}, {"Signature": "ü"}],
    )
    def test_what_cannot_be_read(self, gateway: Gateway, wrong: dict[str, str]):
        status, text = send(changed(presigned(gateway, "get_object", Key="a"), **wrong))
        assert (status, b"AuthorizationQueryParametersError" in text) == (400, True)

    @pytest.mark.parametrize(
        "more", ["x-amz-meta-a=%FF", "content-type=%FF", "content-md5=%FF", "content-md5=x", "x-amz-acl=%0A"]
    )
    def test_bytes_that_are_no_text(self, gateway: Gateway, more: str):
        """Signed by somebody who has a key, so that only the value can be wrong."""
        expires = str(int(time.time()) + 60)
        query = f"AWSAccessKeyId={ROOT.id}&Expires={expires}&{more}"
        name, _, value = (
            unquote_to_bytes(one).decode("utf-8", "surrogateescape") for one in more.partition("=")
        )
        given = {name: value}
        extension = f"{name}:{value.strip()}\n" if name.startswith("x-amz-") else ""
        text = f"PUT\n{given.get('content-md5', '')}\n{given.get('content-type', '')}\n{expires}\n{extension}/v2/odd"
        url = f"{gateway.url}/v2/odd?{query}&{urlencode({'Signature': sigv2.sign(ROOT, text)})}"
        with httpx.Client() as client:
            status = client.put(url, content=b"x").status_code
        assert status == (200 if name == "x-amz-acl" else 400)
        for wrong in (changed(url, AWSAccessKeyId="\udcff"), changed(url, Signature="x")):
            assert send(wrong, "PUT", b"x", Content_Type="")[0] in (400, 403)

    def test_in_a_header(self, gateway: Gateway, monkeypatch: pytest.MonkeyPatch):
        client = gateway.client(signature_version="s3")
        client.put_object(Bucket="v2", Key="ü/header", Body=b"x", Metadata={"a": "b"})
        assert client.list_objects(Bucket="v2", Prefix="ü")["Contents"][0]["Key"] == "ü/header"
        wrong = gateway.client(secret="wrong", signature_version="s3")
        with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
            wrong.list_objects(Bucket="v2")
        for authorization in ("AWS AKIDtest:c2ln", "AWS x", "AWS :", "OBS AKIDtest:c2ln", "OBS"):
            assert send(gateway.url + "/v2/a", Authorization=authorization)[0] in (400, 403)
        monkeypatch.setattr(gateway, "clock", lambda: time.time() + 901)
        with pytest.raises(ClientError, match="RequestTimeTooSkewed"):
            client.list_objects(Bucket="v2")


class TestDate:
    def signed(self, gateway: Gateway, key: str, date: str = "", method: str = "GET") -> tuple[int, bytes]:
        """As botocore signs a request that has a Date."""
        url = f"{gateway.url}/dated/{quote(key)}"
        request = AWSRequest(method, url, headers={"Date": "now"})
        botocore.auth.S3SigV4Auth(Credentials(ROOT.id, ROOT.secret), "s3", "us-east-1").add_auth(request)
        headers = dict(request.headers.items())
        assert "X-Amz-Date" not in headers
        return send(url, method, **(headers | ({"Date": date} if date else {})))

    def test_in_place_of_x_amz_date(self, gateway: Gateway):
        gateway.client().put_object(Bucket="dated", Key="a", Body=b"x")
        assert self.signed(gateway, "a") == (200, b"x")
        assert self.signed(gateway, "none")[0] == 404

    def test_is_checked(self, gateway: Gateway, monkeypatch: pytest.MonkeyPatch):
        assert b"RequestTimeTooSkewed" in self.signed(gateway, "a", "Mon, 01 Jan 2024 00:00:00 GMT")[1]
        for wrong in ("yesterday", "Mon, 99 Jan 99999 00:00:00 GMT", "Fri, 31 Feb 2025 00:00:00 GMT"):
            assert self.signed(gateway, "a", wrong)[0] == 403
        monkeypatch.setattr(gateway, "clock", lambda: time.time() + 901)
        assert b"RequestTimeTooSkewed" in self.signed(gateway, "a")[1]
