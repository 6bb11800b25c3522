"""V2-signed URLs, which google-cloud-storage makes unless it is told otherwise."""

import base64
import datetime
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateways.gcs.test_signed import HOUR, account, changed, client, code
from tests.running import Service

__all__ = ["account", "client"]

MISMATCH = (403, "SignatureDoesNotMatch")
Sign = Callable[..., str]


@pytest.fixture
def sign(client: Any) -> Sign:
    def make(name: str = "a", bucket: str = "of-p1", **options: Any) -> str:
        url = client.bucket(bucket).blob(name).generate_signed_url(**{"expiration": HOUR} | options)
        assert "GoogleAccessId=" in url
        return url

    return make


def test_put_get_and_delete(sign: Sign, client: Any):
    name = "dir/ü +&?%~.txt"
    typed = {"Content-Type": "text/csv"}
    put = httpx.put(sign(name, method="PUT", content_type="text/csv"), content=b"hi", headers=typed)
    assert put.status_code == 200, put.text
    assert client.bucket("of-p1").get_blob(name).content_type == "text/csv"
    url = sign(name, response_type="text/html", response_disposition="inline")
    answer = httpx.get(url, headers={"Range": "bytes=1-"})
    assert (answer.content, answer.headers["content-type"]) == (b"i", "text/html")
    assert httpx.head(sign(name, method="HEAD")).headers["content-length"] == "2"
    assert httpx.delete(sign(name, method="DELETE")).status_code == 204
    assert code(httpx.get(url)) == (404, "NoSuchKey")


def test_a_session(sign: Sign, client: Any):
    headers = {"x-goog-resumable": "start", "x-goog-content-length-range": "2,5"}
    url = sign("session", method="RESUMABLE", headers={"x-goog-content-length-range": "2,5"})
    place = httpx.post(url, headers=headers).headers["location"]
    assert httpx.put(place, content=b"x" * 6).status_code == 413
    assert httpx.put(place, content=b"whole").status_code == 200
    assert client.bucket("of-p1").blob("session").download_as_bytes() == b"whole"


def test_the_body_that_the_signer_chose(sign: Sign):
    md5 = base64.b64encode(hashlib.md5(b"right").digest()).decode()
    digest = {"x-goog-content-sha256": hashlib.sha256(b"right").hexdigest()}
    for options, headers in (
        ({"content_md5": md5}, {"Content-MD5": md5}),
        ({"headers": dict(digest)}, digest),
    ):
        url = sign("digest", method="PUT", **options)
        assert httpx.put(url, content=b"wrong", headers=headers).status_code == 400
        assert code(httpx.put(url, content=b"wrong")) == MISMATCH
        assert httpx.put(url, content=b"right", headers=headers).status_code == 200


def test_nothing_else_than_what_was_signed(sign: Sign):
    httpx.put(sign(method="PUT"), content=b"x")
    url = sign()
    assert httpx.get(sign(query_parameters={"Trace": " me "})).status_code == 200
    for wrong in (
        url.replace("/a?", "/b?"),
        url.replace("/of-p1/", "/of-p2/"),
        changed(url, Expires=str(int(url.partition("Expires=")[2].partition("&")[0]) + 1)),
        changed(url, Signature=base64.b64encode(bytes(256)).decode()),
        changed(url, Signature="no base64"),
        changed(url, Signature="é"),
        changed(url, more="x"),
        f"{url}&more=%FF",
    ):
        assert code(httpx.get(wrong)) == MISMATCH
    assert code(httpx.delete(url)) == code(httpx.put(url, content=b"")) == MISMATCH
    assert code(httpx.get(url, headers={"x-goog-if-generation-match": "1"})) == MISMATCH
    assert code(httpx.get(url, headers={"Content-Type": "a/b"})) == MISMATCH


def test_who_and_how_long(sign: Sign, service: Service):
    assert code(httpx.get(changed(sign(), GoogleAccessId="nobody@p1.example"))) == (403, "InvalidSecurity")
    past, far = -HOUR, datetime.timedelta(days=8)
    assert code(httpx.get(sign(expiration=past))) == (400, "ExpiredToken")
    assert code(httpx.get(sign(expiration=far))) == (400, "InvalidQueryParameterValue")
    for query in (
        "GoogleAccessId=x",
        "GoogleAccessId=x&Expires=soon&Signature=y",
        "GoogleAccessId=x&Expires=1",
    ):
        answer = httpx.get(f"{service.endpoint}/b/a?{query}")
        assert code(answer) == (400, "InvalidQueryParameterValue")


def test_projects_stay_apart(sign: Sign, service: Service):
    owners: Path = service.data / "buckets" / ".owners"
    owners.mkdir(parents=True, exist_ok=True)
    (owners / "of-another").write_text("another")
    assert code(httpx.put(sign(bucket="of-another", method="PUT"), content=b"x")) == (403, "AccessDenied")
